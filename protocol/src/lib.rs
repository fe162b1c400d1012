//! The contract of the `/chat` WebSocket and the REST face: what clients and servers say.
//!
//! Every frame is one JSON object: an envelope (`v`, `type`, `sessionId`, and from the server `date`)
//! with the event's own fields beside it. A *command* comes from a client, an *event* from the server.
//!
//! * Durable events carry `seq`, their place in the session's log; a client that has seen `seq` n has
//!   seen everything up to n. Live events (tokens, states) carry none and are not stored.
//! * A turn begins with a stored user message, whose id is the `turnId` of every durable event of the
//!   turn, and ends with exactly one `done` or `error`.
//! * Unknown fields are ignored on both sides; an event type that a client does not know is a value,
//!   [`ServerMessage::Unknown`], never a failure. Absent optionals are left out, never null.
//! * An answer to one request goes to its sender only and carries the request's `reqId` as `re`.
//!
//! This crate knows nothing of sockets, sessions or storage.

pub mod agent;
pub mod approval;
pub mod chat;
mod day;
mod envelope;
pub mod error;
mod ids;
pub mod knowledge;
pub mod live;
pub mod log;
mod message;
pub mod provider;
pub mod rest;
mod schema;
pub mod session;
mod time;
pub mod tool;
pub mod usage;

pub use day::{Day, InvalidDay};
pub use envelope::{
    ClientFrame, DecodeError, MAX_JSON_DEPTH, MAX_MESSAGE_BYTES, MAX_OBJECT_KEYS, MAX_SMALL_MESSAGE_BYTES,
    PROTOCOL_VERSION, ServerFrame, decode_client, decode_server, encode_client, encode_server, message_limit,
};
pub use error::{ErrorCode, ErrorEvent};
pub use ids::{
    AgentId, ClientMessageId, DocumentId, InvalidId, MAX_CHOSEN_ID_BYTES, MAX_LABEL_CHARS,
    MAX_SERVER_ID_BYTES, MessageId, RequestId, RuleId, Seq, SessionId, ToolCallId, check_label,
};
pub use message::{ClientMessage, ServerMessage};
pub use schema::schema;
pub use time::Timestamp;
