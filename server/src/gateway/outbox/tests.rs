//! What an outbox does at its limits, and around a resume.

use super::*;
use tns_protocol::approval::AutonomyLevel;
use tns_protocol::{ServerMessage, Timestamp, decode_server};
use tns_server_core::event::{DurableEvent, Log, Renamed};
use tns_server_core::memory::MemoryStore;
use tns_server_core::store::SessionKey;

fn published(session: &str, seq: Option<Seq>, event: Event) -> Arc<Published> {
    Arc::new(Published {
        session: SessionId::parse(session).unwrap(),
        at: Timestamp::from_micros(0),
        seq,
        turn: None,
        re: None,
        event,
        encoded: Default::default(),
    })
}

fn token(text: &str) -> Arc<Published> {
    let live = LiveEvent::Token {
        agent: AgentId::parse("a").unwrap(),
        text: text.into(),
        response: MessageId::parse("r").unwrap(),
        index: 0,
    };
    published("s", None, Event::Live(live))
}

fn durable(session: &str, seq: Seq) -> Arc<Published> {
    let event = DurableEvent::AutonomyChanged(AutonomyLevel::Manual);
    published(session, Some(seq), Event::Durable(Box::new(event)))
}

fn resume(session: &str, after: Seq, head_seq: Seq) -> Arc<Published> {
    let log = Log { store: Arc::new(MemoryStore::default()), session: SessionKey(1) };
    let point = ResumePoint { log, after, head_seq, active: None, pending: Vec::new() };
    published(session, None, Event::Answer(Answer::Resume(Box::new(point))))
}

fn texts(outgoing: Outgoing) -> Vec<String> {
    let Outgoing::Frames(frames) = outgoing else { panic!("no frames") };
    let text = |frame: Frame| match decode_server(&frame.text).unwrap().message {
        ServerMessage::Token(token) => token.content,
        other => panic!("{other:?}"),
    };
    frames.into_iter().map(text).collect()
}

/// Takes everything: the places of durable events, `L` for what is only shown, `lagged SESSION HEAD`, `log AFTER HEAD`.
fn drained(outbox: &Outbox) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(outgoing) = outbox.take() {
        match outgoing {
            Outgoing::Frames(frames) => all.extend(
                frames.into_iter().map(|frame| frame.seq.map_or("L".to_owned(), |seq| seq.to_string())),
            ),
            Outgoing::Backlog(Backlog { point, .. }) => {
                all.push(format!("log {} {}", point.after, point.head_seq));
            }
            Outgoing::Lagged(session, head) => all.push(format!("lagged {session} {head}")),
            Outgoing::Close(close) => {
                all.push(format!("close {}", close.code));
                break;
            }
        }
    }
    all
}

#[test]
fn pieces_stay_apart_while_there_is_room_and_are_joined_without_loss_beyond() {
    let outbox = Outbox::default();
    let all: Vec<_> = (0..JOIN_FROM + 100).map(|at| token(&format!("{at} "))).collect();
    outbox.deliver(&all[..JOIN_FROM]);
    outbox.deliver(&all[JOIN_FROM..]);
    let texts = texts(outbox.take().unwrap());
    assert_eq!(texts.len(), JOIN_FROM);
    let expected: String = (0..JOIN_FROM + 100).map(|at| format!("{at} ")).collect();
    assert_eq!(texts.concat(), expected);
    assert!(outbox.take().is_none());
}

/// A rename, whose event is as large as its title.
fn large(seq: Seq) -> Arc<Published> {
    let event = DurableEvent::Renamed(Renamed::to(Some("x".repeat(MAX_BYTES))));
    published("s", Some(seq), Event::Durable(Box::new(event)))
}

