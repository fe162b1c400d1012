//! What is said to whoever asked, and where a reader of the log goes over to live events.

use std::sync::Arc;

use tns_protocol::{AgentId, ClientMessageId, DocumentId, ErrorCode, MessageId, Seq, ToolCallId};

use crate::approval::{ApprovalRequest, Grant};
use crate::store::{
    DocumentInfo, EventPage, EventQuery, Hit, MAX_PAGE_EVENTS, SessionKey, Store, StoreError,
};
use crate::tool::Args;

/// An answer to one request, sent to whoever asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The request can't be done; nothing changed.
    Refused(Refusal),
    /// It is done; what happened was announced to all.
    Done,
    /// A message is stored, and its turn runs or waits.
    Accepted {
        /// The message.
        message: MessageId,
        /// Its place in the log.
        seq: Seq,
    },
    /// The sender's own id of a message was used for another one; nothing changed.
    IdUsed(ClientMessageId),
    /// What a connection that says hello is told.
    Greeting {
        /// Names the store.
        epoch: String,
        /// The log's last place.
        head_seq: Seq,
    },
    /// The log up to its last place is to be sent, then what is told here; live events follow.
    Resume(Box<ResumePoint>),
    /// The named place is not of this log.
    ResyncRequired {
        /// Why, in a line for people.
        reason: String,
        /// Names the store.
        epoch: String,
        /// The log's last place.
        head_seq: Seq,
    },
    /// What waits for its turn, first come first.
    Queue(Vec<(MessageId, String)>),
    /// What is covered, oldest first.
    Grants(Vec<Grant>),
    /// A document is in the knowledge base.
    KbAdded {
        /// Its id.
        document: DocumentId,
        /// It was there before; nothing changed.
        duplicate: bool,
    },
    /// A document is not in the knowledge base.
    KbRemoved {
        /// Its id.
        document: DocumentId,
        /// It was there before.
        found: bool,
    },
    /// Hits, best first.
    KbHits(Vec<Hit>),
    /// The documents of a collection, oldest first.
    KbDocuments(Vec<DocumentInfo>),
    /// A client must run a tool.
    CallTool {
        /// The call to answer.
        call: ToolCallId,
        /// The client's server that has the tool.
        server: String,
        /// The tool's bare name.
        tool: String,
        /// The arguments.
        args: Args,
    },
}

/// Where a resuming connection goes over from the log to live events.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumePoint {
    /// The log to be read.
    pub log: Log,
    /// The last place that the client has.
    pub after: Seq,
    /// The log's last place.
    pub head_seq: Seq,
    /// The reply that is being written.
    pub active: Option<ActiveReply>,
    /// What waits for an answer, oldest first.
    pub pending: Vec<ApprovalRequest>,
}

impl ResumePoint {
    /// Reads a page of the log between `after` and the point.
    ///
    /// # Errors
    /// The store's.
    pub async fn page(&self, after: Seq) -> Result<EventPage, StoreError> {
        let before = Some(self.head_seq + 1);
        let query = EventQuery { after, before, limit: MAX_PAGE_EVENTS, ..EventQuery::default() };
        self.log.store.events(self.log.session, query).await
    }
}

/// One session's log in its store.
#[derive(Clone)]
pub struct Log {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The session's key in it.
    pub session: SessionKey,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({})", self.session.0)
    }
}

impl PartialEq for Log {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.store, &other.store) && self.session == other.session
    }
}

/// A reply that is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveReply {
    /// The reply.
    pub response: MessageId,
    /// Who writes.
    pub agent: AgentId,
    /// What is written of its running step: it is in no stored event yet.
    pub text: String,
    /// Where the next piece begins in the reply's text, in characters.
    pub index: u64,
}

/// Why a request can't be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub code: ErrorCode,
    /// One line for people that says what to do.
    pub message: String,
    /// The wire name of the request.
    pub request: &'static str,
}
