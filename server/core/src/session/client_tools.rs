//! Tools that a connection runs itself: their names, limits and the calls that wait for an answer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tns_protocol::approval::RiskClass;
use tns_protocol::{ErrorCode, ToolCallId};
use tokio::sync::oneshot;

use super::ConnectionId;
use super::port::TurnPort;
use crate::event::Refusal;
use crate::store::hex;
use crate::tool::{Args, Rating, Tool, ToolOutcome, ToolRun, ToolSpec, Workspace};
use crate::visible;

/// Most client tools of a session.
pub const MAX_CLIENT_TOOLS: usize = 256;
/// Largest schema of a client tool, in bytes of its JSON.
pub const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Longest bare name of a client's server or tool, in bytes.
pub const MAX_BARE_NAME_BYTES: usize = 128;
/// Longest description that reaches the model, in characters; the rest is cut.
pub const MAX_DESCRIPTION_CHARS: usize = 4_096;
/// Longest name of an offered tool: the least that every provider takes.
const MAX_OFFERED_NAME_BYTES: usize = 64;

/// A tool as a client registers it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientToolDef {
    /// The client's server that has the tool: 1 to 128 of `[A-Za-z0-9_.-]`.
    pub server: String,
    /// The tool's bare name: 1 to 128 of `[A-Za-z0-9_.-]`.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments; anything but an object takes any arguments.
    pub schema: Value,
}

/// A tool of a connection, as offered to the model.
#[derive(Debug, PartialEq)]
pub(crate) struct ClientTool {
    pub(crate) connection: ConnectionId,
    pub(crate) server: String,
    pub(crate) name: String,
    pub(crate) pin: String,
    pub(crate) spec: Arc<ToolSpec>,
}

/// The tools of a session's connections.
#[derive(Debug, Default)]
pub(crate) struct ClientTools {
    /// In the order of registration, the latest last.
    sets: Vec<(ConnectionId, Vec<ClientToolDef>)>,
    waiting: HashMap<ToolCallId, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    connection: ConnectionId,
    reply: oneshot::Sender<Result<String, String>>,
}

impl ClientTools {
    /// Replaces a connection's set.
    pub(crate) fn register(
        &mut self,
        connection: ConnectionId,
        tools: Vec<ClientToolDef>,
    ) -> Result<(), Refusal> {
        let refuse = |code, message| Refusal { code, message, request: "mcp_tools" };
        let others: usize =
            self.sets.iter().filter(|(id, _)| *id != connection).map(|(_, set)| set.len()).sum();
        if others + tools.len() > MAX_CLIENT_TOOLS {
            let message = format!("a session takes at most {MAX_CLIENT_TOOLS} client tools");
            return Err(refuse(ErrorCode::Limit, message));
        }
        for tool in &tools {
            for (field, name) in [("server", &tool.server), ("name", &tool.name)] {
                if !is_bare_name(name) {
                    let message = format!("tools: {field} must be 1 to 128 of A-Z a-z 0-9 _ . -");
                    return Err(refuse(ErrorCode::InvalidMessage, message));
                }
            }
            if tool.schema.to_string().len() > MAX_SCHEMA_BYTES {
                let message = format!("the schema of {} is larger than {MAX_SCHEMA_BYTES} bytes", tool.name);
                return Err(refuse(ErrorCode::Limit, message));
            }
        }
        self.sets.retain(|(id, _)| *id != connection);
        if !tools.is_empty() {
            self.sets.push((connection, tools));
        }
        Ok(())
    }

