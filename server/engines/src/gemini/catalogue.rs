//! Gemini's part of the catalogue (`GET {base}/v1beta/models`), as documented in November 2026 at
//! <https://ai.google.dev/api/models>. Its voices are fixed. A list is shown to an account without
//! credit too.

use futures_util::FutureExt;
use serde::Deserialize;
use tns_protocol::provider::{ModelInfo, ModelKind, VoiceInfo};
use tns_server_core::engine::EngineError;

use super::{KEY_HEADER, VERSION_PATH, endpoint, kind, takes_pictures};
use crate::ask::{Question, ask};
use crate::catalogue::pages::{self, Page};
use crate::catalogue::{Asked, Asking, CreditCheck, SmallestStep, Source, Voices, model, no_address, voice};
use crate::http::{Endpoint, Http};

pub(crate) static CATALOGUE: Source = Source {
    models,
    voices: Voices::Fixed(voices),
    credit: CreditCheck::Step(SmallestStep {
        models: &["gemini-3.1-flash-lite", "gemini-3.5-flash-lite", "gemini-2.5-flash-lite"],
        tokens: 1,
    }),
    preferred: &["gemini-3.8-live", "gemini-3.5-transcribe", "gemini-3.8-flash-tts", "gemini-embedding-2"],
};

/// Models of a page: the most that may be asked for.
const PAGE: &str = "1000";

/// Parts of ids of models that answer in pictures, films or music, or that translate speech.
const NOT_USED: [&str; 6] = ["image", "omni", "imagen", "veo", "lyria", "translate"];

/// The prebuilt voices, which speech and Live models share
/// (<https://ai.google.dev/gemini-api/docs/speech-generation>).
const VOICES: [&str; 30] = [
    "Zephyr",
    "Puck",
    "Charon",
    "Kore",
    "Fenrir",
    "Leda",
    "Orus",
    "Aoede",
    "Callirrhoe",
    "Autonoe",
    "Enceladus",
    "Iapetus",
    "Umbriel",
    "Algieba",
    "Despina",
    "Erinome",
    "Algenib",
    "Rasalgethi",
    "Laomedeia",
    "Achernar",
    "Alnilam",
    "Schedar",
    "Gacrux",
    "Pulcherrima",
    "Achird",
    "Zubenelgenubi",
    "Vindemiatrix",
    "Sadachbia",
    "Sadaltager",
    "Sulafat",
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    #[serde(default)]
    models: Vec<Model>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Model {
    /// `models/ID`.
    name: String,
    display_name: Option<String>,
    input_token_limit: Option<u64>,
    #[serde(default)]
    supported_generation_methods: Vec<String>,
}

fn models(asking: Asking) -> Asked<Vec<ModelInfo>> {
    async move {
        let endpoint = endpoint(asking.provider, &asking.access).map_err(no_address)?;
        let listed = pages::all(endpoint.provider, |token| page(&asking.http, &endpoint, token)).await?;
        Ok(listed.into_iter().filter_map(info).collect())
    }
    .boxed()
}

async fn page(http: &Http, endpoint: &Endpoint, token: Option<String>) -> Result<Page<Model>, EngineError> {
    let mut url = endpoint.url(&format!("{VERSION_PATH}/models"));
    url.query_pairs_mut().append_pair("pageSize", PAGE).extend_pairs(token.map(|token| ("pageToken", token)));
    let mut request = http.client(endpoint).await?.get(url);
    if let Some(key) = endpoint.secret_header("")? {
        request = request.header(KEY_HEADER, key);
    }
    let otherwise = "answers /v1beta/models with something other than a list of models";
    let listed: Listed = ask(endpoint, Question { kind, ..Question::new(request, otherwise) }).await?;
    Ok(Page { items: listed.models, next: listed.next_page_token })
}

/// Returns what is known of a model; `None` where nothing here can use it.
fn info(listed: Model) -> Option<ModelInfo> {
    let id = listed.name.strip_prefix("models/").unwrap_or(&listed.name);
    let kind = kind_of(id, &listed.supported_generation_methods)?;
    let sees = matches!(kind, ModelKind::Text | ModelKind::Realtime).then(|| takes_pictures(id));
    Some(ModelInfo {
        name: listed.display_name,
        context_window: listed.input_token_limit.filter(|tokens| *tokens > 0),
        accepts_images: sees,
        ..model(id, kind)
    })
}

/// Goes by the methods, and by the name where one method serves several kinds.
fn kind_of(id: &str, methods: &[String]) -> Option<ModelKind> {
    let can = |name: &str| methods.iter().any(|method| method == name);
    let has = |parts: &[&str]| parts.iter().any(|part| id.contains(part));
    if has(&["-tts"]) {
        Some(ModelKind::Tts)
    } else if has(&["transcribe"]) {
        Some(ModelKind::Stt)
    } else if can("embedContent") {
        Some(ModelKind::Embedding)
    } else if has(&NOT_USED) {
        None
    } else if can("bidiGenerateContent") && has(&["live", "native-audio"]) {
        Some(ModelKind::Realtime)
    } else if can("generateContent") {
        Some(ModelKind::Text)
    } else if can("bidiGenerateContent") {
        Some(ModelKind::Realtime)
    } else {
        None
    }
}

fn voices() -> Vec<VoiceInfo> {
    VOICES.iter().map(|id| voice(id, &[ModelKind::Realtime, ModelKind::Tts])).collect()
}

#[cfg(test)]
mod tests {
    use ModelKind::{Embedding, Realtime, Stt, Text, Tts};

    use super::*;

    #[test]
    fn what_a_model_is_for_goes_by_its_methods() {
        for (id, methods, kind) in [
            ("gemini-3.8-flash", "generateContent countTokens", Some(Text)),
            ("gemma-4-31b-it", "generateContent countTokens", Some(Text)),
            ("gemini-2.0-flash-exp", "generateContent bidiGenerateContent", Some(Text)),
            ("gemini-3.8-live", "bidiGenerateContent countTokens", Some(Realtime)),
            ("gemini-4-live", "generateContent bidiGenerateContent", Some(Realtime)),
            ("gemini-2.5-flash-native-audio-latest", "countTokens bidiGenerateContent", Some(Realtime)),
            ("gemini-3.8-flash-tts", "countTokens generateContent", Some(Tts)),
            ("gemini-3.5-transcribe", "generateContent", Some(Stt)),
            ("gemini-embedding-2", "embedContent asyncBatchEmbedContent", Some(Embedding)),
            ("gemini-3-pro-image", "generateContent", None),
            ("gemini-3.5-live-translate-preview", "bidiGenerateContent", None),
            ("gemini-omni-1.2-flash", "generateContent", None),
            ("imagen-4.0-generate-001", "predict", None),
            ("aqa", "generateAnswer", None),
        ] {
            let methods: Vec<String> = methods.split(' ').map(str::to_owned).collect();
            assert_eq!(kind_of(id, &methods), kind, "{id}");
        }
    }
}
