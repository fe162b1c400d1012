//! The prompt: the argument, followed by what standard input holds.

use std::io::{self, IsTerminal, Read};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use tns_protocol::MAX_MESSAGE_BYTES;

use crate::Context;
use crate::exit::Stop;

/// Time after which a person is told what is being waited for.
const QUIET_WAIT: Duration = Duration::from_secs(1);

/// Reads the whole prompt; `None` when there is none.
///
/// # Errors
/// A usage [`Stop`] for a prompt that is no text or too long.
pub(super) fn read(argument: Option<&str>, context: &Context) -> anyhow::Result<Option<String>> {
    let argument = argument.filter(|text| *text != "-").unwrap_or_default();
    let input = if io::stdin().is_terminal() { Vec::new() } else { read_stdin(context)? };
    Ok(join(argument, input)?)
}

/// Reads standard input to its end. A pipe that stays open and silent is told about, since its owner may
/// not know that it is read.
fn read_stdin(context: &Context) -> anyhow::Result<Vec<u8>> {
    let (done, waiting) = mpsc::sync_channel::<()>(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if waiting.recv_timeout(QUIET_WAIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                context.out.note("reading standard input to its end; give it </dev/null if there is none");
            }
        });
        let mut input = Vec::new();
        let limit = u64::try_from(MAX_MESSAGE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
        let read = io::stdin().lock().take(limit).read_to_end(&mut input);
        drop(done);
        read.context("read standard input")?;
        Ok(input)
    })
}

fn join(argument: &str, input: Vec<u8>) -> Result<Option<String>, Stop> {
    let input = String::from_utf8(input)
        .map_err(|_| Stop::usage("standard input is not UTF-8 text; a prompt must be"))?;
    let (argument, input) = (argument.trim_end(), input.trim_end());
    let prompt = match (argument.trim().is_empty(), input.trim().is_empty()) {
        (true, true) => return Ok(None),
        (false, true) => argument.to_owned(),
        (true, false) => input.to_owned(),
        (false, false) => format!("{argument}\n\n{input}"),
    };
    if prompt.len() > MAX_MESSAGE_BYTES {
        let megabytes = MAX_MESSAGE_BYTES >> 20;
        return Err(Stop::usage(format!(
            "the prompt is longer than {megabytes} MiB; add long texts with `tns kb add`"
        )));
    }
    Ok(Some(prompt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_input_follows_the_argument() {
        for (argument, input, prompt) in
            [("what?", "", "what?"), ("", "data\n", "data"), ("what?\n", " data\n", "what?\n\n data")]
        {
            assert_eq!(join(argument, input.as_bytes().to_vec()).unwrap().as_deref(), Some(prompt));
        }
    }

    #[test]
    fn blank_is_no_prompt_and_what_is_no_text_a_usage_error() {
        for input in ["", " \n"] {
            assert_eq!(join(" ", input.as_bytes().to_vec()).unwrap(), None);
        }
        let error = anyhow::Error::from(join("what?", vec![0xff]).unwrap_err());
        assert_eq!(crate::exit::of(&error).code(), 2);
    }

    #[test]
    fn a_prompt_is_taken_up_to_the_limit() {
        assert!(join("", vec![b'x'; MAX_MESSAGE_BYTES]).is_ok());
        assert!(join("", vec![b'x'; MAX_MESSAGE_BYTES + 1]).is_err());
    }
}