    /// Removes a connection's set and fails the calls that wait for it.
    pub(crate) fn leave(&mut self, connection: ConnectionId) {
        self.sets.retain(|(id, _)| *id != connection);
        let gone: Vec<ToolCallId> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.connection == connection)
            .map(|(call, _)| call.clone())
            .collect();
        for call in gone {
            if let Some(waiting) = self.waiting.remove(&call) {
                drop(waiting.reply.send(Err("The client that runs this tool has left.".to_owned())));
            }
        }
    }

    /// Returns the tools as offered: one a (server, name), the latest registration serves. Names that
    /// a built-in tool has, or that two tools would share, are told apart by a hash.
    pub(crate) fn offered(&self, builtin: &[&str]) -> Vec<Arc<ClientTool>> {
        let mut latest: BTreeMap<(&str, &str), (ConnectionId, &ClientToolDef)> = BTreeMap::new();
        for (connection, tools) in &self.sets {
            for tool in tools {
                latest.insert((&tool.server, &tool.name), (*connection, tool));
            }
        }
        let mut plain: HashMap<String, usize> = HashMap::new();
        for (server, name) in latest.keys() {
            *plain.entry(plain_name(server, name).0).or_default() += 1;
        }
        let offer = |(connection, tool): &(ConnectionId, &ClientToolDef)| {
            let (name, changed) = plain_name(&tool.server, &tool.name);
            let ambiguous =
                plain.get(&name).is_some_and(|count| *count > 1) || builtin.contains(&name.as_str());
            let name = if changed || ambiguous { hashed_name(&name, tool) } else { name };
            Arc::new(ClientTool {
                connection: *connection,
                server: tool.server.clone(),
                name: tool.name.clone(),
                pin: pin(tool),
                spec: Arc::new(ToolSpec {
                    name,
                    description: tool.description.chars().take(MAX_DESCRIPTION_CHARS).collect(),
                    schema: object_schema(&tool.schema),
                }),
            })
        };
        latest.values().map(offer).collect()
    }

    /// Remembers who waits for a call.
    pub(crate) fn wait(
        &mut self,
        call: ToolCallId,
        connection: ConnectionId,
        reply: oneshot::Sender<Result<String, String>>,
    ) {
        self.waiting.retain(|_, waiting| !waiting.reply.is_closed());
        self.waiting.insert(call, Waiting { connection, reply });
    }

    /// Answers a waiting call; `false`: nobody waits, or another connection was asked.
    pub(crate) fn answer(
        &mut self,
        connection: ConnectionId,
        call: &ToolCallId,
        result: Result<String, String>,
    ) -> bool {
        match self.waiting.get(call) {
            Some(waiting) if waiting.connection == connection && !waiting.reply.is_closed() => {}
            _ => return false,
        }
        self.waiting.remove(call).is_some_and(|waiting| waiting.reply.send(result).is_ok())
    }
}

