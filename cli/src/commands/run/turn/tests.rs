//! Frames in, steps and verdict out.

use tns_protocol::approval::{AuditEntry, Risk};
use tns_protocol::chat::{AssistantMessage, Token, Usage};
use tns_protocol::{AgentId, MessageId, SessionId, Timestamp};

use super::*;

fn frame(message: impl Into<ServerMessage>) -> ServerFrame {
    ServerFrame {
        session_id: Some(SessionId::parse("s").unwrap()),
        date: None,
        seq: None,
        turn_id: None,
        re: None,
        message: message.into(),
    }
}

fn of_turn(turn: &str, message: impl Into<ServerMessage>) -> ServerFrame {
    ServerFrame { seq: Some(1), turn_id: Some(MessageId::parse(turn).unwrap()), ..frame(message) }
}

fn token(content: &str) -> Token {
    Token { agent_id: agent(), content: content.into(), response_id: None, index: None }
}

fn agent() -> AgentId {
    AgentId::parse("a").unwrap()
}

fn mine() -> MessageId {
    MessageId::parse("mine").unwrap()
}

fn call_id() -> ToolCallId {
    ToolCallId::parse("c").unwrap()
}

fn done(stop_reason: StopReason) -> Done {
    Done { usage: Usage::default(), stop_reason: Some(stop_reason), cancelled: false }
}

fn error(code: ErrorCode) -> ErrorEvent {
    ErrorEvent { message: "it failed".into(), code: Some(code), ref_type: None }
}

fn start() -> ToolStart {
    let args = [("command".to_owned(), Value::from("make\ntest"))].into_iter().collect();
    ToolStart { agent_id: agent(), tool_call_id: call_id(), tool: "shell".into(), args, risk: Risk::Low }
}

fn audit(decision: AuditDecision) -> AuditEntry {
    AuditEntry {
        tool_call_id: call_id(),
        agent_id: agent(),
        tool: "shell".into(),
        risk: Risk::Low,
        risk_class: None,
        decision,
        timestamp: Timestamp::from_micros(0),
        summary: "make test".into(),
        by: None,
    }
}

fn request() -> ToolApproveRequest {
    ToolApproveRequest {
        agent_id: agent(),
        tool_call_id: call_id(),
        tool: "shell".into(),
        risk: Risk::Low,
        summary: "make test".into(),
        risk_class: None,
        reasons: Vec::new(),
        args: None,
        diff: None,
        always_covers: None,
        expires_at: None,
    }
}

fn ended_with(message: impl Into<ServerMessage>) -> Option<u8> {
    let mut turn = Turn::new(Owner::Whole);
    turn.take(of_turn("t", message));
    assert!(turn.ended());
    turn.verdict().map(|(exit, _)| exit.code())
}

#[test]
fn text_is_handed_on_and_steps_become_paragraphs() {
    let mut turn = Turn::new(Owner::Whole);
    assert_eq!(turn.take(frame(token("Let me "))), [Step::Text("Let me ".into())]);
    turn.take(frame(token("look.")));
    assert_eq!(turn.take(of_turn("t", start())), [Step::Note("shell make⏎test".into())]);
    assert_eq!(turn.take(frame(token("\nHere"))), [Step::Text("\n\nHere".into())]);
    turn.take(frame(token(" it is.")));
    assert_eq!(turn.text(), "Let me look.\n\nHere it is.");
}

fn stored(message: &str) -> AssistantMessage {
    AssistantMessage {
        message_id: MessageId::parse("m").unwrap(),
        agent_id: agent(),
        message: message.into(),
        model: "x".into(),
        interrupted: false,
        response_id: None,
    }
}

fn active(text: &str) -> ActiveResponse {
    let response_id = MessageId::parse("r").unwrap();
    ActiveResponse { response_id, agent_id: agent(), text_so_far: text.into(), index: 0 }
}

#[test]
fn what_was_not_heard_comes_from_what_the_server_has() {
    let mut turn = Turn::new(Owner::Whole);
    turn.take(frame(token("one ")));
    assert_eq!(turn.go_on(&active("one two ")), [Step::Text("two ".into())]);
    turn.take(frame(token("three ")));
    assert_eq!(turn.take(of_turn("t", stored("one two three four"))), [Step::Text("four".into())]);
    assert_eq!(turn.go_on(&active("")), []);
    turn.take(frame(token("and ")));
    assert_eq!(turn.take(of_turn("t", stored("and "))), []);
    assert_eq!(turn.text(), "one two three fourand ");
    // Another turn's text is nothing to this one.
    let mut turn = Turn::new(Owner::Shared(Standing::Waiting(mine())));
    assert_eq!(turn.go_on(&active("theirs")), []);
}

