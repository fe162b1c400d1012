//! OpenAI's part of the catalogue. Its list (`GET {base}/models`) has ids only, so that what a model is
//! for goes by the id; windows and pictures are those of <https://developers.openai.com/api/docs/models>,
//! November 2026. Its voices are fixed. A list is shown to an account without credit too.

use futures_util::FutureExt;
use tns_protocol::provider::{ModelInfo, ModelKind, VoiceInfo};

use crate::ask::ASK_LIMIT;
use crate::catalogue::{Asked, Asking, CreditCheck, SmallestStep, Source, Voices, model, no_address, voice};
use crate::compatible;

pub(crate) static CATALOGUE: Source = Source {
    models,
    voices: Voices::Fixed(voices),
    // Fewer than 16 tokens are refused.
    credit: CreditCheck::Step(SmallestStep { models: &["gpt-6-luna", "gpt-5.4-nano"], tokens: 16 }),
    preferred: &["gpt-realtime-2.1", "gpt-transcribe", "gpt-4o-mini-tts", "text-embedding-3-small"],
};

/// Parts of ids of models that no part of this product can use: pictures, films, other APIs.
const NOT_USED: [&str; 13] = [
    "image",
    "dall-e",
    "sora",
    "moderation",
    "audio",
    "translate",
    "instruct",
    "search",
    "deep-research",
    "computer-use",
    "babbage",
    "davinci",
    "daybreak",
];

/// How the ids of models that write text begin.
const WRITES_TEXT: [&str; 6] = ["gpt-", "chat", "codex-", "o1", "o3", "o4"];

/// Most tokens that models read at once, by how their ids begin; the first that fits counts.
const WINDOWS: [(&str, u64); 14] = [
    ("gpt-6", 1_050_000),
    ("gpt-5.6", 1_050_000),
    ("gpt-5.5", 1_050_000),
    ("gpt-5.4-mini", 400_000),
    ("gpt-5.4-nano", 400_000),
    ("gpt-5.4", 1_050_000),
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("gpt-realtime-2", 128_000),
];
/// The same of the models that ChatGPT uses, whatever their family.
const CHAT_WINDOW: u64 = 128_000;

/// How the ids of models that see no pictures begin.
const SEES_NOTHING: [&str; 6] = ["gpt-3", "gpt-4-0", "o1-mini", "o1-preview", "o3-mini", "gpt-live"];
/// How the ids of models that do begin.
const SEES: [&str; 9] =
    ["gpt-6", "gpt-5", "gpt-4.1", "gpt-4o", "gpt-4-turbo", "o1", "o3", "o4", "gpt-realtime"];

fn models(asking: Asking) -> Asked<Vec<ModelInfo>> {
    async move {
        let endpoint = compatible::endpoint(asking.provider, &asking.access).map_err(no_address)?;
        let mut listed = compatible::models::list(&asking.http, &endpoint, ASK_LIMIT).await?;
        // They come in no order; newer ones are of more use.
        listed.sort_by_key(|model| std::cmp::Reverse(model.created()));
        Ok(listed.iter().filter_map(|listed| info(&listed.id)).collect())
    }
    .boxed()
}

/// Returns what is known of a model; `None` where nothing here can use it.
fn info(id: &str) -> Option<ModelInfo> {
    // A model of one's own is named after the one that it was made from: `ft:gpt-4o-mini:org::id`.
    let family = id.strip_prefix("ft:").unwrap_or(id);
    let kind = kind_of(family)?;
    let reads = matches!(kind, ModelKind::Text | ModelKind::Realtime);
    Some(ModelInfo {
        context_window: window(family).filter(|_| reads),
        accepts_images: sees(family).filter(|_| reads),
        ..model(id, kind)
    })
}

fn kind_of(id: &str) -> Option<ModelKind> {
    let has = |parts: &[&str]| parts.iter().any(|part| id.contains(part));
    if has(&["embedding"]) {
        Some(ModelKind::Embedding)
    } else if has(&["transcribe", "whisper"]) {
        Some(ModelKind::Stt)
    } else if has(&["-tts"]) || id.starts_with("tts-") {
        Some(ModelKind::Tts)
    } else if has(&NOT_USED) {
        None
    } else if has(&["realtime"]) || id.starts_with("gpt-live") {
        Some(ModelKind::Realtime)
    } else if begins(id, &WRITES_TEXT) {
        Some(ModelKind::Text)
    } else {
        None
    }
}

