//! A session as a page for people: what was said, which tools ran, and how turns ended. What only the model was shown
//! is not in it.
#![warn(clippy::wildcard_enum_match_arm)]

use std::fmt::Write as _;

use serde_json::{Map, Value};
use tns_protocol::approval::AuditDecision;
use tns_protocol::{AgentId, Timestamp};
use tns_server_core::event::{AssistantMessage, DurableEvent, MessageOrigin, ToolFinished, UserMessage};
use tns_server_core::message::Part;
use tns_server_core::text_of;

use super::file::{Entry, Header};

/// Fewest backticks of a fence.
const LEAST_FENCE: usize = 3;

/// Writes the page a piece at a time.
#[derive(Debug, Default)]
pub(crate) struct Markdown {
    /// The names of the agents, so that a heading shows what people call them.
    names: Vec<(AgentId, String)>,
}

impl Markdown {
    /// Writes the page's beginning.
    pub(crate) fn begin(&mut self, header: &Header) -> String {
        self.names = header.begins().agents.into_iter().map(|agent| (agent.id, agent.name)).collect();
        let title = header.title.as_deref().unwrap_or("Session");
        let (id, workspace, created) = (&header.id, &header.workspace, header.created_at());
        let mut text =
            format!("# {title}\n\n- session: `{id}`\n- folder: `{workspace}`\n- created: {created}\n");
        if header.redacted {
            text.push_str("- secrets were taken out\n");
        }
        text
    }

    /// Writes an event; one that says nothing to people is nothing.
    pub(crate) fn entry(&mut self, entry: &Entry) -> String {
        let at = Timestamp::from_micros(entry.at);
        match &entry.event {
            DurableEvent::UserMessage(message) => user(message, at),
            DurableEvent::AssistantMessage(message) => self.assistant(message, at),
            DurableEvent::QueueEdited(edited) => {
                format!("\n*The message that waited was changed:*\n\n{}\n", parts(&edited.parts))
            }
            DurableEvent::QueueRemoved(_) => note("the message that waited was taken out"),
            DurableEvent::ToolStarted(started) => {
                let args = object(&started.args);
                format!("\n**{}** ran with\n\n{}", started.tool, fenced("json", &args))
            }
            DurableEvent::ToolFinished(finished) => tool_result(finished),
            DurableEvent::Audited(record) => match record.decision {
                AuditDecision::AutoApproved | AuditDecision::Trusted => String::new(),
                AuditDecision::Approved
                | AuditDecision::Always
                | AuditDecision::Rejected
                | AuditDecision::Blocked
                | AuditDecision::Cancelled
                | AuditDecision::Timeout => {
                    note(&format!("{}: {} by {}", record.tool, record.decision.as_str(), record.by))
                }
            },
            DurableEvent::TeamUpdated(team) => {
                self.names = team.agents.iter().map(|agent| (agent.id.clone(), agent.name.clone())).collect();
                let names: Vec<&str> = team.agents.iter().map(|agent| agent.name.as_str()).collect();
                note(&format!("agents: {}", names.join(", ")))
            }
            DurableEvent::AutonomyChanged(level) => note(&format!("autonomy: {}", level.as_str())),
            DurableEvent::RuleChanged(changed) if changed.removed => {
                note(&format!("asks again: {}", changed.grant.describe()))
            }
            DurableEvent::RuleChanged(changed) => {
                note(&format!("runs unasked from here on: {}", changed.grant.describe()))
            }
            DurableEvent::Compacted(_) => {
                note("from here on the model reads a summary of the older messages")
            }
            DurableEvent::Renamed(renamed) => match &renamed.title {
                Some(title) => note(&format!("title: {title}")),
                None => note("the title was taken away"),
            },
            DurableEvent::KbAdded(document) => note(&format!("document added: {document}")),
            DurableEvent::KbRemoved(document) => note(&format!("document removed: {document}")),
            DurableEvent::Interrupted(interrupted) => note(&format!("stopped: {}", interrupted.reason)),
            DurableEvent::TurnFailed(failed) => note(&format!("failed: {}", failed.message)),
            DurableEvent::Closing(reason) => note(&format!("the session ended: {reason}")),
            DurableEvent::ApprovalRequested(_)
            | DurableEvent::ApprovalResolved(_)
            | DurableEvent::QueueStarted(_)
            | DurableEvent::Done(_) => String::new(),
        }
    }

