//! How much room a step asks Ollama for. Left alone, Ollama gives a model what the machine's memory suggests, 4,096
//! tokens on most, whatever the model could read, and drops what is longer without a word
//! (<https://docs.ollama.com/context-length>). Pure, but for what is remembered of the models that are loaded.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Least room: what a system prompt with tools and a short talk need.
const LEAST: u64 = 8_192;
/// Most room that is asked for unasked. It is paid for in memory, 4 GB with a model of 8 billion weights.
const MOST: u64 = 32_768;
/// Room that is left for the reply where no limit of it is set, in tokens.
const REPLY: u64 = 4_096;
/// Bytes of a request that make a token in prose of any script; digits and code make more of them.
const BYTES_PER_TOKEN: u64 = 3;
/// Tokens that a picture may take.
const PICTURE_TOKENS: u64 = 1_600;
/// Characters that no tokenizer puts into one token throughout: what is longer by this can't fit.
const MOST_CHARS_PER_TOKEN: u64 = 6;
/// Fewest tokens that a picture takes.
const LEAST_PICTURE_TOKENS: u64 = 64;

/// How long a request is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Bytes of all that is said, and of the tools.
    pub(super) bytes: u64,
    /// The same in characters.
    pub(super) chars: u64,
    /// Pictures.
    pub(super) pictures: u64,
    /// The limit of the reply, in tokens.
    pub(super) reply: Option<u32>,
}

impl Size {
    /// Adds a text.
    pub(super) fn add(&mut self, text: &str) {
        self.bytes += text.len() as u64;
        self.chars += text.chars().count() as u64;
    }
}

/// What a model reads at once, and who says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// In tokens; `None`: not known.
    window: Option<u64>,
    asks: Asks,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Asks {
    /// Requests leave it as it is.
    #[default]
    Nothing,
    /// For all of the window, always.
    All,
    /// For what a request needs.
    Needed,
}

/// A request is longer than what the model reads: so many tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong(pub(super) u64);

impl Room {
    /// Of a model that reads `of_model` tokens, whose maker set `set`.
    pub(super) fn new(of_model: Option<u64>, set: Option<u64>) -> Self {
        // Ollama gives a model no more than it was made for.
        let at_most = |tokens: u64| of_model.map_or(tokens, |most| most.min(tokens));
        match (set.filter(|tokens| *tokens > 0), of_model) {
            (Some(set), _) => Self { window: Some(at_most(set)), asks: Asks::Nothing },
            (None, Some(_)) => Self { window: Some(at_most(MOST)), asks: Asks::Needed },
            (None, None) => Self::default(),
        }
    }

    /// The same where the operator says how much, unless the model's maker did.
    pub(super) fn as_operator_says(self, of_model: Option<u64>, tokens: Option<u64>) -> Self {
        match tokens {
            Some(tokens) if self.asks == Asks::Needed => {
                let window = of_model.map_or(tokens, |most| most.min(tokens));
                Self { window: Some(window), asks: Asks::All }
            }
            _ => self,
        }
    }

    /// Of a model that runs elsewhere, where it has all that it was made for.
    pub(super) fn elsewhere(of_model: Option<u64>) -> Self {
        Self { window: of_model, asks: Asks::Nothing }
    }

    /// Returns how many tokens the model reads at once; `None`: that is not known.
    pub(super) fn window(self) -> Option<u64> {
        self.window
    }

    /// Returns the `num_ctx` that a request needs; `None`: none is sent. It grows in doublings, since Ollama loads the
    /// model anew for each.
    ///
    /// # Errors
    /// The request can't fit.
    pub(super) fn needed(self, size: Size) -> Result<Option<u64>, TooLong> {
        let Some(window) = self.window else { return Ok(None) };
        if size.chars / MOST_CHARS_PER_TOKEN + size.pictures * LEAST_PICTURE_TOKENS > window {
            return Err(TooLong(window));
        }
        let tokens = size.bytes / BYTES_PER_TOKEN + size.pictures * PICTURE_TOKENS;
        let needed = tokens + size.reply.map_or(REPLY, u64::from);
        Ok(match self.asks {
            Asks::Nothing => None,
            Asks::All => Some(window),
            Asks::Needed => Some(needed.next_power_of_two().clamp(LEAST.min(window), window)),
        })
    }
}

