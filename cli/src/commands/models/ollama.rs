//! `tns models pull --ollama`: has an Ollama server pull a model, and shows what it tells. It writes no file.

use std::time::{Duration, Instant};

use serde::Serialize;
use tns_server::{EngineChoice, LayerBytes, PullError, PullStatus, pull_into_ollama};

use super::pull::TELL;
use super::size;
use crate::Context;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::signals::Signals;

/// Longest name of a model, in bytes; Ollama's own limit is a little below.
const MAX_NAME: usize = 512;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Pulled<'a> {
    name: &'a str,
}

pub(super) async fn run(name: &str, context: &Context) -> anyhow::Result<()> {
    let name = checked(name)?;
    let config = Config::load(&context.globals, EngineChoice::default())?;
    let mut signals = Signals::listen()?;
    let mut shown = Shown::begin();
    let tell = |status: PullStatus| {
        if context.out.asks_on_stderr() {
            if let Some(line) = shown.overwriting(&status, Instant::now()) {
                context.out.progress(&line);
            }
        } else if shown.is_new(&status) {
            context.out.note(&status.text);
        }
    };
    let pulled = tokio::select! {
        pulled = pull_into_ollama(&config.engines, name, tell) => Some(pulled),
        () = signals.next() => None,
    };
    context.out.progress("");
    match pulled {
        Some(Ok(())) => {}
        Some(Err(error)) => return Err(stopped(&error).into()),
        None => return Err(Stop::silent(Exit::Interrupted).into()),
    }
    if context.out.json {
        return context.out.json(&Pulled { name });
    }
    context.out.data(&format!("{name}\n"))?;
    context.out.note(&format!("answer with it: --provider ollama --model {name}"));
    Ok(())
}

/// Checks a name; whether there is such a model, Ollama knows.
fn checked(name: &str) -> Result<&str, Stop> {
    let strange = |c: char| c.is_whitespace() || c.is_control();
    if name.is_empty() || name.len() > MAX_NAME || name.contains(strange) {
        return Err(Stop::usage(format!(
            "--ollama wants the name of a model, such as qwen3:4b, of {MAX_NAME} bytes at most and without spaces"
        )));
    }
    Ok(name)
}

fn stopped(error: &PullError) -> Stop {
    let exit = match error {
        PullError::Setting(_) => Exit::Usage,
        PullError::Unreachable(_) => Exit::Unreachable,
        PullError::Refused(_) => Exit::Provider,
        PullError::Incomplete(_) => Exit::Failed,
    };
    Stop::new(exit, error.to_string())
}

/// What was shown of a pull so far.
#[derive(Debug)]
struct Shown {
    begun: Instant,
    /// When the line was last written.
    at: Option<Instant>,
    text: String,
}

impl Shown {
    fn begin() -> Self {
        Self { begun: Instant::now(), at: None, text: String::new() }
    }

    /// Whether a status has other words than the one before, which it takes the place of.
    fn is_new(&mut self, status: &PullStatus) -> bool {
        let is_new = self.text != status.text;
        if is_new {
            self.text.clone_from(&status.text);
        }
        is_new
    }

    /// Returns the line that takes the place of the one before, unless that was written just now.
    fn overwriting(&mut self, status: &PullStatus, now: Instant) -> Option<String> {
        let is_new = self.is_new(status);
        if !is_new && self.at.is_some_and(|at| now.duration_since(at) < TELL) {
            return None;
        }
        self.at = Some(now);
        Some(line(status, now.duration_since(self.begun)))
    }
}

fn line(status: &PullStatus, since: Duration) -> String {
    let text = &status.text;
    let far = match status.layer {
        Some(LayerBytes { completed, total }) => format!(": {} of {}", size(completed), size(total)),
        None => String::new(),
    };
    format!("{text}{far}, {:.0} s", since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str, layer: Option<(u64, u64)>) -> PullStatus {
        let layer = layer.map(|(completed, total)| LayerBytes { completed, total });
        PullStatus { text: text.to_owned(), layer }
    }

    #[test]
    fn a_line_is_overwritten_now_and_then_and_at_once_by_another_status() {
        let mut shown = Shown::begin();
        let begun = shown.begun;
        let mut at =
            |status: &PullStatus, millis| shown.overwriting(status, begun + Duration::from_millis(millis));
        assert_eq!(at(&status("pulling manifest", None), 0).unwrap(), "pulling manifest, 0 s");
        let first = at(&status("pulling 8eeb", Some((0, 3 << 30))), 1).unwrap();
        assert_eq!(first, "pulling 8eeb: 0 B of 3.0 GiB, 0 s");
        let half = status("pulling 8eeb", Some((3 << 29, 3 << 30)));
        assert_eq!(at(&half, 200), None);
        assert_eq!(at(&half, 2_201).unwrap(), "pulling 8eeb: 1.5 GiB of 3.0 GiB, 2 s");
    }

    #[test]
    fn where_lines_stay_each_status_is_one() {
        let mut shown = Shown::begin();
        let told = [("a", true), ("a", false), ("b", true), ("a", true)];
        for (text, is_new) in told {
            assert_eq!(shown.is_new(&status(text, None)), is_new);
        }
    }

    #[test]
    fn what_can_be_no_name_is_wrong_usage() {
        for name in ["qwen3:4b", "hf.co/owner/repository:Q4_K_M", &"x".repeat(MAX_NAME)] {
            assert_eq!(checked(name).unwrap(), name);
        }
        for name in ["", " ", "a b", "a\n", "a\u{1b}", &"x".repeat(MAX_NAME + 1)] {
            assert_eq!(crate::exit::of(&checked(name).unwrap_err().into()), Exit::Usage, "{name}");
        }
    }
}
