//! What the run asks a person.

use tns_protocol::ToolCallId;
use tns_protocol::approval::RiskClass;

use super::*;

#[test]
fn a_question_shows_everything_that_decides_it() {
    let request = ToolApproveRequest {
        agent_id: AgentId::parse("assistant-1").unwrap(),
        tool_call_id: ToolCallId::parse("c").unwrap(),
        tool: "shell".into(),
        risk: Risk::High,
        summary: "rm -r build\nin /home/a".into(),
        risk_class: Some(RiskClass::Destructive),
        reasons: vec!["rm deletes".into()],
        args: None,
        diff: Some("-a\n+b".into()),
        always_covers: Some("rm in this session".into()),
        expires_at: None,
    };
    insta::assert_snapshot!(question(&request), @r"
    assistant-1 wants to use shell (DESTRUCTIVE):
      rm -r build
      in /home/a
      because rm deletes
      -a
      +b
      always would cover rm in this session
    ");
    let plain = ToolApproveRequest {
        risk_class: None,
        reasons: Vec::new(),
        diff: None,
        always_covers: None,
        summary: "x".into(),
        ..request
    };
    assert_eq!(question(&plain), "assistant-1 wants to use shell (HIGH):\n  x");
}

#[test]
fn levels_are_read_in_both_spellings() {
    for text in ["full-auto", "FULL_AUTO", "Full-Auto"] {
        assert_eq!(parse_level(text), Ok(AutonomyLevel::FullAuto));
    }
    assert!(parse_level("free").is_err());
}
