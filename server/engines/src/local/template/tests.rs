//! Templates that use what the families' own use, against the texts that these are documented to make.
//! The templates are written for these tests; the forms are the families'.

use serde_json::json;

use super::*;

/// A day that the clock stands at.
fn day() -> Timestamp {
    Timestamp::from_second(1_796_000_000).unwrap()
}

fn tool() -> serde_json::Value {
    json!({"type": "function", "function": {
        "name": "echo",
        "description": "Says <it> again.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    }})
}

fn conversation() -> Vec<serde_json::Value> {
    let call = json!({"id": "call00001", "type": "function", "function": {"name": "echo", "arguments": {"text": "a"}}});
    vec![
        json!({"role": "system", "content": "Be short."}),
        json!({"role": "user", "content": "Say a."}),
        json!({"role": "assistant", "content": "", "tool_calls": [call]}),
        json!({"role": "tool", "name": "echo", "tool_call_id": "call00001", "content": "a"}),
    ]
}

fn render(
    source: &str,
    messages: &[serde_json::Value],
    tools: Option<&[serde_json::Value]>,
) -> Result<String, String> {
    let template = Template::new(source, "<s>", "</s>", day)?;
    template.render(&Values { messages, tools, enable_thinking: None })
}

/// The tool as Python's `json.dumps` writes it.
const TOOL: &str = "{\"type\": \"function\", \"function\": {\"name\": \"echo\", \"description\": \"Says <it> again.\", \
    \"parameters\": {\"type\": \"object\", \"properties\": {\"text\": {\"type\": \"string\"}}, \"required\": [\"text\"]}}}";

#[test]
fn chatml_is_the_form_of_a_file_without_a_template() {
    let template = Template::chatml(day).unwrap();
    assert!(!template.knows_tools());
    let messages =
        [json!({"role": "system", "content": "Be short."}), json!({"role": "user", "content": "Hi"})];
    let prompt =
        template.render(&Values { messages: &messages, tools: None, enable_thinking: None }).unwrap();
    assert_eq!(
        prompt,
        "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn llama_3_has_headers_a_date_and_its_tools_with_the_first_question() {
    let source = r#"
{{- bos_token }}
{%- if not tools is defined %}{% set tools = none %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}{{- "Environment: ipython\n" }}{% endif %}
{{- "Today Date: " + strftime_now("%d %b %Y") + "\n\n" }}
{{- system }}
{{- "<|eot_id|>" }}
{%- if tools is not none %}
    {%- if messages | length == 0 %}{{ raise_exception("no first user message") }}{% endif %}
    {%- set first = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{ raise_exception("one call at a time") }}{% endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"#;
    let indented = serde_json::to_string_pretty(&tool()).unwrap().replace("  ", "    ");
    assert_eq!(
        render(source, &conversation(), Some(&[tool()])).unwrap(),
        format!(
            "<s><|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\nToday Date: 30 Nov 2026\n\n\
             Be short.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{indented}\n\nSay a.<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\n{{\"name\": \"echo\", \"parameters\": {{\"text\": \"a\"}}}}\
             <|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\na<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\n"
        )
    );
    let mut two = conversation();
    let call = two[2]["tool_calls"][0].clone();
    two[2]["tool_calls"] = json!([call, call]);
    assert!(render(source, &two, Some(&[tool()])).unwrap_err().starts_with("one call at a time (line "));
}

#[test]
fn qwen_lists_its_tools_in_tags_and_answers_them_as_the_user() {
    let source = r##"
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- "# Tools\n\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and message.content is string and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.last = index %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' + content }}
        {%- for call in message.tool_calls %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\n' }}{%- endif %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<tool_call>\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}"##;
    let expected = format!(
        "<|im_start|>system\nBe short.\n\n# Tools\n\n<tools>\n{TOOL}\n</tools><|im_end|>\n\
         <|im_start|>user\nSay a.<|im_end|>\n<|im_start|>assistant\n<tool_call>\n\
         {{\"name\": \"echo\", \"arguments\": {{\"text\": \"a\"}}}}\n</tool_call><|im_end|>\n\
         <|im_start|>user\n<tool_response>\na\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(render(source, &conversation(), Some(&[tool()])).unwrap(), expected);
    let template = Template::new(source, "", "", day).unwrap();
    assert!(template.knows_tools());
    let calm = Values { messages: &conversation()[1..2], tools: None, enable_thinking: Some(false) };
    assert_eq!(
        template.render(&calm).unwrap(),
        "<|im_start|>user\nSay a.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    );
    let thoughtful =
        [json!({"role": "user", "content": "x"}), json!({"role": "assistant", "content": "a</think>\n\nb"})];
    assert!(render(source, &thoughtful, None).unwrap().contains("assistant\nb<|im_end|>"));
}

#[test]
fn mistral_offers_its_tools_before_the_last_question_and_wants_ids_of_nine() {
    let source = r#"
{%- if messages[0]["role"] == "system" %}
    {%- set system = messages[0]["content"] %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{%- set users = rest | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in rest %}
    {%- if not (message.role == "tool" or (message.role == "assistant" and message.tool_calls is defined)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == users[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.function.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.first and system is defined %}
            {{- "[INST] " + system + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function|tojson %}
            {{- out[:-1] }}
            {%- if call.id|length != 9 %}{{- raise_exception("ids have nine letters and digits") }}{%- endif %}
            {{- ', "id": "' + call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token }}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}"#;
    assert_eq!(
        render(source, &conversation(), Some(&[tool()])).unwrap(),
        format!(
            "<s>[AVAILABLE_TOOLS] [{TOOL}][/AVAILABLE_TOOLS][INST] Be short.\n\nSay a.[/INST][TOOL_CALLS] \
             [{{\"name\": \"echo\", \"arguments\": {{\"text\": \"a\"}}, \"id\": \"call00001\"}}]</s>\
             [TOOL_RESULTS] {{\"content\": a, \"call_id\": \"call00001\"}}[/TOOL_RESULTS]"
        )
    );
    let plain = [
        json!({"role": "user", "content": "Hi"}),
        json!({"role": "assistant", "content": "Hello."}),
        json!({"role": "user", "content": "12?"}),
    ];
    assert_eq!(render(source, &plain, None).unwrap(), "<s>[INST] Hi[/INST] Hello.</s>[INST] 12?[/INST]");
    let twice = [plain[0].clone(), plain[0].clone()];
    assert!(render(source, &twice, None).unwrap_err().starts_with("roles must alternate"));
}

#[test]
fn json_is_pythons() {
    let render =
        |source: &str, value: serde_json::Value| render(source, &[json!({"v": value})], None).unwrap();
    let value = json!({"z": [1, 2.0, null, true], "a": "é \"<&'\n", "empty": {}, "list": []});
    assert_eq!(
        render("{{ messages[0].v | tojson }}", value.clone()),
        "{\"z\": [1, 2.0, null, true], \"a\": \"é \\\"<&'\\n\", \"empty\": {}, \"list\": []}"
    );
    assert_eq!(
        render("{{ messages[0].v | tojson(indent=2, ensure_ascii=False) }}", json!({"a": [1], "b": {}})),
        "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"
    );
}

#[test]
fn blocks_leave_no_white_space_and_the_last_newline_goes() {
    let messages = [json!({"role": "user", "content": "x"})];
    let source = "a\n  {% if true %}\n  b\n  {% endif %}\nc\n";
    assert_eq!(render(source, &messages, None).unwrap(), "a\n  b\nc");
    for source in [
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
        "{% for m in messages %} {%- generation -%} {{ m.content }} {%- endgeneration -%} {% endfor %}",
    ] {
        assert_eq!(render(source, &messages, None).unwrap(), "x");
    }
}

#[test]
fn a_template_ends_whatever_it_does() {
    let endless = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    let long = "{% for a in range(100000) %}{{ messages[0].content }}{% endfor %}";
    let deep = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    let messages = [json!({"role": "user", "content": "x".repeat(1_000)})];
    for source in [endless, long, deep] {
        let error = render(source, &messages, None).unwrap_err();
        assert!(!error.contains('\n'), "{error}");
    }
    for broken in ["{% if %}", "{{ a", "{% endfor %}", "{% import 'x' as y %}{% include '/etc/passwd' %}"] {
        assert!(render(broken, &messages, None).is_err(), "{broken}");
    }
}
