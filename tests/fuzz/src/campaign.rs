//! Many inputs against one target: each is a known one, changed. One that leads to a kind of answer that was
//! not seen before joins the known ones. What breaks a rule is made smaller.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::mutate::Mutator;
use crate::oracle;
use crate::random::Random;
use crate::seeds;
use crate::target::Target;

/// Most known inputs; beyond it new kinds are counted only.
const MAX_KNOWN: usize = 2_000;
/// Most tries to make an input smaller.
const MAX_SHRINKS: usize = 3_000;

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Campaign {
    pub(crate) target: Target,
    pub(crate) inputs: u64,
    pub(crate) seed: u64,
    /// Longest that one input may take, where that is looked at.
    pub(crate) slow: Option<Duration>,
}

/// What was done.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) took: Duration,
    /// How many kinds of answers there were.
    pub(crate) kinds: usize,
}

/// An input that breaks a rule.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) target: Target,
    pub(crate) number: u64,
    pub(crate) rule: String,
    pub(crate) input: Vec<u8>,
}

impl Campaign {
    /// Runs it to its end or to the first input that breaks a rule.
    pub(crate) fn run(self) -> Result<Done, Found> {
        let began = Instant::now();
        let mut random = Random::new(self.seed);
        let mut known = seeds::of(self.target);
        let begin = known.len();
        let mutator = Mutator::new(&known);
        let mut kinds = HashSet::new();
        for number in 0..self.inputs {
            // Those that are known at the start come first, as they are.
            let given = usize::try_from(number).ok().filter(|at| *at < begin).and_then(|at| known.get(at));
            let input = match given {
                Some(input) => input.clone(),
                None => {
                    let mut input = random.pick(&known).cloned().unwrap_or_default();
                    mutator.change(&mut input, &known, &mut random);
                    input
                }
            };
            let cuts = random.fork();
            match self.judge(&input, &cuts) {
                Ok(kind) => {
                    if kinds.insert(kind) && known.len() < MAX_KNOWN {
                        known.push(input);
                    }
                }
                Err(rule) => return Err(self.found(number, rule, input, &cuts)),
            }
        }
        Ok(Done { took: began.elapsed(), kinds: kinds.len() })
    }

    /// Plays an input; the error says which rule it breaks.
    fn judge(self, input: &[u8], cuts: &Random) -> Result<u64, String> {
        let began = Instant::now();
        let mut cuts = cuts.clone();
        let judged = catch_unwind(AssertUnwindSafe(|| oracle::judge(self.target, input, &mut cuts)));
        let kind = judged.unwrap_or_else(|_| Err("it panics".to_owned()))?;
        match self.slow {
            Some(limit) if began.elapsed() > limit => Err(format!("it takes {:?}", began.elapsed())),
            _ => Ok(kind),
        }
    }

    /// Makes an input smaller as long as it breaks a rule.
    fn found(self, number: u64, rule: String, mut input: Vec<u8>, cuts: &Random) -> Found {
        let (mut rule, mut tries) = (rule, 0);
        let mut size = input.len() / 2;
        while size > 0 && tries < MAX_SHRINKS {
            let mut at = 0;
            while at < input.len() && tries < MAX_SHRINKS {
                tries += 1;
                let mut less = input.clone();
                less.drain(at..(at + size).min(input.len()));
                match self.judge(&less, cuts) {
                    Err(other) => (input, rule) = (less, other),
                    Ok(_) => at += size,
                }
            }
            size /= 2;
        }
        Found { target: self.target, number, rule, input }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small run, the same every time; the binary runs a million.
    const INPUTS: u64 = 20_000;

    fn assert_holds(name: &str) {
        for target in Target::named(name).unwrap() {
            let campaign = Campaign { target, inputs: INPUTS, seed: 20_261_130, slow: None };
            match campaign.run() {
                Ok(done) => assert!(done.kinds > 3, "{name}: only {} kinds of answers", done.kinds),
                Err(found) => panic!(
                    "{name} breaks a rule at input {}: {}\n{}",
                    found.number,
                    found.rule,
                    found.input.escape_ascii()
                ),
            }
        }
    }

    #[test]
    fn anthropics_decoder_holds() {
        assert_holds("anthropic");
    }

    #[test]
    fn openais_decoder_holds() {
        assert_holds("openai");
    }

    #[test]
    fn chat_completions_decoder_holds() {
        assert_holds("openai-compatible");
    }

    #[test]
    fn geminis_decoder_holds() {
        assert_holds("gemini");
    }

    #[test]
    fn ollamas_decoder_holds() {
        assert_holds("ollama");
    }

    #[test]
    fn the_framing_of_events_holds() {
        assert_holds("sse");
    }

    #[test]
    fn the_reader_of_arguments_holds() {
        assert_holds("arguments");
    }
}
