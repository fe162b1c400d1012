//! The sessions of one client: what must be asked of the server for each, and which messages are not known to
//! have arrived. Pure: it makes frames and events, and sends neither.
//!
//! A server that does not know `events.1` refuses the first hello. From then on nothing is followed: frames
//! are handed on as they come, and after a loss the sessions are joined and no more.

use std::collections::{BTreeMap, VecDeque};

use tns_protocol::tool::McpTools;
use tns_protocol::{
    ClientFrame, ClientMessage, ClientMessageId, ErrorCode, ErrorEvent, RequestId, ServerFrame,
    ServerMessage, SessionId, encode_client,
};

use crate::cursor::{Cursor, Fault, Follow, OWN_REQUEST};
use crate::events::ClientEvent;

/// Sessions that one client follows. More → the call that would join another fails.
pub(crate) const MAX_SESSIONS: usize = 64;
/// Messages of a session that are written and not known to be stored. More → the next wait to be written.
const MAX_UNCONFIRMED: usize = 32;
/// Times that a message is written. A server that is lost each time is not to be given it again.
const MAX_WRITES: u32 = 4;

/// Something to be written, in the order of the calls.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A caller's message.
    Message {
        /// Its session.
        session: SessionId,
        /// The whole frame.
        text: String,
        /// Set where it may be written again.
        chat: Option<Chat>,
    },
    /// Follow a session from a place.
    Join(SessionId, Cursor),
}

/// How a `chat` is told in the log and in a refusal.
#[derive(Debug, Clone)]
pub(crate) struct Chat {
    pub(crate) message: ClientMessageId,
    pub(crate) request: RequestId,
}

/// A `chat` that was written and is not known to be stored.
#[derive(Debug)]
struct Unconfirmed {
    chat: Chat,
    text: String,
    writes: u32,
    /// The connection that it was written to is gone.
    lost: bool,
}

#[derive(Debug)]
struct Session {
    follow: Follow,
    unconfirmed: VecDeque<Unconfirmed>,
}

/// The sessions of one client.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    known: BTreeMap<SessionId, Session>,
    /// The server does not know `events.1`.
    plain: bool,
    /// The client only looks.
    watch: bool,
    asked: u64,
    /// Frames of this table's own to be written before anything that is queued.
    requests: Vec<String>,
}

impl Sessions {
    /// Makes an empty table; `watch`: of a client that only looks.
    pub(crate) fn new(watch: bool) -> Self {
        Self { watch, ..Self::default() }
    }

    /// Makes room for a session; `false` where there is none.
    pub(crate) fn admit(&mut self, session: &SessionId) -> bool {
        if self.known.contains_key(session) {
            return true;
        }
        if self.known.len() == MAX_SESSIONS {
            return false;
        }
        let session = session.clone();
        self.known.insert(session, Session { follow: Follow::new(None), unconfirmed: VecDeque::new() });
        true
    }

    /// Returns the frames to write for something that was queued.
    pub(crate) fn outgoing(&mut self, outgoing: Outgoing) -> Vec<String> {
        match outgoing {
            Outgoing::Join(session, from) => self.join(session, from),
            Outgoing::Message { session, text, chat } => {
                // One that ended in between is followed anew.
                self.admit(&session);
                let mut frames: Vec<String> = self.first(&session).into_iter().collect();
                if let (Some(chat), false, Some(known)) = (chat, self.plain, self.known.get_mut(&session)) {
                    let text = text.clone();
                    known.unconfirmed.push_back(Unconfirmed { chat, text, writes: 1, lost: false });
                }
                frames.push(text);
                frames
            }
        }
    }

