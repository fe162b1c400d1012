//! One event of a Chat Completions stream as it stands on the wire, read without copying where JSON
//! allows it. Lenient by intent: servers leave out, null and retype fields. It decides nothing.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A `chat.completion.chunk`, or a whole `chat.completion`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) model: Text<'a>,
    #[serde(borrow)]
    pub(super) choices: Option<FirstChoice<'a>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    /// Stands here only in errors that some servers send bare.
    #[serde(borrow)]
    pub(super) message: Text<'a>,
    /// As above: FastAPI's form.
    #[serde(borrow)]
    pub(super) detail: Option<&'a RawValue>,
}

/// One answer; we never ask for a second one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    pub(super) index: Option<i64>,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    /// In place of `delta` in a whole answer.
    #[serde(borrow)]
    pub(super) message: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Text<'a>,
}

/// What a chunk adds.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) content: Text<'a>,
    /// DeepSeek's, vLLM's and llama.cpp's name for reasoning.
    #[serde(borrow)]
    pub(super) reasoning_content: Text<'a>,
    /// Ollama's, OpenRouter's and Groq's.
    #[serde(borrow)]
    pub(super) reasoning: Text<'a>,
    #[serde(borrow)]
    pub(super) refusal: Text<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<CallDelta<'a>>>,
}

/// A piece of a tool call; anything may be missing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallDelta<'a> {
    pub(super) index: Option<i64>,
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) function: Option<FunctionDelta<'a>>,
}

/// The function of a [`CallDelta`].
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionDelta<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    /// A piece of JSON text in a string; some servers send the object itself.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

impl<'a> FunctionDelta<'a> {
    /// Returns the piece of argument text.
    pub(super) fn argument_text(&self) -> Cow<'a, str> {
        match self.arguments.map(RawValue::get) {
            None => Cow::Borrowed(""),
            Some(raw) if raw.starts_with('"') => {
                serde_json::from_str::<Text<'a>>(raw).map_or(Cow::Borrowed(raw), |text| text.0)
            }
            Some(raw) => Cow::Borrowed(raw),
        }
    }
}

/// Cumulative counters; each report replaces the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

impl Usage {
    pub(super) fn input(&self) -> u64 {
        let rest = self.total_tokens.unwrap_or_default().saturating_sub(self.output());
        self.prompt_tokens.unwrap_or(rest)
    }

    pub(super) fn cached_input(&self) -> u64 {
        self.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or_default()
    }

    pub(super) fn output(&self) -> u64 {
        let rest =
            self.total_tokens.zip(self.prompt_tokens).map(|(total, prompt)| total.saturating_sub(prompt));
        self.completion_tokens.or(rest).unwrap_or_default()
    }
}

/// Text that may be null, or a list of parts with a `text` each; anything else counts as empty.
#[derive(Debug, Default)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Text::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Text::default())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(number.to_string())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(number.to_string())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(number.to_string())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct TextPart<'a> {
            #[serde(borrow)]
            text: Text<'a>,
        }
        let mut text = String::new();
        while let Some(part) = parts.next_element::<TextPart<'de>>()? {
            text.push_str(&part.text.0);
        }
        Ok(Text(Cow::Owned(text)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Text::default())
    }
}

/// The choice with index 0, read without a list for the others.
#[derive(Debug, Default)]
pub(super) struct FirstChoice<'a>(pub(super) Option<Choice<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for FirstChoice<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct First;

        impl<'de> Visitor<'de> for First {
            type Value = FirstChoice<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of choices")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut choices: A) -> Result<Self::Value, A::Error> {
                let mut first = None;
                while let Some(choice) = choices.next_element::<Choice<'de>>()? {
                    if choice.index.unwrap_or_default() == 0 && first.is_none() {
                        first = Some(choice);
                    }
                }
                Ok(FirstChoice(first))
            }
        }

        deserializer.deserialize_seq(First)
    }
}
