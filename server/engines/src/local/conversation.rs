//! A step as a prompt: messages and tools the way chat templates expect them. A template that knows no
//! tools has them described in the system prompt, and their calls and results in words, in the form that
//! Hermes models made common. Pure.

use serde::Serialize;
use serde_json::{Map, Value, json};
use tns_server_core::engine::{Effort, StepRequest};
use tns_server_core::message::{ModelMessage, ModelRole, Part, ToolCall};
use tns_server_core::tool::ToolSpec;

use super::template::{Spaced, Template, Values};
use super::vocabulary::Vocabulary;
use crate::render;
use crate::step::outgoing;

/// How a conversation is told to a template, from what it does best to what every template takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Calls and results as such.
    Own,
    /// The same, one call a message: some templates take no more.
    OneByOne,
    /// In words.
    Told,
    /// In words, and the system prompt as part of the user's first message.
    ToldToUser,
}

/// Makes the prompt of a step, in the first form that the template takes.
///
/// # Errors
/// The template's words about the last form.
pub(super) fn prompt(
    step: &StepRequest,
    template: &Template,
    vocabulary: &Vocabulary,
) -> Result<String, String> {
    let uses_tools = !step.tools.is_empty() || step.messages.iter().any(speaks_of_tools);
    let forms: &[Form] = if uses_tools && template.knows_tools() {
        &[Form::Own, Form::OneByOne, Form::Told, Form::ToldToUser]
    } else {
        &[Form::Told, Form::ToldToUser]
    };
    let mut refused = String::new();
    for form in forms {
        let messages = messages(step, *form, &|text| vocabulary.defused(text).into_owned());
        let own = matches!(form, Form::Own | Form::OneByOne);
        let tools: Vec<Value> = step.tools.iter().filter(|_| own).map(|spec| tool(spec)).collect();
        let values = Values {
            messages: &messages,
            tools: (!tools.is_empty()).then_some(&tools),
            enable_thinking: step.effort.map(|effort| effort != Effort::Low),
        };
        match template.render(&values) {
            Ok(prompt) => return Ok(prompt),
            Err(error) => {
                tracing::debug!(?form, error, "the chat template takes another form");
                refused = error;
            }
        }
    }
    Err(refused)
}

fn speaks_of_tools(message: &ModelMessage) -> bool {
    message.parts.iter().any(|part| matches!(part, Part::ToolCall(_) | Part::ToolResult(_)))
}

/// Returns a tool as templates expect it.
fn tool(spec: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": spec.name,
            "description": spec.description,
            "parameters": outgoing::parameters(&spec.schema),
        },
    })
}

/// Returns the conversation as templates expect it; `safe` makes a text one that drives nothing.
fn messages(step: &StepRequest, form: Form, safe: &dyn Fn(&str) -> String) -> Vec<Value> {
    let mut teller = Teller { form, safe, messages: Vec::new(), calls: 0, open: Vec::new() };
    let mut system = safe(step.system.trim());
    let told = matches!(form, Form::Told | Form::ToldToUser);
    if told && !step.tools.is_empty() {
        let described = described(&step.tools);
        system = if system.is_empty() { described } else { format!("{system}\n\n{described}") };
    }
    if !system.is_empty() && form != Form::ToldToUser {
        teller.say("system", system.clone());
    }
    for message in &step.messages {
        match message.role {
            ModelRole::User => teller.user(message),
            ModelRole::Assistant => teller.assistant(message),
        }
    }
    let mut messages = teller.messages;
    if !system.is_empty()
        && form == Form::ToldToUser
        && let Some(Value::String(first)) = messages.first_mut().and_then(|first| first.get_mut("content"))
    {
        *first = format!("{system}\n\n{first}");
    }
    messages
}

/// Tells a model about its tools, for a template that does not.
fn described(tools: &[std::sync::Arc<ToolSpec>]) -> String {
    let lines: Vec<String> = tools.iter().map(|spec| spaced(&tool(spec))).collect();
    format!(
        "You can call tools. Each line between the tags below describes one of them:\n<tools>\n{}\n</tools>\n\
         To call one, write its name and its arguments as JSON between these tags, and nothing behind them:\n\
         <tool_call>\n{{\"name\": \"NAME\", \"arguments\": {{}}}}\n</tool_call>",
        lines.join("\n")
    )
}

/// Returns JSON as Python writes it, which is what models were shown.
fn spaced(value: &Value) -> String {
    let mut json = Vec::new();
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut json, Spaced));
    match written {
        Ok(()) => String::from_utf8_lossy(&json).into_owned(),
        Err(_) => value.to_string(),
    }
}

