//! A pull against a local server: what is asked, and how each failure is told.

use super::*;
use crate::stand_in::{Reply, StandIn, Then, nobody};

/// Must show up nowhere.
const CANARY: &str = "canary-5d21c0";
const SUCCESS: &str = "{\"status\":\"pulling manifest\"}\n{\"status\":\"success\"}\n";

fn set(base_url: &str) -> EngineConfig {
    EngineConfig::from_env(|name| match name {
        "PROVIDER_BASE_URL_OLLAMA" => Some(base_url.to_owned()),
        "OLLAMA_API_KEY" => Some(CANARY.to_owned()),
        _ => None,
    })
}

async fn pulled(reply: Reply) -> Result<Vec<String>, PullError> {
    let server = StandIn::start([reply]).await;
    let mut told = Vec::new();
    let ended = pull(&set(&server.base_url()), "m:1", |status| told.push(status.text)).await;
    let heard = server.heard().concat();
    assert!(heard.starts_with("POST /api/pull HTTP/1.1\r\n"), "{heard}");
    assert!(heard.to_ascii_lowercase().contains(&format!("authorization: bearer {CANARY}\r\n")), "{heard}");
    assert!(heard.ends_with("\r\n\r\n{\"model\":\"m:1\",\"stream\":true}"), "{heard}");
    assert!(!format!("{ended:?}").contains(CANARY), "{ended:?}");
    ended.map(|()| told)
}

#[tokio::test]
async fn the_server_that_is_set_is_asked_with_the_key() {
    assert_eq!(pulled(Reply::stream(SUCCESS)).await, Ok(vec!["pulling manifest".to_owned()]));
    // The end is a status, not that of the connection.
    assert!(pulled(Reply::stream(SUCCESS).then(Then::Hold)).await.is_ok());
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let unknown =
        "{\"status\":\"pulling manifest\"}\n{\"error\":\"pull model manifest: file does not exist\"}\n";
    let none = "there is no model m:1 to pull: https://ollama.com/library lists those there are";
    let full = format!("{{\"error\":\"write {CANARY}: no space left on device\"}}\n");
    for (reply, message) in [
        (Reply::stream(unknown), none),
        (
            Reply::whole(
                "500 Internal Server Error",
                "{\"error\":\"pull model manifest: file does not exist\"}",
            ),
            none,
        ),
        (Reply::stream(&full), "ollama answered with an error: write ***: no space left on device"),
        (
            Reply::whole("400 Bad Request", "{\"error\":\"invalid model name\"}"),
            "ollama answered with an error (HTTP 400): invalid model name",
        ),
        (
            Reply::whole("401 Unauthorized", "{\"error\":\"unauthorized\"}"),
            "ollama refused the key: check OLLAMA_API_KEY",
        ),
    ] {
        assert_eq!(pulled(reply).await, Err(PullError::Refused(message.to_owned())));
    }
    for body in ["<html>\n", "{\"status\":7}\n"] {
        let Err(PullError::Refused(message)) = pulled(Reply::stream(body)).await else { panic!("{body}") };
        let otherwise = "answers as something other than Ollama; check PROVIDER_BASE_URL_OLLAMA";
        assert!(message.ends_with(otherwise), "{message}");
    }
}

#[tokio::test]
async fn what_breaks_off_is_told_from_what_can_not_be_reached() {
    let begun = "{\"status\":\"pulling manifest\"}\n{\"sta";
    // Less than was promised, and an end without the last status.
    let cut = format!("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{begun}");
    for reply in [Reply { writes: vec![cut.into()], then: Then::Close }, Reply::stream(begun)] {
        let Err(PullError::Incomplete(message)) = pulled(reply).await else {
            panic!("it did not come whole")
        };
        assert!(message.contains(" broke off before m:1 was there; run the same again"), "{message}");
    }
    let address = nobody().await;
    let error = pull(&set(&format!("http://{address}")), "m", |_| {}).await.unwrap_err();
    let message = format!("can't reach ollama at {address} (connection refused); is it running?");
    assert_eq!(error, PullError::Unreachable(message));
    let error = pull(&set("nonsense"), "m", |_| {}).await.unwrap_err();
    let PullError::Setting(message) = error else { panic!("{error:?}") };
    assert!(message.starts_with("PROVIDER_BASE_URL_OLLAMA is no http address"), "{message}");
}

#[tokio::test]
async fn silence_ends_a_pull_before_and_after_its_first_status() {
    let silent = Reply { writes: Vec::new(), then: Then::Hold };
    let begun = Reply::stream("{\"status\":\"pulling manifest\"}\n").then(Then::Hold);
    for (reply, is_begun) in [(silent, false), (begun, true)] {
        let server = StandIn::start([reply]).await;
        let config = set(&server.base_url());
        let provider = Provider::find(PROVIDER).unwrap();
        let endpoint = endpoint(provider, &config.access(provider)).unwrap();
        let pull = Pull { endpoint, model: "m", silence: Duration::from_millis(50) };
        let error = pull.run(&Http::new(config.patience), |_| {}).await.unwrap_err();
        assert_eq!(matches!(error, PullError::Incomplete(_)), is_begun, "{error:?}");
        assert_eq!(matches!(error, PullError::Unreachable(_)), !is_begun, "{error:?}");
        server.client_left().await;
    }
}
