//! The networks themselves, number by number: this crate's own against the library's, and every one read
//! at once, in pieces and from a clone.

use std::io::BufReader;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::{quantized_llama, quantized_qwen2};

use super::*;
use crate::local::weights::Weights;

/// Some tokens.
const TOKENS: [u32; 70] = {
    let mut tokens = [0; 70];
    let mut at = 0;
    while at < tokens.len() {
        tokens[at] = (at * 37 % 250) as u32;
        at += 1;
    }
    tokens
};
/// What rounding may make of one number.
const ROUNDING: f32 = 2e-3;

fn loaded(models: &Models, kind: Kind) -> Weights {
    Weights::load(&models.path("tiny"), kind, CONTEXT as usize).unwrap().0
}

/// Feeds tokens as a step does.
fn read(weights: &mut Weights, tokens: &[u32]) -> Vec<f32> {
    let mut next = None;
    let mut rest = tokens;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(weights.batch(rest.len()));
        next = Some(weights.feed(now, &|| true).unwrap());
        rest = later;
    }
    next.unwrap().to_vec1().unwrap()
}

fn assert_close(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len());
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < ROUNDING, "{what}: {apart} apart");
    assert!(a.iter().any(|number| number.abs() > 0.1), "{what}: nothing but zeros");
}

#[test]
fn what_comes_next_is_the_same_however_the_prompt_is_read() {
    for (name, kind) in KINDS {
        let models = Models::with(&Tiny::new(kind));
        let fresh = loaded(&models, kind);
        let whole = fresh.clone().feed(&TOKENS, &|| true).unwrap().to_vec1::<f32>().unwrap();
        let mut pieces = fresh.clone();
        assert_close(&read(&mut pieces, &TOKENS), &whole, name);
        assert_eq!((pieces.fed(), fresh.fed()), (TOKENS.len(), 0));
        let mut alone = fresh.clone();
        let mut last = Vec::new();
        for token in TOKENS {
            last = alone.feed(&[token], &|| true).unwrap().to_vec1().unwrap();
        }
        assert_close(&last, &whole, name);
        // A clone of the middle, after the first went on with something else.
        let mut first = fresh.clone();
        read(&mut first, &TOKENS[..40]);
        assert!(first.can_go_on());
        let mut second = first.clone();
        read(&mut first, &TOKENS[..20]);
        drop(first);
        assert_close(&read(&mut second, &TOKENS[40..]), &whole, name);
    }
}

#[test]
fn the_own_networks_are_those_of_the_library() {
    for kind in [Kind::Llama, Kind::Qwen2] {
        let models = Models::with(&Tiny::new(kind));
        let mut file = BufReader::new(fs::File::open(models.path("tiny")).unwrap());
        let content = Content::read(&mut file).unwrap();
        let input = Tensor::new(&TOKENS, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        let theirs = match kind {
            Kind::Llama => quantized_llama::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)
                .unwrap()
                .forward(&input, 0),
            _ => quantized_qwen2::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)
                .unwrap()
                .forward(&input, 0),
        };
        let theirs: Vec<f32> = theirs.unwrap().flatten_all().unwrap().to_vec1().unwrap();
        assert_close(&read(&mut loaded(&models, kind), &TOKENS), &theirs, "own and theirs");
    }
}

#[test]
fn a_place_turns_a_token() {
    let models = Models::with(&Tiny::new(Kind::Llama));
    let fresh = loaded(&models, Kind::Llama);
    let next = |tokens: &[u32]| read(&mut fresh.clone(), tokens);
    let (one, other) = (next(&[1, 2, 3, 4]), next(&[2, 1, 3, 4]));
    assert!(one.iter().zip(&other).any(|(a, b)| (a - b).abs() > 0.01));
}
