//! The page that describes the REST face: it names every route, and every route answers as it says.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tns_server_core::scripted::Script;
use tns_tests::TestServer;
use tns_tests::event_stream::EventStream;
use tns_tests::http::{self, Answer};
use tns_tests::standin::{GOOD_KEY, Standin};

use crate::catalogue::with_key;
use crate::{call_id, setup, start, write_file};

/// The page with what was already seen to be as it says.
struct Checked {
    page: Value,
    seen: BTreeSet<(String, String)>,
}

impl Checked {
    async fn new(server: &TestServer) -> Self {
        let page = http::get(server.address(), "/api/openapi.json").await.json();
        Self { page, seen: BTreeSet::new() }
    }

    /// Returns every method and path of the page.
    fn operations(&self) -> BTreeSet<(String, String)> {
        let paths = self.page["paths"].as_object().unwrap();
        let of = |path: &String, item: &Value| -> Vec<(String, String)> {
            item.as_object().unwrap().keys().map(|method| (method.clone(), path.clone())).collect()
        };
        paths.iter().flat_map(|(path, item)| of(path, item)).collect()
    }

    /// Checks a body against a schema of the page.
    fn check(&self, schema: &Value, body: &Value, what: &str) {
        // Anything is right.
        if *schema == json!(true) {
            return;
        }
        let mut root = schema.clone();
        root["components"] = self.page["components"].clone();
        let validator = jsonschema::validator_for(&root).unwrap();
        let problems: Vec<String> = validator.iter_errors(body).map(|problem| problem.to_string()).collect();
        assert!(problems.is_empty(), "{what}: {problems:?} in {body}");
    }

    /// Checks an answer against what the page says of it.
    fn answer(&mut self, method: &str, template: &str, answer: &Answer) {
        let what = format!("{method} {template} {}", answer.status);
        let operation = &self.page["paths"][template][method];
        let response = &operation["responses"][answer.status.to_string()];
        assert!(response.is_object(), "{what} is not in the page: {answer:?}");
        let headers = answer.headers.lines();
        let media = headers.clone().find_map(|line| line.strip_prefix("content-type: "));
        match (media, response["content"].as_object()) {
            (None, None) => assert_eq!(answer.body, "", "{what}"),
            (Some(media), Some(content)) => {
                let schema = &content.get(media).unwrap_or_else(|| panic!("{what}: {media}"))["schema"];
                if media == "application/json" {
                    self.check(schema, &answer.json(), &what);
                }
            }
            other => panic!("{what}: {other:?} for {answer:?}"),
        }
        self.seen.insert((method.to_owned(), template.to_owned()));
    }

    /// Makes a call, checks what is sent and what is answered, and returns that.
    async fn call(
        &mut self,
        server: &TestServer,
        method: &str,
        template: &str,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        let operation = &self.page["paths"][template][method];
        if let Some(body) = &body {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            self.check(schema, body, &format!("the body of {method} {template}"));
        }
        let answer = http::call(server.address(), &method.to_uppercase(), path, body.as_ref()).await;
        self.answer(method, template, &answer);
        answer
    }

    async fn get(&mut self, server: &TestServer, template: &str, path: &str) -> Answer {
        self.call(server, "get", template, path, None).await
    }
}

#[tokio::test]
async fn the_page_is_sound_and_says_something_of_every_route() {
    let server = start(Script::new()).await;
    let checked = Checked::new(&server).await;
    assert_eq!(checked.page["openapi"], "3.1.0");
    for (method, path) in checked.operations() {
        let operation = &checked.page["paths"][&path][&method];
        assert!(operation["summary"].as_str().is_some_and(|text| text.len() > 10), "{method} {path}");
        let named = path.matches('{').count();
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let of = |place: &str| parameters.iter().filter(|parameter| parameter["in"] == place).count();
        assert_eq!(of("path"), named, "{method} {path}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.len() > 1 && responses.contains_key("default"), "{method} {path}");
    }
    // Every reference leads somewhere, and every schema is one.
    let text = checked.page.to_string();
    let schemas = checked.page["components"]["schemas"].as_object().unwrap();
    for part in text.split("\"$ref\":\"").skip(1) {
        let target = part.split('"').next().unwrap();
        let name = target.strip_prefix("#/components/schemas/").unwrap_or_else(|| panic!("{target}"));
        assert!(schemas.contains_key(name), "{name}");
    }
    for (name, schema) in schemas {
        assert!(jsonschema::meta::is_valid(schema), "{name}");
    }
    server.stop().await;
}

/// The table is the only place that routes are made in, so that none can be missing from the page.
#[test]
fn routes_are_made_in_one_place() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/src");
    let mut folders = vec![folder];
    let mut made = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                let count = code.matches(".route(").count()
                    + code.matches(".route_service(").count()
                    + code.matches(".nest(").count()
                    + code.matches(".merge(").count();
                if count > 0 {
                    made.push((path.file_name().unwrap().to_str().unwrap().to_owned(), count));
                }
            }
        }
    }
    assert_eq!(made, [("gateway.rs".to_owned(), 1)]);
}

