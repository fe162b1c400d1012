//! Where one session's consumer stands in its log, and what each frame means from there: hand it on, drop it,
//! ask the server, or call it a fault. Pure: it sends and waits for nothing.
//!
//! What it keeps: durable events are handed on once, in order, without gaps. The pieces of a reply's running
//! step that were handed on are always the beginning of that step's stored text: what overlaps is cut, and
//! after a gap no piece follows until the stored message is there, which has all of it.

use tns_protocol::approval::ToolApproveRequest;
use tns_protocol::chat::{AssistantMessage, Token};
use tns_protocol::log::{
    ActiveResponse, EXTENSION, Hello, HistorySync, Lagged, Program, Resume, Resumed, ResyncRequired, Welcome,
};
use tns_protocol::{ClientMessage, MessageId, RequestId, Seq, ServerFrame, ServerMessage, decode_server};

use crate::events::ClientEvent;

/// How the names of this crate's own requests begin; a caller's must not.
pub(crate) const OWN_REQUEST: &str = "tns-log-";

/// A place in a session's log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor {
    /// The last place that the consumer has; 0: it has nothing.
    pub seq: Seq,
    /// The store that the place is of; absent where it is not known.
    pub epoch: Option<String>,
}

impl Cursor {
    /// Makes a place of a store that is not known.
    pub fn at(seq: Seq) -> Self {
        Self { seq, epoch: None }
    }
}

/// What the server did that it must not do. Another connection may mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) String);

/// How far the following of a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was asked of the server on this connection.
    New,
    /// Joined at the log's end, which the welcome will name.
    Joining,
    /// The log is being read; what happens now is in it.
    CatchingUp,
    /// Everything that happens is handed on.
    Live,
}

/// One session as it is followed.
#[derive(Debug)]
pub(crate) struct Follow {
    phase: Phase,
    /// Absent until the place is known of a session that was joined at its log's end.
    cursor: Option<Cursor>,
    /// Names the newest question; answers to earlier ones are passed over.
    asked: Option<RequestId>,
    reply: Option<Reply>,
}

impl Follow {
    /// Follows a session from a place, or from wherever its log ends.
    pub(crate) fn new(from: Option<Cursor>) -> Self {
        Self { phase: Phase::New, cursor: from, asked: None, reply: None }
    }

    /// Whether nothing was asked of the server yet.
    pub(crate) fn is_new(&self) -> bool {
        self.phase == Phase::New
    }

