//! The engine's answers, as a pure function of the request.

use serde_json::{Map, Value};
use tns_server_core::engine::StepRequest;
use tns_server_core::message::{Passage, ToolResult};

use super::Answer;
use super::intent::{Intent, NamedFile, intent};
use super::quote;
use super::turn::Turn;

const SHELL: &str = "shell";
const FILE_READ: &str = "file_read";
const FILE_WRITE: &str = "file_write";

/// Most passages that an answer quotes.
const MAX_PASSAGES: usize = 5;

const GREETING: &str = "No model is set up, so no language model answers here.\n\
     Without one you can run `!command`, see a file with `read FILE`, write one with `write FILE: text`, and ask about \
     what you added with `tns kb add`.\n\
     The two quickest ways to a model: start Ollama, or set a provider's key such as OPENAI_API_KEY.";

const NOTHING_FITS: &str = "Nothing in the knowledge base fits that. No model is set up, so only what was added with \
     `tns kb add`, or stands in a file that you name, can be quoted.";

/// Answers a request.
pub(super) fn answer(request: &StepRequest) -> Answer {
    let turn = Turn::last(&request.messages);
    let asked = intent(&turn.text);
    if let Some(result) = turn.result {
        return Answer::Say(match asked {
            Intent::Question { file: Some(file) } if result.name == FILE_READ => {
                about_file(file, result, &turn.text)
            }
            _ => tool_output(result),
        });
    }
    let call = |tool: &'static str, args: &[(&str, &str)]| {
        if request.tools.iter().any(|spec| spec.name == tool) {
            let args = args.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
            return Answer::Call { tool, args: args.collect::<Map<_, _>>() };
        }
        Answer::Say(format!("That takes the tool `{tool}`, which is not on offer here."))
    };
    match asked {
        Intent::Shell { command } => call(SHELL, &[("command", command)]),
        Intent::Read { path } => call(FILE_READ, &[("path", path)]),
        Intent::Write { path, content } => call(FILE_WRITE, &[("path", path), ("content", content)]),
        Intent::Question { file: Some(file) } if file.is_asked_for || turn.passages.is_empty() => {
            call(FILE_READ, &[("path", file.path)])
        }
        Intent::Greeting | Intent::Question { .. } if !turn.passages.is_empty() => {
            Answer::Say(from_passages(&turn.passages))
        }
        Intent::Greeting => Answer::Say(GREETING.to_owned()),
        Intent::Question { .. } => Answer::Say(NOTHING_FITS.to_owned()),
    }
}

/// Returns a tool's output as it is, or in plain words that the call failed.
fn tool_output(result: &ToolResult) -> String {
    let output = if result.output.trim().is_empty() { "(no output)" } else { &result.output };
    if !result.is_error {
        return output.to_owned();
    }
    let gap = if output.trim().contains('\n') { "\n" } else { " " };
    format!("`{}` failed:{gap}{}", result.name, output.trim())
}

fn about_file(file: NamedFile<'_>, result: &ToolResult, question: &str) -> String {
    if result.is_error {
        return format!("{} can't be read: {}", file.path, result.output.trim());
    }
    quote::from_file(file.path, &result.output, question)
}

fn from_passages(passages: &[&Passage]) -> String {
    let mut quotes = String::new();
    for passage in passages.iter().take(MAX_PASSAGES) {
        quote::quote(&mut quotes, passage.number, &passage.source, passage.text.trim());
    }
    format!("No model is set up; these are the best matches.\n\n{quotes}")
}
