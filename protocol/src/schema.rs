//! JSON Schema (2020-12) of every event, made from the same types that are read and written.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::envelope::PROTOCOL_VERSION;
use crate::ids::{MessageId, RequestId, SessionId};
use crate::message::{ClientMessage, EventSchema, ServerMessage};
use crate::time::Timestamp;

/// Returns the schema of all frames: `$defs/clientMessage` and `$defs/serverMessage` are the two unions.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let client = union(&mut generator, ClientMessage::SCHEMAS, Side::Client);
    let server = union(&mut generator, ServerMessage::SCHEMAS, Side::Server);
    let mut defs = generator.take_definitions(true);
    defs.insert("clientMessage".into(), client);
    defs.insert("serverMessage".into(), server);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tns protocol",
        "description": "Every event of the /chat WebSocket, protocol version 1.",
        "oneOf": [{ "$ref": "#/$defs/clientMessage" }, { "$ref": "#/$defs/serverMessage" }],
        "$defs": defs,
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Client,
    Server,
}

fn union(generator: &mut SchemaGenerator, events: &[EventSchema], side: Side) -> Value {
    let frames: Vec<Value> = events
        .iter()
        .map(|(name, payload)| {
            let payload = payload(generator);
            let envelope = envelope(generator, name, side);
            json!({ "title": name, "allOf": [envelope, payload] })
        })
        .collect();
    json!({ "oneOf": frames })
}

fn envelope(generator: &mut SchemaGenerator, name: &str, side: Side) -> Value {
    fn member<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
        generator.subschema_for::<T>().to_value()
    }
    let mut properties = Map::new();
    properties.insert("v".into(), json!({ "const": PROTOCOL_VERSION }));
    properties.insert("type".into(), json!({ "const": name }));
    properties.insert("sessionId".into(), member::<SessionId>(generator));
    let required = match side {
        Side::Client => {
            properties.insert("reqId".into(), member::<RequestId>(generator));
            json!(["v", "type", "sessionId"])
        }
        Side::Server => {
            properties.insert("date".into(), member::<Timestamp>(generator));
            properties.insert("seq".into(), json!({ "type": "integer", "minimum": 1 }));
            properties.insert("turnId".into(), member::<MessageId>(generator));
            properties.insert("re".into(), member::<RequestId>(generator));
            json!(["v", "type"])
        }
    };
    json!({ "type": "object", "properties": properties, "required": required })
}