    /// Whether everything that happens is handed on.
    pub(crate) fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    /// Asks the server on a new connection; `watch`: to look and nothing else.
    pub(crate) fn hello(&mut self, id: RequestId, watch: bool) -> ClientMessage {
        self.reply = None;
        self.phase = if self.cursor.is_some() { Phase::CatchingUp } else { Phase::Joining };
        self.asked = Some(id);
        let (last_seq, epoch) = match self.cursor.clone() {
            Some(Cursor { seq, epoch }) => (Some(seq), epoch),
            None => (None, None),
        };
        let client = Program { name: "tns".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        Hello { ext: vec![EXTENSION.to_owned()], client: Some(client), last_seq, epoch, watch }.into()
    }

    /// Asks the server for what follows a place, on the connection that is there.
    pub(crate) fn resume(&mut self, from: Cursor, id: RequestId) -> ClientMessage {
        self.reply = None;
        self.phase = Phase::CatchingUp;
        self.asked = Some(id);
        self.cursor = Some(from.clone());
        Resume { last_seq: from.seq, epoch: from.epoch }.into()
    }

    /// Takes a frame of the session and appends what the consumer is told. Returns the place to resume from,
    /// where that must be asked for.
    ///
    /// # Errors
    /// [`Fault`] when the server breaks the order of its log.
    pub(crate) fn take(
        &mut self,
        frame: ServerFrame,
        out: &mut Vec<ClientEvent>,
    ) -> Result<Option<Cursor>, Fault> {
        let Some(session) = frame.session_id.clone() else {
            out.push(ClientEvent::Frame(Box::new(frame)));
            return Ok(None);
        };
        let is_latest = frame.re.is_some() && frame.re == self.asked;
        match kind(&frame) {
            Kind::Control => {}
            Kind::Durable(seq) => {
                self.durable(seq, frame, out)?;
                return Ok(None);
            }
            Kind::Live => {
                out.extend(self.live(frame).map(|frame| ClientEvent::Frame(Box::new(frame))));
                return Ok(None);
            }
            Kind::Answer => {
                out.push(ClientEvent::Frame(Box::new(frame)));
                return Ok(None);
            }
        }
        match frame.message {
            ServerMessage::Welcome(welcome) => {
                let epoch = self.welcome(welcome);
                out.push(ClientEvent::Joined { session, epoch });
            }
            ServerMessage::HistorySync(page) => self.page(page, out)?,
            ServerMessage::Resumed(resumed) if is_latest => {
                let (active, pending) = self.resumed(resumed)?;
                out.push(ClientEvent::CaughtUp { session, active, pending });
            }
            ServerMessage::Lagged(Lagged { head_seq }) => {
                // Joined a moment ago, and the welcome is still to come: its place is where the log ends.
                return Ok(Some(self.cursor.clone().unwrap_or(Cursor::at(head_seq))));
            }
            ServerMessage::ResyncRequired(required) if is_latest => {
                let ResyncRequired { reason, epoch, .. } = required;
                let begun = self.cursor.as_ref().is_some_and(|cursor| cursor.seq == 0);
                if begun && self.cursor.as_ref().and_then(|cursor| cursor.epoch.as_ref()) == Some(&epoch) {
                    return Err(Fault(format!("it does not know the beginning of its own log: {reason}")));
                }
                out.push(ClientEvent::Resync { session, epoch: epoch.clone(), reason });
                return Ok(Some(Cursor { seq: 0, epoch: Some(epoch) }));
            }
            // Answers to a question that was asked anew since.
            _ => {}
        }
        Ok(None)
    }

    fn welcome(&mut self, welcome: Welcome) -> String {
        let Welcome { epoch, head_seq, .. } = welcome;
        match (&mut self.cursor, self.phase) {
            (Some(cursor), _) => {
                // With an epoch of its own the server compares, and asks for a new beginning.
                cursor.epoch.get_or_insert_with(|| epoch.clone());
            }
            (None, _) => {
                self.cursor = Some(Cursor { seq: head_seq, epoch: Some(epoch.clone()) });
                self.phase = Phase::Live;
            }
        }
        epoch
    }

    fn page(&mut self, page: HistorySync, out: &mut Vec<ClientEvent>) -> Result<(), Fault> {
        for event in page.events {
            let frame = decode_server(event.as_str())
                .map_err(|error| Fault(format!("an event of its log is none: {error}")))?;
            let Some(seq) = frame.seq else {
                return Err(Fault(format!("a {} of its log has no place", frame.message.type_name())));
            };
            let Some(cursor) = &mut self.cursor else { continue };
            // A page that was asked for twice.
            if seq <= cursor.seq {
                continue;
            }
            self.advance(seq)?;
            self.note(&frame);
            out.push(ClientEvent::Frame(Box::new(frame)));
        }
        Ok(())
    }

    fn resumed(
        &mut self,
        resumed: Resumed,
    ) -> Result<(Option<ActiveResponse>, Vec<ToolApproveRequest>), Fault> {
        let Resumed { head_seq, active, pending_approvals } = resumed;
        let seq = self.cursor.as_ref().map_or(0, |cursor| cursor.seq);
        if seq < head_seq {
            return Err(Fault(format!("its log ends at {head_seq}, and it sent {seq} of it")));
        }
        self.reply = active.as_ref().map(Reply::of_active);
        self.phase = Phase::Live;
        Ok((active, pending_approvals))
    }

    fn durable(&mut self, seq: Seq, frame: ServerFrame, out: &mut Vec<ClientEvent>) -> Result<(), Fault> {
        match self.phase {
            // It was announced before the resume was taken up, so the log's pages have it.
            Phase::CatchingUp => return Ok(()),
            // Calls that wait are told again, with their own places.
            Phase::New | Phase::Joining => {}
            Phase::Live => self.advance(seq)?,
        }
        self.note(&frame);
        out.push(ClientEvent::Frame(Box::new(frame)));
        Ok(())
    }

    fn advance(&mut self, seq: Seq) -> Result<(), Fault> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        if seq != cursor.seq + 1 {
            return Err(Fault(format!("it sent event {seq} after event {}", cursor.seq)));
        }
        cursor.seq = seq;
        Ok(())
    }

    /// What a durable event says of the reply that is being written.
    fn note(&mut self, frame: &ServerFrame) {
        if let ServerMessage::AssistantMessage(step) = &frame.message
            && let Some(response) = &step.response_id
        {
            // A reply that nothing was heard of has begun since.
            if let Some(reply) = self.reply_of(response) {
                reply.step_stored(step);
            }
        }
    }

    fn reply_of(&mut self, response: &MessageId) -> Option<&mut Reply> {
        if self.reply.as_ref().is_none_or(|reply| reply.response != *response) {
            self.reply = Some(Reply::begun(response));
        }
        self.reply.as_mut()
    }

    fn live(&mut self, mut frame: ServerFrame) -> Option<ServerFrame> {
        if self.phase == Phase::CatchingUp {
            // `resumed` tells what is written, and who writes.
            return None;
        }
        if let ServerMessage::Token(token) = &mut frame.message
            && !self.piece(token)
        {
            return None;
        }
        Some(frame)
    }

