//! Decides about a call. Pure: level, workspace, grants and the call's rating in, a verdict out.

use sha2::{Digest as _, Sha256};
use tns_protocol::RuleId;
use tns_protocol::approval::{AuditDecision, AutonomyLevel, RiskClass};

use super::{Coverage, Grant};
use crate::store::hex;
use crate::tool::Rating;

/// How much of a digest names a rule, in bytes: two of a session's 200 rules are alike once in 10¹⁵ sessions.
const RULE_ID_BYTES: usize = 8;
/// How much is told of the one call that a grant covers.
const MAX_SUMMARY_CHARS: usize = 160;

/// What holds when a call is decided.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// How much agents may do without asking.
    pub level: AutonomyLevel,
    /// The operator trusts what is in the workspace.
    pub trusted_workspace: bool,
    /// Data of class SENSITIVE was read in this session.
    pub read_sensitive: bool,
    /// What was approved with `always`.
    pub grants: &'a [Grant],
}

/// What is to become of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It runs unasked.
    Run {
        /// `auto_approved` by the level, or `trusted` by a grant.
        decision: AuditDecision,
        /// The level or grant that decided.
        by: String,
    },
    /// A person decides.
    Ask {
        /// What an `always` would cover; `None`: this call once.
        grant: Option<Grant>,
    },
    /// It never runs; the model reads why.
    Reject {
        /// Why.
        reason: String,
    },
}

/// Decides about a call of `tool` with this rating; `args_digest` is [`super::args_digest`] of its arguments.
///
/// Order of checks: an escalation is rejected; the level lets it pass; a grant covers it; else ask.
pub fn decide(situation: &Situation<'_>, tool: &str, rating: &Rating, args_digest: &str) -> Verdict {
    if rating.class == RiskClass::Escalation {
        return Verdict::Reject {
            reason: "a change of privilege is never allowed; do it without sudo, su, doas or pkexec".into(),
        };
    }
    let leaks = situation.read_sensitive && rating.class == RiskClass::Network;
    if !leaks {
        if passes(situation, rating.class) {
            return Verdict::Run {
                decision: AuditDecision::AutoApproved,
                by: format!("level {}", situation.level.as_str()),
            };
        }
        if situation.grants.iter().any(|grant| covers(grant, tool, rating, args_digest)) {
            return Verdict::Run { decision: AuditDecision::Trusted, by: "an earlier always".into() };
        }
    }
    Verdict::Ask { grant: if leaks { None } else { grant_for(tool, rating, args_digest) } }
}

/// Whether the level lets a class pass unasked.
fn passes(situation: &Situation<'_>, class: RiskClass) -> bool {
    match (situation.level, class) {
        (_, RiskClass::Escalation) | (AutonomyLevel::Manual, _) => false,
        (
            AutonomyLevel::FullAuto | AutonomyLevel::Supervised | AutonomyLevel::Cautious,
            RiskClass::ReadOnly,
        ) => true,
        // A build runs the project's own code, so a project must be trusted first.
        (AutonomyLevel::Supervised, RiskClass::BuildTest) => situation.trusted_workspace,
        (AutonomyLevel::Supervised | AutonomyLevel::Cautious, _) => false,
        (AutonomyLevel::FullAuto, _) => true,
    }
}

/// Returns what an `always` about this call covers, at most.
pub fn grant_for(tool: &str, rating: &Rating, args_digest: &str) -> Option<Grant> {
    let covers = match rating.class {
        RiskClass::ReadOnly => Coverage::Tool,
        RiskClass::BuildTest => Coverage::Key(rating.key.clone()?),
        RiskClass::Write | RiskClass::Network => match &rating.key {
            Some(key) => Coverage::Key(key.clone()),
            None => Coverage::Tool,
        },
        RiskClass::Exec => Coverage::Exact(args_digest.to_owned()),
        RiskClass::Unknown => Coverage::Pinned(rating.pin.clone()?),
        RiskClass::Sensitive | RiskClass::Destructive | RiskClass::Escalation => return None,
    };
    let summary = matches!(covers, Coverage::Exact(_)).then(|| first_line(&rating.summary));
    Some(Grant { tool: tool.to_owned(), class: rating.class, covers, summary })
}

