//! Frames: the envelope around every event, and the order in which a frame is checked.
//!
//! Order of checks: JSON object, `v`, `type` is a string, known type, `sessionId`, fields.
//! No serde flatten: the header and the payload are read apart.

use std::fmt::Write as _;

use serde::Deserialize;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::error::ErrorCode;
use crate::ids::{MessageId, RequestId, Seq, SessionId};
use crate::message::{ClientMessage, ServerMessage};
use crate::time::Timestamp;

/// The protocol version of every frame: the JSON number 1.
pub const PROTOCOL_VERSION: u64 = 1;
/// Deepest nesting of a client's frame.
pub const MAX_JSON_DEPTH: usize = 64;
/// Most keys in one object of a client's frame.
pub const MAX_OBJECT_KEYS: usize = 1_000;
/// Largest `chat`, `kb_add` or `mcp_result`, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 8 << 20;
/// Largest frame of any other type, in bytes.
pub const MAX_SMALL_MESSAGE_BYTES: usize = 1 << 20;

/// A client's event with its envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientFrame {
    /// The session it is about.
    pub session_id: SessionId,
    /// The client's name for the request; answers carry it as `re`.
    pub req_id: Option<RequestId>,
    /// The event.
    pub message: ClientMessage,
}

/// A server's event with its envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerFrame {
    /// The session it is about; absent in an error about a frame that names none.
    pub session_id: Option<SessionId>,
    /// When it happened.
    pub date: Option<Timestamp>,
    /// Its place in the session's log; only durable events have one.
    pub seq: Option<Seq>,
    /// The turn it belongs to; only durable events of a turn have one.
    pub turn_id: Option<MessageId>,
    /// The request it answers.
    pub re: Option<RequestId>,
    /// The event.
    pub message: ServerMessage,
}

/// Why a client's frame was refused, ready to be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    /// The code to answer with.
    pub code: ErrorCode,
    /// One line that names the field.
    pub message: String,
    /// The session that the frame names, if it is valid.
    pub session_id: Option<SessionId>,
    /// The frame's type, if it has one.
    pub ref_type: Option<String>,
    /// The frame's request id, if it has one.
    pub re: Option<RequestId>,
}

/// Reads a client's text frame.
///
/// # Errors
/// [`DecodeError`] with the first check that fails, in the order of the module's page.
pub fn decode_client(text: &str) -> Result<ClientFrame, DecodeError> {
    let mut context = DecodeError {
        code: ErrorCode::InvalidJson,
        message: String::new(),
        session_id: None,
        ref_type: None,
        re: None,
    };
    let refuse =
        |context: &DecodeError, code, message: String| DecodeError { code, message, ..context.clone() };
    if !text.trim_start().starts_with('{') {
        return Err(refuse(&context, ErrorCode::InvalidJson, "the frame must be a JSON object".into()));
    }
    let mut faults = Faults::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // The depth is counted by `Checked`, whose limit lies below the parser's own.
    let parsed = Checked { depth: 1, faults: &mut faults }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    let mut body = match (faults.limit, parsed) {
        (Some(message), _) => return Err(refuse(&context, ErrorCode::Limit, message)),
        (_, Ok(Value::Object(body))) => body,
        (_, _) => {
            return Err(refuse(&context, ErrorCode::InvalidJson, "the frame must be a JSON object".into()));
        }
    };
    context.re = body.remove("reqId").and_then(|id| serde_json::from_value(id).ok());
    let session = body.remove("sessionId");
    context.session_id = session.as_ref().and_then(|id| SessionId::parse(id.as_str()?).ok());
    let type_name = body.remove("type");
    context.ref_type = type_name.as_ref().and_then(|name| Some(name.as_str()?.chars().take(128).collect()));

    if body.remove("v") != Some(Value::from(PROTOCOL_VERSION)) {
        return Err(refuse(
            &context,
            ErrorCode::ProtocolMismatch,
            "v must be the number 1: this server speaks protocol version 1".into(),
        ));
    }
    if let Some(key) = faults.duplicate {
        return Err(refuse(&context, ErrorCode::InvalidMessage, format!("{key} stands twice in one object")));
    }
    let Some(Value::String(type_name)) = type_name else {
        return Err(refuse(&context, ErrorCode::InvalidMessage, "type must be a string".into()));
    };
    if !ClientMessage::TYPES.contains(&type_name.as_str()) {
        let shown = context.ref_type.as_deref().unwrap_or_default();
        return Err(refuse(&context, ErrorCode::UnknownType, format!("type {shown:?} is not known")));
    }
    let Some(session_id) = context.session_id.clone() else {
        let message = "sessionId must be 1 to 128 of A-Z a-z 0-9 . _ : @ -";
        return Err(refuse(&context, ErrorCode::InvalidMessage, message.into()));
    };
    let message = ClientMessage::read(&type_name, body).map_err(|e| {
        refuse(&context, ErrorCode::InvalidMessage, format!("{type_name}: {}", field_error(&e)))
    })?;
    Ok(ClientFrame { session_id, req_id: context.re, message })
}

