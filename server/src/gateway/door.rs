//! The door: one layer before every route. Deny by default; a refusal comes before any upgrade.
//!
//! * The peer must be a program of the server's own user (`peer`), but for `/health/live`.
//! * Any `Origin`, even an empty one, is a browser's and is refused, and so is any `Sec-Fetch-Site` but a
//!   person's own typing: no web page drives this server, not even with a picture's address.
//! * `Host`, and an absolute request's authority, must be a loopback name with the server's port, so
//!   that no foreign name can be pointed at it.

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tns_protocol::ErrorCode;

use super::error::ApiError;
use super::peer::Peer;

/// Names under which a loopback server may be addressed.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
/// In which a browser says from where a page asks.
const FETCH_SITE: &str = "sec-fetch-site";
/// The one route that anybody on the machine may ask.
const PUBLIC: &str = "/health/live";

/// What the door knows.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    hosts: Vec<String>,
}

impl Door {
    /// Makes the door of a server that listens on `port` of the loopback addresses.
    pub(crate) fn new(port: u16) -> Self {
        Self { hosts: LOOPBACK_NAMES.iter().map(|name| format!("{name}:{port}")).collect() }
    }

    fn refuses(&self, peer: Option<&Peer>, headers: &HeaderMap, uri: &Uri) -> Option<ApiError> {
        let forbidden =
            |message: &str| Some(ApiError::new(StatusCode::FORBIDDEN, ErrorCode::Forbidden, message));
        if headers.contains_key(ORIGIN) {
            return forbidden("requests from web pages are refused: this server takes no Origin");
        }
        // A browser sends no Origin with a picture or a script; it says so here, and `none` only for a person's own
        // typing.
        if headers.get(FETCH_SITE).is_some_and(|site| site != "none") {
            return forbidden("requests from web pages are refused: this server takes no Sec-Fetch-Site");
        }
        let mut named = headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
        let known = |host: &str| self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host));
        let host = (named.next(), named.next());
        let (Some(host), None) = host else {
            return forbidden("a request needs one Host header");
        };
        if !known(host) || uri.authority().is_some_and(|authority| !known(authority.as_str())) {
            return forbidden("Host must be localhost, 127.0.0.1 or [::1] with this server's port");
        }
        match peer {
            _ if uri.path() == PUBLIC => None,
            Some(Peer::Own) => None,
            Some(Peer::Stranger(reason)) => {
                Some(ApiError::new(StatusCode::UNAUTHORIZED, ErrorCode::Unauthorized, reason))
            }
            None => forbidden("the connection was not identified"),
        }
    }
}

/// Lets a request in or answers its refusal.
pub(crate) async fn check(State(door): State<Door>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>();
    match door.refuses(peer, request.headers(), request.uri()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(peer: &Peer, uri: &str, headers: &[(&'static str, &str)]) -> Option<StatusCode> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        Door::new(7777).refuses(Some(peer), &map, &uri.parse().unwrap()).map(|error| error.status())
    }

    #[test]
    fn only_loopback_names_with_the_port_are_taken() {
        for host in ["localhost:7777", "LOCALHOST:7777", "127.0.0.1:7777", "[::1]:7777"] {
            assert_eq!(status(&Peer::Own, "/chat", &[("host", host)]), None, "{host}");
        }
        for host in [
            "localhost",
            "localhost:7778",
            "127.0.0.1",
            "evil.example:7777",
            "localhost.:7777",
            "localhost.evil.example:7777",
            "127.0.0.2:7777",
            "0.0.0.0:7777",
            "[::]:7777",
            "2130706433:7777",
            "user@localhost:7777",
            "",
        ] {
            let refused = status(&Peer::Own, "/chat", &[("host", host)]);
            assert_eq!(refused, Some(StatusCode::FORBIDDEN), "{host}");
        }
        assert_eq!(status(&Peer::Own, "/chat", &[]), Some(StatusCode::FORBIDDEN));
        let two = [("host", "localhost:7777"), ("host", "localhost:7777")];
        assert_eq!(status(&Peer::Own, "/chat", &two), Some(StatusCode::FORBIDDEN));
        let absolute = status(&Peer::Own, "http://evil.example:7777/chat", &[("host", "localhost:7777")]);
        assert_eq!(absolute, Some(StatusCode::FORBIDDEN));
    }

    #[test]
    fn every_origin_is_refused() {
        for origin in [
            "",
            "null",
            "http://localhost:7777",
            "http://127.0.0.1:7777",
            "http://[::1]:7777",
            "https://evil.example",
            "http://localhost.evil.example",
            "http://evil.example:7777",
            "file://",
            "chrome-extension://x",
            "localhost",
        ] {
            let headers = [("host", "localhost:7777"), ("origin", origin)];
            assert_eq!(status(&Peer::Own, "/chat", &headers), Some(StatusCode::FORBIDDEN), "{origin}");
            assert_eq!(status(&Peer::Own, "/health/live", &headers), Some(StatusCode::FORBIDDEN));
        }
    }

    #[test]
    fn a_stranger_is_told_why_and_may_ask_only_whether_the_server_lives() {
        let stranger = Peer::Stranger("no".into());
        let host = [("host", "localhost:7777")];
        assert_eq!(status(&stranger, "/chat", &host), Some(StatusCode::UNAUTHORIZED));
        assert_eq!(status(&stranger, "/api/info", &host), Some(StatusCode::UNAUTHORIZED));
        assert_eq!(status(&stranger, "/health/live", &host), None);
    }
}
