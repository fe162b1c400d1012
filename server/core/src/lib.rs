//! The brain: sessions, agents, the turn loop, approvals, the log. It knows no socket, no HTTP, no SQL.
//!
//! The story of one turn. A face hands a `chat` to a [`session::SessionHandle`]. The session's task
//! stores the message and, beside that, starts a turn; nothing of the turn is shown before the message
//! is stored. The turn's driver asks its pure state machine ([`turn::state`]) what to do: call the model
//! ([`engine::Engine::step`]), store the step, decide each tool call ([`approval::policy::decide`], and
//! perhaps a person through the session's [`approval::broker::Broker`]), run it ([`tool::Tool::run`]),
//! store the results, call the model again, until the model is done. Whatever the driver reports passes
//! through the session's task, which stores durable events before it announces them and so keeps one
//! order for every connection. A cancel reaches the driver through its token; a crash leaves an open
//! turn in the store, which [`recovery`] ends at the next start.

pub mod agent;
pub mod approval;
pub mod engine;
pub mod event;
mod history;
pub mod memory;
pub mod message;
mod prompt;
pub mod recovery;
pub mod redact;
pub mod scripted;
pub mod search;
pub mod session;
pub mod spend;
pub mod store;
mod tokens;
pub mod tool;
pub mod turn;
pub mod usage;
pub mod visible;

pub use history::text_of;