#[test]
fn the_lines_between_stored_parts_are_no_difference() {
    assert_eq!(missing("ab", "a\nbc"), Some("c"));
    assert_eq!(missing("a\nb", "a\nb"), Some(""));
    assert_eq!(missing("", "a"), Some("a"));
    assert_eq!(missing("ab", "axb"), None);
    assert_eq!(missing("ab", "a"), None);
    let mut turn = Turn::new(Owner::Whole);
    turn.take(frame(token("x")));
    assert!(matches!(turn.take(of_turn("t", stored("y")))[..], [Step::Note(_)]));
}

#[test]
fn a_call_is_reported_once_with_all_that_became_known() {
    let mut turn = Turn::new(Owner::Whole);
    turn.take(of_turn("t", audit(AuditDecision::AutoApproved)));
    turn.take(of_turn("t", start()));
    turn.take(of_turn(
        "t",
        ToolResult {
            agent_id: agent(),
            tool_call_id: call_id(),
            tool: "shell".into(),
            duration: 7,
            result: "ok".into(),
            is_error: false,
            truncated: false,
            refused: false,
        },
    ));
    assert_eq!(
        serde_json::to_value(turn.calls()).unwrap(),
        serde_json::json!([{
            "toolCallId": "c", "tool": "shell", "args": { "command": "make\ntest" },
            "decision": "auto_approved", "duration": 7, "result": "ok"
        }])
    );
}

#[test]
fn the_end_decides_the_exit_code() {
    assert_eq!(ended_with(done(StopReason::End)), None);
    assert_eq!(ended_with(done(StopReason::RoundLimit)), Some(6));
    assert_eq!(ended_with(done(StopReason::SpendCap)), Some(6));
    assert_eq!(ended_with(done(StopReason::MaxTokens)), Some(6));
    assert_eq!(ended_with(done(StopReason::Refusal)), Some(1));
    assert_eq!(ended_with(error(ErrorCode::BadKey)), Some(4));
    assert_eq!(ended_with(error(ErrorCode::StreamIncomplete)), Some(4));
    assert_eq!(ended_with(error(ErrorCode::StorageFull)), Some(1));
    assert_eq!(ended_with(Done { cancelled: true, ..done(StopReason::End) }), Some(130));
    let (turn_id, reason) = (mine(), "cancelled".to_owned());
    let interrupted = Interrupted { turn_id, reason, usage: Usage::default(), response_id: None };
    assert_eq!(ended_with(interrupted), Some(130));
}

#[test]
fn a_tool_that_was_not_allowed_decides_it_too() {
    for (decision, code) in [
        (AuditDecision::Rejected, Some(5)),
        (AuditDecision::Blocked, Some(5)),
        (AuditDecision::Timeout, Some(5)),
        (AuditDecision::Approved, None),
        (AuditDecision::AutoApproved, None),
    ] {
        let mut turn = Turn::new(Owner::Whole);
        turn.take(of_turn("t", audit(decision)));
        turn.take(of_turn("t", done(StopReason::End)));
        assert_eq!(turn.verdict().map(|(exit, _)| exit.code()), code, "{decision:?}");
    }
}

#[test]
fn a_request_that_this_run_rejects_counts_before_the_record_comes() {
    let mut turn = Turn::new(Owner::Whole);
    assert_eq!(turn.take(of_turn("t", request())), [Step::Ask(Box::new(request()))]);
    turn.refused(&call_id(), Rejecter::Nobody);
    turn.take(of_turn("t", done(StopReason::End)));
    assert_eq!(turn.verdict().map(|(exit, _)| exit), Some(Exit::NotAllowed));
}

#[test]
fn the_line_about_a_refused_call_fits_who_refused_it() {
    let verdict = |decision, by: Option<Rejecter>| {
        let mut turn = Turn::new(Owner::Whole);
        if let Some(by) = by {
            turn.take(of_turn("t", request()));
            turn.refused(&call_id(), by);
        }
        turn.take(of_turn("t", audit(decision)));
        turn.take(of_turn("t", done(StopReason::End)));
        turn.verdict().unwrap().1
    };
    for (decision, by, line) in [
        (
            AuditDecision::Blocked,
            None,
            "shell was refused as an escalation, which is never allowed, whatever the level",
        ),
        (AuditDecision::Rejected, Some(Rejecter::Person), "shell was needed and rejected on this terminal"),
        (
            AuditDecision::Rejected,
            Some(Rejecter::Nobody),
            "shell was needed and not allowed; run on a terminal to be asked, or set --autonomy",
        ),
        (AuditDecision::Rejected, None, "shell was needed and rejected by another client of the session"),
        (AuditDecision::Timeout, None, "shell was needed and nobody decided about it in time"),
    ] {
        assert_eq!(verdict(decision, by), line);
    }
}