    fn assistant(&self, message: &AssistantMessage, at: Timestamp) -> String {
        let said = parts(&message.parts);
        let cut = message.status.is_cut();
        if said.trim().is_empty() && !cut {
            return String::new();
        }
        let named = self.names.iter().find(|(id, _)| *id == message.agent);
        let name = named.map_or(message.agent.as_str(), |(_, name)| name);
        let mut text = format!("\n## {name} · {at}\n\n{}\n", said.trim_end());
        if cut {
            text.push_str("\n*(cut here)*\n");
        }
        text
    }
}

fn user(message: &UserMessage, at: Timestamp) -> String {
    let who = match message.context.as_ref().map(|context| context.origin) {
        None | Some(MessageOrigin::User) => "You",
        Some(MessageOrigin::System) => "System",
        Some(MessageOrigin::Event) => "Event",
    };
    format!("\n## {who} · {at}\n\n{}\n", parts(&message.parts).trim_end())
}

/// Writes what is said, with a line for each picture.
fn parts(parts: &[Part]) -> String {
    let mut text = text_of(parts);
    for part in parts {
        if let Part::Image(image) = part {
            // Writing into a String can't fail. Four characters of base64 are three bytes.
            let _ = write!(text, "\n\n*(picture: {}, {} bytes)*", image.mime, image.data.len() / 4 * 3);
        }
    }
    text
}

fn tool_result(finished: &ToolFinished) -> String {
    let result = &finished.result;
    let how = match (finished.ran, result.is_error) {
        (false, _) => "did not run",
        (true, true) => "failed",
        (true, false) => "gave",
    };
    let cut = if finished.truncated { "*(the output was longer)*\n" } else { "" };
    format!("\n**{}** {how}\n\n{}{cut}", result.name, fenced("", &result.output))
}

fn note(text: &str) -> String {
    // One line, whatever is in it.
    let words: Vec<&str> = text.split_whitespace().collect();
    format!("\n*({})*\n", words.join(" "))
}

fn object(args: &Map<String, Value>) -> String {
    // A map of strings to values is always JSON.
    serde_json::to_string_pretty(args).unwrap_or_default()
}

/// Puts text between fences that are longer than any within it.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(LEAST_FENCE.max(longest + 1));
    let text = text.trim_end_matches('\n');
    format!("{fence}{language}\n{text}\n{fence}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event: &str) -> Entry {
        serde_json::from_str(&format!(r#"{{"seq":1,"at":0,"event":{event}}}"#)).unwrap()
    }

    #[test]
    fn a_session_reads_as_a_page() {
        let header = r#"{"format":"tns-session","version":1,"id":"s","title":"Boats","workspace":"/w","createdAt":0,
            "events":9,"agents":[{"id":"helper-1","name":"helper","role":"helper","goal":null,"domain":null,"roles":[],
            "engine":{},"provider":"p","model":"m","system":"hidden"}]}"#;
        let header: Header = serde_json::from_str(header).unwrap();
        let mut page = Markdown::default();
        let mut text = page.begin(&header);
        for event in [
            r#"{"user_message":{"id":"m","agent":"helper-1","parts":[{"text":"list it"},{"image":{"mime":"image/png","data":"AAAA"}}]}}"#,
            r#"{"assistant_message":{"id":"a","agent":"helper-1","model":"m","status":"complete","parts":[],
                "notes":[{"text":"a hidden note"}]}}"#,
            r#"{"tool_started":{"call":"c","agent":"helper-1","tool":"shell","args":{"command":"ls"},"class":"EXEC"}}"#,
            r#"{"tool_finished":{"agent":"helper-1","ran":true,"duration_ms":1,"truncated":false,
                "result":{"call":"c","name":"shell","output":"```\na\n","is_error":false}}}"#,
            r#"{"assistant_message":{"id":"b","agent":"helper-1","model":"m","status":"interrupted","parts":[{"text":"Two "}]}}"#,
            r#"{"interrupted":{"usage":{"tokens":1,"cost":0.0},"reason":"cancelled"}}"#,
            r#"{"done":{"usage":{"tokens":1,"cost":0.0},"stop":"end"}}"#,
        ] {
            text.push_str(&page.entry(&entry(event)));
        }
        insta::assert_snapshot!(text);
    }
}