/// Returns the template and the path of a part of session `s`.
fn of(part: &str) -> (String, String) {
    (format!("/api/sessions/{{id}}{part}"), format!("/api/sessions/s{part}"))
}

/// Makes a session and a document, twice each, and returns the document's id.
async fn make(checked: &mut Checked, server: &TestServer) -> String {
    let body = json!({ "id": "s", "title": "Boats", "budget": 5.0 });
    for status in [201, 200] {
        let made = checked.call(server, "post", "/api/sessions", "/api/sessions", Some(body.clone())).await;
        assert_eq!(made.status, status);
    }
    let document =
        json!({ "sessionId": "s", "content": "Ada keeps the harbour.", "metadata": { "source": "a" } });
    for status in [201, 200] {
        let added = checked.call(server, "post", "/api/kb", "/api/kb", Some(document.clone())).await;
        assert_eq!(added.status, status);
    }
    let listed = checked.get(server, "/api/kb", "/api/kb?sessionId=s").await.json();
    let search = json!({ "sessionId": "s", "query": "who keeps the harbour?" });
    checked.call(server, "post", "/api/kb/search", "/api/kb/search", Some(search)).await;
    listed["documents"][0]["documentId"].as_str().unwrap().to_owned()
}

/// A turn whose call a person approves, and one whose call the reader of a stream answers.
async fn talk(checked: &mut Checked, server: &TestServer) {
    let (template, path) = of("/messages");
    checked.call(server, "post", &template, &path, Some(json!({ "message": "look" }))).await;
    let mut stream = EventStream::open(server.address(), "/api/sessions/s/events?tools=1", None).await;
    let name = stream.next().await.unwrap().data["stream"].clone();
    let call = stream.until("tool_approve_request").await.pop().unwrap();
    checked.get(server, "/api/sessions/{id}", "/api/sessions/s").await;
    let path = format!("/api/sessions/s/approvals/{}", call_id(&call.data));
    let answer = Some(json!({ "decision": "always" }));
    checked.call(server, "post", "/api/sessions/{id}/approvals/{call}", &path, answer).await;
    stream.until("done").await;
    let (template, path) = of("/rules");
    let rules = checked.get(server, &template, &path).await.json();
    let rule = rules["rules"][0]["ruleId"].as_str().unwrap();
    let path = format!("/api/sessions/s/rules/{rule}");
    checked.call(server, "delete", "/api/sessions/{id}/rules/{rule}", &path, None).await;

    let tools =
        json!({ "stream": name, "tools": [{ "server": "fs", "name": "search", "description": "Finds." }] });
    let (template, path) = of("/tools");
    checked.call(server, "post", &template, &path, Some(tools)).await;
    let mut socket = server.socket().await;
    socket.send("s", "set_autonomy", json!({ "level": "FULL_AUTO" })).await;
    socket.expect("autonomy_changed").await;
    let (template, path) = of("/messages");
    checked.call(server, "post", &template, &path, Some(json!({ "message": "search" }))).await;
    let call = stream.until("mcp_call").await.pop().unwrap();
    let path = format!("/api/sessions/s/tools/{}/result", call_id(&call.data));
    let result = Some(json!({ "result": ["a"] }));
    checked.call(server, "post", "/api/sessions/{id}/tools/{call}/result", &path, result).await;
    stream.until("done").await;
}

