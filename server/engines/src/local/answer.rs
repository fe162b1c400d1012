//! What a model writes, read while it comes: text, thoughts, and calls in the forms of the families that
//! can be run. Pure, and the same wherever the pieces are cut: a tag is never shown, whole or in part.

use std::collections::HashSet;

use tns_server_core::message::Part;

use crate::step::reply::Reply;
use crate::step::{Events, NewId, StreamFault};

mod call;

use call::{Called, calls, early_name};

/// Ends a thought.
const THOUGHT_END: &str = "</think>";
/// Bytes of a tag's begin from which it is one, where the answer ends in the middle of it.
const SURELY_A_TAG: usize = 3;

/// What stands behind a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// JSON of calls up to a closing tag.
    Until(&'static str),
    /// Calls up to the end.
    Rest,
    /// Mistral's calls up to the end.
    Named,
    /// `NAME>JSON` up to a closing tag.
    Function,
    /// A thought.
    Thought,
    /// Nothing: it ends what never began.
    Stray,
}

/// The tags that begin something other than text.
const TAGS: [(&str, Inside); 9] = [
    // Qwen, Hermes, and what `conversation` asks for.
    ("<tool_call>", Inside::Until("</tool_call>")),
    // Phi 4.
    ("<|tool_call|>", Inside::Until("<|/tool_call|>")),
    // Llama 3.
    ("<|python_tag|>", Inside::Rest),
    ("<function=", Inside::Function),
    // Mistral.
    ("[TOOL_CALLS]", Inside::Named),
    // Qwen 3 and others that think.
    ("<think>", Inside::Thought),
    (THOUGHT_END, Inside::Stray),
    ("</tool_call>", Inside::Stray),
    ("<|/tool_call|>", Inside::Stray),
];

/// Ends what Llama begins with `<function=`.
const FUNCTION_END: &str = "</function>";

/// Where the reading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Nothing was written yet but white space: Llama may begin a call without any tag.
    Begin,
    Text,
    /// The whole answer may be a call without a tag.
    Bare,
    Inside(Inside),
}

/// An answer while it is written.
#[derive(Debug)]
pub(super) struct Answer {
    reply: Reply,
    mode: Mode,
    /// What came and is not told yet.
    pending: String,
    /// White space that is told if text follows.
    space: String,
    /// No text since the begin or the last call.
    fresh: bool,
    /// The call that is being written, once its name is known.
    named: Option<usize>,
    /// The tools on offer.
    tools: HashSet<String>,
}

impl Answer {
    /// Begins an answer; `thinks`: the prompt ends within a thought.
    pub(super) fn new(tools: impl IntoIterator<Item = String>, thinks: bool) -> Self {
        Self {
            reply: Reply::default(),
            mode: if thinks { Mode::Inside(Inside::Thought) } else { Mode::Begin },
            pending: String::new(),
            space: String::new(),
            fresh: true,
            named: None,
            tools: tools.into_iter().collect(),
        }
    }

    /// Reads the next piece.
    ///
    /// # Errors
    /// Beyond the limits of a reply.
    pub(super) fn push(&mut self, text: &str, events: &mut Events) -> Result<(), StreamFault> {
        self.pending.push_str(text);
        while self.read(events)? {}
        Ok(())
    }

    /// Whether a tool is wanted.
    pub(super) fn has_calls(&self) -> bool {
        self.reply.has_calls()
    }

    /// Ends the answer: what is open is closed as it is.
    ///
    /// # Errors
    /// Beyond the limits of a reply.
    pub(super) fn end(&mut self, events: &mut Events) -> Result<(), StreamFault> {
        let rest = std::mem::take(&mut self.pending);
        match self.mode {
            Mode::Begin | Mode::Text => {
                let held = held(&rest, &TAGS.map(|(tag, _)| tag));
                let kept = if held >= SURELY_A_TAG { &rest[..rest.len() - held] } else { &rest };
                self.say(kept, events)
            }
            Mode::Bare => {
                let found = calls(&rest);
                let is_call = |call: &Called| call.whole && self.tools.contains(&call.name);
                if !found.is_empty() && found.iter().all(is_call) {
                    return self.close(found, events);
                }
                // No call after all, but one may stand behind a tag.
                self.mode = Mode::Text;
                self.push(&rest, events)?;
                self.end(events)
            }
            Mode::Inside(Inside::Thought) => {
                let held = held(&rest, &[THOUGHT_END]);
                self.reply.reasoning(&rest[..rest.len() - held], events)
            }
            Mode::Inside(inside) => self.close(found(inside, &rest), events),
        }
    }

    /// Returns the finished parts.
    ///
    /// # Errors
    /// When no id can be made.
    pub(super) fn into_parts(self, new_id: &mut NewId<'_>) -> Result<Vec<Part>, StreamFault> {
        self.reply.into_parts(new_id)
    }

