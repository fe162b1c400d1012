//! Every refusal of every route is JSON with a code and a line for people, whatever was wrong with the request.

use serde_json::{Value, json};
use tns_server_core::scripted::Script;
use tns_tests::TestServer;
use tns_tests::http::{self, Answer};

use crate::start;

/// Every method that a route may be asked with.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
/// Paths that take every method, to say that they offer nothing.
const NOT_OFFERED: [&str; 3] = ["/api/index", "/api/index/status", "/api/search"];

/// A route as the page has it: its path, and its methods with what is said of them.
fn routes(page: &Value) -> Vec<(String, serde_json::Map<String, Value>)> {
    let paths = page["paths"].as_object().unwrap().iter();
    let offered = paths.filter(|(path, _)| !NOT_OFFERED.contains(&path.as_str()));
    offered.map(|(path, methods)| (path.clone(), methods.as_object().unwrap().clone())).collect()
}

/// Returns a path of a template; whatever its names are, `s` is there and nothing else is.
fn filled(template: &str) -> String {
    template.replace("{id}", "s").replace("{call}", "c").replace("{document}", "d")
}

async fn page_of(server: &TestServer) -> Value {
    http::call(server.address(), "POST", "/api/sessions", Some(&json!({ "id": "s" }))).await;
    http::get(server.address(), "/api/openapi.json").await.json()
}

async fn send(server: &TestServer, method: &str, path: &str, kind: &str, body: &str) -> Answer {
    let request = format!(
        "{} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
        method.to_uppercase(),
        server.address(),
        body.len()
    );
    http::send(server.address(), request.as_bytes()).await
}

/// Asserts that an answer is a refusal with this status, in JSON.
fn check(answer: &Answer, status: u16, what: &str) {
    assert!(answer.headers.contains("content-type: application/json"), "{what}: {answer:?}");
    assert_eq!(answer.refusal().0, status, "{what}: {answer:?}");
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(!message.contains('\n'), "{what}: {message}");
}

#[tokio::test]
async fn an_unknown_path_is_not_found_below_every_route() {
    let server = start(Script::new()).await;
    for (path, _) in routes(&page_of(&server).await) {
        let below = format!("{}/nothing/here", filled(&path));
        check(&http::get(server.address(), &below).await, 404, &below);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_method_that_a_route_does_not_take_is_refused_with_those_that_it_does() {
    let server = start(Script::new()).await;
    for (path, methods) in routes(&page_of(&server).await) {
        for method in METHODS.iter().filter(|method| !methods.contains_key(**method)) {
            let answer = http::call(server.address(), &method.to_uppercase(), &filled(&path), None).await;
            let what = format!("{method} {path}");
            check(&answer, 405, &what);
            let allow = answer.headers.lines().find_map(|line| line.strip_prefix("allow: "));
            let allow: Vec<&str> = allow.unwrap_or_else(|| panic!("{what}: {answer:?}")).split(',').collect();
            for taken in methods.keys() {
                assert!(allow.contains(&taken.as_str()), "{what}: {allow:?}");
            }
            assert!(!allow.contains(method), "{what}: {allow:?}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_no_json_or_too_large_is_refused_by_every_route_that_takes_one() {
    let server = start(Script::new()).await;
    let mut tried = 0;
    for (path, methods) in routes(&page_of(&server).await) {
        for (method, operation) in methods {
            let body = &operation["requestBody"];
            if body["content"]["application/json"].is_null() {
                continue;
            }
            tried += 1;
            let path = filled(&path);
            let what = format!("{method} {path}");
            let json = "application/json";
            check(&send(&server, &method, &path, json, "{").await, 400, &what);
            check(&send(&server, &method, &path, json, "\0").await, 400, &what);
            // A key that is checked may come without a word about its type.
            if body["required"] == true {
                check(&send(&server, &method, &path, "text/plain", "{}").await, 415, &what);
                let wrong = send(&server, &method, &path, json, "[]").await;
                check(&wrong, 422, &what);
            }
            let large = format!("{{\"x\":\"{}\"}}", "x".repeat(10 << 20));
            check(&send(&server, &method, &path, json, &large).await, 413, &what);
        }
    }
    assert!(tried >= 10, "only {tried}");
    server.stop().await;
}

#[tokio::test]
async fn a_wrong_value_in_a_query_or_a_path_is_refused_by_every_route_that_has_one() {
    let server = start(Script::new()).await;
    let (mut queries, mut paths) = (0, 0);
    for (path, methods) in routes(&page_of(&server).await) {
        for (method, operation) in methods {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            for parameter in parameters.iter().filter(|parameter| parameter["in"] == "query") {
                let name = parameter["name"].as_str().unwrap();
                // What is text may be any; a number, a date or a word of a list may not.
                let kind = parameter["schema"].to_string();
                if kind.contains("\"string\"") && !kind.contains("enum") && !kind.contains("format") {
                    continue;
                }
                queries += 1;
                let wrong = format!("{}?{name}=%20wrong", filled(&path));
                let body = "application/jsonl";
                check(&send(&server, &method, &wrong, body, "").await, 400, &format!("{method} {wrong}"));
            }
            if path.contains('{') && method == "get" {
                paths += 1;
                let wrong = path.replace("{id}", "%ff").replace("{call}", "%ff").replace("{document}", "%ff");
                check(&http::get(server.address(), &wrong).await, 400, &wrong);
            }
        }
    }
    assert!(queries > 10 && paths > 4, "{queries} {paths}");
    for path in ["/api/kb?sessionId=%ff", "/api/sessions/search?q=", "/api/usage?day=x", "/chat"] {
        let answer = http::get(server.address(), path).await;
        assert!((400..500).contains(&answer.status), "{path}: {answer:?}");
        check(&answer, answer.status, path);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_address_or_headers_beyond_their_limit_are_refused() {
    let server = start(Script::new()).await;
    let address = server.address();
    let long = format!("/api/sessions?cursor={}", "x".repeat(9_000));
    check(&http::get(address, &long).await, 414, "a long address");
    let head = format!(
        "GET /api/info HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nX: {}\r\n\r\n",
        "x".repeat(70_000)
    );
    check(&http::send(address, head.as_bytes()).await, 431, "large headers");
    server.stop().await;
}