#[test]
fn an_event_larger_than_the_limit_does_not_cost_a_reader_what_is_stored_with_it() {
    for face in [Face::V1, Face::Log] {
        let outbox = Outbox::new(face, true);
        let big = match face {
            Face::V1 => token(&"x".repeat(MAX_BYTES)),
            Face::Log => large(1),
        };
        outbox.deliver(&[big, token("a"), durable("s", 2)]);
        let first = if face == Face::V1 { "L" } else { "1" };
        assert_eq!(drained(&outbox), [first, "L", "2"]);
    }
    // A second one is too much for who reads neither.
    let outbox = Outbox::new(Face::Log, true);
    outbox.deliver(&[large(1), large(2), durable("s", 3)]);
    assert_eq!(drained(&outbox), ["lagged s 3"]);
}

#[test]
fn a_strict_reader_that_stops_is_closed_at_the_limit_of_bytes() {
    let outbox = Outbox::default();
    let big = token(&"x".repeat(MAX_BYTES / 4));
    for _ in 0..4 {
        outbox.deliver(std::slice::from_ref(&big));
    }
    // The fourth reaches the limit, and still waits.
    assert!(outbox.lock().bytes >= MAX_BYTES && outbox.lock().close.is_none());
    outbox.deliver(&[big]);
    let Some(Outgoing::Close(close)) = outbox.take() else { panic!("open") };
    assert_eq!(close.code, close_code::AGAIN);
    assert_eq!(outbox.lock().bytes, 0);
}

#[test]
fn a_strict_reader_that_stops_is_closed_at_the_limit_of_events() {
    let outbox = Outbox::default();
    for _ in 0..MAX_EVENTS {
        outbox.push("{}".into());
    }
    assert!(outbox.lock().close.is_none());
    outbox.push("{}".into());
    assert!(matches!(outbox.take(), Some(Outgoing::Close(_))));
}

#[test]
fn what_waits_is_written_before_the_close() {
    let outbox = Outbox::default();
    outbox.push("{}".into());
    outbox.close(close_code::SIZE, "too large");
    outbox.close(close_code::AWAY, "later");
    assert!(matches!(outbox.take(), Some(Outgoing::Frames(frames)) if frames.len() == 1));
    let Some(Outgoing::Close(close)) = outbox.take() else { panic!("open") };
    assert_eq!(close.code, close_code::SIZE);
}

#[test]
fn a_slow_reader_first_loses_what_is_only_shown() {
    let outbox = Outbox::new(Face::Log, true);
    let half = token(&"x".repeat(MAX_BYTES / 2));
    outbox.deliver(&[durable("s", 1), half.clone(), half, durable("s", 2)]);
    assert_eq!(drained(&outbox), ["1", "2"]);
}

#[test]
fn a_slow_reader_is_told_that_it_lags_and_goes_on_from_its_resume() {
    let outbox = Outbox::new(Face::Log, true);
    let most = MAX_EVENTS as Seq;
    for seq in 1..=most {
        outbox.deliver(&[durable("s", seq)]);
    }
    assert_eq!(outbox.lock().items.len(), MAX_EVENTS);
    outbox.deliver(&[durable("s", most + 1), durable("s", most + 2), token("x"), durable("t", 1)]);
    assert_eq!(drained(&outbox), [format!("lagged s {}", most + 2), "1".to_owned()]);
    outbox.deliver(&[durable("s", most + 3), resume("s", 0, most + 3), durable("s", most + 4)]);
    assert_eq!(drained(&outbox), [format!("log 0 {}", most + 3), (most + 4).to_string()]);
}

#[test]
fn a_resume_takes_the_place_of_what_waits_of_its_session() {
    let outbox = Outbox::new(Face::Log, true);
    outbox.deliver(&[durable("s", 1), durable("t", 5), token("x"), resume("s", 0, 2), token("y")]);
    assert_eq!(drained(&outbox), ["5", "log 0 2", "L"]);
}

#[test]
fn a_reader_of_the_log_alone_is_sent_nothing_that_is_only_shown() {
    let outbox = Outbox::new(Face::Log, false);
    outbox.deliver(&[token("x"), durable("s", 1), token("y")]);
    assert_eq!(drained(&outbox), ["1"]);
}