/// Returns the beginning of what is told of a call.
fn first_line(summary: &str) -> String {
    let line = summary.lines().next().unwrap_or_default();
    let mut shown: String = line.chars().take(MAX_SUMMARY_CHARS).collect();
    if shown.len() < summary.trim_end().len() {
        shown.push('…');
    }
    shown
}

/// Whether a grant covers a call. A call of another class than was approved is never covered.
fn covers(grant: &Grant, tool: &str, rating: &Rating, args_digest: &str) -> bool {
    grant.tool == tool
        && grant.class == rating.class
        && match &grant.covers {
            Coverage::Tool => rating.key.is_none() || rating.class == RiskClass::ReadOnly,
            Coverage::Key(key) => rating.key.as_ref() == Some(key),
            Coverage::Exact(digest) => digest == args_digest,
            Coverage::Pinned(pin) => rating.pin.as_ref() == Some(pin),
        }
}

impl Grant {
    /// Returns the id of the rule that it is: a digest of what it covers, so that the same is never there twice.
    pub fn id(&self) -> RuleId {
        let Self { tool, class, covers, summary: _ } = self;
        let class = class.as_str();
        let (kind, what) = match covers {
            Coverage::Tool => ("tool", ""),
            Coverage::Key(key) => ("key", key.as_str()),
            Coverage::Exact(digest) => ("exact", digest.as_str()),
            Coverage::Pinned(pin) => ("pinned", pin.as_str()),
        };
        let digest = Sha256::digest([tool, class, kind, what].join("\0"));
        match RuleId::parse(format!("rule-{}", hex(&digest[..RULE_ID_BYTES]))) {
            Ok(id) => id,
            Err(_) => unreachable!("hex digits are a valid id"),
        }
    }

