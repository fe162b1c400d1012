//! Local models as the core sees them: small random networks written here, and the real one that
//! `TNS_TEST_GGUF` names.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use candle_core::quantized::gguf_file::Value;
use futures_util::StreamExt;
use tns_server_core::engine::{
    Engine, EngineChoice, EngineErrorKind, Engines, OpenError, StepEvent, StepOutcome, StepRequest, StepStop,
};
use tns_server_core::message::Part;

use super::tiny::{CONTEXT, Tiny};
use super::weights::{KINDS, Kind};
use crate::config::{EngineConfig, LocalModels};
use crate::model_files::ModelFiles;
use crate::registry::EngineRegistry;
use crate::step::fixtures::{model, step, text, user};

mod networks;
mod real;

/// A folder of models, and the engines that are opened from it.
struct Models {
    data: tempfile::TempDir,
}

impl Models {
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        fs::create_dir(ModelFiles::of(data.path()).dir()).unwrap();
        Self { data }
    }

    fn with(tiny: &Tiny) -> Self {
        let models = Self::new();
        tiny.write(&models.path("tiny"));
        models
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.data.path().join(format!("models/{name}.gguf"))
    }

    fn registry(&self) -> EngineRegistry {
        registry(self.data.path())
    }

    async fn open(&self) -> Result<Arc<dyn Engine>, OpenError> {
        self.registry().open(&choice(None)).await
    }
}

fn registry(data: &Path) -> EngineRegistry {
    let files = Some(ModelFiles::of(data));
    let config = EngineConfig::from_env(|_| None);
    EngineRegistry::new(EngineConfig { local: LocalModels { files, ..LocalModels::default() }, ..config })
}

fn choice(model: Option<&str>) -> EngineChoice {
    EngineChoice { provider: Some("local".into()), model: model.map(str::to_owned) }
}

/// A step that is the same every time.
fn greedy(messages: Vec<tns_server_core::message::ModelMessage>, most: u32) -> StepRequest {
    StepRequest { temperature: Some(0.0), max_output_tokens: Some(most), ..step(messages) }
}

fn asks(words: &str, most: u32) -> StepRequest {
    greedy(vec![user(vec![text(words)])], most)
}

/// Runs a step to its end; returns the pieces of text and the outcome.
async fn run(engine: &dyn Engine, step: StepRequest) -> (Vec<String>, StepOutcome) {
    let events: Vec<_> = engine.step(step).map(Result::unwrap).collect().await;
    let (last, before) = events.split_last().unwrap();
    let StepEvent::Finished(outcome) = last else { panic!("{last:?}") };
    let pieces = before.iter().map(|event| match event {
        StepEvent::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    });
    (pieces.collect(), outcome.clone())
}

async fn refused(engine: &dyn Engine, step: StepRequest) -> (EngineErrorKind, String) {
    let events: Vec<_> = engine.step(step).collect().await;
    let Some(Err(error)) = events.last() else { panic!("{events:?}") };
    (error.kind, error.message.clone())
}

fn said(outcome: &StepOutcome) -> String {
    let texts = outcome.parts.iter().map(|part| match part {
        Part::Text(text) => text.as_str(),
        other => panic!("{other:?}"),
    });
    texts.collect()
}

#[tokio::test]
async fn every_kind_of_network_streams_an_answer_and_goes_on_from_it() {
    for (name, kind) in KINDS {
        let models = Models::with(&Tiny::new(kind));
        let engine = models.open().await.unwrap();
        assert_eq!((engine.provider(), engine.model()), ("local", "tiny"));
        let (pieces, first) = run(&*engine, asks("hello the world", 8)).await;
        assert_eq!(pieces.concat(), said(&first), "{name}");
        assert_eq!((first.stop, first.usage.output, first.usage.cached_input), (StepStop::MaxTokens, 8, 0));
        assert_eq!((first.usage.cost, first.model.as_str()), (Some(0.0), "tiny"));

        // The same again: only the last token is read anew, and the answer is the same.
        let (_, again) = run(&*engine, asks("hello the world", 8)).await;
        assert_eq!((said(&again), again.usage.cached_input), (said(&first), first.usage.input - 1), "{name}");

        // The conversation goes on: what was read stays read, and nothing else comes of it than from the start.
        let further = || {
            let before = vec![user(vec![text("hello the world")]), model(vec![text(&said(&first))])];
            greedy([before, vec![user(vec![text("and then?")])]].concat(), 8)
        };
        let (_, second) = run(&*engine, further()).await;
        let (_, fresh) = run(&*models.open().await.unwrap(), further()).await;
        assert_eq!(said(&second), said(&fresh), "{name}");
        assert!(second.usage.cached_input >= first.usage.input - 1, "{name}: {:?}", second.usage);
        assert_eq!((fresh.usage.cached_input, fresh.usage.input), (0, second.usage.input));
    }
}

