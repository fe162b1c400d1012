//! Where the inputs begin: bodies as the stand-ins of the providers write them, and odd ones made by hand.

use serde_json::json;
use tns_server_engines::decode::WireFormat;
use tns_tests::standin::{self, Fault, Plan};

use crate::target::Target;

/// Returns the known inputs of a target.
pub(crate) fn of(target: Target) -> Vec<Vec<u8>> {
    match target {
        Target::Wire(format) => {
            let odd = odd(format).iter().map(|body| body.as_bytes().to_vec());
            written(format).into_iter().chain(odd).collect()
        }
        Target::EventStream => {
            let framed = FRAMED.iter().map(|body| body.to_vec());
            framed.chain(written(WireFormat::Messages)).collect()
        }
        Target::Arguments => ARGUMENTS.iter().map(|text| text.as_bytes().to_vec()).collect(),
    }
}

/// Returns bodies as a stand-in writes them.
fn written(format: WireFormat) -> Vec<Vec<u8>> {
    let calls = || {
        Plan::text(&["東京 👩\u{200d}🔬", " é \"q\"\n"])
            .call("list_dir", json!({ "path": "." }))
            .call("shell", json!({ "command": "ls \"a b\"\\n", "n": [1, 2.5, { "x": null }] }))
    };
    let mut plans = vec![Plan::text(&["a", "b", "c"]), calls(), Plan::text(&[]).call("t", json!({}))];
    let faults = [
        Fault::OverloadedAtOnce,
        Fault::OverloadedInStream,
        Fault::CutAfterText,
        Fault::BadArgs,
        Fault::FinishTwice,
        Fault::RunningUsage,
        Fault::NoIndex,
        Fault::NoIds,
        Fault::NoFinish,
    ];
    plans.extend(faults.map(|fault| calls().fault(fault)));
    plans.extend(["[]", "null", "\"ls\"", "{\"a\":[[[[1]]]]}"].map(|raw| calls().raw_arguments(raw)));
    let bodies = plans.iter().flat_map(|plan| {
        [true, false].map(|thinks| standin::events(format.provider(), plan, thinks).concat().into_bytes())
    });
    bodies.collect()
}

/// Returns answers that servers gave, or might give, and no stand-in does.
fn odd(format: WireFormat) -> &'static [&'static str] {
    match format {
        WireFormat::Messages => &[
            "data: {\"type\":\"content_block_delta\",\"index\":7,\"delta\":{\"text\":\"a\"}}\n\n",
            "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"x\",\"input\":{\"q\":[1]}}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
            "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"id\":\" \",\"name\":\"\",\"input\":{\"x\":1}}}\n\ndata: {\"type\":\"content_block_stop\"}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"},\"usage\":{\"output_tokens\":null}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
            "event: ping\ndata: {\"type\": \"ping\"}\n\n\n\nevent: error\ndata: {\"type\":\"error\"}\n\n",
        ],
        WireFormat::Responses => &[
            "data: {\"type\":\"response.output_text.delta\",\"output_index\":3,\"delta\":\"a\"}\n\ndata: {\"type\":\"response.refusal.delta\",\"delta\":\"no\"}\n\ndata: {\"type\":\"response.incomplete\",\"response\":{\"incomplete_details\":{\"reason\":\"content_filter\"}}}\n\n",
            "data: {\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{\"type\":\"message\",\"phase\":\"commentary\",\"content\":[{\"text\":\"a\"},{\"refusal\":\"b\"}]}}\n\ndata: {\"type\":\"response.completed\"}\n\n",
            "data: {\"type\":\"response.function_call_arguments.done\",\"output_index\":0,\"arguments\":\"{}\"}\n\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"x\",\"message\":\"y\"}}}\n\n",
        ],
        WireFormat::ChatCompletions => &[
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"c1\",\"function\":{\"name\":\"t\",\"arguments\":\"{}\"}},{\"id\":\"c2\",\"function\":{\"name\":\"t\",\"arguments\":{\"a\":1}}}]}}]}\n\ndata: [done]\n\n",
            "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"x\"}},{\"index\":0,\"delta\":{\"content\":[{\"type\":\"text\",\"text\":\"y\"}],\"reasoning\":\"z\",\"refusal\":null},\"finish_reason\":\"length\"}],\"usage\":{\"total_tokens\":5}}\n\n",
            "data: {\"detail\":\"no\"}\n\n",
            "data: {\"choices\":[{\"message\":{\"content\":\"whole\"},\"finish_reason\":\"stop\"}],\"usage\":\"?\"}",
            "data: {\"choices\":[{\"finish_reason\":\"error\",\"delta\":{}}]}\n\n",
        ],
        WireFormat::Gemini => &[
            "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\r\n\r\n",
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\",\"thoughtSignature\":\"c2ln\"},{\"functionCall\":{\"name\":\"t\",\"args\":\"ls\"}},{\"inlineData\":{}}]},\"finishReason\":\"STOP\"}]}\n\n",
            "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]},{\"candidates\":[{\"finishReason\":\"MAX_TOKENS\"}]}]",
            "data: {\"candidates\":[{\"finishReason\":\"OTHER\",\"finishMessage\":\"why\"}]}\n\n",
        ],
        WireFormat::Ollama => &[
            "{\"message\":{\"content\":\"a\"}}{\"message\":{\"content\":\"b\"}}\n\n{\"done\":true}",
            "{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"t\",\"arguments\":\"{\\\"a\\\":1}\"}},{}]},\"done\":true,\"done_reason\":\"length\"}\n",
            "{\"error\":\"model not found\"}\n",
            "{\"message\":{\"thinking\":\"hm\",\"content\":null},\"done\":false}\r\n{\"done\":true,\"eval_count\":1}\r\n",
        ],
    }
}

/// Framings of an event stream.
const FRAMED: [&[u8]; 12] = [
    b"data: a\n\ndata: b\n\n",
    b"data: a\r\n\r\ndata: b\r\n\r\n",
    b"data: a\r\rdata: b\r\r",
    b"\xEF\xBB\xBFdata:a\n\n: keepalive\n\n:\nid: 1\nevent: x\nretry: 3\ndata:  b\n\n",
    b"data\ndata\n\ndata:\n\n",
    b"data: {\"a\":\ndata: 1}\n\n",
    b"database: x\ndata-: y\n data: z\n\n",
    b"data: \xE6\x9D\xB1\xE4\xBA\xAC\n\ndata: \xFF\n\n",
    b"data: \xE6\ndata: \x9D\n\n",
    b"\n\n\r\r\n\ndata: a",
    b"data: a\n\r\ndata: b\r\n\n",
    b"",
];

/// Texts of a call's arguments.
const ARGUMENTS: [&str; 14] = [
    "{}",
    " ",
    "{\"text\":\"hi\"}",
    "{\"command\": \"ls",
    "command\": \"ls\"}",
    "\"ls\"",
    "[]",
    "null",
    "{\"command\":5}",
    "{\"command\":\"a\nb\"}",
    "{\"a\":{\"b\":[{\"c\":[1,2,{\"d\":\"}]\\\"\"}]}]}}",
    "{\"a\":\"\\ud83d\\ude00\",\"a\":2,\"n\":-0.0,\"m\":1e30}",
    "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
    "{} {}",
];
