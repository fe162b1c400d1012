//! The calls against a server that notes the request and gives one prepared answer.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Runs `call` against one prepared answer; returns the request's head and body, and the result.
async fn exchange<T>(
    status: u16,
    answer: &str,
    call: impl AsyncFnOnce(Rest) -> Result<T, ClientError>,
) -> (String, String, Result<T, ClientError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rest = Rest::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let server = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        let (head, mut body) = loop {
            assert_ne!(socket.read_buf(&mut request).await.unwrap(), 0);
            let text = String::from_utf8(request.clone()).unwrap();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                break (head.to_owned(), body.as_bytes().to_vec());
            }
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        while body.len() < length {
            assert_ne!(socket.read_buf(&mut body).await.unwrap(), 0);
        }
        let length = answer.len();
        let reply = format!(
            "HTTP/1.1 {status} Status\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{answer}"
        );
        socket.write_all(reply.as_bytes()).await.unwrap();
        (head, String::from_utf8(body).unwrap())
    };
    let ((head, body), result) = tokio::join!(server, call(rest));
    (head, body, result)
}

fn session() -> SessionId {
    SessionId::parse("a:b").unwrap()
}

#[tokio::test]
async fn a_document_is_sent_as_json_and_its_id_read() {
    let body = KbAddRequest {
        session_id: session(),
        content: "x".into(),
        metadata: None,
        scope: tns_protocol::rest::KbScope::User,
    };
    let (head, sent, result) =
        exchange(200, r#"{"documentId":"d-1","duplicate":true}"#, async move |rest| rest.kb_add(body).await)
            .await;
    assert!(head.starts_with("POST /api/kb HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert_eq!(sent, r#"{"sessionId":"a:b","content":"x","scope":"user"}"#);
    let expected = KbAddResponse { document_id: DocumentId::parse("d-1").unwrap(), duplicate: true };
    assert_eq!(result.unwrap(), expected);
}

#[tokio::test]
async fn paging_and_ids_stand_in_the_address() {
    let page = r#"{"sessions":[]}"#;
    let (head, _, _) = exchange(200, page, async |rest| rest.sessions(Some("a b"), Some(3)).await).await;
    assert!(head.starts_with("GET /api/sessions?cursor=a+b&limit=3 HTTP/1.1\r\n"), "{head}");
    let (head, _, _) = exchange(200, page, async |rest| rest.sessions(None, None).await).await;
    assert!(head.starts_with("GET /api/sessions HTTP/1.1\r\n"), "{head}");
    let page = r#"{"messages":[],"headSeq":0,"more":false}"#;
    let (head, _, _) = exchange(200, page, async |rest| rest.messages(&session(), 7, None).await).await;
    assert!(head.starts_with("GET /api/sessions/a:b/messages?afterSeq=7 HTTP/1.1\r\n"), "{head}");
    let page = r#"{"events":[],"headSeq":0,"more":false}"#;
    let (head, _, _) = exchange(200, page, async |rest| rest.events(&session(), 7).await).await;
    assert!(head.starts_with("GET /api/sessions/a:b/events?after=7&live=0 HTTP/1.1\r\n"), "{head}");
    let document = DocumentId::parse("d/1").unwrap();
    let (head, _, result) = exchange(200, r#"{"documentId":"d/1","found":false}"#, async |rest| {
        rest.kb_remove(&session(), &document).await
    })
    .await;
    assert!(head.starts_with("DELETE /api/kb/d%2F1?sessionId=a%3Ab HTTP/1.1\r\n"), "{head}");
    assert!(!result.unwrap().found);
}

#[tokio::test]
async fn a_refusal_keeps_its_code_and_words() {
    let body = r#"{"error":{"code":"SESSION_NOT_FOUND","message":"no session a:b"}}"#;
    let (_, _, result) = exchange(404, body, async |rest| rest.session(&session()).await).await;
    assert_eq!(
        result.unwrap_err(),
        ClientError::Refused {
            status: 404,
            code: tns_protocol::ErrorCode::SessionNotFound,
            message: "no session a:b".into()
        }
    );
}

#[tokio::test]
async fn an_unhealthy_server_answers_too() {
    let body =
        r#"{"status":"DOWN","components":{"server":"UP","store":"DOWN","engine":"UP","knowledge":"UP"}}"#;
    let (_, _, result) = exchange(503, body, async |rest| rest.health().await).await;
    assert_eq!(result.unwrap().status, tns_protocol::rest::HealthStatus::Down);
}

#[tokio::test]
async fn another_kind_of_server_is_told_apart() {
    let (_, _, result) = exchange(502, "<html>", async |rest| rest.info().await).await;
    assert_eq!(result.unwrap_err(), ClientError::Protocol("it answered 502 without a reason".into()));
    let (_, _, result) = exchange(200, "<html>", async |rest| rest.info().await).await;
    assert!(matches!(result.unwrap_err(), ClientError::Protocol(_)));
}

#[tokio::test]
async fn an_answer_is_read_up_to_the_limit_and_no_further() {
    let quoted = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let (_, _, result) = exchange(200, &quoted(MAX_ANSWER_BYTES), async |rest| {
        rest.get::<String>(&["api", "info"], &[]).await
    })
    .await;
    assert_eq!(result.unwrap().len(), MAX_ANSWER_BYTES - 2);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rest = Rest::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let server = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert_ne!(socket.read(&mut request).await.unwrap(), 0);
        let size = MAX_ANSWER_BYTES + 1;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        // The client hangs up before the end, so the last write may fail.
        let _ = socket.write_all(&vec![b'x'; size]).await;
    };
    let ((), result) = tokio::join!(server, rest.info());
    assert_eq!(result.unwrap_err(), ClientError::Protocol("its answer is larger than 32 MiB".into()));
}

#[tokio::test]
async fn nobody_at_the_address_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = Rest::new(&url).unwrap().info().await.unwrap_err();
    assert_eq!(error, ClientError::Unreachable(format!("{url}: connection refused")));
}