    /// Says what the grant covers, for the person who gives it.
    pub fn describe(&self) -> String {
        let class = self.class.as_str();
        let tool = &self.tool;
        match &self.covers {
            Coverage::Tool => format!("every {class} call of {tool} in this session"),
            Coverage::Key(key) => format!("every `{key}` of class {class} in this session"),
            Coverage::Exact(_) => match &self.summary {
                Some(summary) => format!("exactly `{summary}` in this session"),
                None => "exactly this call in this session".to_owned(),
            },
            Coverage::Pinned(_) => format!("every call of {tool} in this session while its definition stays"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn situation(level: AutonomyLevel, grants: &[Grant]) -> Situation<'_> {
        Situation { level, trusted_workspace: false, read_sensitive: false, grants }
    }

    fn rating(class: RiskClass) -> Rating {
        Rating { key: Some("git push".into()), pin: Some("p".into()), ..Rating::new(class, "because", "x") }
    }

    #[test]
    fn the_matrix_of_levels_and_classes_holds() {
        use AutonomyLevel::*;
        use RiskClass::*;
        let unasked = |level, trusted_workspace| -> Vec<RiskClass> {
            let situation = Situation { trusted_workspace, ..situation(level, &[]) };
            RiskClass::ALL
                .into_iter()
                .filter(|class| matches!(decide(&situation, "t", &rating(*class), "d"), Verdict::Run { .. }))
                .collect()
        };
        assert_eq!(unasked(Manual, true), []);
        assert_eq!(unasked(Cautious, true), [ReadOnly]);
        assert_eq!(unasked(Supervised, false), [ReadOnly]);
        assert_eq!(unasked(Supervised, true), [ReadOnly, BuildTest]);
        assert_eq!(
            unasked(FullAuto, false),
            [ReadOnly, BuildTest, Write, Sensitive, Network, Exec, Destructive, Unknown]
        );
    }

    #[test]
    fn an_escalation_is_rejected_whatever_was_granted() {
        let grants: Vec<Grant> = [Coverage::Tool, Coverage::Exact("d".into()), Coverage::Pinned("p".into())]
            .map(|covers| Grant { tool: "t".into(), class: RiskClass::Escalation, covers, summary: None })
            .into();
        for level in AutonomyLevel::ALL {
            let verdict = decide(&situation(level, &grants), "t", &rating(RiskClass::Escalation), "d");
            assert!(matches!(verdict, Verdict::Reject { .. }), "{level:?}");
        }
    }

    #[test]
    fn always_covers_what_its_class_allows_and_no_more() {
        use RiskClass::*;
        let covered = |class| grant_for("t", &rating(class), "d").map(|grant| grant.covers);
        assert_eq!(covered(ReadOnly), Some(Coverage::Tool));
        assert_eq!(covered(BuildTest), Some(Coverage::Key("git push".into())));
        assert_eq!(covered(Write), Some(Coverage::Key("git push".into())));
        assert_eq!(covered(Exec), Some(Coverage::Exact("d".into())));
        assert_eq!(covered(Unknown), Some(Coverage::Pinned("p".into())));
        for class in [Sensitive, Destructive, Escalation] {
            assert_eq!(covered(class), None, "{class:?}");
        }
        let plain = Rating { pin: None, ..rating(Unknown) };
        assert_eq!(grant_for("shell", &plain, "d"), None);
    }

    #[test]
    fn a_grant_for_a_program_does_not_cover_another_or_the_whole_tool() {
        let grant = grant_for("shell", &rating(RiskClass::Network), "d").unwrap();
        let grants = [grant];
        let asks = |rating: &Rating| {
            matches!(
                decide(&situation(AutonomyLevel::Cautious, &grants), "shell", rating, "d"),
                Verdict::Ask { .. }
            )
        };
        assert!(!asks(&rating(RiskClass::Network)));
        assert!(asks(&Rating { key: Some("git pushx".into()), ..rating(RiskClass::Network) }));
        assert!(asks(&Rating { key: None, ..rating(RiskClass::Network) }));
        assert!(asks(&rating(RiskClass::Write)));
    }

    #[test]
    fn the_same_grant_is_the_same_rule_and_no_other() {
        use RiskClass::{Exec, Network, Unknown, Write};
        let of = |tool, class| grant_for(tool, &rating(class), "d").unwrap();
        let plain = Grant { covers: Coverage::Tool, ..of("t", Write) };
        let grants =
            [of("t", Write), of("t", Network), of("u", Write), of("t", Exec), of("t", Unknown), plain];
        for (at, one) in grants.iter().enumerate() {
            for (other, two) in grants.iter().enumerate() {
                assert_eq!(one.id() == two.id(), at == other, "{one:?} {two:?}");
            }
        }
        assert_eq!(grants[0].id(), of("t", Write).id());
        // What is told of it makes no other rule.
        let told = Grant { summary: None, ..grants[3].clone() };
        assert_eq!(
            (told.id(), grants[3].describe().as_str()),
            (grants[3].id(), "exactly `x` in this session")
        );
    }

    #[test]
    fn of_a_long_call_the_beginning_is_told() {
        assert_eq!(first_line("make\n"), "make");
        assert_eq!(first_line("make\nmore"), "make…");
        assert_eq!(first_line(&"職".repeat(161)), format!("{}…", "職".repeat(160)));
    }

    #[test]
    fn after_sensitive_data_the_network_asks_at_every_level() {
        let grants = [grant_for("t", &rating(RiskClass::Network), "d").unwrap()];
        for level in AutonomyLevel::ALL {
            let tainted = Situation { read_sensitive: true, ..situation(level, &grants) };
            assert_eq!(
                decide(&tainted, "t", &rating(RiskClass::Network), "d"),
                Verdict::Ask { grant: None },
                "{level:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_grant_never_covers_another_class_or_tool(
            granted in 0usize..9, asked in 0usize..9, other_tool in any::<bool>()
        ) {
            let (granted, asked) = (RiskClass::ALL[granted], RiskClass::ALL[asked]);
            if let Some(grant) = grant_for("t", &rating(granted), "d") {
                let tool = if other_tool { "u" } else { "t" };
                let grants = [grant];
                let verdict = decide(&situation(AutonomyLevel::Manual, &grants), tool, &rating(asked), "d");
                let runs = matches!(verdict, Verdict::Run { .. });
                prop_assert!(!runs || (granted == asked && !other_tool));
            }
        }
    }
}