/// The most that was asked for each model of each server. Ollama has a model loaded once for whoever asks and loads it
/// anew for less as well as for more, so what was asked once by any agent of this process holds for all of them.
static ASKED: Mutex<BTreeMap<(String, String), u64>> = Mutex::new(BTreeMap::new());
/// Most models that are remembered; of more, the next are asked for what each request needs.
const MAX_ASKED: usize = 256;

/// Returns the most that was asked for a model so far, this included.
pub(super) fn never_less(address: &str, model: &str, tokens: u64) -> u64 {
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (address.to_owned(), model.to_owned());
    if asked.len() >= MAX_ASKED && !asked.contains_key(&key) {
        return tokens;
    }
    let most = asked.entry(key).or_insert(tokens);
    *most = tokens.max(*most);
    *most
}

/// Forgets what was asked for a model: there is no memory for it.
pub(super) fn forget(address: &str, model: &str) {
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    asked.remove(&(address.to_owned(), model.to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u64) -> Size {
        Size { bytes, chars: bytes, ..Size::default() }
    }

    #[test]
    fn the_room_grows_in_doublings_up_to_what_the_model_reads() {
        let room = Room::new(Some(131_072), None);
        for (bytes, asked) in
            [(0, 8_192), (3 * 4_096, 8_192), (3 * 4_097, 16_384), (3 * 12_289, 32_768), (6 * 32_768, 32_768)]
        {
            assert_eq!(room.needed(size(bytes)), Ok(Some(asked)), "{bytes}");
        }
        assert_eq!(room.needed(size(6 * 32_769)), Err(TooLong(32_768)));
        // Scripts of more bytes a character fit as well.
        assert_eq!(room.needed(Size { chars: 6 * 32_768, ..size(18 * 32_768) }), Ok(Some(32_768)));
        assert_eq!(room.needed(Size { reply: Some(10_000), ..size(0) }), Ok(Some(16_384)));
        assert_eq!(room.needed(Size { pictures: 6, ..size(0) }), Ok(Some(16_384)));
        assert_eq!(room.needed(Size { pictures: 512, ..size(0) }), Ok(Some(32_768)));
        assert_eq!(room.needed(Size { pictures: 513, ..size(0) }), Err(TooLong(32_768)));
    }

    #[test]
    fn what_the_model_its_maker_or_the_operator_limits_holds() {
        let small = Room::new(Some(2_048), None);
        assert_eq!((small.window(), small.needed(size(0))), (Some(2_048), Ok(Some(2_048))));
        assert_eq!(Room::new(Some(10_000), None).needed(size(30_000)), Ok(Some(10_000)));

        let set = Room::new(Some(131_072), Some(65_536));
        assert_eq!((set.window(), set.needed(size(200_000))), (Some(65_536), Ok(None)));
        assert_eq!(set.needed(size(400_000)), Err(TooLong(65_536)));
        assert_eq!(set.as_operator_says(Some(131_072), Some(16_384)), set);
        assert_eq!(Room::new(Some(40_960), Some(131_072)).window(), Some(40_960));
        assert_eq!(Room::new(Some(40_960), Some(0)), Room::new(Some(40_960), None));

        let said = Room::new(Some(131_072), None).as_operator_says(Some(131_072), Some(65_536));
        assert_eq!((said.window(), said.needed(size(0))), (Some(65_536), Ok(Some(65_536))));
        let said = Room::new(Some(40_960), None).as_operator_says(Some(40_960), Some(65_536));
        assert_eq!(said.needed(size(0)), Ok(Some(40_960)));

        let elsewhere = Room::elsewhere(Some(262_144));
        assert_eq!((elsewhere.window(), elsewhere.needed(size(600_000))), (Some(262_144), Ok(None)));
        let untold = Room::new(None, None);
        assert_eq!((untold.window(), untold.needed(size(u64::MAX / 2))), (None, Ok(None)));
    }

    #[test]
    fn no_agent_asks_for_less_than_another_of_the_same_model() {
        let ask = |model: &str, tokens| never_less("http://127.0.0.1:1", model, tokens);
        assert_eq!([ask("a", 8_192), ask("a", 16_384), ask("a", 8_192)], [8_192, 16_384, 16_384]);
        forget("http://127.0.0.1:1", "a");
        assert_eq!(ask("a", 8_192), 8_192);
        assert_eq!([ask("b", 8_192), never_less("http://127.0.0.1:2", "a", 8_192)], [8_192, 8_192]);
    }
}