    fn join(&mut self, session: SessionId, from: Cursor) -> Vec<String> {
        let id = self.next_request();
        let plain = self.plain;
        let known = self
            .known
            .entry(session.clone())
            .or_insert_with(|| Session { follow: Follow::new(None), unconfirmed: VecDeque::new() });
        let message = match (plain, known.follow.is_new()) {
            (true, _) => joins(),
            (false, true) => {
                known.follow = Follow::new(Some(from));
                known.follow.hello(id.clone(), self.watch)
            }
            (false, false) => known.follow.resume(from, id.clone()),
        };
        vec![encode(session, Some(id), message)]
    }

    /// Returns the hello of a session that nothing was asked of yet.
    fn first(&mut self, session: &SessionId) -> Option<String> {
        let known = self.known.get(session)?;
        if self.plain || !known.follow.is_new() {
            return None;
        }
        self.hello(session)
    }

    fn hello(&mut self, session: &SessionId) -> Option<String> {
        let id = self.next_request();
        let known = self.known.get_mut(session)?;
        Some(encode(session.clone(), Some(id.clone()), known.follow.hello(id, self.watch)))
    }

    fn next_request(&mut self) -> RequestId {
        self.asked += 1;
        own_request(self.asked)
    }

    /// A new connection has no session yet: asks for all of them.
    pub(crate) fn reconnected(&mut self) {
        self.requests.clear();
        let sessions: Vec<SessionId> = self.known.keys().cloned().collect();
        for session in sessions {
            let is_new = self.known.get(&session).is_none_or(|known| known.follow.is_new());
            if self.plain {
                self.requests.push(encode(session, None, joins()));
            } else if !is_new {
                let hello = self.hello(&session);
                self.requests.extend(hello);
            }
        }
        for known in self.known.values_mut() {
            known.unconfirmed.iter_mut().for_each(|message| message.lost = true);
        }
    }

    /// Returns the table's own frames, which are written first.
    pub(crate) fn requests(&mut self) -> Vec<String> {
        std::mem::take(&mut self.requests)
    }

    /// Whether what is queued must wait: a message that was lost comes first, or too many are on their way.
    pub(crate) fn holds_back(&self) -> bool {
        self.known.values().any(|known| {
            known.unconfirmed.len() >= MAX_UNCONFIRMED || known.unconfirmed.iter().any(|message| message.lost)
        })
    }

    /// Takes a frame and appends what the consumer is told.
    ///
    /// # Errors
    /// [`Fault`] when this connection is of no more use.
    pub(crate) fn take(&mut self, frame: ServerFrame, out: &mut Vec<ClientEvent>) -> Result<(), Fault> {
        if self.plain {
            out.push(ClientEvent::Frame(Box::new(frame)));
            return Ok(());
        }
        if let ServerMessage::ErrorEvent(error) = &frame.message
            && is_own(&frame, error)
        {
            return self.refused(&frame, error.clone(), out);
        }
        let session = frame.session_id.clone();
        let Some((id, known)) = session.and_then(|id| self.known.get_mut(&id).map(|known| (id, known)))
        else {
            out.push(ClientEvent::Frame(Box::new(frame)));
            return Ok(());
        };
        let before = out.len();
        let behind = known.follow.take(frame, out)?;
        if let Some(from) = behind {
            self.asked += 1;
            let request = own_request(self.asked);
            let message = known.follow.resume(from, request.clone());
            self.requests.push(encode(id.clone(), Some(request), message));
        }
        self.note(&id, before, out);
        Ok(())
    }

