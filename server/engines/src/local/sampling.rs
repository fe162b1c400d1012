//! How the next token is chosen: the likeliest at temperature 0, else by chance among the likely ones, as
//! the file or the makers of its family advise.

use candle_transformers::generation::{LogitsProcessor, Sampling};

use super::weights::Kind;
use crate::gguf::GgufHeader;

/// What a model's makers advise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Advice {
    temperature: f64,
    /// Among the likeliest tokens that make up this share together.
    share: f64,
    /// Among this many likeliest tokens; 0: all.
    most: usize,
}

impl Advice {
    /// Returns the advice of a file, or of its family where it gives none.
    pub(super) fn of(kind: Kind, header: &GgufHeader) -> Self {
        let (temperature, share, most) = match kind {
            Kind::Llama | Kind::Phi3 => (0.6, 0.9, 0),
            Kind::Qwen2 => (0.7, 0.8, 20),
            Kind::Qwen3 => (0.6, 0.95, 20),
            Kind::Gemma3 => (1.0, 0.95, 64),
        };
        let said = |key: &str| header.real(&format!("general.sampling.{key}")).filter(|said| *said >= 0.0);
        Self {
            temperature: said("temp").unwrap_or(temperature),
            share: said("top_p").unwrap_or(share),
            most: header.whole("general.sampling.top_k").unwrap_or(most),
        }
    }

    /// Makes the chooser of one answer. The same seed chooses the same.
    pub(super) fn chooser(self, temperature: Option<f32>, seed: u64) -> LogitsProcessor {
        LogitsProcessor::from_sampling(seed, self.sampling(temperature.map(f64::from)))
    }

    fn sampling(self, temperature: Option<f64>) -> Sampling {
        let temperature = temperature.unwrap_or(self.temperature);
        // Not a number is not above either.
        if temperature.partial_cmp(&LEAST).is_none_or(std::cmp::Ordering::is_lt) {
            return Sampling::ArgMax;
        }
        match self.most {
            0 => Sampling::TopP { p: self.share, temperature },
            most => Sampling::TopKThenTopP { k: most, p: self.share, temperature },
        }
    }
}

/// The least temperature that is not 0: what is divided by less has no end.
const LEAST: f64 = 1e-4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperature_zero_takes_the_likeliest() {
        let advice = Advice { temperature: 0.6, share: 0.9, most: 0 };
        for zero in [0.0, -1.0, f64::NAN, 1e-9] {
            assert_eq!(advice.sampling(Some(zero)), Sampling::ArgMax);
        }
        assert_eq!(advice.sampling(None), Sampling::TopP { p: 0.9, temperature: 0.6 });
        let advice = Advice { most: 20, ..advice };
        assert_eq!(advice.sampling(Some(1.5)), Sampling::TopKThenTopP { k: 20, p: 0.9, temperature: 1.5 });
    }
}
