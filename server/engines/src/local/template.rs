//! A model's chat template: Jinja as Hugging Face's library runs it, with the same values and the same
//! JSON. Bounded in work and output, since a template is a program of whoever made the file.

use std::io::{self, Write};

use jiff::Timestamp;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};

/// Most instructions of one rendering; a conversation of a thousand messages takes a hundredth.
const FUEL: u64 = 20_000_000;
/// Longest prompt, in bytes; far more than any context takes.
const MAX_PROMPT: usize = 16 << 20;
/// The template's name in the library.
const NAME: &str = "chat";
/// The form of most small models, for a file that brings no template.
const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
     {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A chat template that is ready to render.
#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
    /// It renders the tools that it is given.
    knows_tools: bool,
    begin: String,
    end: String,
}

/// What a template is given.
#[derive(Debug, Serialize)]
pub(super) struct Values<'a> {
    pub(super) messages: &'a [serde_json::Value],
    /// `None` is Python's, as templates expect it.
    pub(super) tools: Option<&'a [serde_json::Value]>,
    /// Whether a model that can think should; the template decides where this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) enable_thinking: Option<bool>,
}

impl Template {
    /// Reads a template; `begin` and `end` are the names of the model's tokens, `now` is its clock.
    ///
    /// # Errors
    /// What is wrong with it, in a line.
    pub(super) fn new(source: &str, begin: &str, end: &str, now: fn() -> Timestamp) -> Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", move |format: String| -> Result<String, Error> {
            jiff::fmt::strtime::format(&format, now())
                .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
        });
        environment
            .add_template_owned(NAME, without_generation_marks(source))
            .map_err(|error| line(&error))?;
        let words = source.split(|c: char| !c.is_alphanumeric() && c != '_');
        let knows_tools = words.into_iter().any(|word| word == "tools");
        Ok(Self { environment, knows_tools, begin: begin.to_owned(), end: end.to_owned() })
    }

    /// Returns the form of most small models.
    ///
    /// # Errors
    /// Never in practice.
    pub(super) fn chatml(now: fn() -> Timestamp) -> Result<Self, String> {
        Self::new(CHATML, "", "<|im_end|>", now)
    }

    /// Whether the template renders tools.
    pub(super) fn knows_tools(&self) -> bool {
        self.knows_tools
    }

    /// Returns the prompt, up to where the model begins to speak.
    ///
    /// # Errors
    /// What the template refuses, in its own words.
    pub(super) fn render(&self, values: &Values<'_>) -> Result<String, String> {
        let template = self.environment.get_template(NAME).map_err(|error| line(&error))?;
        let context = minijinja::context! {
            add_generation_prompt => true,
            bos_token => self.begin,
            eos_token => self.end,
            ..Value::from_serialize(values)
        };
        let mut prompt = Bounded(Vec::new());
        template.render_captured_to(context, &mut prompt).map_err(|error| line(&error))?;
        String::from_utf8(prompt.0).map_err(|error| error.to_string())
    }
}

/// Bytes up to the longest prompt.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_PROMPT {
            return Err(io::Error::other("the prompt is longer than 16 MiB"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn line(error: &Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}

/// Takes away the marks that only trainers need.
fn without_generation_marks(source: &str) -> String {
    let mut kept = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(begin) = rest.find("{%") {
        let Some(length) = rest[begin..].find("%}") else { break };
        let (before, tag) = (&rest[..begin], &rest[begin..begin + length + 2]);
        kept.push_str(before);
        let (open, close) = (&tag[..tag.len().min(3)], &tag[tag.len().saturating_sub(3)..]);
        let (open, close) = (open.trim_end_matches([' ', '\n']), close.trim_start_matches([' ', '\n']));
        match tag.trim_matches(['{', '}', '%', '-', ' ', '\n']) {
            "generation" => kept.push_str(&format!("{} if true {}", mark(open, "{%"), mark(close, "%}"))),
            "endgeneration" => kept.push_str(&format!("{} endif {}", mark(open, "{%"), mark(close, "%}"))),
            _ => kept.push_str(tag),
        }
        rest = &rest[begin + length + 2..];
    }
    kept.push_str(rest);
    kept
}

/// Returns a tag's mark with its sign for white space, if it has one.
fn mark<'a>(seen: &'a str, plain: &'a str) -> &'a str {
    if seen.contains('-') { seen } else { plain }
}

/// `tojson` as Python writes it: a space behind colons and commas, nothing escaped for HTML.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // What else Python's function takes changes nothing that matters here.
    for other in ["ensure_ascii", "sort_keys", "separators"] {
        let _: Option<Value> = options.get(other)?;
    }
    options.assert_all_used()?;
    let mut json = Vec::new();
    let written = match indent {
        Some(width) => {
            let spaces = " ".repeat(width.min(16));
            let formatter = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut json, formatter))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut json, Spaced)),
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let json = String::from_utf8(json)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(Value::from_safe_string(json))
}

/// JSON on one line as Python writes it.
pub(super) struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests;
