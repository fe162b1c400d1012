//! Identifiers as newtypes, so that two of them never stand side by side as bare strings.
//! Ids that clients choose have a charset and a length; ids never become file paths.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest id that a client may choose, in bytes.
pub const MAX_CHOSEN_ID_BYTES: usize = 128;
/// Longest id that the server makes and a client sends back, in bytes.
pub const MAX_SERVER_ID_BYTES: usize = 320;

/// An id outside its charset or length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {rule}")]
pub struct InvalidId {
    what: &'static str,
    rule: &'static str,
}

fn is_chosen_id(text: &str) -> bool {
    (1..=MAX_CHOSEN_ID_BYTES).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:@-".contains(&b))
}

fn is_server_id(text: &str) -> bool {
    (1..=MAX_SERVER_ID_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:ident, $rule:literal, $pattern:literal, $max:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` and wraps it.
            ///
            /// # Errors
            /// [`InvalidId`] when the text is outside the charset or length of this id.
            pub fn parse(text: impl Into<Arc<str>>) -> Result<Self, InvalidId> {
                let text = text.into();
                if $check(&text) { Ok(Self(text)) } else { Err(InvalidId { what: $what, rule: $rule }) }
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(text).map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                schemars::json_schema!({
                    "type": "string", "minLength": 1, "maxLength": $max, "pattern": $pattern
                })
            }
        }
    };
}

id!(
    /// Names a session; chosen by the client that creates it. Never a credential.
    SessionId, "sessionId", is_chosen_id, "1 to 128 of A-Z a-z 0-9 . _ : @ -", "^[A-Za-z0-9._:@-]+$", MAX_CHOSEN_ID_BYTES
);
id!(
    /// A client's own name for a `chat`, which makes a resend idempotent.
    ClientMessageId, "clientMessageId", is_chosen_id, "1 to 128 of A-Z a-z 0-9 . _ : @ -", "^[A-Za-z0-9._:@-]+$", MAX_CHOSEN_ID_BYTES
);
id!(
    /// A client's own name for a request; the answer carries it as `re`.
    RequestId, "reqId", is_chosen_id, "1 to 128 of A-Z a-z 0-9 . _ : @ -", "^[A-Za-z0-9._:@-]+$", MAX_CHOSEN_ID_BYTES
);
id!(
    /// Names a stored message; the id of the user's message names the turn that answers it.
    MessageId, "messageId", is_server_id, "1 to 320 bytes without control characters", "^[^\\p{Cc}]+$", MAX_SERVER_ID_BYTES
);
id!(
    /// Names an agent of a session: `{name or role}-{8 hex digits}`; spaces are kept.
    AgentId, "agentId", is_server_id, "1 to 320 bytes without control characters", "^[^\\p{Cc}]+$", MAX_SERVER_ID_BYTES
);
id!(
    /// Names one tool call for its whole life; unique in its session whichever agent made it.
    ToolCallId, "toolCallId", is_server_id, "1 to 320 bytes without control characters", "^[^\\p{Cc}]+$", MAX_SERVER_ID_BYTES
);
id!(
    /// Names a rule about calls; the same rule of a session has the same id.
    RuleId, "ruleId", is_server_id, "1 to 320 bytes without control characters", "^[^\\p{Cc}]+$", MAX_SERVER_ID_BYTES
);
id!(
    /// Names a document of a knowledge base; the same content in one collection has the same id.
    DocumentId, "documentId", is_server_id, "1 to 320 bytes without control characters", "^[^\\p{Cc}]+$", MAX_SERVER_ID_BYTES
);

/// Place of a durable event in its session: starts at 1, has no gaps.
pub type Seq = u64;

/// A name or role: 1 to 64 characters, no control characters.
///
/// # Errors
/// The rule as one line, without the field's name.
pub fn check_label(text: &str) -> Result<(), &'static str> {
    if text.chars().any(char::is_control) || !(1..=MAX_LABEL_CHARS).contains(&text.chars().count()) {
        return Err("must be 1 to 64 characters without control characters");
    }
    Ok(())
}

/// Longest name or role, in characters.
pub const MAX_LABEL_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_ids_hold_their_charset_and_length() {
        for good in ["s", "a.b_c:d@e-f", &"x".repeat(128)] {
            assert_eq!(SessionId::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "ä", "a/b", "a\n", &"x".repeat(129)] {
            assert!(SessionId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn labels_count_characters_and_not_bytes() {
        assert!(check_label(&"職".repeat(64)).is_ok());
        assert!(check_label(&"職".repeat(65)).is_err());
        assert!(check_label("").is_err());
        assert!(check_label("a\u{7}").is_err());
    }
}
