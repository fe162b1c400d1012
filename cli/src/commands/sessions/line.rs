//! An event of the log as one line for people: place, time, kind, and what matters of it. Pure.

use serde_json::{Map, Value};
use tns_protocol::{ServerFrame, ServerMessage};

/// Most characters of what an event says; the rest is in the session.
const MAX_CHARS: usize = 160;

/// Writes an event as `place`, `time`, `kind` and its words, with tabs between them.
pub(super) fn of(frame: &ServerFrame) -> String {
    let seq = frame.seq.unwrap_or_default();
    let date = frame.date.map_or_else(|| "-".to_owned(), |date| date.to_string());
    let words = one_line(&words(&frame.message));
    format!("{seq}\t{date}\t{}\t{words}", frame.message.type_name()).trim_end().to_owned()
}

fn words(message: &ServerMessage) -> String {
    match message {
        ServerMessage::UserMessage(event) => event.message.clone(),
        ServerMessage::AssistantMessage(event) => format!("{}: {}", event.agent_id, event.message),
        ServerMessage::ToolApproveRequest(event) => format!("{}: {}", event.tool, event.summary),
        ServerMessage::ToolApprovalResolved(event) => {
            format!("{} by {}", event.decision.as_str(), event.by)
        }
        ServerMessage::AuditEntry(event) => {
            format!("{} {}: {}", event.decision.as_str(), event.tool, event.summary)
        }
        ServerMessage::ToolStart(event) => format!("{} {}", event.tool, values(&event.args)),
        ServerMessage::ToolResult(event) => {
            let how = match (event.refused, event.is_error) {
                (true, _) => "refused",
                (false, true) => "failed",
                (false, false) => "ok",
            };
            format!("{} {how} in {} ms: {}", event.tool, event.duration, event.result)
        }
        ServerMessage::TeamUpdate(event) => {
            event.agents.iter().map(|agent| agent.name.as_str()).collect::<Vec<_>>().join(", ")
        }
        ServerMessage::AutonomyChanged(event) => event.level.as_str().to_owned(),
        ServerMessage::RulesUpdate(event) => {
            let how = if event.removed { "taken back" } else { "allow" };
            format!("{how} {} by {}: {}", event.rule.rule_id, event.by, event.rule.covers)
        }
        ServerMessage::KbAdded(event) => event.document_id.to_string(),
        ServerMessage::KbRemoved(event) => event.document_id.to_string(),
        ServerMessage::IndexStart(event) => format!("{}: {} files", event.path, event.total_files),
        ServerMessage::IndexDone(event) => {
            format!("{} files, {} chunks", event.file_count, event.chunk_count)
        }
        ServerMessage::QueueUpdate(event) => match (&event.message, event.removed) {
            (_, true) => format!("{} taken out", event.message_id),
            (Some(text), false) => format!("{} changed: {text}", event.message_id),
            (None, false) => format!("{} begun", event.message_id),
        },
        ServerMessage::Compaction(event) => {
            format!("{} to {} tokens", event.tokens_before, event.tokens_after)
        }
        ServerMessage::SessionUpdated(event) => event.title.clone().unwrap_or_default(),
        ServerMessage::SessionClosing(event) => event.reason.clone(),
        ServerMessage::Done(event) => format!("{} tokens", event.usage.tokens),
        ServerMessage::Interrupted(event) => event.reason.clone(),
        ServerMessage::ErrorEvent(event) => match event.code {
            Some(code) => format!("{} ({})", event.message, code.as_str()),
            None => event.message.clone(),
        },
        // Not of the log, or of a newer server.
        _ => String::new(),
    }
}

fn values(args: &Map<String, Value>) -> String {
    let values = args.values().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    values.collect::<Vec<_>>().join(" ")
}

/// Joins the lines of a text and cuts it.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        // Cut once, below; a text of megabytes is not joined for that.
        if line.len() > MAX_CHARS * 4 {
            break;
        }
    }
    match line.char_indices().nth(MAX_CHARS) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tns_protocol::decode_server;

    use super::*;

    fn line(event: Value) -> String {
        let mut event = event;
        event["v"] = json!(1);
        event["sessionId"] = json!("s");
        of(&decode_server(&event.to_string()).unwrap())
    }

    #[test]
    fn an_event_is_one_line_whatever_it_says() {
        let date = "2026-01-02T03:04:05.678Z";
        let said = json!({ "type": "user_message", "seq": 7, "date": date, "messageId": "m",
            "message": "one\n\ttwo\u{1b}[2J\u{2028}three" });
        assert_eq!(line(said), format!("7\t{date}\tuser_message\tone two [2J three"));
        let long = json!({ "type": "user_message", "seq": 8, "messageId": "m", "message": "職".repeat(900) });
        assert_eq!(line(long), format!("8\t-\tuser_message\t{}…", "職".repeat(MAX_CHARS)));
        let done = json!({ "type": "done", "seq": 9, "usage": { "tokens": 12, "cost": 0.0 } });
        assert_eq!(line(done), "9\t-\tdone\t12 tokens");
        let rule = json!({ "ruleId": "rule-1", "effect": "allow", "tool": "shell", "riskClass": "BUILD_TEST",
            "scope": "session", "covers": "every `make test`" });
        let rule = |removed| json!({ "type": "rules_update", "seq": 9, "rule": rule, "removed": removed, "by": "local" });
        assert_eq!(line(rule(false)), "9\t-\trules_update\tallow rule-1 by local: every `make test`");
        assert_eq!(line(rule(true)), "9\t-\trules_update\ttaken back rule-1 by local: every `make test`");
        assert_eq!(line(json!({ "type": "hologram", "seq": 10 })), "10\t-\thologram");
    }
}
