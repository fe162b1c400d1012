//! Where this run's message stands in the session's log: what a connection is not told while others use the
//! session too. Pure: it reads events and asks nobody.

use serde_json::Value;
use tns_protocol::{ClientMessageId, MessageId};

/// Where a message stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is not stored yet.
    Absent,
    /// It waits for an earlier turn to end.
    Waiting(MessageId),
    /// Its turn runs.
    Running(MessageId),
    /// Its turn has ended.
    Ended(MessageId),
}

impl Standing {
    /// Returns the turn that answers the message.
    pub(super) fn turn(&self) -> Option<&MessageId> {
        match self {
            Self::Absent => None,
            Self::Waiting(turn) | Self::Running(turn) | Self::Ended(turn) => Some(turn),
        }
    }

    /// Returns what stands after one more event of the log.
    pub(super) fn after(self, event: &Value, message: &ClientMessageId) -> Self {
        let text = |name: &str| event.get(name).and_then(Value::as_str);
        let flag = |name: &str| event.get(name).and_then(Value::as_bool).unwrap_or(false);
        match (text("type"), self) {
            (Some("user_message"), Self::Absent) if text("clientMessageId") == Some(message.as_str()) => {
                match text("messageId").map(MessageId::parse) {
                    Some(Ok(turn)) if flag("queued") => Self::Waiting(turn),
                    Some(Ok(turn)) => Self::Running(turn),
                    Some(Err(_)) | None => Self::Absent,
                }
            }
            (Some("queue_update"), Self::Waiting(turn)) if text("messageId") == Some(turn.as_str()) => {
                if flag("removed") {
                    Self::Ended(turn)
                } else if flag("started") {
                    Self::Running(turn)
                } else {
                    Self::Waiting(turn)
                }
            }
            (Some("done" | "interrupted" | "error"), Self::Waiting(turn) | Self::Running(turn))
                if text("turnId") == Some(turn.as_str()) =>
            {
                Self::Ended(turn)
            }
            (_, unchanged) => unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mine() -> MessageId {
        MessageId::parse("t-1").unwrap()
    }

    fn read(events: &[Value]) -> Standing {
        let message = ClientMessageId::parse("m-1").unwrap();
        events.iter().fold(Standing::Absent, |standing, event| standing.after(event, &message))
    }

    #[test]
    fn the_own_message_names_the_turn() {
        let own = json!({ "type": "user_message", "clientMessageId": "m-1", "messageId": "t-1", "seq": 3 });
        assert_eq!(read(&[own]), Standing::Running(mine()));
        for other in [
            json!({ "type": "user_message", "clientMessageId": "m-2", "messageId": "t-1" }),
            json!({ "type": "user_message", "messageId": "t-1" }),
            json!({ "type": "user_message", "clientMessageId": "m-1" }),
            json!({ "type": "done", "clientMessageId": "m-1", "messageId": "t-1" }),
            json!("text"),
        ] {
            assert_eq!(read(&[other]), Standing::Absent);
        }
    }

    #[test]
    fn a_queued_message_runs_when_the_log_says_that_it_was_started() {
        let queued =
            json!({ "type": "user_message", "clientMessageId": "m-1", "messageId": "t-1", "queued": true });
        let update = |id: &str, what: &str| json!({ "type": "queue_update", "messageId": id, what: true });
        let end = |kind: &str, turn: &str| json!({ "type": kind, "turnId": turn });
        let theirs = [queued.clone(), end("done", "t-0"), update("t-2", "started")];
        assert_eq!(read(&theirs), Standing::Waiting(mine()));
        let begun = [queued.clone(), end("done", "t-0"), update("t-1", "started")];
        assert_eq!(read(&begun), Standing::Running(mine()));
        for kind in ["done", "interrupted", "error"] {
            let ended =
                [queued.clone(), update("t-1", "started"), end(kind, "t-1"), update("t-2", "started")];
            assert_eq!(read(&ended), Standing::Ended(mine()), "{kind}");
        }
        assert_eq!(read(&[queued, update("t-1", "removed")]), Standing::Ended(mine()));
    }
}
