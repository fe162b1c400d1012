//! Which stretches of a model's turn go back as they came, and which are written anew from its parts: a
//! turn may hold several steps, of which only some left blocks of this provider. Pure.

use serde_json::value::RawValue;
use tns_server_core::message::{ModelMessage, Part};

/// What a provider's blocks say, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// Text that is not blank.
    Text(String),
    /// A call, by the provider's own id.
    Call(String),
}

/// A piece of a model's turn.
#[derive(Debug)]
pub(crate) enum Stretch<'a> {
    /// A step's blocks as they came, and the parts that they stand for.
    AsItCame { blocks: &'a RawValue, parts: Vec<&'a Part> },
    /// A part to be written anew.
    Anew(&'a Part),
}

/// Divides a model's turn. `said` reads what a step's blocks say; `None` keeps them from going back.
/// Blocks go back only in place of parts that say exactly the same. Blank text is left out.
pub(crate) fn stretches<'a>(
    message: &'a ModelMessage,
    provider: &str,
    said: impl Fn(&'a RawValue) -> Option<Vec<Said>>,
) -> Vec<Stretch<'a>> {
    let natives = message.native.iter().filter(|native| native.provider == provider);
    let kept: Vec<(&RawValue, Vec<Said>)> = natives
        .filter_map(|native| Some((&*native.blocks, joined(said(&native.blocks)?))))
        .filter(|(_, said)| !said.is_empty())
        .collect();
    let parts: Vec<&Part> = message.parts.iter().filter(|part| !is_blank(part)).collect();
    let mut stretches = Vec::with_capacity(parts.len());
    let (mut at, mut next) = (0, 0);
    while let Some(part) = parts.get(at) {
        let found = kept.iter().enumerate().skip(next).find(|(_, (_, said))| says(&parts[at..], said));
        if let Some((place, (blocks, said))) = found {
            let parts = parts[at..at + said.len()].to_vec();
            at += said.len();
            next = place + 1;
            stretches.push(Stretch::AsItCame { blocks, parts });
        } else {
            stretches.push(Stretch::Anew(part));
            at += 1;
        }
    }
    stretches
}

/// Whether a part is text without a visible character, which providers refuse.
pub(crate) fn is_blank(part: &Part) -> bool {
    matches!(part, Part::Text(text) if text.trim().is_empty())
}

/// Joins neighbouring texts, as they are in a step's parts.
fn joined(said: Vec<Said>) -> Vec<Said> {
    let mut all: Vec<Said> = Vec::with_capacity(said.len());
    for one in said {
        match (all.last_mut(), one) {
            (Some(Said::Text(last)), Said::Text(text)) => last.push_str(&text),
            (_, one) => all.push(one),
        }
    }
    all
}

fn says(parts: &[&Part], said: &[Said]) -> bool {
    parts.len() >= said.len()
        && parts.iter().zip(said).all(|(part, said)| match (part, said) {
            (Part::Text(text), Said::Text(said)) => text == said,
            (Part::ToolCall(call), Said::Call(id)) => call.provider_id.as_ref() == Some(id),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Map;
    use tns_protocol::ToolCallId;
    use tns_server_core::message::{ModelRole, Native, ToolCall};

    use super::*;

    fn text(words: &str) -> Part {
        Part::Text(words.into())
    }

    fn call(id: &str) -> Part {
        Part::ToolCall(ToolCall {
            id: ToolCallId::parse(format!("ours-{id}")).unwrap(),
            provider_id: Some(id.into()),
            name: "t".into(),
            args: Map::new(),
            problem: None,
        })
    }

    /// Blocks are a list of words; one that begins with `#` is a call's id.
    fn native(provider: &str, blocks: &str) -> Native {
        let blocks = RawValue::from_string(blocks.to_owned()).unwrap();
        Native { provider: provider.into(), blocks: Arc::from(blocks) }
    }

    fn read(blocks: &RawValue) -> Option<Vec<Said>> {
        let words: Vec<String> = serde_json::from_str(blocks.get()).ok()?;
        let said = words.into_iter().map(|word| match word.strip_prefix('#') {
            Some(id) => Said::Call(id.to_owned()),
            None => Said::Text(word),
        });
        Some(said.collect())
    }

    /// Tells stretches as text: blocks as they are, a part as `text` or `#id`.
    fn told(parts: Vec<Part>, native: Vec<Native>) -> Vec<String> {
        let message = ModelMessage { role: ModelRole::Assistant, parts, native };
        let told = stretches(&message, "mine", read).into_iter().map(|stretch| match stretch {
            Stretch::AsItCame { blocks, .. } => blocks.get().to_owned(),
            Stretch::Anew(Part::Text(text)) => text.clone(),
            Stretch::Anew(Part::ToolCall(call)) => format!("#{}", call.provider_id.as_deref().unwrap()),
            Stretch::Anew(other) => panic!("{other:?}"),
        });
        told.collect()
    }

    #[test]
    fn blocks_of_several_steps_go_back_in_order_between_what_is_told_anew() {
        let parts = vec![text("a"), call("1"), text("cut"), text("b"), call("2")];
        let natives = vec![native("mine", "[\"a\",\"#1\"]"), native("mine", "[\"b\",\"#2\"]")];
        assert_eq!(told(parts, natives), ["[\"a\",\"#1\"]", "cut", "[\"b\",\"#2\"]"]);
    }

    #[test]
    fn blocks_that_say_something_else_stay_back() {
        for other in ["[\"b\",\"#1\"]", "[\"a\",\"#2\"]", "[\"a\",\"#1\",\"c\"]", "[]", "\"no list\""] {
            assert_eq!(told(vec![text("a"), call("1")], vec![native("mine", other)]), ["a", "#1"], "{other}");
        }
        assert_eq!(told(vec![text("a")], vec![native("other", "[\"a\"]")]), ["a"]);
    }

    #[test]
    fn neighbouring_texts_are_one_part_and_blank_text_is_none() {
        let parts = vec![text(" \n"), text("ab"), call("1")];
        assert_eq!(told(parts, vec![native("mine", "[\"a\",\"b\",\"#1\"]")]), ["[\"a\",\"b\",\"#1\"]"]);
        assert!(told(vec![text(""), text("  ")], vec![]).is_empty());
    }

    #[test]
    fn one_unmatched_step_does_not_keep_the_next_ones_back() {
        let natives = vec![native("mine", "[\"gone\"]"), native("mine", "[\"b\"]")];
        assert_eq!(told(vec![text("a"), text("b")], natives), ["a", "[\"b\"]"]);
    }
}