/// Returns the size limit of a client's frame of this type, in bytes.
pub fn message_limit(type_name: &str) -> usize {
    match type_name {
        "chat" | "kb_add" | "mcp_result" => MAX_MESSAGE_BYTES,
        _ => MAX_SMALL_MESSAGE_BYTES,
    }
}

/// Writes a client's frame.
pub fn encode_client(frame: &ClientFrame) -> String {
    let mut out = String::with_capacity(128);
    out.push_str("{\"v\":1,\"type\":");
    push_json(&mut out, frame.message.type_name());
    out.push_str(",\"sessionId\":");
    push_json(&mut out, frame.session_id.as_str());
    if let Some(id) = &frame.req_id {
        out.push_str(",\"reqId\":");
        push_json(&mut out, id.as_str());
    }
    push_payload(&mut out, &frame.message);
    out
}

/// Writes a server's frame.
pub fn encode_server(frame: &ServerFrame) -> String {
    let mut out = String::with_capacity(192);
    out.push_str("{\"v\":1,\"type\":");
    push_json(&mut out, frame.message.type_name());
    if let Some(id) = &frame.session_id {
        out.push_str(",\"sessionId\":");
        push_json(&mut out, id.as_str());
    }
    // Writing into a String can't fail.
    if let Some(date) = frame.date {
        let _ = write!(out, ",\"date\":\"{date}\"");
    }
    if let Some(seq) = frame.seq {
        let _ = write!(out, ",\"seq\":{seq}");
    }
    // The end of a cancelled turn names it by itself; a key twice is no frame.
    let turn = frame.turn_id.as_ref().filter(|_| !matches!(frame.message, ServerMessage::Interrupted(_)));
    if let Some(id) = turn {
        out.push_str(",\"turnId\":");
        push_json(&mut out, id.as_str());
    }
    if let Some(id) = &frame.re {
        out.push_str(",\"re\":");
        push_json(&mut out, id.as_str());
    }
    push_payload(&mut out, &frame.message);
    out
}

/// Reads a server's frame. A type that this client does not know is [`ServerMessage::Unknown`].
///
/// # Errors
/// `INVALID_JSON` or `INVALID_MESSAGE` when the frame is not one of this protocol's.
pub fn decode_server(text: &str) -> Result<ServerFrame, DecodeError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Header {
        r#type: String,
        session_id: Option<SessionId>,
        date: Option<Timestamp>,
        seq: Option<Seq>,
        turn_id: Option<MessageId>,
        re: Option<RequestId>,
    }
    let refuse = |message: String| DecodeError {
        code: ErrorCode::InvalidMessage,
        message,
        session_id: None,
        ref_type: None,
        re: None,
    };
    let header: Header = serde_json::from_str(text).map_err(|e| refuse(e.to_string()))?;
    let raw: &RawValue = serde_json::from_str(text).map_err(|e| refuse(e.to_string()))?;
    let message =
        ServerMessage::read(&header.r#type, raw).map_err(|e| refuse(format!("{}: {e}", header.r#type)))?;
    Ok(ServerFrame {
        session_id: header.session_id,
        date: header.date,
        seq: header.seq,
        turn_id: header.turn_id,
        re: header.re,
        message,
    })
}

