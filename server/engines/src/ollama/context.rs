//! How much room a step asks Ollama for. Left alone, Ollama gives a model some 4,096 tokens, whatever it could
//! read, and drops the beginning of a longer prompt without a word: the system prompt and the tools first
//! (`PARAMETER num_ctx`, <https://docs.ollama.com/context-length>). Pure.

/// Least room: what a system prompt with tools and a short talk need.
const LEAST: u64 = 8_192;
/// Most room that is asked for. It is paid for in memory, 4 GB with a model of 8 billion weights; who has it gives
/// the model a larger `num_ctx` of its own.
const MOST: u64 = 32_768;
/// Room that is left for the reply where no limit of it is set, in tokens.
const REPLY: u64 = 4_096;
/// Bytes of a request that make at least one token in any language, so that the room is enough.
const SAFE_BYTES_PER_TOKEN: u64 = 3;
/// Bytes that hardly ever make a token alone, so that what is longer by this can't fit.
const MOST_BYTES_PER_TOKEN: u64 = 6;
/// Tokens that a picture counts for.
const PICTURE_TOKENS: u64 = 1_600;

/// How long a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Bytes of all that is said, and of the tools.
    pub(super) bytes: u64,
    /// Pictures.
    pub(super) pictures: u64,
    /// The limit of the reply, in tokens.
    pub(super) reply: Option<u32>,
}

/// What Ollama tells of a model's room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// Most tokens that the model can read at once.
    pub(super) of_model: Option<u64>,
    /// What whoever made the model set; requests leave it as it is.
    pub(super) set: Option<u64>,
}

/// A request is longer than what the model is given to read: so many tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong(pub(super) u64);

impl Room {
    /// Returns how many tokens the model reads at once, as it is asked here; `None`: that is not known.
    pub(super) fn window(self) -> Option<u64> {
        self.set.or(self.of_model.map(|most| most.min(MOST)))
    }

    /// Returns the `num_ctx` of a request; `None`: none is sent. It grows in doublings, since Ollama loads the model
    /// anew for each.
    ///
    /// # Errors
    /// The request can't fit.
    pub(super) fn for_request(self, size: Size) -> Result<Option<u64>, TooLong> {
        let Some(window) = self.window() else { return Ok(None) };
        let pictures = size.pictures * PICTURE_TOKENS;
        if size.bytes / MOST_BYTES_PER_TOKEN + pictures > window {
            return Err(TooLong(window));
        }
        if self.set.is_some() {
            return Ok(None);
        }
        let reply = size.reply.map_or(REPLY, u64::from);
        let needed = size.bytes / SAFE_BYTES_PER_TOKEN + pictures + reply;
        Ok(Some(needed.next_power_of_two().clamp(LEAST.min(window), window)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u64) -> Size {
        Size { bytes, pictures: 0, reply: None }
    }

    #[test]
    fn the_room_grows_in_doublings_up_to_what_the_model_reads() {
        let room = Room { of_model: Some(131_072), set: None };
        for (bytes, asked) in
            [(0, 8_192), (3 * 4_096, 8_192), (3 * 4_097, 16_384), (3 * 12_289, 32_768), (6 * 32_768, 32_768)]
        {
            assert_eq!(room.for_request(size(bytes)), Ok(Some(asked)), "{bytes}");
        }
        assert_eq!(room.for_request(size(6 * 32_769)), Err(TooLong(32_768)));
        let long_reply = Size { reply: Some(10_000), ..size(0) };
        assert_eq!(room.for_request(long_reply), Ok(Some(16_384)));
        let pictures = Size { pictures: 6, ..size(0) };
        assert_eq!(room.for_request(pictures), Ok(Some(16_384)));
        assert_eq!(room.for_request(Size { pictures: 21, ..size(0) }), Err(TooLong(32_768)));
    }

    #[test]
    fn what_the_model_or_its_maker_limits_holds() {
        let small = Room { of_model: Some(2_048), set: None };
        assert_eq!((small.window(), small.for_request(size(0))), (Some(2_048), Ok(Some(2_048))));
        let odd = Room { of_model: Some(10_000), set: None };
        assert_eq!(odd.for_request(size(30_000)), Ok(Some(10_000)));
        let set = Room { of_model: Some(131_072), set: Some(65_536) };
        assert_eq!((set.window(), set.for_request(size(200_000))), (Some(65_536), Ok(None)));
        assert_eq!(set.for_request(size(400_000)), Err(TooLong(65_536)));
        let untold = Room::default();
        assert_eq!((untold.window(), untold.for_request(size(u64::MAX))), (None, Ok(None)));
    }
}