    /// What was handed on says of messages that were on their way.
    fn note(&mut self, session: &SessionId, from: usize, out: &mut Vec<ClientEvent>) {
        let Some(known) = self.known.get_mut(session) else { return };
        let (mut again, mut ended) = (None, false);
        for event in &out[from..] {
            match event {
                ClientEvent::Frame(frame) => match &frame.message {
                    ServerMessage::UserMessage(stored) => {
                        let id = stored.client_message_id.as_ref();
                        known.unconfirmed.retain(|message| Some(&message.chat.message) != id);
                    }
                    ServerMessage::ErrorEvent(_) => {
                        let re = frame.re.as_ref();
                        known.unconfirmed.retain(|message| Some(&message.chat.request) != re);
                    }
                    ServerMessage::SessionClosing(_) => ended = true,
                    _ => {}
                },
                ClientEvent::CaughtUp { .. } => again = Some(Told::InLog),
                ClientEvent::Joined { .. } if known.follow.is_live() => again = Some(Told::Nowhere),
                _ => {}
            }
        }
        if let Some(told) = again {
            let unsent = write_again(&mut known.unconfirmed, told, &mut self.requests);
            out.extend(unsent.into_iter().map(|message| ClientEvent::Unsent {
                session: session.clone(),
                message,
                reason: "the connection was lost each time that it was sent".into(),
            }));
        }
        if ended {
            // A hello would make the session anew.
            self.known.remove(session);
        }
    }

    /// The server refuses one of the table's own requests.
    fn refused(
        &mut self,
        frame: &ServerFrame,
        error: ErrorEvent,
        out: &mut Vec<ClientEvent>,
    ) -> Result<(), Fault> {
        let says_hello = error.ref_type.as_deref() == Some("hello");
        let unknown = matches!(error.code, Some(ErrorCode::UnknownType | ErrorCode::InvalidMessage) | None);
        if !says_hello || !unknown {
            return Err(Fault(format!("it does not say what happened: {}", error.message)));
        }
        tracing::debug!(session = ?frame.session_id, "the server does not know events.1");
        self.plain = true;
        for (session, known) in &mut self.known {
            known.unconfirmed.clear();
            if !known.follow.is_new() {
                self.requests.push(encode(session.clone(), None, joins()));
                out.push(ClientEvent::Plain { session: session.clone() });
            }
        }
        Ok(())
    }

    /// Tells the consumer what a server without `events.1` does not: that events may have been missed.
    pub(crate) fn missed(&self) -> Vec<ClientEvent> {
        let sessions = self.known.keys().filter(|_| self.plain);
        sessions.map(|session| ClientEvent::Plain { session: session.clone() }).collect()
    }
}

/// Where a message that is written again turns up, if the server had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// In the part of the log that was read, so what is not known to be stored is not stored.
    InLog,
    /// Its session was joined at the log's end: the server may have it, and then says nothing.
    Nowhere,
}

/// Writes again what was lost; returns what was written too often.
fn write_again(
    unconfirmed: &mut VecDeque<Unconfirmed>,
    told: Told,
    requests: &mut Vec<String>,
) -> Vec<ClientMessageId> {
    let mut unsent = Vec::new();
    unconfirmed.retain_mut(|message| {
        if !std::mem::take(&mut message.lost) {
            return true;
        }
        if message.writes == MAX_WRITES {
            unsent.push(message.chat.message.clone());
            return false;
        }
        message.writes += 1;
        requests.push(message.text.clone());
        told == Told::InLog
    });
    unsent
}

/// Whether an error answers a request of the table's own.
fn is_own(frame: &ServerFrame, error: &ErrorEvent) -> bool {
    let named = frame.re.as_ref().is_some_and(|re| re.as_str().starts_with(OWN_REQUEST));
    // An old server may not echo the name of a request that it does not know.
    named || error.ref_type.as_deref() == Some("hello")
}

fn own_request(number: u64) -> RequestId {
    let text = format!("{OWN_REQUEST}{number}");
    match RequestId::parse(text) {
        Ok(id) => id,
        Err(error) => unreachable!("{error}: letters, a dash and digits are a request's name"),
    }
}

/// Joins a session of a server without `events.1`: an empty set of tools changes nothing else.
fn joins() -> ClientMessage {
    McpTools { tools: Vec::new() }.into()
}

fn encode(session_id: SessionId, req_id: Option<RequestId>, message: ClientMessage) -> String {
    encode_client(&ClientFrame { session_id, req_id, message })
}

#[cfg(test)]
mod tests;