#[tokio::test]
async fn chance_is_repeatable_with_a_seed() {
    let models = Models::with(&Tiny::new(Kind::Llama));
    let drawn = async |seed: u64| {
        let files = Some(ModelFiles::of(models.data.path()));
        let local = LocalModels { files, seed: Some(seed), ..LocalModels::default() };
        let registry = EngineRegistry::new(EngineConfig { local, ..EngineConfig::from_env(|_| None) });
        let engine = registry.open(&choice(None)).await.unwrap();
        let step = StepRequest { temperature: Some(1.5), ..asks("the", 24) };
        said(&run(&*engine, step).await.1)
    };
    assert_eq!(drawn(1).await, drawn(1).await);
    assert_ne!(drawn(1).await, drawn(2).await);
}

#[tokio::test]
async fn a_step_that_is_dropped_ends_and_the_next_one_is_good() {
    let models = Models::with(&Tiny::new(Kind::Llama).set("llama.context_length", Value::U32(30_000)));
    let registry = models.registry();
    let engine = registry.open(&choice(None)).await.unwrap();
    let (_, expected) = run(&*engine, asks("the", 4)).await;
    for pieces in [0, 1, 3] {
        let mut stream = engine.step(asks("the", 29_000));
        for _ in 0..pieces {
            assert!(matches!(stream.next().await, Some(Ok(StepEvent::Text(_)))));
        }
        drop(stream);
        // The answer of 29,000 tokens would hold the queue for minutes.
        assert_eq!(said(&run(&*engine, asks("the", 4)).await.1), said(&expected));
    }
}

#[tokio::test]
async fn two_agents_share_a_file_and_answer_in_turn() {
    let models = Models::with(&Tiny::new(Kind::Qwen2));
    let registry = models.registry();
    let one = registry.open(&choice(None)).await.unwrap();
    let two = registry.open(&choice(Some("tiny"))).await.unwrap();
    let (a, b) = tokio::join!(run(&*one, asks("the one", 6)), run(&*two, asks("the other", 6)));
    let alone = models.open().await.unwrap();
    assert_eq!(said(&a.1), said(&run(&*alone, asks("the one", 6)).await.1));
    assert_eq!(said(&b.1), said(&run(&*alone, asks("the other", 6)).await.1));
    // Each remembers its own conversation.
    assert!(run(&*one, asks("the one", 6)).await.1.usage.cached_input > 0);
    assert!(run(&*two, asks("the other", 6)).await.1.usage.cached_input > 0);
}

#[tokio::test]
async fn a_conversation_longer_than_the_context_is_refused_and_an_answer_ends_with_it() {
    let models = Models::with(&Tiny::new(Kind::Llama));
    let engine = models.open().await.unwrap();
    let (kind, line) = refused(&*engine, asks(&"x".repeat(300), 8)).await;
    assert_eq!(kind, EngineErrorKind::ContextOverflow);
    assert!(line.starts_with("the conversation is too long for tiny: "), "{line}");
    assert!(line.ends_with(&format!("of which it takes {CONTEXT}")), "{line}");
    let (_, outcome) = run(&*engine, asks(&"x".repeat(200), 1_000)).await;
    assert_eq!(outcome.stop, StepStop::MaxTokens);
    assert_eq!(outcome.usage.input + outcome.usage.output, u64::from(CONTEXT));
}

