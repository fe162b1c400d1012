//! What counts of a conversation: the last thing that the user said, what came with it, and what the
//! tools gave back since.

use tns_server_core::message::{ModelMessage, ModelRole, Note, Part, Passage, ToolResult};

/// The last turn.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) text: String,
    pub(super) passages: Vec<&'a Passage>,
    /// The last result since.
    pub(super) result: Option<&'a ToolResult>,
}

impl<'a> Turn<'a> {
    pub(super) fn last(messages: &'a [ModelMessage]) -> Self {
        let said = messages.iter().rposition(|message| {
            message.role == ModelRole::User && message.parts.iter().any(|part| matches!(part, Part::Text(_)))
        });
        let mut turn = Self { text: String::new(), passages: Vec::new(), result: None };
        let Some(said) = said else { return turn };
        for part in &messages[said].parts {
            match part {
                Part::Text(text) if turn.text.is_empty() => turn.text.push_str(text),
                Part::Text(text) => turn.text.push_str(&format!("\n{text}")),
                Part::Note(Note::Knowledge(passages)) => turn.passages.extend(passages),
                // Results in the same message answer calls before it.
                Part::Note(Note::Text(_)) | Part::Image(_) | Part::ToolCall(_) | Part::ToolResult(_) => {}
            }
        }
        let since = messages[said + 1..].iter().flat_map(|message| &message.parts);
        turn.result = since
            .filter_map(|part| match part {
                Part::ToolResult(result) => Some(result),
                Part::Text(_) | Part::Image(_) | Part::ToolCall(_) | Part::Note(_) => None,
            })
            .next_back();
        turn
    }
}