struct Teller<'a> {
    form: Form,
    safe: &'a dyn Fn(&str) -> String,
    messages: Vec<Value>,
    /// Calls so far.
    calls: usize,
    /// The calls of the last model turn that wait for their results: our id, the name it goes by, itself.
    open: Vec<(String, String, Value)>,
}

impl Teller<'_> {
    fn say(&mut self, role: &str, content: String) {
        self.messages.push(json!({"role": role, "content": content}));
    }

    fn user(&mut self, message: &ModelMessage) {
        let mut results = Vec::new();
        let mut texts = Vec::new();
        for part in &message.parts {
            match part {
                Part::ToolResult(result) => results.push(result),
                Part::Text(text) => texts.push((self.safe)(text)),
                Part::Note(note) => texts.push((self.safe)(&render::note(note))),
                Part::Image(image) => texts.push(outgoing::picture_left_out(image)),
                // A call is the model's; as the user's words it can only be told.
                Part::ToolCall(call) => texts.push((self.safe)(&called(call))),
            }
        }
        // In the order of the calls: some templates tell results apart by their place only.
        let place = |id: &str| self.open.iter().position(|(known, ..)| known == id).unwrap_or(usize::MAX);
        results.sort_by_key(|result| place(result.call.as_str()));
        let mut told = Vec::new();
        for result in results {
            let output = (self.safe)(&render::tool_output(result));
            let open = self.open.iter().find(|(known, ..)| known == result.call.as_str()).cloned();
            match (self.form, open) {
                (Form::Own | Form::OneByOne, Some((_, id, call))) => {
                    if self.form == Form::OneByOne {
                        self.messages.push(json!({"role": "assistant", "content": "", "tool_calls": [call]}));
                    }
                    self.messages.push(
                        json!({"role": "tool", "name": result.name, "tool_call_id": id, "content": output}),
                    );
                }
                (Form::Own | Form::OneByOne | Form::Told | Form::ToldToUser, _) => {
                    told.push(format!("<tool_response>\n{output}\n</tool_response>"));
                }
            }
        }
        self.open.clear();
        texts.retain(|text| !text.trim().is_empty());
        told.append(&mut texts);
        if !told.is_empty() {
            self.say("user", told.join("\n\n"));
        }
    }

    fn assistant(&mut self, message: &ModelMessage) {
        let mut content = String::new();
        let mut calls = Vec::new();
        for part in &message.parts {
            match part {
                Part::Text(text) => content.push_str(&(self.safe)(text)),
                Part::ToolCall(call) if matches!(self.form, Form::Told | Form::ToldToUser) => {
                    self.open_call(call);
                    let begin = if content.is_empty() { "" } else { "\n" };
                    content.push_str(&format!("{begin}{}", (self.safe)(&called(call))));
                }
                Part::ToolCall(call) => calls.push(self.open_call(call)),
                // The model says none of these.
                Part::Image(_) | Part::ToolResult(_) | Part::Note(_) => {}
            }
        }
        let content = content.trim().to_owned();
        if calls.is_empty() || self.form == Form::OneByOne {
            if !content.is_empty() {
                self.say("assistant", content);
            }
            return;
        }
        self.messages.push(json!({"role": "assistant", "content": content, "tool_calls": calls}));
    }

    /// Notes a call, under an id of nine letters and digits: Mistral's templates take no other.
    fn open_call(&mut self, call: &ToolCall) -> Value {
        self.calls += 1;
        let id = format!("call{:05}", self.calls % 100_000);
        let function = json!({"name": call.name, "arguments": self.safe_arguments(&call.args)});
        let value = json!({"id": id, "type": "function", "function": function});
        self.open.push((call.id.as_str().to_owned(), id, value.clone()));
        value
    }

    fn safe_arguments(&self, args: &Map<String, Value>) -> Value {
        let args = Value::Object(args.clone());
        let text = args.to_string();
        let safe = (self.safe)(&text);
        // A name without quotes in it stands within one text, so that this stays JSON.
        if safe == text { args } else { serde_json::from_str(&safe).unwrap_or(args) }
    }
}

/// Returns a call in words.
fn called(call: &ToolCall) -> String {
    let call = json!({"name": call.name, "arguments": call.args});
    format!("<tool_call>\n{}\n</tool_call>", spaced(&call))
}

#[cfg(test)]
mod tests;
