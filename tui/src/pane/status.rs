//! The last row: what runs, how freely, on which engine, at what price, and whether the server is there.
//! It shows facts that the server stated; it sums the usage of each ended turn once.

use std::collections::BTreeSet;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use tns_protocol::approval::AutonomyLevel;
use tns_protocol::chat::Usage;
use tns_protocol::{AgentId, Seq, ToolCallId};

use crate::sanitize;
use crate::text;
use crate::theme::{Role, Theme};

/// What stands between two parts of the row.
const SEPARATOR: &str = " · ";

/// Whether the server is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Connection {
    /// It is.
    Up,
    /// It is not; the next attempt begins at this time of the screen's clock.
    Lost {
        /// What happened.
        reason: String,
        /// When the next attempt begins.
        retry_at: Duration,
    },
}

/// The status line's state.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) connection: Connection,
    pub(crate) autonomy: Option<AutonomyLevel>,
    /// `provider/model` of the agent that answers; clean.
    engine: String,
    session: String,
    /// What the session is called; clean.
    title: Option<String>,
    thinking: BTreeSet<AgentId>,
    /// The server said that a turn runs, but not whose.
    running: bool,
    tools: Vec<(ToolCallId, String, Duration)>,
    usage: Usage,
    counted: Seq,
}

impl Status {
    /// Makes the status of a session that nothing is known of yet.
    pub(crate) fn new(session: &str, provider: &str, model: &str) -> Self {
        let mut status = Self {
            connection: Connection::Up,
            autonomy: None,
            engine: String::new(),
            session: sanitize::line(session),
            title: None,
            thinking: BTreeSet::new(),
            running: false,
            tools: Vec::new(),
            usage: Usage::default(),
            counted: 0,
        };
        status.set_engine(provider, model);
        status
    }

    /// Names the engine that answers.
    pub(crate) fn set_engine(&mut self, provider: &str, model: &str) {
        self.engine = sanitize::line(&format!("{provider}/{model}"));
    }

    /// Says what the session is called.
    pub(crate) fn set_title(&mut self, title: Option<&str>) {
        self.title = title.map(sanitize::line);
    }

    /// Counts the turns anew.
    pub(crate) fn forget_usage(&mut self) {
        self.usage = Usage::default();
        self.counted = 0;
    }