fn begins(id: &str, with: &[&str]) -> bool {
    with.iter().any(|prefix| id.starts_with(prefix))
}

fn window(id: &str) -> Option<u64> {
    if id.contains("chat-latest") {
        return Some(CHAT_WINDOW);
    }
    WINDOWS.iter().find(|(prefix, _)| id.starts_with(prefix)).map(|(_, tokens)| *tokens)
}

fn sees(id: &str) -> Option<bool> {
    if id == "gpt-4" || begins(id, &SEES_NOTHING) {
        return Some(false);
    }
    begins(id, &SEES).then_some(true)
}

/// Returns the voices of <https://developers.openai.com/api/docs/guides/text-to-speech>; the first two are
/// the ones that it advises.
fn voices() -> Vec<VoiceInfo> {
    let both = ["marin", "cedar", "alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse"];
    let advised = ["marin", "cedar"];
    let both = both.iter().map(|id| VoiceInfo {
        recommended: advised.contains(id),
        ..voice(id, &[ModelKind::Realtime, ModelKind::Tts])
    });
    let speech = ["fable", "nova", "onyx"].iter().map(|id| voice(id, &[ModelKind::Tts]));
    both.chain(speech).collect()
}

#[cfg(test)]
mod tests {
    use ModelKind::{Embedding, Realtime, Stt, Text, Tts};

    use super::*;

    #[test]
    fn what_a_model_is_for_goes_by_its_id() {
        for (id, kind) in [
            ("gpt-6.2-sol", Some(Text)),
            ("gpt-5.4-mini-2026-03-17", Some(Text)),
            ("chat-latest", Some(Text)),
            ("o3", Some(Text)),
            ("ft:gpt-4o-mini-2024-07-18:org::abc", Some(Text)),
            ("gpt-realtime-2.1", Some(Realtime)),
            ("gpt-4o-realtime-preview", Some(Realtime)),
            ("gpt-live-1", Some(Realtime)),
            ("gpt-live-transcribe", Some(Stt)),
            ("gpt-realtime-whisper", Some(Stt)),
            ("whisper-1", Some(Stt)),
            ("gpt-4o-mini-tts", Some(Tts)),
            ("tts-1-hd", Some(Tts)),
            ("text-embedding-3-large", Some(Embedding)),
            ("gpt-realtime-translate", None),
            ("gpt-audio-1.5", None),
            ("gpt-4o-search-preview", None),
            ("gpt-image-2.6-flare", None),
            ("chatgpt-image-latest", None),
            ("o4-mini-deep-research", None),
            ("gpt-3.5-turbo-instruct", None),
            ("omni-moderation-latest", None),
            ("sora-2", None),
            ("dall-e-3", None),
            ("davinci-002", None),
            ("something-else", None),
        ] {
            assert_eq!(info(id).map(|model| model.kind), kind, "{id}");
        }
    }

    #[test]
    fn windows_and_pictures_are_known_of_models_that_read() {
        for (id, window, sees) in [
            ("gpt-6.2-sol", Some(1_050_000), Some(true)),
            ("gpt-5.4-nano", Some(400_000), Some(true)),
            ("gpt-5.4", Some(1_050_000), Some(true)),
            ("gpt-5.3-chat-latest", Some(128_000), Some(true)),
            ("gpt-4", None, Some(false)),
            ("gpt-3.5-turbo", None, Some(false)),
            ("o3-mini", Some(200_000), Some(false)),
            ("gpt-realtime-2.1-mini", Some(128_000), Some(true)),
            ("gpt-realtime", None, Some(true)),
            ("gpt-live-1", None, Some(false)),
            ("gpt-4o-transcribe", None, None),
            ("codex-mini-latest", None, None),
        ] {
            let model = info(id).unwrap();
            assert_eq!((model.context_window, model.accepts_images), (window, sees), "{id}");
        }
    }

    #[test]
    fn voices_are_those_of_both_apis_and_the_advised_come_first() {
        let voices = voices();
        assert_eq!(voices.len(), 13);
        let advised: Vec<_> =
            voices.iter().filter(|voice| voice.recommended).map(|v| v.id.as_str()).collect();
        assert_eq!(advised, ["marin", "cedar"]);
        assert!(voices.iter().all(|voice| voice.kinds.contains(&Tts)));
        assert_eq!(voices.iter().filter(|voice| voice.kinds.contains(&Realtime)).count(), 10);
    }
}
