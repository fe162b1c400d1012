//! One turn: a user's message is answered by model calls and tool runs until the model is done.
//!
//! `state` decides and does nothing; `driver` does what it decides and feeds the answers back;
//! `calls` is one tool call from its arguments to its result, `live` what is shown of it between. Beside replies,
//! `driver/compact` has a long history summarised and `title` has the session named, both through `side`.

pub(crate) mod calls;
pub(crate) mod driver;
mod live;
mod side;
pub mod state;
mod title;

use std::time::Duration;

/// What a turn may use.
#[derive(Debug, Clone)]
pub struct TurnLimits {
    /// Most model calls of one turn; the last one is made without tools.
    pub rounds: u32,
    /// Estimated tokens of a request beyond which the older part of the history is summarised.
    pub compact_at: u64,
    /// How long a tool may run that has no limit of its own.
    pub tool: Duration,
    /// Most characters of a tool's output that are stored, shown and sent to the model.
    pub result_chars: usize,
    /// How long a call waits for a person while nobody is connected.
    pub unattended_approval: Duration,
    /// How long a call waits for a person who is connected; `None`: as long as it takes.
    pub approval: Option<Duration>,
}

impl Default for TurnLimits {
    fn default() -> Self {
        Self {
            rounds: 50,
            compact_at: 100_000,
            tool: Duration::from_secs(30),
            result_chars: 20_000,
            unattended_approval: Duration::from_secs(120),
            approval: None,
        }
    }
}
