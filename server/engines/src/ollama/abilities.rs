//! What a model is able to do, as Ollama tells (`POST /api/show`): a request with what it can't take
//! would be refused as a whole.

use serde::{Deserialize, Serialize};
use tns_server_core::engine::Effort;

use super::context::Room;

/// What requests to a model may hold.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Abilities {
    pub(super) tools: bool,
    pub(super) pictures: bool,
    pub(super) room: Room,
    thinking: Thinking,
}

/// How a model is told to think.
#[derive(Debug, Clone, PartialEq)]
enum Thinking {
    /// It does not think, or can't be told.
    Untold,
    /// On or off.
    Switch,
    /// By the names of these levels.
    Levels(Vec<String>),
}

/// The `think` of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Think {
    On(bool),
    Level(&'static str),
}

/// What Ollama tells of a model, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Shown {
    /// Absent from releases before 0.6.4.
    capabilities: Option<Vec<String>>,
    /// Absent where Ollama knows no more than that the model thinks.
    thinking: Option<Control>,
    details: Details,
    /// What whoever made the model set: a name and a value a line.
    parameters: String,
    /// Facts of the model's file, each named after its architecture.
    model_info: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Control {
    /// Booleans, names of levels, or both.
    values: Vec<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    family: Option<String>,
}

impl Shown {
    /// Returns whether it is able to do this, where Ollama tells.
    pub(super) fn can(&self, ability: &str) -> Option<bool> {
        Some(self.capabilities.as_ref()?.iter().any(|known| known == ability))
    }

    /// Returns the most tokens that it reads at once, where Ollama tells.
    pub(super) fn context_window(&self) -> Option<u64> {
        let mut facts = self.model_info.iter();
        facts.find(|(name, _)| name.ends_with(".context_length"))?.1.as_u64()
    }

    /// Returns the room that whoever made the model set.
    fn num_ctx(&self) -> Option<u64> {
        let mut lines = self.parameters.lines().map(|line| line.split_whitespace());
        lines.find_map(|mut words| (words.next()? == "num_ctx").then(|| words.next()?.parse().ok())?)
    }
}

impl Abilities {
    /// Of a model of which nothing is told: tools are what agents are for, the rest is not tried.
    pub(super) fn untold() -> Self {
        Self { tools: true, pictures: false, room: Room::default(), thinking: Thinking::Untold }
    }

    pub(super) fn of(shown: &Shown) -> Self {
        let room = Room::new(shown.context_window(), shown.num_ctx());
        if shown.capabilities.is_none() {
            return Self { room, ..Self::untold() };
        }
        let can = |name: &str| shown.can(name) == Some(true);
        Self {
            tools: can("tools"),
            pictures: can("vision"),
            room,
            thinking: if can("thinking") { Thinking::of(shown) } else { Thinking::Untold },
        }
    }

    /// Returns what to ask for an effort; `None` leaves the model to its default.
    pub(super) fn think(&self, effort: Effort) -> Option<Think> {
        let word = match effort {
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        };
        match &self.thinking {
            Thinking::Untold => None,
            Thinking::Switch => Some(Think::On(true)),
            Thinking::Levels(levels) => {
                levels.iter().any(|level| level == word).then_some(Think::Level(word))
            }
        }
    }
}

impl Thinking {
    fn of(shown: &Shown) -> Self {
        let Some(control) = &shown.thinking else {
            // The one model with levels that came before Ollama told of them.
            let is_gpt_oss = shown.details.family.as_deref() == Some("gptoss");
            let levels = || ["low", "medium", "high"].map(str::to_owned).into();
            return if is_gpt_oss { Self::Levels(levels()) } else { Self::Switch };
        };
        let levels: Vec<String> =
            control.values.iter().filter_map(|value| Some(value.as_str()?.to_owned())).collect();
        if !levels.is_empty() {
            Self::Levels(levels)
        } else if control.values.contains(&serde_json::Value::Bool(true)) {
            Self::Switch
        } else {
            Self::Untold
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn abilities(shown: serde_json::Value) -> Abilities {
        Abilities::of(&serde_json::from_value(shown).unwrap())
    }

    #[test]
    fn only_what_is_told_is_taken_for_granted() {
        assert_eq!(abilities(json!({})), Abilities::untold());
        let blind = abilities(json!({"capabilities": ["completion"]}));
        assert!(!blind.tools && !blind.pictures);
        let able = abilities(json!({"capabilities": ["completion", "tools", "vision"], "details": {}}));
        assert!(able.tools && able.pictures);
        assert_eq!(able.think(Effort::High), None);
    }

    #[test]
    fn what_the_makers_of_a_model_set_is_read_among_its_parameters() {
        let room = |parameters: &str| {
            let shown = json!({ "parameters": parameters, "model_info": { "qwen3.context_length": 40_960 } });
            abilities(shown).room.window()
        };
        assert_eq!(
            room("stop           \"<|im_start|>\"\nnum_ctx                        16384\n"),
            Some(16_384)
        );
        for other in ["", "num_ctx", "num_ctx many", "stop \"num_ctx 5\"", "num_ctx_x 5"] {
            assert_eq!(room(other), Some(32_768), "{other:?}");
        }
        assert_eq!(abilities(json!({})).room, Room::default());
    }

    #[test]
    fn an_effort_is_said_in_the_models_own_way() {
        let asked = |mut shown: serde_json::Value| {
            shown["capabilities"] = json!(["thinking"]);
            let abilities = abilities(shown);
            [Effort::Low, Effort::High].map(|effort| abilities.think(effort))
        };
        let on = || Some(Think::On(true));
        assert_eq!(asked(json!({})), [on(), on()]);
        assert_eq!(asked(json!({"thinking": {"values": [true, false]}})), [on(), on()]);
        assert_eq!(asked(json!({"thinking": {"values": [false]}})), [None, None]);
        let levels = [Some(Think::Level("low")), Some(Think::Level("high"))];
        assert_eq!(asked(json!({"thinking": {"values": ["low", "medium", "high"]}})), levels);
        assert_eq!(asked(json!({"thinking": {"values": [false, "high", "max"]}})), [None, levels[1].clone()]);
        assert_eq!(asked(json!({"details": {"family": "gptoss"}})), levels);
    }
}
