//! A script that sends messages over HTTP: each until it is acknowledged, under the same key.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::Person;
use crate::sim::world::ADDRESS;

/// How long an answer may take before the message is sent again.
const PATIENCE: Duration = Duration::from_secs(4);

/// Sends while the run is busy, and the last one to its end.
pub(in crate::sim) async fn live(person: Person) {
    person.notes.lock().unwrap().is_live = true;
    for number in 0.. {
        sleep(person.thinks()).await;
        if !person.is_busy() {
            break;
        }
        let key = format!("c{}-{number}", person.number);
        person.count("messages");
        loop {
            match timeout(PATIENCE, post(&person, &key)).await {
                Ok(Some(answer)) if answer.status == 202 => {
                    let id = answer.body["messageId"].as_str().unwrap().to_owned();
                    let seq = answer.body["seq"].as_u64().unwrap();
                    person.trace.add(person.clock.now(), format_args!("client {}: 202 {seq}", person.number));
                    person.notes.lock().unwrap().acknowledged.push((id, key, seq));
                    person.count("acknowledged over HTTP");
                    break;
                }
                // A full queue, a session that is not there, a store that is busy.
                Ok(Some(answer)) if [404, 409, 429, 500, 503].contains(&answer.status) => {
                    person.count("refusals over HTTP");
                    if answer.body["error"]["code"] == "QUEUE_FULL" {
                        break;
                    }
                }
                Ok(Some(answer)) => {
                    person.fault(format!("answered {}: {}", answer.status, answer.body));
                    break;
                }
                Ok(None) | Err(_) => {}
            }
            person.count("posted again");
            sleep(person.thinks()).await;
        }
    }
    person.notes.lock().unwrap().is_done = true;
}

struct Answer {
    status: u16,
    body: Value,
}

/// Sends a message; `None`: the connection was lost before the answer was whole.
async fn post(person: &Person, key: &str) -> Option<Answer> {
    let mut end = person.net.connect(person.number, person.clock).await.ok()?;
    let body = json!({ "message": format!("words of {key}") }).to_string();
    let request = format!(
        "POST /api/sessions/{}/messages HTTP/1.1\r\nhost: {ADDRESS}\r\nconnection: close\r\n\
         content-type: application/json\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{body}",
        person.session,
        body.len()
    );
    end.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    end.read_to_string(&mut text).await.ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split_ascii_whitespace().nth(1)?.parse().ok()?;
    // An answer that was cut is none.
    Some(Answer { status, body: serde_json::from_str(body).ok()? })
}
