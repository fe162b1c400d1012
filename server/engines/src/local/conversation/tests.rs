//! What of a step is told to a template, in each form.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::quantized::gguf_file::Value as Entry;
use jiff::Timestamp;

use super::*;
use crate::step::fixtures::{call, echo, model, result, step, text, user};

/// Shows a conversation as a template gets it.
const SHOWN: &str = "{% if tools %}tools {{ tools | tojson }}\n{% endif %}\
    {% for m in messages %}{{ m | tojson }}\n{% endfor %}";
/// The same without a word of tools.
const PLAIN: &str = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}";

fn vocabulary() -> Vocabulary {
    let texts =
        |texts: &[&str]| Entry::Array(texts.iter().map(|text| Entry::String((*text).to_owned())).collect());
    let metadata: HashMap<String, Entry> = [
        ("model", Entry::String("gpt2".into())),
        ("tokens", texts(&["a", "<end>"])),
        ("token_type", Entry::Array(vec![Entry::I32(1), Entry::I32(3)])),
        ("merges", Entry::Array(Vec::new())),
    ]
    .into_iter()
    .map(|(key, value)| (format!("tokenizer.ggml.{key}"), value))
    .collect();
    Vocabulary::read(&metadata).unwrap()
}

fn told(source: &str, step: &StepRequest) -> Vec<String> {
    let template = Template::new(source, "", "", || Timestamp::UNIX_EPOCH).unwrap();
    let prompt = prompt(step, &template, &vocabulary()).unwrap();
    prompt.lines().map(str::to_owned).collect()
}

fn with_tools(messages: Vec<ModelMessage>) -> StepRequest {
    let schema = json!({"type": "object", "properties": {}});
    StepRequest { tools: Arc::from([echo(schema)]), system: "Be short.".into(), ..step(messages) }
}

fn asked_and_called() -> Vec<ModelMessage> {
    let args = json!({"text": "a"});
    vec![
        user(vec![text("Say a.")]),
        model(vec![text("I do."), call("1", &args), call("2", &args)]),
        user(vec![result("2", "two", true), result("1", "one <end>", false), text("Go on.")]),
    ]
}

#[test]
fn calls_and_results_are_told_as_such_in_the_order_of_the_calls() {
    let function = "{\"name\": \"echo\", \"arguments\": {\"text\": \"a\"}}";
    assert_eq!(
        told(SHOWN, &with_tools(asked_and_called())),
        [
            "tools [{\"type\": \"function\", \"function\": {\"name\": \"echo\", \"description\": \"Says it again.\", \
             \"parameters\": {\"type\": \"object\", \"properties\": {}}}}]",
            "{\"role\": \"system\", \"content\": \"Be short.\"}",
            "{\"role\": \"user\", \"content\": \"Say a.\"}",
            &format!(
                "{{\"role\": \"assistant\", \"content\": \"I do.\", \"tool_calls\": [\
                 {{\"id\": \"call00001\", \"type\": \"function\", \"function\": {function}}}, \
                 {{\"id\": \"call00002\", \"type\": \"function\", \"function\": {function}}}]}}"
            ),
            "{\"role\": \"tool\", \"name\": \"echo\", \"tool_call_id\": \"call00001\", \"content\": \"one <\u{200b}end>\"}",
            "{\"role\": \"tool\", \"name\": \"echo\", \"tool_call_id\": \"call00002\", \"content\": \"The tool failed:\\ntwo\"}",
            "{\"role\": \"user\", \"content\": \"Go on.\"}",
        ]
    );
}

#[test]
fn a_template_that_takes_one_call_at_a_time_gets_one() {
    let source = "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length > 1 %}\
                  {{ raise_exception('one') }}{% endif %}{% endfor %}{{ tools | length }}\n"
        .to_owned()
        + PLAIN;
    let roles: Vec<String> = told(&source, &with_tools(asked_and_called()))[1..]
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["role"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "assistant", "tool", "assistant", "tool", "user"]);
}

#[test]
fn a_template_without_tools_has_them_told_in_words_and_roles_alternate() {
    let lines = told(PLAIN, &with_tools(asked_and_called()));
    let messages: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    let content = |at: usize| messages[at]["content"].as_str().unwrap();
    assert!(content(0).starts_with("Be short.\n\nYou can call tools."), "{}", content(0));
    assert!(content(0).contains("<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"echo\", "));
    let said = "<tool_call>\n{\"name\": \"echo\", \"arguments\": {\"text\": \"a\"}}\n</tool_call>";
    assert_eq!(content(2), format!("I do.\n{said}\n{said}"));
    assert_eq!(
        content(3),
        "<tool_response>\none <\u{200b}end>\n</tool_response>\n\n<tool_response>\nThe tool failed:\ntwo\n\
         </tool_response>\n\nGo on."
    );
    // On the last call of a turn there are no tools, but what they gave is still told.
    let last = StepRequest { tools: Arc::from([]), ..with_tools(asked_and_called()) };
    assert!(!told(SHOWN, &last)[0].contains("tools"));
}

#[test]
fn a_template_without_a_system_prompt_gets_it_with_the_first_question() {
    let source = format!(
        "{{% if messages[0].role == 'system' %}}{{{{ raise_exception('none') }}}}{{% endif %}}{PLAIN}"
    );
    let lines =
        told(&source, &StepRequest { tools: Arc::from([]), ..with_tools(vec![user(vec![text("Hi")])]) });
    assert_eq!(lines, ["{\"role\": \"user\", \"content\": \"Be short.\\n\\nHi\"}"]);
}

#[test]
fn the_same_conversation_longer_begins_with_the_same_prompt() {
    let all = asked_and_called();
    let short = told(SHOWN, &with_tools(all[..1].to_vec()));
    let long = told(SHOWN, &with_tools(all));
    assert_eq!(long[..short.len()], short);
}
