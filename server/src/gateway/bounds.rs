//! The sizes of a request that are checked before anything else is: its address and its headers. A larger one than the
//! transport itself takes is refused there, without words.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tns_protocol::ErrorCode;

use super::error::ApiError;

/// Longest path with its query, in bytes.
const MAX_TARGET_BYTES: usize = 8 << 10;
/// Most bytes of all headers together, names and values.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Lets a request through that is not too large.
pub(super) async fn check(request: Request, next: Next) -> Response {
    match refuses(&request) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

fn refuses(request: &Request) -> Option<ApiError> {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if target > MAX_TARGET_BYTES {
        let message = format!("the address has more than {MAX_TARGET_BYTES} bytes");
        return Some(ApiError::new(StatusCode::URI_TOO_LONG, ErrorCode::Limit, message));
    }
    let sizes = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    if sizes.sum::<usize>() > MAX_HEADER_BYTES {
        let message = format!("the headers have more than {MAX_HEADER_BYTES} bytes");
        return Some(ApiError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, ErrorCode::Limit, message));
    }
    None
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn status(target: usize, header: usize) -> Option<StatusCode> {
        let request = Request::builder()
            .uri(format!("/{}", "a".repeat(target - 1)))
            .header("x", "b".repeat(header - 1))
            .body(Body::empty())
            .unwrap();
        refuses(&request).map(|error| error.status())
    }

    #[test]
    fn sizes_hold_at_their_edge() {
        assert_eq!(status(MAX_TARGET_BYTES, MAX_HEADER_BYTES), None);
        assert_eq!(status(MAX_TARGET_BYTES + 1, 10), Some(StatusCode::URI_TOO_LONG));
        let headers = Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        assert_eq!(status(10, MAX_HEADER_BYTES + 1), headers);
    }
}
