//! The state of the screen, what can happen to it, and what it wants done. Nothing here acts.

use std::time::Duration;

use crossterm::event::KeyEvent;
use tns_client::{ClientEvent, Cursor};
use tns_protocol::agent::AgentInfo;
use tns_protocol::approval::Rule;
use tns_protocol::rest::{ServerInfo, SessionDetail};
use tns_protocol::{AgentId, ClientMessage, ClientMessageId, MessageId, Seq, ServerFrame, SessionId};

use crate::pane::approval::Approvals;
use crate::pane::composer::Composer;
use crate::pane::status::Status;
use crate::pane::transcript::Transcript;
use crate::sanitize;
use crate::theme::Theme;
use crate::view::Areas;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Msg {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted as a block.
    Paste(String),
    /// The terminal has this many columns and rows.
    Resize(u16, u16),
    /// The connection told something.
    Client(ClientEvent),
    /// The stored events were read, or could not be.
    Loaded(Result<Box<History>, String>),
    /// A message was not sent.
    SendFailed {
        /// The name of the user's message, if it was one.
        message: Option<ClientMessageId>,
        /// Why, in words.
        reason: String,
    },
    /// Time has passed that changes the look.
    Tick,
}

/// What the server has stored of a session, as far as the screen keeps it.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The session as it stands; absent when it does not exist yet.
    pub(crate) detail: Option<SessionDetail>,
    /// The durable events, ascending.
    pub(crate) events: Vec<ServerFrame>,
    /// The log's last place.
    pub(crate) head: Seq,
    /// There are earlier events that were not read.
    pub(crate) cut: bool,
}

/// Work that the loop does for the pure part.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Send a message to the session.
    Send(Box<ClientMessage>),
    /// Read the newest stored events, as many as the screen keeps.
    Load,
    /// Follow the session from a place in its log.
    Join(Cursor),
    /// End the program.
    Quit,
    /// Give the terminal to the shell.
    Suspend,
    /// Forget what the terminal shows and draw everything.
    Redraw,
}

/// Who has the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    /// What is typed goes into the composer.
    Composer,
    /// Keys answer the shown approval.
    Approval,
}

/// A page over the whole screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    /// Keys and commands, from this row on.
    Help(usize),
    /// The whole of the shown approval.
    Approval,
}

/// How far the screen has come with what happened in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The newest stored events are read; what is to be sent waits for it.
    Reading,
    /// What came behind them is told, oldest first.
    CatchingUp,
    /// Events are told as they happen.
    Live,
}

/// The state of the screen.
#[derive(Debug)]
pub(crate) struct Model {
    /// The screen's clock: time since it opened.
    pub(crate) now: Duration,
    pub(crate) theme: Theme,
    pub(crate) size: (u16, u16),
    pub(crate) areas: Areas,
    pub(crate) session: SessionId,
    pub(crate) info: ServerInfo,
    pub(crate) roster: Vec<AgentInfo>,
    /// The rules that were listed last, by whose numbers they are taken back.
    pub(crate) rules: Vec<Rule>,
    /// The folder that the session's tools work in.
    pub(crate) workspace: Option<String>,
    pub(crate) transcript: Transcript,
    pub(crate) composer: Composer,
    pub(crate) approvals: Approvals,
    pub(crate) status: Status,
    pub(crate) focus: Focus,
    pub(crate) page: Option<Page>,
    /// Sent as soon as the newest stored events are there.
    pub(crate) first_message: Option<String>,
    pub(crate) stage: Stage,
    /// Messages that wait for the session to be joined.
    pub(crate) unsent: Vec<ClientMessage>,
    /// The server tells no log: what was missed is read anew, and so is every turn that has ended.
    pub(crate) plain: bool,
    /// The message that was just taken out of the queue: the end of its turn is told next.
    pub(crate) taken_out: Option<MessageId>,
    /// The session was deleted or has expired.
    pub(crate) over: bool,
    /// A word in the composer's rule until the next key.
    pub(crate) hint: Option<&'static str>,
    /// The last key was Ctrl-C: the next one quits.
    pub(crate) quit_next: bool,
    /// The last key was Esc: the next one empties the composer.
    pub(crate) clear_next: bool,
    /// When the last turn ended.
    pub(crate) ended_at: Option<Duration>,
    /// Begins the names of this screen's messages.
    message_prefix: String,
    messages_sent: u64,
}

impl Model {
    /// Makes the screen of a session. `message_prefix` must differ between screens.
    pub(crate) fn new(
        session: SessionId,
        info: ServerInfo,
        first_message: Option<String>,
        theme: Theme,
        message_prefix: String,
    ) -> Self {
        let status = Status::new(session.as_str(), &info.default_provider, &info.default_model);
        Self {
            now: Duration::ZERO,
            theme,
            size: (0, 0),
            areas: Areas::default(),
            session,
            info,
            roster: Vec::new(),
            rules: Vec::new(),
            workspace: None,
            transcript: Transcript::default(),
            composer: Composer::new(),
            approvals: Approvals::default(),
            status,
            focus: Focus::Composer,
            page: None,
            first_message,
            stage: Stage::Reading,
            unsent: Vec::new(),
            plain: false,
            taken_out: None,
            over: false,
            hint: None,
            quit_next: false,
            clear_next: false,
            ended_at: None,
            message_prefix,
            messages_sent: 0,
        }
    }

    /// Names the next message of the user.
    pub(crate) fn next_message_id(&mut self) -> Option<ClientMessageId> {
        self.messages_sent += 1;
        ClientMessageId::parse(format!("{}-{}", self.message_prefix, self.messages_sent)).ok()
    }

    /// Replaces the roster; the first agent's engine is the one that answers.
    pub(crate) fn set_roster(&mut self, agents: Vec<AgentInfo>) {
        if let Some(first) = agents.first() {
            self.status.set_engine(&first.provider, &first.model);
        }
        self.roster = agents;
    }

    /// Returns an agent's place in the roster and its name. One that has left goes by its id.
    pub(crate) fn speaker(&self, id: &AgentId) -> (usize, String) {
        let place = self.roster.iter().position(|agent| agent.agent_id == *id);
        let name = place.map_or_else(|| bare_name(id.as_str()), |place| &self.roster[place].name);
        (place.unwrap_or(self.roster.len()), sanitize::line(name))
    }

    /// When the look changes by itself, on the screen's clock; never, when nothing runs.
    pub(crate) fn next_change(&self) -> Option<Duration> {
        let approvals = self.approvals.next_change(self.now);
        approvals.into_iter().chain(self.status.next_change(self.now)).min()
    }
}

/// An agent's id without the digits that make it unique.
fn bare_name(id: &str) -> &str {
    match id.rsplit_once('-') {
        Some((name, digits)) if digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()) => name,
        _ => id,
    }
}
