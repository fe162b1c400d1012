//! What a server does when it is killed: a line for each kind of work.

use std::time::Duration;

use serde_json::{Value, json};
use tns_tests::provider::{Reply, call_body, calls_body, text_body};

use super::client::Client;

/// Pause before each piece of a slow reply.
const PACE: Duration = Duration::from_millis(2);

/// Kinds of work. Each has a test of its own in `crash.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A reply is streamed.
    Streaming,
    /// Tools run, one after the other.
    Tools,
    /// Approvals wait, are answered, and what was approved runs.
    Approvals,
    /// Documents are added and searched for.
    Documents,
    /// Agents are added, renamed and removed.
    Agents,
    /// Messages wait while a reply is written, and are answered in turn.
    Queue,
    /// A summary takes the place of what was said: asked for, and when a model refuses what is too long.
    Compaction,
    /// Some of it at once.
    Mixed,
}

/// The work of one trial in a phase.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) phase: Phase,
    pub(super) trial: usize,
}

impl Phase {
    /// What the phase's sessions may do without asking.
    pub(super) fn autonomy(self) -> &'static str {
        match self {
            Self::Approvals => "SUPERVISED",
            Self::Streaming | Self::Tools | Self::Documents | Self::Agents | Self::Queue => "FULL_AUTO",
            Self::Compaction | Self::Mixed => "FULL_AUTO",
        }
    }

    /// Whether a kill in it cuts turns.
    pub(super) fn has_turns(self) -> bool {
        match self {
            Self::Streaming
            | Self::Tools
            | Self::Approvals
            | Self::Queue
            | Self::Compaction
            | Self::Mixed => true,
            Self::Documents | Self::Agents => false,
        }
    }

    /// Whether its turns run tools.
    pub(super) fn has_tools(self) -> bool {
        match self {
            Self::Tools | Self::Approvals | Self::Mixed => true,
            Self::Streaming | Self::Documents | Self::Agents | Self::Queue | Self::Compaction => false,
        }
    }
}

impl Work {
    /// Returns the sender's own id of one of its messages.
    pub(super) fn message_id(self, number: usize) -> String {
        format!("m-{}-{number}", self.trial)
    }

    /// Returns what the model answers, one after the other. Each command appends a line to a file of its own, so
    /// that running twice shows.
    pub(super) fn replies(self) -> Vec<Reply> {
        let slow = || Reply::slow(text_body(&["piece "; 12]), PACE);
        let call = |id: &str| Reply::from(call_body(id, "shell", &self.command(id)));
        match self.phase {
            Phase::Streaming => vec![slow()],
            Phase::Tools => vec![call("first"), call("second"), slow()],
            Phase::Approvals => {
                let commands = ["first", "second", "third"].map(|id| (id, "shell", self.command(id)));
                vec![calls_body(&commands).into(), text_body(&["done"]).into()]
            }
            Phase::Documents | Phase::Agents => Vec::new(),
            Phase::Queue => vec![slow(), slow(), slow()],
            Phase::Compaction => {
                let answer = || Reply::from(text_body(&["an answer"]));
                let refused = Reply::refusal(400, "this model's maximum context length is 8 tokens");
                vec![answer(), answer(), slow(), refused, slow(), slow()]
            }
            Phase::Mixed => vec![call("first"), call("second"), slow(), slow()],
        }
    }

    fn command(self, id: &str) -> Value {
        json!({ "command": format!("echo ran >> ran-{}-{id}", self.trial) })
    }

    /// Returns a document whose second word is in no other.
    fn document(self, number: usize) -> Value {
        json!({ "content": format!("note word{}x{number} of a trial", self.trial) })
    }

    /// Asks for the work and follows it to its end.
    pub(super) async fn run(self, client: &mut Client<'_>) {
        match self.phase {
            Phase::Streaming | Phase::Tools => {
                client.say(&self.message_id(1), "work").await;
                client.ends(1).await;
            }
            Phase::Approvals => self.answer_calls(client).await,
            Phase::Documents => {
                for number in 0..3 {
                    client.send("kb_add", self.document(number)).await;
                    client.expect("kb_added").await;
                    // What was added is read into the index now.
                    client.send("kb_search", json!({ "query": "note" })).await;
                    client.expect("kb_search_result").await;
                }
            }
            Phase::Agents => {
                for number in 0..3 {
                    client.send("agent_add", json!({ "role": format!("r{}-{number}", self.trial) })).await;
                    let team = client.expect("team_update").await;
                    let added = &team["agents"].as_array().unwrap().last().unwrap()["agentId"];
                    match number {
                        0 => {}
                        1 => client.send("agent_update", json!({ "agentId": added, "name": "Ada" })).await,
                        _ => client.send("agent_remove", json!({ "agentId": added })).await,
                    }
                    if number > 0 {
                        client.expect("team_update").await;
                    }
                }
            }
            Phase::Queue => {
                for number in 1..=3 {
                    client.say(&self.message_id(number), "work").await;
                }
                client.ends(3).await;
            }
            Phase::Compaction => {
                // Longer than its summary will be: once it is asked for, once the model refuses what is there.
                let long = "work ".repeat(2_000);
                for number in 1..=2 {
                    client.say(&self.message_id(number), &long).await;
                    client.ends(1).await;
                }
                client.send("compact", json!({})).await;
                client.expect("compaction").await;
                client.say(&self.message_id(3), "more work").await;
                client.expect("compaction").await;
                client.ends(1).await;
            }
            Phase::Mixed => {
                client.say(&self.message_id(1), "work").await;
                client.send("kb_add", self.document(0)).await;
                client.say(&self.message_id(2), "more work").await;
                client.ends(2).await;
            }
        }
    }

    /// Answers three calls, one in each way. While one is looked at the others wait.
    async fn answer_calls(self, client: &mut Client<'_>) {
        client.say(&self.message_id(1), "work").await;
        let mut calls = Vec::new();
        while calls.len() < 3 {
            calls.push(client.expect("tool_approve_request").await["toolCallId"].clone());
        }
        // The first one runs only when it is answered, so that all have been decided by then.
        for (at, decision) in [(2, "approve"), (1, "reject"), (0, "always")] {
            client.settle().await;
            client.send("tool_approve", json!({ "toolCallId": calls[at], "decision": decision })).await;
            client.expect("tool_approval_resolved").await;
        }
        client.ends(1).await;
    }
}