fn is_bare_name(name: &str) -> bool {
    (1..=MAX_BARE_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

/// Returns `mcp_<server>_<name>` in the characters and length that every provider takes, and whether
/// that changed it.
fn plain_name(server: &str, name: &str) -> (String, bool) {
    let full = format!("mcp_{server}_{name}");
    let clean = full.replace(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'), "_");
    let changed = clean != full || clean.len() > MAX_OFFERED_NAME_BYTES;
    (clean, changed)
}

fn hashed_name(plain: &str, tool: &ClientToolDef) -> String {
    let digest = Sha256::digest(format!("{}\0{}", tool.server, tool.name).as_bytes());
    let suffix = hex(&digest[..4]);
    let room = MAX_OFFERED_NAME_BYTES - suffix.len() - 1;
    // The name is ASCII by now.
    format!("{}_{suffix}", &plain[..plain.len().min(room)])
}

/// Returns the digest of what the person who approves a tool has seen of it.
fn pin(tool: &ClientToolDef) -> String {
    let text = json!([tool.server, tool.name, tool.description, tool.schema]).to_string();
    hex(&Sha256::digest(text.as_bytes()))
}

/// Returns a schema whose root is an object, as every provider demands.
fn object_schema(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let mut members = members.clone();
            members.insert("type".into(), json!("object"));
            members.entry("properties").or_insert_with(|| json!({}));
            Value::Object(members)
        }
        _ => json!({ "type": "object", "properties": {} }),
    }
}

/// A client's tool within a turn.
pub(crate) struct ProxyTool {
    pub(crate) tool: Arc<ClientTool>,
    pub(crate) port: TurnPort,
}

#[async_trait]
impl Tool for ProxyTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.tool.spec
    }

    async fn rate(&self, args: &Args, _workspace: &Workspace) -> Rating {
        let args = visible::one_line(&Value::Object(args.clone()).to_string());
        let summary = format!("{} of the client's server {} with {args}", self.tool.name, self.tool.server);
        let reason = "the client runs this tool; what it does is not known here";
        Rating { pin: Some(self.tool.pin.clone()), ..Rating::new(RiskClass::Unknown, reason, summary) }
    }

    async fn run(&self, run: ToolRun) -> ToolOutcome {
        let answer = self.port.call_client(run.call, self.tool.clone(), run.args);
        tokio::select! {
            result = answer => match result {
                Ok(output) => ToolOutcome::ok(output),
                Err(message) => ToolOutcome::error(message),
            },
            () = run.cancel.cancelled() => ToolOutcome::error("The client's tool did not answer in time."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn def(server: &str, name: &str) -> ClientToolDef {
        ClientToolDef { server: server.into(), name: name.into(), description: "d".into(), schema: json!({}) }
    }

    fn names(tools: &ClientTools, builtin: &[&str]) -> Vec<String> {
        tools.offered(builtin).iter().map(|tool| tool.spec.name.clone()).collect()
    }

    const ONE: ConnectionId = ConnectionId(1);
    const TWO: ConnectionId = ConnectionId(2);

    #[test]
    fn equal_names_on_two_servers_stay_apart_and_doubles_fall_together() {
        let mut tools = ClientTools::default();
        tools.register(ONE, vec![def("fs", "search"), def("git", "search"), def("fs", "search")]).unwrap();
        assert_eq!(names(&tools, &[]), ["mcp_fs_search", "mcp_git_search"]);
        tools.register(ONE, vec![def("fs", "search")]).unwrap();
        assert_eq!(names(&tools, &[]), ["mcp_fs_search"]);
        tools.register(ONE, vec![]).unwrap();
        assert_eq!(names(&tools, &[]), Vec::<String>::new());
    }

    #[test]
    fn names_that_are_changed_or_ambiguous_get_a_stable_hash() {
        let mut tools = ClientTools::default();
        tools
            .register(
                ONE,
                vec![def("a", "b_c"), def("a_b", "c"), def("x", "d.e"), def("x", &"n".repeat(100))],
            )
            .unwrap();
        let offered = names(&tools, &["mcp_never"]);
        let mut unique = offered.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), 4, "{offered:?}");
        assert!(offered.iter().all(|name| name.len() <= MAX_OFFERED_NAME_BYTES));
        assert!(
            offered
                .iter()
                .all(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'))
        );
        assert_eq!(offered, names(&tools, &["mcp_never"]));
    }

    #[test]
    fn a_builtin_is_never_shadowed() {
        let mut tools = ClientTools::default();
        tools.register(ONE, vec![def("fs", "read")]).unwrap();
        assert_ne!(names(&tools, &["mcp_fs_read"]), ["mcp_fs_read"]);
    }

    #[test]
    fn the_latest_registration_serves_and_the_other_takes_over() {
        let mut tools = ClientTools::default();
        tools.register(ONE, vec![def("fs", "read")]).unwrap();
        tools.register(TWO, vec![def("fs", "read")]).unwrap();
        assert_eq!(tools.offered(&[])[0].connection, TWO);
        tools.leave(TWO);
        assert_eq!(tools.offered(&[])[0].connection, ONE);
    }

    #[test]
    fn only_the_asked_connection_answers_and_only_once() {
        let mut tools = ClientTools::default();
        let call = ToolCallId::parse("c").unwrap();
        let (reply, mut answer) = oneshot::channel();
        tools.wait(call.clone(), ONE, reply);
        assert!(!tools.answer(TWO, &call, Ok("no".into())));
        assert!(tools.answer(ONE, &call, Ok("yes".into())));
        assert!(!tools.answer(ONE, &call, Ok("again".into())));
        assert_eq!(answer.try_recv().unwrap(), Ok("yes".into()));
    }

    #[test]
    fn an_answer_after_the_call_was_withdrawn_finds_nobody() {
        let mut tools = ClientTools::default();
        let call = ToolCallId::parse("c").unwrap();
        let (reply, answer) = oneshot::channel();
        tools.wait(call.clone(), ONE, reply);
        drop(answer);
        assert!(!tools.answer(ONE, &call, Ok("late".into())));
    }

    #[test]
    fn limits_hold_at_their_edge() {
        let mut tools = ClientTools::default();
        let many = |n: usize| (0..n).map(|at| def("s", &format!("t{at}"))).collect::<Vec<_>>();
        tools.register(ONE, many(MAX_CLIENT_TOOLS)).unwrap();
        assert_eq!(tools.register(TWO, many(1)).unwrap_err().code, ErrorCode::Limit);
        assert_eq!(tools.register(ONE, many(MAX_CLIENT_TOOLS + 1)).unwrap_err().code, ErrorCode::Limit);
        assert_eq!(tools.offered(&[]).len(), MAX_CLIENT_TOOLS);
        tools.register(ONE, vec![def("s", &"n".repeat(MAX_BARE_NAME_BYTES))]).unwrap();
        let long = def("s", &"n".repeat(MAX_BARE_NAME_BYTES + 1));
        assert_eq!(tools.register(ONE, vec![long]).unwrap_err().code, ErrorCode::InvalidMessage);
        let room = MAX_SCHEMA_BYTES - json!({"x": ""}).to_string().len();
        let schema =
            |bytes: usize| ClientToolDef { schema: json!({"x": "s".repeat(bytes)}), ..def("s", "n") };
        tools.register(ONE, vec![schema(room)]).unwrap();
        assert_eq!(tools.register(ONE, vec![schema(room + 1)]).unwrap_err().code, ErrorCode::Limit);
    }

    #[test]
    fn a_schema_always_has_an_object_at_its_root() {
        for schema in [json!({}), Value::Null, json!({"type": "string"}), json!([1])] {
            let object = object_schema(&schema);
            assert_eq!(object["type"], "object");
            assert!(object["properties"].is_object());
        }
    }
}