#[test]
fn each_reason_is_told_once_with_its_tools() {
    let mut turn = Turn::new(Owner::Whole);
    for (id, tool, decision) in [
        ("1", "shell", AuditDecision::Blocked),
        ("2", "shell", AuditDecision::Blocked),
        ("3", "file_write", AuditDecision::Timeout),
        ("4", "shell", AuditDecision::Timeout),
        ("5", "file_read", AuditDecision::AutoApproved),
    ] {
        let entry =
            AuditEntry { tool_call_id: ToolCallId::parse(id).unwrap(), tool: tool.into(), ..audit(decision) };
        turn.take(of_turn("t", entry));
    }
    turn.take(of_turn("t", done(StopReason::End)));
    assert_eq!(
        turn.verdict().unwrap().1,
        "shell was refused as an escalation, which is never allowed, whatever the level; \
         file_write, shell was needed and nobody decided about it in time"
    );
}

#[test]
fn an_error_about_the_chat_ends_the_run_and_one_about_something_else_does_not() {
    let mut turn = Turn::new(Owner::Whole);
    let about =
        |ref_type: &str| frame(ErrorEvent { ref_type: Some(ref_type.into()), ..error(ErrorCode::QueueFull) });
    assert_eq!(turn.take(about("cancel")), [Step::Note("it failed".into())]);
    assert!(!turn.ended());
    turn.take(about("chat"));
    assert!(turn.ended());
    assert_eq!(turn.verdict(), Some((Exit::Failed, "it failed (QUEUE_FULL)".into())));
}

#[test]
fn a_turn_that_could_not_be_stored_ends_the_run() {
    for code in [ErrorCode::StorageFull, ErrorCode::StorageBusy, ErrorCode::Internal] {
        let mut turn = Turn::new(Owner::Whole);
        turn.take(frame(token("part")));
        assert_eq!(turn.take(frame(error(code))), []);
        assert_eq!(turn.verdict(), Some((Exit::Failed, format!("it failed ({})", code.as_str()))));
    }
    let mut turn = Turn::new(Owner::Whole);
    let answer =
        ServerFrame { re: tns_protocol::RequestId::parse("r").ok(), ..frame(error(ErrorCode::Limit)) };
    turn.take(answer);
    assert!(!turn.ended());
}

#[test]
fn in_a_shared_session_a_lost_turn_is_the_one_that_runs() {
    let lost = || frame(error(ErrorCode::StorageFull));
    for (standing, asks, ends) in [
        (Standing::Absent, true, false),
        (Standing::Waiting(mine()), true, false),
        (Standing::Running(mine()), false, true),
        (Standing::Ended(mine()), false, false),
    ] {
        let mut turn = Turn::new(Owner::Shared(standing.clone()));
        assert_eq!(turn.must_ask_about(&lost()), asks, "{standing:?}");
        turn.take(lost());
        assert_eq!(turn.ended(), ends, "{standing:?}");
    }
    // Where the frame names the turn, nothing else counts.
    let mut turn = Turn::new(Owner::Shared(Standing::Waiting(mine())));
    turn.take(ServerFrame { seq: None, ..of_turn("mine", error(ErrorCode::StorageFull)) });
    assert!(turn.ended());
}

#[test]
fn in_a_shared_session_only_only_the_own_turn_counts() {
    let mut turn = Turn::new(Owner::Shared(Standing::Absent));
    assert!(turn.must_ask_about(&of_turn("theirs", request())));
    turn.take(frame(token("theirs")));
    assert_eq!(turn.take(of_turn("theirs", request())), []);
    assert_eq!(turn.take(frame(request())), []);
    assert_eq!(turn.take(of_turn("theirs", done(StopReason::SpendCap))), [Step::Discard]);
    assert!(!turn.ended());
    turn.stands(Standing::Waiting(mine()));
    assert!(!turn.must_ask_about(&of_turn("mine", request())));
    turn.take(frame(token("mine")));
    assert_eq!(turn.take(of_turn("mine", request())), [Step::Ask(Box::new(request()))]);
    turn.take(of_turn("mine", done(StopReason::End)));
    assert_eq!((turn.text(), turn.verdict()), ("mine", None));
}

#[test]
fn a_note_about_a_call_is_one_short_line() {
    let args = |text: &str| [("x".to_owned(), Value::from(text))].into_iter().collect();
    assert_eq!(brief(&args(&"職".repeat(BRIEF_CHARS))), "職".repeat(BRIEF_CHARS));
    assert_eq!(brief(&args(&"職".repeat(BRIEF_CHARS + 1))), format!("{}…", "職".repeat(BRIEF_CHARS)));
    assert_eq!(brief(&args("a\nb")), "a⏎b");
}
