//! The provider catalogue on the REST face: who serves models, whether a key works, which models and
//! voices there are. A key goes in one direction only, and no text made from these types shows it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a model is for. The order is the one in which models are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// Writes text: what agents are opened on.
    Text,
    /// Listens and speaks in one session.
    Realtime,
    /// Writes down speech.
    Stt,
    /// Speaks text.
    Tts,
    /// Turns text into vectors.
    Embedding,
}

impl ModelKind {
    /// Every kind, in order.
    pub const ALL: [Self; 5] = [Self::Text, Self::Realtime, Self::Stt, Self::Tts, Self::Embedding];

    /// Returns the kind as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Realtime => "realtime",
            Self::Stt => "stt",
            Self::Tts => "tts",
            Self::Embedding => "embedding",
        }
    }
}

/// GET `/api/providers`: in the order in which the default is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderList {
    /// The providers.
    pub providers: Vec<ProviderInfo>,
}

/// A provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderInfo {
    /// Its id, as flags, variables and paths name it.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// What it is, in one line.
    pub blurb: String,
    /// The kinds of models that it offers.
    pub kinds: Vec<ModelKind>,
    /// It may be named here: it is set up, or needs no set-up.
    pub configured: bool,
    /// The setting that makes it usable, where one is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured_by: Option<String>,
    /// The variable that its key is read from; absent where it takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_variable: Option<String>,
    /// The variable that its address is read from; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url_variable: Option<String>,
    /// The page where one gets a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_page: Option<String>,
    /// How its keys begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_prefix: Option<String>,
    /// The model of agents that name none; absent: the first that it lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_model: Option<String>,
}

/// POST `/api/providers/{id}/validate`. Another field is refused, so that a misspelt `key` checks no other key.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValidateKey {
    /// The key to check; absent: the one that is set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Shows whether there is a key, never which.
impl fmt::Debug for ValidateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidateKey").field("key", &self.key.as_ref().map(|_| "***")).finish()
    }
}

/// The answer about a key that works. One that doesn't is an error: `BAD_KEY`, `NO_CREDIT`,
/// `RATE_LIMITED`, `PROVIDER_UNAVAILABLE` or `PROVIDER_ERROR`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyCheck {
    /// The provider.
    pub provider: String,
    /// The kinds of models that the key may use.
    pub kinds: Vec<ModelKind>,
    /// What is known of the account's credit.
    pub credit: Credit,
}

/// What is known of an account's credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Credit {
    /// There is some: a smallest call was answered, or the account says so.
    Ok,
    /// Nothing is paid for.
    Free,
    /// The key is taken; whether anything is left could not be told.
    Unknown,
}

impl Credit {
    /// Returns the word as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Free => "free",
            Self::Unknown => "unknown",
        }
    }
}

/// GET `/api/providers/{id}/models`: by kind, the recommended one of each first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelList {
    /// The provider.
    pub provider: String,
    /// The models.
    pub models: Vec<ModelInfo>,
}

/// A model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelInfo {
    /// Its id, as `--model` takes it.
    pub id: String,
    /// Its name for people, where the provider gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for.
    pub kind: ModelKind,
    /// The one to take of its kind; exactly one of each kind that is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recommended: bool,
    /// Most tokens that it reads at once, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Whether it sees pictures, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepts_images: Option<bool>,
}

/// GET `/api/providers/{id}/voices`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VoiceList {
    /// The provider.
    pub provider: String,
    /// The voices, in the provider's order; empty where it has none.
    pub voices: Vec<VoiceInfo>,
}

/// A voice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceInfo {
    /// Its id, as the provider takes it.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// The kinds of models that speak with it.
    pub kinds: Vec<ModelKind>,
    /// What it is like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where a sample of it is played from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview_url: Option<String>,
    /// The provider advises it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recommended: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_and_credit_are_written_as_they_are_named() {
        for kind in ModelKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        assert!(ModelKind::ALL.is_sorted());
        for credit in [Credit::Ok, Credit::Free, Credit::Unknown] {
            assert_eq!(serde_json::to_value(credit).unwrap(), credit.as_str());
        }
    }

    #[test]
    fn what_is_not_known_is_left_out_and_may_be_absent() {
        let bare = json!({ "id": "m", "kind": "stt" });
        let model: ModelInfo = serde_json::from_value(bare.clone()).unwrap();
        assert_eq!(serde_json::to_value(&model).unwrap(), bare);
        let bare = json!({ "id": "v", "name": "V", "kinds": ["tts"] });
        let voice: VoiceInfo = serde_json::from_value(bare.clone()).unwrap();
        assert_eq!(serde_json::to_value(&voice).unwrap(), bare);
        assert_eq!(serde_json::to_value(ValidateKey::default()).unwrap(), json!({}));
    }

    #[test]
    fn a_key_is_not_shown() {
        let check = ValidateKey { key: Some("canary".into()) };
        assert_eq!(format!("{check:?}"), r#"ValidateKey { key: Some("***") }"#);
    }
}