/// Reads, rates, finds, names and copies what was said.
async fn look_back(checked: &mut Checked, server: &TestServer) {
    let (template, path) = of("/messages");
    let messages = checked.get(server, &template, &path).await.json();
    let (template, path) = of("/feedback");
    let rated = json!({ "messageId": messages["messages"][0]["messageId"], "score": "up" });
    checked.call(server, "post", &template, &path, Some(rated)).await;
    let found = checked.get(server, "/api/sessions/search", "/api/sessions/search?q=quiet").await.json();
    assert_eq!(found["results"].as_array().unwrap().len(), 1);
    checked.get(server, "/api/sessions", "/api/sessions").await;
    let audit = checked.get(server, "/api/audit", "/api/audit?sessionId=s").await.json();
    assert!(audit["count"].as_u64().unwrap() > 1, "{audit}");
    let (template, path) = of("/events");
    checked.get(server, &template, &format!("{path}?live=0")).await;
    let (template, path) = of("/interrupt");
    checked.call(server, "post", &template, &path, Some(json!({}))).await;
    checked
        .call(server, "patch", "/api/sessions/{id}", "/api/sessions/s", Some(json!({ "title": null })))
        .await;
    let head = http::get(server.address(), "/api/sessions/s").await.json()["headSeq"].clone();
    let (template, path) = of("/fork");
    checked.call(server, "post", &template, &path, Some(json!({ "atSeq": head, "id": "copy" }))).await;
}

/// Writes the session to files, and makes another of one.
async fn carry(checked: &mut Checked, server: &TestServer) {
    let (template, path) = of("/export");
    checked.get(server, &template, &format!("{path}?format=markdown")).await;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", server.address());
    let file = http::send(server.address(), request.as_bytes()).await;
    checked.answer("get", &template, &file);
    let request = format!(
        "POST /api/sessions/import HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/jsonl\r\n\
         Content-Length: {}\r\n\r\n{}",
        server.address(),
        file.body.len(),
        file.body
    );
    let made = http::send(server.address(), request.as_bytes()).await;
    checked.answer("post", "/api/sessions/import", &made);
}

#[tokio::test]
async fn every_route_answers_as_the_page_says() {
    let provider = Standin::start().await;
    let mut set = setup(
        Script::new()
            .call("list_dir", json!({}))
            .step([write_file("a.txt", "x")])
            .text("the harbour is quiet")
            .call("mcp_fs_search", json!({}))
            .text("found"),
    );
    set.catalogue = Arc::new(with_key(&provider, "openai", GOOD_KEY));
    let server = TestServer::start(&set).await;
    let mut checked = Checked::new(&server).await;
    for path in [
        "/health",
        "/health/live",
        "/health/ready",
        "/api/info",
        "/api/schema",
        "/api/openapi.json",
        "/api/providers",
        "/api/usage",
    ] {
        checked.get(&server, path, path).await;
    }
    for part in ["models", "voices"] {
        let template = format!("/api/providers/{{id}}/{part}");
        checked.get(&server, &template, &format!("/api/providers/openai/{part}")).await;
    }
    let template = "/api/providers/{id}/validate";
    checked.call(&server, "post", template, "/api/providers/openai/validate", Some(json!({}))).await;

    let document = make(&mut checked, &server).await;
    talk(&mut checked, &server).await;
    look_back(&mut checked, &server).await;
    carry(&mut checked, &server).await;
    let path = format!("/api/kb/{document}?sessionId=s");
    checked.call(&server, "delete", "/api/kb/{document}", &path, None).await;
    checked.call(&server, "delete", "/api/sessions/{id}", "/api/sessions/copy", None).await;
    for (method, path) in [
        ("post", "/api/index"),
        ("delete", "/api/index"),
        ("get", "/api/index/status"),
        ("post", "/api/search"),
    ] {
        checked.call(&server, method, path, path, None).await;
    }
    // These do not end: that they begin as the page says is shown by their readers.
    EventStream::open(server.address(), "/api/events", None).await;
    checked.seen.insert(("get".into(), "/api/events".into()));
    checked.seen.insert(("get".into(), "/chat".into()));
    let missing: Vec<_> = checked.operations().difference(&checked.seen).cloned().collect();
    assert_eq!(missing, [], "these were not tried");
    server.stop().await;
}
