//! Where this run's message stands in the session's log, where others use the session too. Pure: it reads
//! events and asks nobody.

use tns_protocol::{ClientMessageId, MessageId, ServerFrame, ServerMessage};

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
    pub(super) fn after(self, event: &ServerFrame, message: &ClientMessageId) -> Self {
        let turn_of = || event.turn_id.as_ref();
        match (&event.message, self) {
            (ServerMessage::UserMessage(stored), Self::Absent)
                if stored.client_message_id.as_ref() == Some(message) =>
            {
                let turn = stored.message_id.clone();
                if stored.queued { Self::Waiting(turn) } else { Self::Running(turn) }
            }
            (ServerMessage::QueueUpdate(update), Self::Waiting(turn)) if update.message_id == turn => {
                match (update.removed, update.started) {
                    (true, _) => Self::Ended(turn),
                    (false, true) => Self::Running(turn),
                    (false, false) => Self::Waiting(turn),
                }
            }
            (
                ServerMessage::Done(_) | ServerMessage::Interrupted(_) | ServerMessage::ErrorEvent(_),
                Self::Waiting(turn) | Self::Running(turn),
            ) if event.seq.is_some() && turn_of() == Some(&turn) => Self::Ended(turn),
            (_, unchanged) => unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tns_protocol::decode_server;

    use super::*;

    fn mine() -> MessageId {
        MessageId::parse("t-1").unwrap()
    }

    fn read(events: &[Value]) -> Standing {
        let message = ClientMessageId::parse("m-1").unwrap();
        events.iter().fold(Standing::Absent, |standing, event| {
            let mut event = event.clone();
            event["v"] = json!(1);
            event["seq"] = json!(1);
            standing.after(&decode_server(&event.to_string()).unwrap(), &message)
        })
    }

    fn asked(own: Option<&str>, queued: bool) -> Value {
        let mut event =
            json!({ "type": "user_message", "messageId": "t-1", "message": "go", "queued": queued });
        if let Some(own) = own {
            event["clientMessageId"] = json!(own);
        }
        event
    }

    fn end(kind: &str, turn: &str) -> Value {
        let usage = json!({ "tokens": 1, "cost": 0.0 });
        json!({ "type": kind, "turnId": turn, "usage": usage, "reason": "cancelled", "message": "failed" })
    }

    #[test]
    fn the_own_message_names_the_turn() {
        assert_eq!(read(&[asked(Some("m-1"), false)]), Standing::Running(mine()));
        for other in [asked(Some("m-2"), false), asked(None, false), end("done", "t-1")] {
            assert_eq!(read(&[other]), Standing::Absent);
        }
    }

    #[test]
    fn a_queued_message_runs_when_the_log_says_that_it_was_started() {
        let queued = asked(Some("m-1"), true);
        let update = |id: &str, what: &str| json!({ "type": "queue_update", "messageId": id, what: true });
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
