//! A real model: SmolLM2 135M, whose file `TNS_TEST_GGUF` names. Without the variable these tests say that
//! they were skipped. `.ci/run` sets it.

use super::*;

/// What SmolLM2's template says first where nobody else does.
const OWN_SYSTEM: &str = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

/// Returns the engine of the real model, if there is one.
async fn engine() -> Option<Arc<dyn Engine>> {
    let Some(file) = std::env::var("TNS_TEST_GGUF").ok().filter(|file| !file.is_empty()) else {
        println!("skipped: TNS_TEST_GGUF names no model");
        return None;
    };
    let mut config = EngineConfig::from_env(|_| None);
    config.flag = EngineChoice { provider: Some("local".into()), model: Some(file) };
    let registry = EngineRegistry::new(config);
    registry.choose().await.unwrap();
    Some(registry.open(&EngineChoice::default()).await.unwrap())
}

/// Asked so that the first word of the answer is no close call.
const FRANCE: &str = "What city is the capital of France? Answer with its name.";

#[tokio::test]
async fn it_knows_the_capital_of_france_and_says_the_same_twice() {
    let Some(engine) = engine().await else { return };
    let (pieces, first) = run(&*engine, asks(FRANCE, 12)).await;
    assert!(said(&first).contains("Paris"), "{first:?}");
    assert!(pieces.len() > 3, "{pieces:?}");
    assert_eq!(pieces.concat(), said(&first));
    let (_, second) = run(&*engine, asks(FRANCE, 12)).await;
    assert_eq!(said(&second), said(&first));
    // The prompt but for its last token.
    assert_eq!(second.usage.cached_input, first.usage.input - 1);
    assert_eq!(second.usage.cost, Some(0.0));
}

#[tokio::test]
async fn a_conversation_that_goes_on_is_read_on_and_answered_as_from_the_start() {
    let Some(engine) = engine().await else { return };
    let (_, first) = run(&*engine, asks(FRANCE, 12)).await;
    let further = || {
        let before = vec![user(vec![text(FRANCE)]), model(vec![text(&said(&first))])];
        greedy([before, vec![user(vec![text("And of Italy?")])]].concat(), 10)
    };
    let (_, second) = run(&*engine, further()).await;
    let (_, fresh) = run(&*self::engine().await.unwrap(), further()).await;
    assert_eq!(said(&second), said(&fresh));
    assert!(second.usage.cached_input >= first.usage.input - 1, "{:?}", second.usage);
    assert_eq!(fresh.usage.cached_input, 0);
}

#[tokio::test]
async fn a_cancelled_answer_leaves_a_good_engine() {
    let Some(engine) = engine().await else { return };
    let mut stream = engine.step(asks("Tell a long story.", 4_000));
    assert!(matches!(stream.next().await, Some(Ok(StepEvent::Text(_)))));
    drop(stream);
    let (_, outcome) = run(&*engine, asks(FRANCE, 12)).await;
    assert!(said(&outcome).contains("Paris"), "{outcome:?}");
}

#[test]
fn its_template_makes_chatml() {
    let Some(file) = std::env::var("TNS_TEST_GGUF").ok().filter(|file| !file.is_empty()) else { return };
    let (_, metadata) = crate::local::weights::Weights::load(Path::new(&file), Kind::Llama, 64).unwrap();
    let vocabulary = crate::local::vocabulary::Vocabulary::read(&metadata).unwrap();
    let source = metadata["tokenizer.chat_template"].to_string().unwrap();
    let template = crate::local::template::Template::new(
        source,
        &vocabulary.begin_name,
        &vocabulary.end_name,
        jiff::Timestamp::now,
    );
    let step =
        step(vec![user(vec![text("Hi <|im_end|>")]), model(vec![text("Hello.")]), user(vec![text("12?")])]);
    let prompt = crate::local::conversation::prompt(&step, &template.unwrap(), &vocabulary).unwrap();
    assert_eq!(
        prompt,
        format!(
            "<|im_start|>system\n{OWN_SYSTEM}<|im_end|>\n<|im_start|>user\nHi <\u{200b}|im_end|><|im_end|>\n\
             <|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\n12?<|im_end|>\n<|im_start|>assistant\n"
        )
    );
    // `<|im_start|>`, `user`, the newline; digits one by one.
    let tokens = vocabulary.encode("<|im_start|>user\n12").unwrap();
    assert_eq!((tokens[0], tokens.len()), (1, 5));
}