    /// Cuts a piece to what is new of it; `false`: nothing is, or something is missing before it.
    fn piece(&mut self, token: &mut Token) -> bool {
        let (Some(response), Some(index)) = (&token.response_id, token.index) else { return true };
        let Some(reply) = self.reply_of(response) else { return true };
        let Some(covered) = reply.take(index, token.content.chars().count() as u64) else { return false };
        if covered > 0 {
            token.content = token.content.chars().skip(covered).collect();
            token.index = Some(index + covered as u64);
        }
        true
    }
}

/// How much of a reply's text was handed on, in characters from the reply's beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reply {
    response: MessageId,
    /// The latest place where the running step may begin.
    step: u64,
    /// Where the next piece begins.
    next: u64,
    /// The latest place where the next piece may begin: text that is stored may be longer than its pieces,
    /// and pieces that were lost are in it.
    latest: u64,
    /// Pieces of the running step were lost: it is told when it is stored.
    holed: bool,
}

impl Reply {
    fn begun(response: &MessageId) -> Self {
        Self { response: response.clone(), step: 0, next: 0, latest: 0, holed: false }
    }

    fn of_active(active: &ActiveResponse) -> Self {
        let written = active.text_so_far.chars().count() as u64;
        let step = active.index.saturating_sub(written);
        Self { step, next: active.index, latest: active.index, ..Self::begun(&active.response_id) }
    }

    /// Takes a piece of `length` characters at `index`. Returns how many of them are known already; `None`:
    /// it is not to be handed on.
    fn take(&mut self, index: u64, length: u64) -> Option<usize> {
        if self.holed || index > self.latest {
            self.holed = true;
            return None;
        }
        if index >= self.next && self.next != self.latest {
            // The first piece of a step whose beginning was not known to the character.
            self.step = index;
            self.next = index;
        }
        let covered = self.next.saturating_sub(index);
        if covered >= length {
            return None;
        }
        self.next = index + length;
        self.latest = self.next;
        usize::try_from(covered).ok()
    }

    fn step_stored(&mut self, step: &AssistantMessage) {
        let length = step.message.chars().count() as u64;
        self.latest = self.step.saturating_add(length).max(self.next);
        self.step = self.latest;
        self.holed = false;
    }
}

/// What a frame is, as the protocol page lists it.
enum Kind {
    /// Stored, at this place of the log.
    Durable(Seq),
    /// Shown only.
    Live,
    /// For this connection; the consumer is told.
    Answer,
    /// For this connection's place in the log; the consumer is not told as such.
    Control,
}

#[warn(clippy::wildcard_enum_match_arm)]
fn kind(frame: &ServerFrame) -> Kind {
    if let Some(seq) = frame.seq {
        return Kind::Durable(seq);
    }
    let is_own = || frame.re.as_ref().is_some_and(|re| re.as_str().starts_with(OWN_REQUEST));
    match &frame.message {
        ServerMessage::Welcome(_)
        | ServerMessage::Resumed(_)
        | ServerMessage::ResyncRequired(_)
        | ServerMessage::Lagged(_) => Kind::Control,
        ServerMessage::HistorySync(_) if is_own() => Kind::Control,
        ServerMessage::Token(_)
        | ServerMessage::AgentState(_)
        | ServerMessage::IndexProgress(_)
        | ServerMessage::ResponseStart(_)
        | ServerMessage::ResponseEnd(_)
        | ServerMessage::ReasoningStart(_)
        | ServerMessage::ReasoningDelta(_)
        | ServerMessage::ImageDelta(_)
        | ServerMessage::ToolPending(_)
        | ServerMessage::ToolOutput(_)
        | ServerMessage::Notice(_) => Kind::Live,
        ServerMessage::HistorySync(_)
        | ServerMessage::ToolStart(_)
        | ServerMessage::ToolApproveRequest(_)
        | ServerMessage::ToolResult(_)
        | ServerMessage::TeamUpdate(_)
        | ServerMessage::Done(_)
        | ServerMessage::ErrorEvent(_)
        | ServerMessage::McpCall(_)
        | ServerMessage::IndexStart(_)
        | ServerMessage::IndexDone(_)
        | ServerMessage::AutonomyChanged(_)
        | ServerMessage::AuditEntry(_)
        | ServerMessage::KbAdded(_)
        | ServerMessage::KbSearchResult(_)
        | ServerMessage::KbListResult(_)
        | ServerMessage::KbRemoved(_)
        | ServerMessage::UserMessage(_)
        | ServerMessage::AssistantMessage(_)
        | ServerMessage::ToolApprovalResolved(_)
        | ServerMessage::Interrupted(_)
        | ServerMessage::QueueUpdate(_)
        | ServerMessage::Compaction(_)
        | ServerMessage::SessionUpdated(_)
        | ServerMessage::SessionClosing(_)
        | ServerMessage::SessionListResult(_)
        | ServerMessage::SessionForked(_)
        | ServerMessage::QueueListResult(_)
        | ServerMessage::FeedbackStored(_)
        | ServerMessage::RulesUpdate(_)
        | ServerMessage::RulesListResult(_)
        | ServerMessage::Unknown(_) => Kind::Answer,
    }
}