    /// Whether a turn runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.running || !self.thinking.is_empty()
    }

    /// An agent began to work on a reply.
    pub(crate) fn begin(&mut self, agent: &AgentId) {
        self.thinking.insert(agent.clone());
    }

    /// An agent waits for a message.
    pub(crate) fn rest(&mut self, agent: &AgentId) {
        self.thinking.remove(agent);
        self.running = false;
    }

    /// States whether a turn runs, as the server tells it on request.
    pub(crate) fn set_running(&mut self, running: bool) {
        self.running = running;
        if !running {
            self.thinking.clear();
            self.tools.clear();
        }
    }

    /// A tool call runs.
    pub(crate) fn tool_began(&mut self, id: &ToolCallId, tool: &str, now: Duration) {
        self.tool_ended(id);
        self.tools.push((id.clone(), sanitize::line(tool), now));
    }

    /// A tool call ended.
    pub(crate) fn tool_ended(&mut self, id: &ToolCallId) {
        self.tools.retain(|(of, _, _)| of != id);
    }

    /// A turn ended at `seq`; it is counted once, however often it is told.
    pub(crate) fn count(&mut self, seq: Option<Seq>, usage: &Usage) {
        if seq.is_some_and(|seq| seq <= self.counted) {
            return;
        }
        self.counted = seq.unwrap_or(self.counted);
        self.usage.tokens = self.usage.tokens.saturating_add(usage.tokens);
        self.usage.cost += usage.cost;
        self.usage.unpriced |= usage.unpriced;
    }

    /// When the look changes by itself, if it will: seconds are counted for running tools and lost connections.
    pub(crate) fn next_change(&self, now: Duration) -> Option<Duration> {
        let next_second =
            |since: Duration| since + Duration::from_secs(now.saturating_sub(since).as_secs() + 1);
        let tool = self.tools.first().map(|(_, _, since)| next_second(*since));
        let retry = match &self.connection {
            Connection::Lost { retry_at, .. } if *retry_at > now => {
                let left = (*retry_at - now).as_nanos() % 1_000_000_000;
                Some(now + Duration::from_nanos(u64::try_from(left).unwrap_or(0).max(1_000_000)))
            }
            Connection::Lost { .. } | Connection::Up => None,
        };
        tool.into_iter().chain(retry).min()
    }

    /// Returns the row that stands above the composer while the server is not there.
    pub(crate) fn banner(&self, now: Duration) -> Option<String> {
        let Connection::Lost { reason, retry_at } = &self.connection else { return None };
        let left = retry_at.saturating_sub(now).as_millis().div_ceil(1_000);
        // The row says already what failed; the address behind these words must stay in view.
        let told = ["reach the server: ", "understand the server: "];
        let reason = told.iter().find_map(|words| reason.strip_prefix(words)).unwrap_or(reason);
        let reason = sanitize::line(reason);
        Some(match left {
            0 => format!("! not connected, trying now: {reason}"),
            _ => format!("! not connected, again in {left} s: {reason}"),
        })
    }

    fn doing(&self, waiting: usize, now: Duration) -> (String, Role) {
        if waiting > 0 {
            return ("waits for you".into(), Role::Warn);
        }
        match self.tools.as_slice() {
            [] if self.is_busy() => ("thinking".into(), Role::Good),
            [] => ("idle".into(), Role::Faint),
            [(_, tool, since)] => {
                (format!("runs {tool} {} s", now.saturating_sub(*since).as_secs()), Role::Good)
            }
            many => (format!("runs {} tools", many.len()), Role::Good),
        }
    }

    /// Draws the row; what matters least gives way first.
    pub(crate) fn view(&self, area: Rect, buffer: &mut Buffer, theme: Theme, waiting: usize, now: Duration) {
        let (doing, doing_role) = self.doing(waiting, now);
        let autonomy_role = match self.autonomy {
            Some(AutonomyLevel::FullAuto) => Role::Bad,
            Some(AutonomyLevel::Supervised) => Role::Good,
            Some(AutonomyLevel::Cautious | AutonomyLevel::Manual) | None => Role::Text,
        };
        let autonomy = self.autonomy.map_or("", AutonomyLevel::as_str);
        let connection = match self.connection {
            Connection::Up => ("connected", Role::Faint),
            Connection::Lost { .. } => ("offline", Role::Bad),
        };
        // In the order of the row; the number says what stays when there is little room.
        let parts = [
            (0, doing, doing_role),
            (2, autonomy.to_owned(), autonomy_role),
            (3, self.engine.clone(), Role::Text),
            (4, spent(&self.usage), Role::Text),
            (5, self.title.as_ref().unwrap_or(&self.session).clone(), Role::Faint),
            (1, connection.0.to_owned(), connection.1),
        ];
        let mut kept = [false; 6];
        let mut room = usize::from(area.width);
        for rank in 0..parts.len() {
            let Some(index) = parts.iter().position(|(of, _, _)| *of == rank) else { continue };
            let needs = text::width(&parts[index].1) + if rank == 0 { 1 } else { text::width(SEPARATOR) };
            if !parts[index].1.is_empty() && needs <= room {
                kept[index] = true;
                room -= needs;
            }
        }
        let mut spans = vec![Span::raw(" ")];
        for (_, text, role) in parts.iter().zip(kept).filter(|(_, kept)| *kept).map(|(part, _)| part) {
            if spans.len() > 1 {
                spans.push(Span::styled(SEPARATOR, theme.style(Role::Faint)));
            }
            spans.push(Span::styled(text.as_str(), theme.style(*role)));
        }
        buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
    }
}

/// Writes tokens and dollars; a cost that is not wholly known is marked.
pub(crate) fn spent(usage: &Usage) -> String {
    if usage.tokens == 0 {
        return String::new();
    }
    let tokens = match usage.tokens {
        0..10_000 => format!("{} tokens", usage.tokens),
        10_000..10_000_000 => format!("{}k tokens", usage.tokens / 1_000),
        _ => format!("{}M tokens", usage.tokens / 1_000_000),
    };
    match (usage.cost > 0.0, usage.unpriced) {
        (true, known) => format!("{tokens} ${:.4}{}", usage.cost, if known { "+" } else { "" }),
        (false, _) => tokens,
    }
}

#[cfg(test)]
mod tests;
