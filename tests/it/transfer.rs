//! Sessions as files: what is written is taken in again as it was, and what is damaged is refused as a whole.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tns_protocol::approval::{AutonomyLevel, RiskClass};
use tns_protocol::chat::{StopReason, Usage};
use tns_protocol::{AgentId, DocumentId, ErrorCode, MessageId, ToolCallId};
use tns_server_core::agent::Agent;
use tns_server_core::approval::{Coverage, Grant};
use tns_server_core::engine::EngineChoice;
use tns_server_core::event::{
    AssistantMessage, DurableEvent, MessageStatus, QueueEdited, Renamed, RuleChanged, TeamUpdated,
    ToolFinished, ToolStarted, TurnDone, TurnFailed, TurnInterrupted, UserMessage,
};
use tns_server_core::memory::MemoryStore;
use tns_server_core::message::{Image, Native, Note, Part, Passage, ToolCall, ToolResult};
use tns_server_core::scripted::{Beat, Gate, Script};
use tns_server_core::store::{Append, LOCAL_PRINCIPAL, NewEvent, NewSession, SessionState, Store as _};
use tns_tests::http::{self, Answer};
use tns_tests::{TestServer, notes, session};

use crate::{call_id, say, setup, start, write_file};

async fn get(server: &TestServer, path: &str) -> Answer {
    http::get(server.address(), path).await
}

