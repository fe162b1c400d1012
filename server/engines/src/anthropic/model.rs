//! What differs between Anthropic's models, told from their names: `claude-FAMILY-MAJOR[-MINOR][-DATE]`.
//! A name of another form, such as a gateway's, gets nothing that older models refuse.

/// Most output tokens where none are asked for: the wire demands a number, thoughts count into it, and
/// no model from Claude 4 on takes less.
const MAX_TOKENS: u32 = 32_000;
/// The same for Claude 3, whose smallest models take no more.
const MAX_TOKENS_CLAUDE_3: u32 = 4_096;

/// How a model is asked to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Thinking {
    /// The model refuses thoughts whose conversation was changed, such as by another set of tools,
    /// unless it is told to leave them out.
    pub(super) is_bound: bool,
}

impl Thinking {
    /// Returns how to ask a model to think; `None` leaves it as the model has it.
    ///
    /// From 4.6 on models decide themselves how much to think, and from 4.7 on they show their thoughts
    /// only when asked. From 5.1 on thoughts are bound to their conversation. With a temperature of
    /// one's own, 4.6 must not think; later models take none, and say so.
    pub(super) fn of(model: &str, temperature: Option<f32>) -> Option<Self> {
        let version = version(model)?;
        let thinks = version >= (4, 7) || version == (4, 6) && temperature.is_none();
        thinks.then_some(Self { is_bound: version >= (5, 1) })
    }
}

/// Returns the most output tokens of a step where none are asked for.
pub(super) fn default_max_tokens(model: &str) -> u32 {
    if model.starts_with("claude-3-") { MAX_TOKENS_CLAUDE_3 } else { MAX_TOKENS }
}

fn version(model: &str) -> Option<(u32, u32)> {
    let mut words = model.strip_prefix("claude-")?.split('-');
    words.next().filter(|family| family.bytes().all(|byte| byte.is_ascii_lowercase()))?;
    // A longer number is a date.
    let number = |word: &str| (word.len() <= 2).then(|| word.parse().ok()).flatten();
    let major = number(words.next()?)?;
    Some((major, words.next().and_then(number).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_goes_by_the_version_in_the_name() {
        const BOUND: Option<Thinking> = Some(Thinking { is_bound: true });
        const FREE: Option<Thinking> = Some(Thinking { is_bound: false });
        for (model, thinking) in [
            ("claude-opus-5-5", BOUND),
            ("claude-haiku-5-5", BOUND),
            ("claude-fable-5-1", BOUND),
            ("claude-opus-5", FREE),
            ("claude-opus-4-8", FREE),
            ("claude-sonnet-4-6", FREE),
            ("claude-opus-4-5-20251101", None),
            ("claude-haiku-4-5", None),
            ("claude-opus-4-20250514", None),
            ("claude-3-5-haiku-20241022", None),
            ("claude-mythos-preview", None),
            ("anthropic/claude-opus-5-5", None),
            ("", None),
        ] {
            assert_eq!(Thinking::of(model, None), thinking, "{model}");
        }
        assert_eq!(Thinking::of("claude-sonnet-4-6", Some(0.5)), None);
        assert_eq!(Thinking::of("claude-opus-5-5", Some(0.5)), BOUND);
    }

    #[test]
    fn the_oldest_models_write_less() {
        assert_eq!(default_max_tokens("claude-3-haiku-20240307"), 4_096);
        assert_eq!(default_max_tokens("claude-opus-5-5"), 32_000);
    }
}