fn push_json(out: &mut String, text: &str) {
    // A string always serialises.
    out.push_str(&serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned()));
}

/// Appends the payload's members and the closing brace.
fn push_payload(out: &mut String, payload: &impl serde::Serialize) {
    // Every payload is a struct with string keys, which always serialises to an object.
    let body = serde_json::to_string(payload).unwrap_or_else(|_| "{}".to_owned());
    match body.strip_prefix('{') {
        Some("}") | None => out.push('}'),
        Some(members) => {
            out.push(',');
            out.push_str(members);
        }
    }
}

/// Serde's message without its position: a payload is one object, so the field's name is what helps.
fn field_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

/// What is wrong with a frame that is JSON all the same.
#[derive(Default)]
struct Faults {
    limit: Option<String>,
    /// The first key that stands twice in one object.
    duplicate: Option<String>,
}

/// Builds a value while it counts depth and keys, and notes a key that stands twice.
struct Checked<'a> {
    depth: usize,
    faults: &'a mut Faults,
}

impl Checked<'_> {
    fn inner(&mut self) -> Checked<'_> {
        Checked { depth: self.depth + 1, faults: &mut *self.faults }
    }

    fn limit<E: serde::de::Error>(&mut self, message: String) -> E {
        let error = E::custom(&message);
        self.faults.limit = Some(message);
        error
    }

    fn check_depth<E: serde::de::Error>(&mut self) -> Result<(), E> {
        if self.depth > MAX_JSON_DEPTH {
            return Err(self.limit(format!("the frame nests deeper than {MAX_JSON_DEPTH} levels")));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Checked<'_> {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Checked<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        self.check_depth()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.inner())? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        self.check_depth()?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self.inner())?;
            if object.contains_key(&key) {
                self.faults.duplicate.get_or_insert_with(|| key.clone());
            }
            object.insert(key, value);
            if object.len() > MAX_OBJECT_KEYS {
                return Err(self.limit(format!("an object has more than {MAX_OBJECT_KEYS} keys")));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Chat, Interrupted, Token};
    use crate::ids::AgentId;

    fn code(text: &str) -> ErrorCode {
        decode_client(text).unwrap_err().code
    }

    #[test]
    fn checks_come_in_the_documented_order() {
        for text in ["not json", "", "null", "[1]", "7", "\"x\"", "{", "{}x"] {
            assert_eq!(code(text), ErrorCode::InvalidJson, "{text}");
        }
        for text in ["{}", r#"{"v":0,"type":7}"#, r#"{"v":2,"type":"nope"}"#, r#"{"v":"1"}"#, r#"{"v":1.0}"#]
        {
            assert_eq!(code(text), ErrorCode::ProtocolMismatch, "{text}");
        }
        assert_eq!(code(r#"{"v":1,"type":42,"sessionId":"s"}"#), ErrorCode::InvalidMessage);
        assert_eq!(code(r#"{"v":1,"type":"nope"}"#), ErrorCode::UnknownType);
        assert_eq!(code(r#"{"v":1,"type":"chat","message":"x"}"#), ErrorCode::InvalidMessage);
        assert_eq!(
            code(r#"{"v":1,"type":"chat","sessionId":"a b","message":"x"}"#),
            ErrorCode::InvalidMessage
        );
    }

    #[test]
    fn the_end_of_a_cancelled_turn_names_it_once() {
        let turn = MessageId::parse("t").unwrap();
        let usage = crate::chat::Usage::default();
        let end = Interrupted { turn_id: turn.clone(), reason: "cancelled".into(), usage, response_id: None };
        let frame = ServerFrame {
            session_id: None,
            date: None,
            seq: Some(7),
            turn_id: Some(turn),
            re: None,
            message: end.into(),
        };
        let text = encode_server(&frame);
        assert_eq!(text.matches("turnId").count(), 1, "{text}");
        assert_eq!(decode_server(&text).unwrap(), frame);
    }

    #[test]
    fn a_wrong_field_is_named_and_the_session_is_kept() {
        let error =
            decode_client(r#"{"v":1,"type":"chat","sessionId":"s","reqId":"r","message":5}"#).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidMessage);
        assert_eq!(error.session_id, Some(SessionId::parse("s").unwrap()));
        assert_eq!(error.re, Some(RequestId::parse("r").unwrap()));
        assert_eq!(error.ref_type.as_deref(), Some("chat"));
        let error = decode_client(r#"{"v":1,"type":"chat","sessionId":"s"}"#).unwrap_err();
        assert_eq!(error.message, "chat: missing field `message`");
    }

    #[test]
    fn depth_and_keys_are_limited_at_their_edge() {
        let nested = |depth: usize| {
            let open = "[".repeat(depth);
            let close = "]".repeat(depth);
            format!(r#"{{"v":1,"type":"kb_list","sessionId":"s","x":{open}{close}}}"#)
        };
        assert!(decode_client(&nested(MAX_JSON_DEPTH - 1)).is_ok());
        assert_eq!(code(&nested(MAX_JSON_DEPTH)), ErrorCode::Limit);
        assert_eq!(code(&nested(100_000)), ErrorCode::Limit);
        let keys = |n: usize| {
            let members: Vec<String> = (0..n).map(|i| format!("\"k{i}\":0")).collect();
            format!(r#"{{"v":1,"type":"kb_list","sessionId":"s","x":{{{}}}}}"#, members.join(","))
        };
        assert!(decode_client(&keys(MAX_OBJECT_KEYS)).is_ok());
        assert_eq!(code(&keys(MAX_OBJECT_KEYS + 1)), ErrorCode::Limit);
    }

    #[test]
    fn a_key_that_stands_twice_is_named() {
        for text in [
            r#"{"v":1,"type":"chat","sessionId":"s","message":"a","message":"b"}"#,
            r#"{"v":1,"type":"chat","sessionId":"s","message":"a","x":[{"y":{"message":1,"message":2}}]}"#,
        ] {
            let error = decode_client(text).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidMessage, "{text}");
            assert_eq!(error.message, "message stands twice in one object");
        }
    }

    #[test]
    fn unknown_fields_are_ignored_and_unknown_server_types_are_values() {
        assert!(decode_client(r#"{"v":1,"type":"cancel","sessionId":"s","new":{"a":1}}"#).is_ok());
        let frame = decode_server(r#"{"v":1,"type":"later","sessionId":"s","x":1}"#).unwrap();
        assert_eq!(frame.message, ServerMessage::Unknown("later".into()));
    }

    #[test]
    fn frames_survive_a_round_trip() {
        let frame = ClientFrame {
            session_id: SessionId::parse("s").unwrap(),
            req_id: Some(RequestId::parse("r-1").unwrap()),
            message: Chat { message: "hi \"you\" \u{2028}".into(), ..Chat::default() }.into(),
        };
        assert_eq!(decode_client(&encode_client(&frame)).unwrap(), frame);
        let frame = ServerFrame {
            session_id: Some(SessionId::parse("s").unwrap()),
            date: Some(Timestamp::from_micros(1_700_000_000_123_000)),
            seq: None,
            turn_id: None,
            re: None,
            message: Token {
                agent_id: AgentId::parse("a-1").unwrap(),
                content: "x".into(),
                response_id: None,
                index: None,
            }
            .into(),
        };
        let text = encode_server(&frame);
        assert_eq!(
            text,
            r#"{"v":1,"type":"token","sessionId":"s","date":"2023-11-14T22:13:20.123Z","agentId":"a-1","content":"x"}"#
        );
        assert_eq!(decode_server(&text).unwrap(), frame);
    }
}
