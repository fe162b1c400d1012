//! Every event of the wire has a JSON sample under `golden/`, named `SIDE_TYPE.json` or, for a variant,
//! `SIDE_TYPE_WHAT.json`. A sample is read to a value and written back to the same JSON. A sample is never
//! edited while its protocol version lives; a change of the wire adds one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tns_protocol::{
    ClientMessage, ServerMessage, decode_client, decode_server, encode_client, encode_server, schema,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Client,
    Server,
}

impl Side {
    fn of(name: &str) -> Self {
        match name.split_once('_') {
            Some(("client", _)) => Self::Client,
            Some(("server", _)) => Self::Server,
            _ => panic!("{name}: a sample is named client_… or server_…"),
        }
    }

    /// Reads a frame and writes it again.
    fn round_trip(self, text: &str) -> String {
        match self {
            Self::Client => encode_client(&decode_client(text).unwrap()),
            Self::Server => encode_server(&decode_server(text).unwrap()),
        }
    }

    fn types(self) -> &'static [&'static str] {
        match self {
            Self::Client => ClientMessage::TYPES,
            Self::Server => ServerMessage::TYPES,
        }
    }

    fn definition(self) -> &'static str {
        match self {
            Self::Client => "#/$defs/clientMessage",
            Self::Server => "#/$defs/serverMessage",
        }
    }
}

/// Returns the samples by name, as text.
fn samples() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let name = name.strip_suffix(".json").expect("samples end in .json").to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn every_event_has_a_sample() {
    let samples = samples();
    let missing: Vec<String> = [("client", Side::Client), ("server", Side::Server)]
        .into_iter()
        .flat_map(|(prefix, side)| side.types().iter().map(move |name| format!("{prefix}_{name}")))
        .filter(|name| !samples.contains_key(name))
        .collect();
    assert_eq!(missing, [] as [String; 0]);
}

#[test]
fn a_sample_is_named_after_its_type() {
    for (name, text) in samples() {
        let frame = parse(&text);
        let type_name = frame["type"].as_str().unwrap();
        assert!(Side::of(&name).types().contains(&type_name), "{name}: {type_name} is no event");
        let (_, named) = name.split_once('_').unwrap();
        let rest = named.strip_prefix(type_name).unwrap_or_else(|| panic!("{name} holds a {type_name}"));
        assert!(rest.is_empty() || rest.starts_with('_'), "{name} holds a {type_name}");
    }
}

#[test]
fn samples_survive_a_round_trip() {
    for (name, text) in samples() {
        let back = Side::of(&name).round_trip(&text);
        assert_eq!(parse(&back), parse(&text), "{name}");
    }
}

#[test]
fn samples_fit_the_schema_of_their_side_and_no_other() {
    let schema = schema();
    let validator = |side: Side| {
        let root =
            json!({ "$schema": schema["$schema"], "$ref": side.definition(), "$defs": schema["$defs"] });
        jsonschema::validator_for(&root).unwrap()
    };
    let whole = jsonschema::validator_for(&schema).unwrap();
    let (client, server) = (validator(Side::Client), validator(Side::Server));
    for (name, text) in samples() {
        let frame = parse(&text);
        let is_client = Side::of(&name) == Side::Client;
        let problems: Vec<String> = whole.iter_errors(&frame).map(|error| error.to_string()).collect();
        assert_eq!(problems, [] as [String; 0], "{name}");
        assert_eq!((client.is_valid(&frame), server.is_valid(&frame)), (is_client, !is_client), "{name}");
    }
}

#[test]
fn a_sample_without_a_required_field_does_not_fit() {
    let whole = jsonschema::validator_for(&schema()).unwrap();
    for (name, text) in samples().into_iter().filter(|(name, _)| name.ends_with("_minimal")) {
        let frame = parse(&text);
        for key in frame.as_object().unwrap().keys().filter(|key| !is_optional(&name, key)) {
            let mut without = frame.clone();
            without.as_object_mut().unwrap().remove(key);
            assert!(!whole.is_valid(&without), "{name} without {key}");
        }
    }
}

/// Members of minimal samples that may be left out: those of a server's envelope.
fn is_optional(name: &str, key: &str) -> bool {
    Side::of(name) == Side::Server && ["sessionId", "seq", "turnId"].contains(&key)
}