/// Exports a session, whose bytes come as they are.
async fn export(server: &TestServer, id: &str, query: &str) -> Answer {
    let address = server.address();
    let request = format!(
        "GET /api/sessions/{id}/export?{query} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    );
    http::send(address, request.as_bytes()).await
}

async fn lines(server: &TestServer, id: &str) -> String {
    let answer = export(server, id, "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.headers.contains("content-type: application/jsonl"), "{answer:?}");
    answer.body
}

async fn import(server: &TestServer, file: &[u8], query: &str) -> Answer {
    let head = format!(
        "POST /api/sessions/import?{query} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
         Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n",
        server.address(),
        file.len()
    );
    http::send(server.address(), &[head.as_bytes(), file].concat()).await
}

/// Returns a file with another session's id in its first line.
fn named(file: &str, id: &str) -> String {
    let (head, rest) = file.split_once('\n').unwrap();
    let mut header: Value = serde_json::from_str(head).unwrap();
    header["id"] = json!(id);
    format!("{header}\n{rest}")
}

async fn sessions(server: &TestServer) -> BTreeSet<String> {
    let list = get(server, "/api/sessions?limit=500").await.json();
    let ids = list["sessions"].as_array().unwrap().iter();
    ids.map(|session| session["id"].as_str().unwrap().to_owned()).collect()
}

/// Starts a server with a session `s` that has a bit of everything.
async fn with_everything(script: Script) -> TestServer {
    let script =
        script.call("list_dir", json!({})).step([write_file("a.txt", "x")]).text("the harbour is quiet");
    let server = start(script).await;
    let mut socket = server.socket().await;
    socket.send("s", "kb_add", json!({ "content": "The harbour master is called Ada." })).await;
    socket.expect("kb_added").await;
    socket.send("s", "set_autonomy", json!({ "level": "CAUTIOUS" })).await;
    socket.expect("autonomy_changed").await;
    socket.chat("s", "who is the harbour master?").await;
    let request = socket.expect("tool_approve_request").await;
    socket.decide("s", call_id(&request), "reject").await;
    socket.until("done").await;
    let rename = json!({ "title": "Boats" });
    http::call(server.address(), "PATCH", "/api/sessions/s", Some(&rename)).await;
    let messages = get(&server, "/api/sessions/s/messages").await.json();
    let first = &messages["messages"][0]["messageId"];
    let rated = json!({ "messageId": first, "score": "up" });
    http::call(server.address(), "POST", "/api/sessions/s/feedback", Some(&rated)).await;
    server
}

#[tokio::test]
async fn an_export_is_taken_in_elsewhere_and_the_talk_goes_on() {
    let first = with_everything(Script::new()).await;
    let file = lines(&first, "s").await;
    // With what only the model was shown.
    assert!(file.contains("\"knowledge\"") && file.contains("called Ada"), "{file}");
    let script = Script::new().text("and still is");
    let second = start(script.clone()).await;
    let made = import(&second, file.as_bytes(), "").await;
    assert_eq!(made.status, 201, "{made:?}");
    let (made, shown) = (made.json(), get(&first, "/api/sessions/s").await.json());
    for field in ["id", "title", "createdAt", "headSeq", "autonomy", "agents", "workspace"] {
        assert_eq!(made[field], shown[field], "{field}");
    }
    assert_eq!(lines(&second, "s").await, file);
    let log = async |server: &TestServer| get(server, "/api/sessions/s/events?live=0").await.json();
    assert_eq!(log(&second).await, log(&first).await);
    let messages = async |server: &TestServer| get(server, "/api/sessions/s/messages").await.json();
    assert_eq!(messages(&second).await, messages(&first).await);
    assert_eq!(get(&second, "/api/sessions/search?q=quiet").await.json()["results"][0]["sessionId"], "s");

    let mut socket = second.socket().await;
    socket.chat("s", "is it?").await;
    socket.until("done").await;
    let request = script.requests().pop().unwrap();
    let said: Vec<&str> = request
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None })
        .collect();
    assert_eq!(said, ["who is the harbour master?", "the harbour is quiet", "is it?"]);
    assert!(matches!(notes(&request)[0], Note::Knowledge(_)), "the model is shown what it was shown");
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn an_import_never_touches_a_session_that_is_there() {
    let server = with_everything(Script::new()).await;
    let file = lines(&server, "s").await;
    let again = import(&server, file.as_bytes(), "").await.json();
    let fresh = again["id"].as_str().unwrap();
    assert_ne!(fresh, "s");
    assert_eq!(lines(&server, fresh).await, named(&file, fresh));
    assert_eq!(import(&server, file.as_bytes(), "id=mine").await.json()["id"], "mine");
    let (status, code) = import(&server, file.as_bytes(), "id=mine").await.refusal();
    assert_eq!((status, code.as_str()), (409, "INVALID_MESSAGE"));
    let other = named(&file, "free");
    assert_ne!(import(&server, other.as_bytes(), "new=1").await.json()["id"], "free");
    assert_eq!(import(&server, other.as_bytes(), "").await.json()["id"], "free");
    for wrong in ["id=x&new=1", "id=a%20b", "new=x", "workspace=/nowhere/at/all", "workspace=relative"] {
        let (status, code) = import(&server, other.as_bytes(), wrong).await.refusal();
        assert_eq!((status, code.as_str()), (400, "INVALID_MESSAGE"), "{wrong}");
    }
    // A folder that this machine does not have is no reason to refuse.
    let elsewhere = file.replace(server.workspace().to_str().unwrap(), "/nowhere/at/all");
    let root = std::fs::canonicalize(server.workspace()).unwrap();
    assert_eq!(import(&server, elsewhere.as_bytes(), "").await.json()["workspace"], json!(root));
    let folder = tempfile::tempdir().unwrap();
    let folder = std::fs::canonicalize(folder.path()).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    let query = format!("workspace={}", folder.display());
    assert_eq!(import(&server, file.as_bytes(), &query).await.json()["workspace"], json!(folder));
    assert_eq!(lines(&server, "s").await, file);
    server.stop().await;
}

#[tokio::test]
async fn a_damaged_file_is_refused_whole_with_its_line() {
    let server = with_everything(Script::new()).await;
    let file = named(&lines(&server, "s").await, "damaged");
    let whole: Vec<&str> = file.lines().collect();
    let before = sessions(&server).await;
    let put = |at: usize, line: &str| {
        let mut lines = whole.clone();
        lines[at - 1] = line;
        lines.join("\n")
    };
    let last = whole.len();
    let glued = format!("{}{}", whole[2], whole[3]);
    let unknown = whole[2].replacen("\"event\":{\"", "\"event\":{\"future_", 1);
    let long = format!("{}\n\"{}\"", whole[0], "x".repeat(33 << 20));
    let large = large_file();
    let nobody = r#"{"seq":1,"at":1,"event":{"team_updated":{"agents":[],"tools":[]}}}"#;
    for (damaged, line, what) in [
        (String::new(), 1, "the file is empty"),
        ("{}".into(), 1, "missing field"),
        (put(last, &whole[last - 1][..20]), last, "at column"),
        (whole[..last - 1].join("\n"), last - 1, "it was cut"),
        (put(3, &"\0".repeat(300)), 3, "NUL bytes"),
        (put(3, &glued), 3, "trailing characters"),
        (put(3, &unknown), 3, "unknown variant"),
        (put(3, "{}"), 3, "missing field"),
        (put(3, ""), 3, "it is empty"),
        (put(2, nobody), 2, "1 to 16 agents"),
        (put(2, r#"{"seq":1,"at":1,"event":{"closing":"deleted"}}"#), 2, "ended"),
        (put(2, r#"{"seq":1,"at":1,"feedback":"up","event":{"renamed":null}}"#), 2, "only a message"),
        (long, 2, "more than 33554432 bytes"),
        (large[..large.len() - 20].to_owned(), 2_001, "at column"),
    ] {
        let answer = import(&server, damaged.as_bytes(), "").await;
        let text = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(answer.refusal(), (400, "INVALID_MESSAGE".to_owned()));
        assert!(text.starts_with(&format!("line {line}: ")) && text.contains(what), "{what}: {text}");
        assert!(text.ends_with("nothing was taken in") && !text.contains('\n'), "{text}");
    }
    assert_eq!(sessions(&server).await, before);
    // A line separator of Unicode is a character like any other.
    let separated = put(last, &whole[last - 1].replace("Boats", "Bo\u{2028}ats"));
    assert_eq!(import(&server, separated.as_bytes(), "").await.status, 201);
    // An editor may have put something around it.
    for end in ["\n", "\n\n", "\r\n\r\n", "\n\n  "] {
        let edited = format!("\u{feff}{separated}{end}");
        assert_eq!(import(&server, edited.as_bytes(), "").await.status, 201, "{end:?}");
    }
    let packed = import(&server, b"\x1f\x8b\x08\0\0\n\0", "").await;
    assert!(packed.body.contains("line 1: the file is packed with gzip; unpack it first"), "{packed:?}");
    server.stop().await;
}

/// A file of 20 MB: 2,000 turns' messages and ends.
fn large_file() -> String {
    let header = r#"{"format":"tns-session","version":1,"id":"large","workspace":"/","createdAt":1,"events":2000,"agents":[{"id":"a-1","name":"a","role":"a","goal":null,"domain":null,"roles":[],"engine":{},"provider":"scripted","model":"script","system":""}]}"#;
    let text = "x".repeat(20_000);
    let mut file = format!("{header}\n");
    for turn in 0..1_000 {
        let (first, second) = (turn * 2 + 1, turn * 2 + 2);
        file.push_str(&format!(
            "{{\"seq\":{first},\"at\":1,\"turn\":\"m-{turn}\",\"event\":{{\"user_message\":{{\"id\":\"m-{turn}\",\"agent\":\"a-1\",\"parts\":[{{\"text\":\"{text}\"}}],\"queued\":false}}}}}}\n\
             {{\"seq\":{second},\"at\":2,\"turn\":\"m-{turn}\",\"event\":{{\"done\":{{\"usage\":{{\"tokens\":0,\"cost\":0.0}},\"stop\":\"end\"}}}}}}\n"
        ));
    }
    file
}

#[tokio::test]
async fn a_file_of_any_size_is_taken_in_and_written_a_piece_at_a_time() {
    let server = start(Script::new()).await;
    let file = large_file();
    assert!(file.len() > 20_000_000);
    let made = import(&server, file.as_bytes(), "").await;
    assert_eq!((made.status, &made.json()["headSeq"]), (201, &json!(2_000)), "{made:?}");
    assert_eq!(lines(&server, "large").await.len(), file.len());
    server.stop().await;
}

#[tokio::test]
async fn a_turn_that_was_exported_before_its_end_gets_one() {
    let gate = Gate::new();
    let script = Script::new().step([say("a"), Beat::Gate(gate.clone()), say("b")]).text("two");
    let first = start(script).await;
    let mut socket = first.socket().await;
    socket.chat("s", "one").await;
    socket.expect("token").await;
    socket.chat("s", "two").await;
    socket.settle("s").await;
    let file = lines(&first, "s").await;
    gate.open();
    let second_script = Script::new().text("answered");
    let second = start(second_script.clone()).await;
    assert_eq!(import(&second, file.as_bytes(), "").await.status, 201);
    let log = get(&second, "/api/sessions/s/events?live=0").await.json();
    // The title is beside the talk.
    let events = log["events"].as_array().unwrap().iter();
    let events: Vec<&Value> = events.filter(|event| event["type"] != "session_updated").collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["user_message", "user_message", "error", "error"]);
    assert_eq!(events[2]["code"], "SERVER_RESTARTED");
    let ended: Vec<&Value> = events[2..].iter().map(|event| &event["turnId"]).collect();
    assert_eq!(ended, [&events[0]["messageId"], &events[1]["messageId"]]);
    // What waited in a file waits no more: nothing begins that nobody here asked for.
    let mut socket = second.socket().await;
    assert!(socket.join("s").await.iter().all(|event| event["type"] != "done"));
    assert_eq!(second_script.requests().len(), 0);
    socket.chat("s", "three").await;
    socket.until("done").await;
    assert!(!format!("{:?}", second_script.requests()[0].messages).contains("two"));
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn nothing_runs_unasked_because_a_file_says_so() {
    let server = start(Script::new()).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.expect("autonomy_changed").await;
    let file = named(&lines(&server, "s").await, "t");
    assert_eq!(import(&server, file.as_bytes(), "").await.json()["autonomy"], "SUPERVISED");
    assert_eq!(lines(&server, "t").await, file);
    server.stop().await;
}

#[tokio::test]
async fn secrets_are_taken_out_where_that_is_asked_for_and_ids_stay() {
    let key = "sk-ant-api03-Zx81kQpV0mB4tY7uWc2R";
    let script =
        Script::new().call("file_read", json!({ "path": "notes.txt" })).text(&format!("the key is {key}"));
    let server = start(script).await;
    std::fs::write(server.workspace().join("notes.txt"), "DB_PASSWORD=hunter22\n").unwrap();
    let mut socket = server.socket().await;
    socket.chat("s", &format!("keep {key}")).await;
    socket.until("done").await;
    let whole = lines(&server, "s").await;
    assert!(whole.matches(key).count() >= 2 && whole.contains("hunter22"), "{whole}");
    for format in ["jsonl", "markdown"] {
        let redacted = export(&server, "s", &format!("format={format}&redact=1")).await.body;
        assert!(!redacted.contains(key) && !redacted.contains("hunter22"), "{redacted}");
        assert!(redacted.contains("keep [redacted]"), "{redacted}");
    }
    let redacted = export(&server, "s", "redact=1").await.body;
    // It is a log like the other one: the same events with the same ids.
    let made = import(&server, redacted.as_bytes(), "id=t").await;
    assert_eq!(made.status, 201, "{made:?}");
    let ids = async |id: &str| -> Vec<Value> {
        let log = get(&server, &format!("/api/sessions/{id}/events?live=0")).await.json();
        let keep = ["type", "seq", "date", "turnId", "messageId", "toolCallId", "agentId"];
        let events = log["events"].as_array().unwrap().iter();
        events.map(|event| keep.iter().map(|name| event[*name].clone()).collect()).collect()
    };
    assert_eq!(ids("t").await, ids("s").await);
    server.stop().await;
}

#[tokio::test]
async fn a_page_for_people_has_what_was_said_and_not_what_only_the_model_read() {
    let server = with_everything(Script::new()).await;
    let answer = export(&server, "s", "format=markdown").await;
    assert!(answer.headers.contains("content-type: text/markdown; charset=utf-8"), "{answer:?}");
    assert!(answer.headers.contains("filename=\"s.md\""), "{answer:?}");
    for text in ["# Boats\n", "who is the harbour master?", "**list_dir** ran with", "the harbour is quiet"] {
        assert!(answer.body.contains(text), "{text}: {}", answer.body);
    }
    assert!(!answer.body.contains("called Ada"), "{}", answer.body);
    for wrong in ["format=pdf", "redact=x"] {
        assert_eq!(export(&server, "s", wrong).await.refusal().0, 400);
    }
    assert_eq!(export(&server, "nobody", "").await.refusal(), (404, "SESSION_NOT_FOUND".to_owned()));
    let json = http::call(server.address(), "POST", "/api/sessions/import", Some(&json!({}))).await;
    assert_eq!(json.refusal(), (415, "INVALID_MESSAGE".to_owned()));
    server.stop().await;
}

fn agent(id: &str, name: &str) -> Agent {
    Agent {
        id: AgentId::parse(id).unwrap(),
        name: name.to_owned(),
        role: "helper".into(),
        goal: Some("a goal\u{2028}".into()),
        domain: None,
        roles: vec![],
        engine: EngineChoice::default(),
        provider: "scripted".into(),
        model: "script".into(),
        system: "You help.\n".into(),
    }
}

fn message_id(turn: usize, number: usize) -> MessageId {
    MessageId::parse(format!("m-{turn}-{number}")).unwrap()
}

/// A step of a reply: its text, what a tool is called with, what that gave, and what only the model read.
type Step = (String, Vec<(String, i64)>, String, Option<String>, bool);
/// A turn: its message, its steps, how it ends.
type Turn = (String, Vec<Step>, u8);

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let args = prop::collection::vec((any::<String>(), any::<i64>()), 0..3);
    let step = (any::<String>(), args, any::<String>(), any::<Option<String>>(), any::<bool>());
    let turn = (any::<String>(), prop::collection::vec(step, 0..3), any::<u8>());
    prop::collection::vec(turn, 0..6)
}

/// Writes the log of these turns.
fn log(turns: &[Turn]) -> Vec<NewEvent> {
    let mut events = Vec::new();
    for (at, (said, steps, end)) in turns.iter().enumerate() {
        let turn = message_id(at, 0);
        let mut put = |event| events.push(NewEvent { turn: Some(turn.clone()), event });
        let queued = end % 2 == 1;
        put(DurableEvent::UserMessage(UserMessage {
            id: turn.clone(),
            agent: AgentId::parse("a-1").unwrap(),
            parts: vec![
                Part::Text(said.clone()),
                Part::Image(Image { mime: "image/png".into(), data: "AA==".into() }),
            ],
            client_message_id: None,
            context: None,
            queued,
            during: (end % 4 == 1).then(|| turn.clone()),
        }));
        if queued {
            let parts = vec![Part::Text(format!("{said}!"))];
            put(DurableEvent::QueueEdited(QueueEdited { id: turn.clone(), parts }));
            put(DurableEvent::QueueStarted(turn.clone()));
        }
        for (number, step) in steps.iter().enumerate() {
            step_events(at, number + 1, step).into_iter().for_each(&mut put);
        }
        let usage =
            Usage { tokens: u64::from(*end), cost: f64::from(*end) / 1_000.0, unpriced: end % 3 == 0 };
        put(match end % 3 {
            0 => DurableEvent::Done(TurnDone { usage, stop: StopReason::End }),
            1 => {
                let reason = said.clone();
                DurableEvent::Interrupted(TurnInterrupted { usage, reason, response: Some(turn.clone()) })
            }
            _ => {
                DurableEvent::TurnFailed(TurnFailed { code: ErrorCode::ProviderError, message: said.clone() })
            }
        });
        let unbound = match end % 6 {
            0 => DurableEvent::Renamed(Renamed::to((end % 2 == 0).then(|| said.clone()))),
            1 => DurableEvent::AutonomyChanged(AutonomyLevel::Manual),
            2 => DurableEvent::KbAdded(DocumentId::parse(format!("doc-{at}")).unwrap()),
            3 => {
                let agents = vec![agent("a-1", said), agent("a-2", "two")];
                DurableEvent::TeamUpdated(TeamUpdated { agents, tools: vec!["shell".into()] })
            }
            4 => {
                let covers = Coverage::Key(said.clone());
                let summary = (at % 3 == 0).then(|| said.clone());
                let grant = Grant { tool: "shell".into(), class: RiskClass::Network, covers, summary };
                DurableEvent::RuleChanged(RuleChanged { grant, removed: at % 2 == 0, by: "local".into() })
            }
            _ => DurableEvent::KbRemoved(DocumentId::parse("doc-0").unwrap()),
        };
        events.push(NewEvent { turn: None, event: unbound });
    }
    events
}

fn step_events(turn: usize, number: usize, (text, args, output, hidden, failed): &Step) -> Vec<DurableEvent> {
    let agent = AgentId::parse("a-1").unwrap();
    let call = ToolCallId::parse(format!("call-{turn}-{number}")).unwrap();
    let args: serde_json::Map<String, Value> =
        args.iter().map(|(name, value)| (name.clone(), json!({ "n": value, "t": name }))).collect();
    let passage = Passage {
        number: 1,
        document: DocumentId::parse("doc-0").unwrap(),
        source: "a".into(),
        text: text.clone(),
    };
    let native = hidden.as_ref().map(|hidden| Native {
        provider: "p".into(),
        blocks: serde_json::from_str(&format!("[ {} , 1.50]", json!(hidden))).unwrap(),
    });
    vec![
        DurableEvent::AssistantMessage(AssistantMessage {
            id: message_id(turn, number),
            agent: agent.clone(),
            parts: vec![
                Part::Text(text.clone()),
                Part::ToolCall(ToolCall {
                    id: call.clone(),
                    provider_id: hidden.clone(),
                    name: "shell".into(),
                    args: args.clone(),
                    problem: None,
                }),
            ],
            model: "m".into(),
            native,
            notes: vec![Note::Knowledge(vec![passage]), Note::Text(text.clone())],
            status: if *failed { MessageStatus::Interrupted } else { MessageStatus::Complete },
            response: Some(message_id(turn, number)),
            usage: None,
            provider: Some("p".into()),
            counted_on: None,
        }),
        DurableEvent::ToolStarted(ToolStarted {
            call: call.clone(),
            agent: agent.clone(),
            tool: "shell".into(),
            args,
            class: RiskClass::Exec,
        }),
        DurableEvent::ToolFinished(ToolFinished {
            agent,
            result: ToolResult {
                call,
                provider_id: hidden.clone(),
                name: "shell".into(),
                output: output.clone(),
                is_error: *failed,
                untrusted_source: hidden.clone(),
            },
            ran: true,
            duration_ms: 7,
            truncated: *failed,
        }),
    ]
}

/// Stores a session with this log.
async fn store(store: &MemoryStore, id: &str, folder: &std::path::Path, turns: &[Turn]) {
    let mut agents = vec![agent("a-1", "one")];
    let events = log(turns);
    for event in &events {
        if let DurableEvent::TeamUpdated(team) = &event.event {
            agents.clone_from(&team.agents);
        }
    }
    let new = NewSession {
        principal: LOCAL_PRINCIPAL.into(),
        id: session(id),
        title: Some("Titled".into()),
        workspace: folder.to_owned(),
        state: SessionState {
            agents,
            read_sensitive: turns.len().is_multiple_of(2),
            ..SessionState::default()
        },
    };
    let (made, _) = store.create_session(new).await.unwrap();
    store.append(Append::new(made.key, events)).await.unwrap();
}

#[test]
fn any_log_comes_back_byte_for_byte() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let set = setup(Script::new());
    let folder = std::fs::canonicalize(set.workspace.path()).unwrap();
    let server = runtime.block_on(TestServer::start(&set));
    let numbers = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    let result = runner.run(&turns(), |turns| {
        numbers.set(numbers.get() + 1);
        let (id, copy) = (format!("s-{}", numbers.get()), format!("t-{}", numbers.get()));
        let (first, second) = runtime.block_on(async {
            store(&set.store, &id, &folder, &turns).await;
            let first = lines(&server, &id).await;
            let made = import(&server, first.as_bytes(), &format!("id={copy}")).await;
            assert_eq!(made.status, 201, "{made:?}");
            (first, lines(&server, &copy).await)
        });
        prop_assert_eq!(second, named(&first, &copy));
        Ok(())
    });
    result.unwrap();
    runtime.block_on(server.stop());
}