    /// Reads on; false: more must come first.
    fn read(&mut self, events: &mut Events) -> Result<bool, StreamFault> {
        match self.mode {
            Mode::Begin => {
                let trimmed = self.pending.trim_start();
                if trimmed.is_empty() {
                    return Ok(false);
                }
                let bare = !self.tools.is_empty() && trimmed.starts_with(['{', '[']);
                self.mode = if bare { Mode::Bare } else { Mode::Text };
                Ok(true)
            }
            Mode::Bare if call::may_be_bare(self.pending.trim_start()) => Ok(false),
            Mode::Bare => {
                self.mode = Mode::Text;
                Ok(true)
            }
            Mode::Text => self.read_text(events),
            Mode::Inside(Inside::Thought) => self.read_thought(events),
            Mode::Inside(inside) => self.read_call(inside, events),
        }
    }

    fn read_text(&mut self, events: &mut Events) -> Result<bool, StreamFault> {
        let first = TAGS.iter().filter_map(|(tag, inside)| Some((self.pending.find(tag)?, tag, *inside)));
        let Some((at, tag, inside)) = first.min_by_key(|(at, ..)| *at) else {
            let held = held(&self.pending, &TAGS.map(|(tag, _)| tag));
            let rest = self.pending.split_off(self.pending.len() - held);
            let text = std::mem::replace(&mut self.pending, rest);
            self.say(&text, events)?;
            return Ok(false);
        };
        let text = self.pending[..at].to_owned();
        self.pending.drain(..at + tag.len());
        self.say(&text, events)?;
        if inside != Inside::Stray {
            self.mode = Mode::Inside(inside);
        }
        Ok(true)
    }

    fn read_thought(&mut self, events: &mut Events) -> Result<bool, StreamFault> {
        let Some(at) = self.pending.find(THOUGHT_END) else {
            let held = held(&self.pending, &[THOUGHT_END]);
            let rest = self.pending.split_off(self.pending.len() - held);
            let thought = std::mem::replace(&mut self.pending, rest);
            self.reply.reasoning(&thought, events)?;
            return Ok(false);
        };
        self.reply.reasoning(&self.pending[..at], events)?;
        self.pending.drain(..at + THOUGHT_END.len());
        // Behind the thought the answer begins.
        self.mode = if self.fresh { Mode::Begin } else { Mode::Text };
        Ok(true)
    }

    fn read_call(&mut self, inside: Inside, events: &mut Events) -> Result<bool, StreamFault> {
        if self.named.is_none()
            && let Some(name) = early_name(body(inside, &self.pending))
        {
            let at = self.reply.open_call()?;
            self.reply.name(at, &name, events)?;
            self.named = Some(at);
        }
        let end = match inside {
            Inside::Until(end) => end,
            Inside::Function => FUNCTION_END,
            Inside::Rest | Inside::Named | Inside::Thought | Inside::Stray => return Ok(false),
        };
        let Some(at) = self.pending.find(end) else { return Ok(false) };
        let written = self.pending[..at].to_owned();
        self.pending.drain(..at + end.len());
        self.mode = Mode::Text;
        self.close(found(inside, &written), events)?;
        Ok(true)
    }

    /// Adds the calls of a closed tag, the first of which may have been told already.
    fn close(&mut self, found: Vec<Called>, events: &mut Events) -> Result<(), StreamFault> {
        self.space.clear();
        self.fresh = true;
        for call in found {
            let at = match self.named.take() {
                Some(at) => at,
                None => self.reply.open_call()?,
            };
            self.reply.name(at, &call.name, events)?;
            self.reply.set_arguments(at, &call.arguments)?;
        }
        self.named = None;
        Ok(())
    }

    /// Tells text; white space at its ends only between text.
    fn say(&mut self, text: &str, events: &mut Events) -> Result<(), StreamFault> {
        let text = if self.fresh { text.trim_start() } else { text };
        let body = text.trim_end();
        if body.is_empty() {
            if !self.fresh {
                self.space.push_str(text);
            }
            return Ok(());
        }
        self.fresh = false;
        let space = std::mem::replace(&mut self.space, text[body.len()..].to_owned());
        self.reply.text(&format!("{space}{body}"), events)
    }
}

/// Returns the calls behind a tag.
fn found(inside: Inside, written: &str) -> Vec<Called> {
    match inside {
        Inside::Named => call::named(written),
        Inside::Function => vec![call::function(written)],
        Inside::Until(_) | Inside::Rest | Inside::Thought | Inside::Stray => {
            let found = calls(written);
            // A tag with nothing behind it is a call without a name, which the model is told.
            if found.is_empty() { vec![Called::nameless(written)] } else { found }
        }
    }
}

/// Returns what a name is looked for in while a call is written.
fn body(inside: Inside, pending: &str) -> call::Begin<'_> {
    match inside {
        Inside::Named => call::Begin::Named(pending),
        Inside::Function => call::Begin::Function(pending),
        Inside::Until(_) | Inside::Rest | Inside::Thought | Inside::Stray => call::Begin::Json(pending),
    }
}

/// Returns how many bytes at the end of `text` may be the begin of a tag.
fn held(text: &str, tags: &[&str]) -> usize {
    let longest = tags.iter().map(|tag| tag.len() - 1).max().unwrap_or(0).min(text.len());
    let begins = |length: &usize| {
        let end = &text.as_bytes()[text.len() - length..];
        tags.iter().any(|tag| tag.len() > end.len() && tag.as_bytes().starts_with(end))
    };
    (1..=longest).rev().find(begins).unwrap_or(0)
}

#[cfg(test)]
mod tests;