#[tokio::test]
async fn files_that_can_not_be_used_are_refused_in_a_line() {
    for (tiny, says) in [
        (
            Tiny::new(Kind::Llama).set("general.architecture", Value::String("mamba".into())),
            "of the kind mamba",
        ),
        (Tiny::new(Kind::Llama).set("llama.block_count", Value::U32(0)), "block_count is 0"),
        (Tiny::new(Kind::Llama).set("llama.attention.head_count_kv", Value::U32(3)), "4 heads share 3"),
        (Tiny::new(Kind::Gemma3).set("gemma3.attention.sliding_window_type", Value::U32(0)), "window"),
    ] {
        let line = Models::with(&tiny).open().await.err().unwrap().0;
        assert!(line.starts_with("the model file of tiny can't be used: ") && line.contains(says), "{line}");
    }
    let models = Models::new();
    for (bytes, says) in [(&b"GG"[..], "no GGUF file"), (b"<html>not found</html>", "no GGUF file")] {
        fs::write(models.path("tiny"), bytes).unwrap();
        assert!(models.open().await.err().unwrap().0.ends_with(says));
    }
    for (key, value, says) in [
        ("tokenizer.ggml.model", Value::String("bert".into()), "kind bert"),
        ("tokenizer.ggml.merges", Value::U32(1), "no merges"),
        ("tokenizer.chat_template", Value::String("{% if %}".into()), "chat template can't be read"),
        ("llama.embedding_length", Value::U32(48), "can't be used"),
    ] {
        let models = Models::with(&Tiny::new(Kind::Llama).set(key, value));
        let (kind, line) = refused(&*models.open().await.unwrap(), asks("x", 1)).await;
        assert_eq!(kind, EngineErrorKind::Provider);
        assert!(line.contains(says) && !line.contains('\n'), "{line}");
    }
}

#[tokio::test]
async fn a_damaged_file_is_an_error_in_a_line_and_never_a_panic() {
    let models = Models::with(&Tiny::new(Kind::Llama));
    let good = fs::read(models.path("tiny")).unwrap();
    let head = good.windows(11).position(|bytes| bytes == b"output_norm").unwrap();
    let used = async |bytes: &[u8]| {
        fs::write(models.path("tiny"), bytes).unwrap();
        let engine = match models.open().await {
            Ok(engine) => engine,
            Err(OpenError(line)) => return assert!(!line.contains('\n'), "{line}"),
        };
        let events: Vec<_> = engine.step(asks("the", 2)).collect().await;
        if let Some(Err(error)) = events.last() {
            assert!(!error.message.contains('\n') && !error.message.contains("failed while"), "{error}");
        }
    };
    // Every seventh byte of the head, and every entry's length.
    for at in (0..head).step_by(7) {
        let mut bytes = good.clone();
        bytes[at] ^= 0xff;
        used(&bytes).await;
    }
    for length in (0..good.len()).step_by(good.len() / 60) {
        fs::write(models.path("tiny"), &good[..length]).unwrap();
        assert!(models.open().await.is_err(), "{length} bytes of {}", good.len());
    }
}

#[tokio::test]
async fn a_template_that_refuses_is_told_and_one_without_a_system_prompt_gets_it_from_the_user() {
    let gemma = "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}\
                 {% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let models = Models::with(&Tiny::new(Kind::Llama).with_template(gemma));
    let mut step = asks("x", 1);
    step.system = "Be short.".into();
    run(&*models.open().await.unwrap(), step.clone()).await;
    let models = Models::with(&Tiny::new(Kind::Llama).with_template("{{ raise_exception('never\n mind') }}"));
    let (_, line) = refused(&*models.open().await.unwrap(), step).await;
    assert!(line.starts_with("tiny: its chat template refuses this conversation: never"), "{line}");
}

#[tokio::test]
async fn the_catalogue_lists_the_files_there_are() {
    let models = Models::with(&Tiny::new(Kind::Qwen3).set("general.name", Value::String("Tiny".into())));
    fs::write(models.path("broken"), "no model").unwrap();
    let files = Some(ModelFiles::of(models.data.path()));
    let local = LocalModels { files, ..LocalModels::default() };
    let catalogue = crate::Catalogue::new(EngineConfig { local, ..EngineConfig::from_env(|_| None) });
    let listed = catalogue.models("local").await.unwrap();
    let [model] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((model.id.as_str(), model.name.as_deref(), model.recommended), ("tiny", Some("Tiny"), true));
    assert_eq!(model.context_window, Some(u64::from(CONTEXT)));
}
