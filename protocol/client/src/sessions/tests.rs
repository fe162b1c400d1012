//! The table against a model of the server: what a consumer has in the end is the server's log, whatever was
//! cut, lost, told twice or begun anew in between.

mod model;

use proptest::prelude::*;
use tns_protocol::chat::{self, AssistantMessage, Token};
use tns_protocol::log::Resumed;
use tns_protocol::{AgentId, MessageId, Seq};

use self::model::{Consumer, Server};
use super::*;

fn session() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn agent() -> AgentId {
    AgentId::parse("a").unwrap()
}

fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

fn frame(message: impl Into<ServerMessage>) -> ServerFrame {
    let message = message.into();
    ServerFrame { session_id: Some(session()), date: None, seq: None, turn_id: None, re: None, message }
}

#[derive(Debug, Clone)]
enum Op {
    Event,
    Write(String),
    EndStep,
    EndReply,
    Say,
    Act,
    Deliver(usize),
    Lose(usize),
    Lag,
    Cut,
    Restart,
    NewStore,
    JoinAgain,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Event),
        6 => "[a-c职]{1,3}".prop_map(Op::Write),
        2 => Just(Op::EndStep),
        1 => Just(Op::EndReply),
        2 => Just(Op::Say),
        6 => Just(Op::Act),
        6 => (1..6_usize).prop_map(Op::Deliver),
        2 => (0..9_usize).prop_map(Op::Lose),
        1 => Just(Op::Lag),
        1 => Just(Op::Cut),
        1 => Just(Op::Restart),
        1 => Just(Op::JoinAgain),
    ]
}

/// The client's table, the server, the consumer, and the wire between them.
#[derive(Default)]
struct World {
    server: Server,
    table: Sessions,
    consumer: Consumer,
    queued: VecDeque<Outgoing>,
    said: Vec<ClientMessageId>,
}

impl World {
    fn join(&mut self) {
        assert!(self.table.admit(&session()));
        let seq = self.consumer.log.last().and_then(|event| event.seq).unwrap_or(0);
        let from = Cursor { seq, epoch: self.consumer.epoch.clone() };
        self.queued.push_back(Outgoing::Join(session(), from));
    }

    fn say(&mut self) {
        let name = format!("c{}", self.said.len());
        let message = ClientMessageId::parse(name.as_str()).unwrap();
        let request = RequestId::parse(name.as_str()).unwrap();
        let chat =
            chat::Chat { message: name, client_message_id: Some(message.clone()), ..chat::Chat::default() };
        let text = encode(session(), Some(request.clone()), chat.into());
        self.said.push(message.clone());
        let chat = Some(Chat { message, request });
        self.queued.push_back(Outgoing::Message { session: session(), text, chat });
    }

    /// Writes what may be written.
    fn write(&mut self) {
        if !self.server.connected {
            self.server.connected = true;
            self.table.reconnected();
        }
        let requests = self.table.requests();
        self.server.to_server.extend(requests);
        while !self.table.holds_back() {
            let Some(next) = self.queued.pop_front() else { return };
            let frames = self.table.outgoing(next);
            self.server.to_server.extend(frames);
        }
    }

    fn deliver(&mut self, count: usize) {
        for _ in 0..count {
            let Some(frame) = self.server.to_client.pop_front() else { return };
            let mut out = Vec::new();
            self.table.take(frame, &mut out).expect("the server keeps the order");
            out.into_iter().for_each(|event| self.consumer.take(event));
            self.write();
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Event => {
                let level = tns_protocol::approval::AutonomyLevel::Manual;
                self.server.store(tns_protocol::approval::AutonomyChanged { level });
            }
            Op::Write(text) => self.server.write(&text),
            Op::EndStep => self.server.end_step(),
            Op::EndReply => self.server.end_reply(),
            Op::Say => self.say(),
            Op::Act => self.server.act(),
            Op::Deliver(count) => self.deliver(count),
            Op::Lose(at) => self.server.lose(at),
            Op::Lag => self.server.lag(),
            Op::Cut => self.server.cut(),
            Op::Restart => self.server.restart(),
            Op::NewStore => {
                self.server.cut();
                let store = self.server.store + 1;
                self.server = Server { store, ..Server::default() };
            }
            // Whatever waits would be handed on before it is written.
            Op::JoinAgain if self.queued.is_empty() && !self.table.holds_back() => self.join(),
            Op::JoinAgain => {}
        }
        self.write();
    }

    fn settle(&mut self) {
        while !(self.server.to_client.is_empty()
            && self.server.to_server.is_empty()
            && self.server.mailbox.is_empty()
            && self.queued.is_empty())
        {
            self.write();
            self.server.act();
            self.deliver(1);
        }
    }
}

fn check(ops: Vec<Op>) {
    let mut world = World { server: Server { connected: true, ..Server::default() }, ..World::default() };
    world.join();
    let (mut stores, mut cuts) = (0, 0);
    for op in ops {
        stores += u64::from(matches!(op, Op::NewStore));
        cuts += u32::from(matches!(op, Op::Cut | Op::Restart | Op::NewStore));
        world.run(op);
        // The table gives a message up after more losses; that is tested apart.
        if cuts == MAX_WRITES - 1 {
            world.settle();
            cuts = 0;
        }
    }
    world.settle();
    assert_eq!(world.consumer.log, world.server.log);
    assert!(world.consumer.caught_up);
    let stored = world.server.log.iter().filter_map(|event| match &event.message {
        ServerMessage::UserMessage(message) => message.client_message_id.clone(),
        _ => None,
    });
    let stored: Vec<ClientMessageId> = stored.collect();
    if stores == 0 {
        assert_eq!(stored, world.said);
    }
    if let Some(writing) = &world.server.writing {
        let shown = world.consumer.shown.map_or(String::new(), |(_, shown)| shown);
        assert!(writing.step.starts_with(&shown));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn a_consumer_has_the_log_once_and_each_message_is_stored_once(
        ops in proptest::collection::vec(op(), 0..60)
    ) {
        check(ops);
    }

    #[test]
    fn another_store_is_told_and_read_from_its_beginning(
        before in proptest::collection::vec(op(), 0..30),
        after in proptest::collection::vec(op(), 0..30),
    ) {
        check([before, vec![Op::NewStore], after].concat());
    }
}

/// A table whose session is live at the log's place 2.
fn live() -> Sessions {
    let mut table = Sessions::default();
    table.admit(&session());
    table.outgoing(Outgoing::Join(session(), Cursor::at(2)));
    let re = Some(own_request(1));
    let resumed = Resumed { head_seq: 2, active: None, pending_approvals: Vec::new() };
    let mut out = Vec::new();
    table.take(ServerFrame { re, ..frame(resumed) }, &mut out).unwrap();
    assert!(matches!(out[..], [ClientEvent::CaughtUp { .. }]));
    table
}

fn at(seq: Seq) -> ServerFrame {
    let level = tns_protocol::approval::AutonomyLevel::Manual;
    ServerFrame { seq: Some(seq), ..frame(tns_protocol::approval::AutonomyChanged { level }) }
}

fn take(table: &mut Sessions, frame: ServerFrame) -> Vec<ClientEvent> {
    let mut out = Vec::new();
    table.take(frame, &mut out).unwrap();
    out
}

#[test]
fn an_event_out_of_order_is_a_fault() {
    for wrong in [1, 2, 4] {
        let mut table = live();
        let fault = table.take(at(wrong), &mut Vec::new()).unwrap_err();
        assert_eq!(fault, Fault(format!("it sent event {wrong} after event 2")));
    }
    let mut table = live();
    assert_eq!(take(&mut table, at(3)).len(), 1);
    // The log's end is told before its events were.
    table.reconnected();
    let resumed = Resumed { head_seq: 9, active: None, pending_approvals: Vec::new() };
    let resumed = ServerFrame { re: Some(own_request(2)), ..frame(resumed) };
    assert!(table.take(resumed, &mut Vec::new()).unwrap_err().0.contains("ends at 9"));
}

fn piece(text: &str, index: u64) -> ServerFrame {
    let (response_id, index) = (Some(id("r")), Some(index));
    frame(Token { agent_id: agent(), content: text.into(), response_id, index })
}

fn step(text: &str, seq: Seq) -> ServerFrame {
    let message = AssistantMessage {
        message_id: id("m"),
        agent_id: agent(),
        message: text.into(),
        model: "x".into(),
        interrupted: false,
        response_id: Some(id("r")),
    };
    ServerFrame { seq: Some(seq), ..frame(message) }
}

fn text(events: Vec<ClientEvent>) -> String {
    let pieces = events.into_iter().map(|event| match event {
        ClientEvent::Frame(frame) => match frame.message {
            ServerMessage::Token(token) => token.content,
            other => other.type_name().to_owned(),
        },
        other => panic!("{other:?}"),
    });
    pieces.collect()
}

#[test]
fn what_a_piece_repeats_is_cut_and_after_a_gap_the_stored_text_is_awaited() {
    let mut table = live();
    let mut shown = |frame| text(take(&mut table, frame));
    assert_eq!(shown(piece("职员", 0)), "职员");
    assert_eq!(shown(piece("员ab", 1)), "ab");
    assert_eq!(shown(piece("ab", 2)), "");
    // `c` was lost.
    assert_eq!(shown(piece("d", 5)), "");
    assert_eq!(shown(piece("e", 6)), "");
    assert_eq!(shown(step("职员abcde", 3)), "assistant_message");
    assert_eq!(shown(piece("f", 7)), "f");
    assert_eq!(shown(piece("h", 9)), "");
    assert_eq!(shown(step("fgh", 4)), "assistant_message");
    // Parts of a text are stored with a line between them, so the next step may begin before.
    assert_eq!(shown(piece("i", 9)), "i");
}

#[test]
fn a_reply_that_was_not_heard_from_its_beginning_is_told_when_it_is_stored() {
    let mut table = live();
    assert_eq!(text(take(&mut table, piece("late", 4))), "");
    assert_eq!(text(take(&mut table, step("too late", 3))), "assistant_message");
    assert_eq!(text(take(&mut table, piece("next", 8))), "next");
}

fn chat(name: &str) -> Outgoing {
    let message = ClientMessageId::parse(name).unwrap();
    let request = RequestId::parse(name).unwrap();
    let text = format!("chat {name}");
    Outgoing::Message { session: session(), text, chat: Some(Chat { message, request }) }
}

#[test]
fn what_is_queued_waits_for_what_was_lost() {
    let mut table = live();
    assert_eq!(table.outgoing(chat("a")), ["chat a"]);
    table.reconnected();
    assert!(table.holds_back());
    table.requests();
    let resumed = Resumed { head_seq: 2, active: None, pending_approvals: Vec::new() };
    take(&mut table, ServerFrame { re: Some(own_request(2)), ..frame(resumed) });
    assert_eq!(table.requests(), ["chat a"]);
    assert!(!table.holds_back());
    // A refusal ends it as well as its storing.
    let code = Some(ErrorCode::QueueFull);
    let refused = ErrorEvent { message: "full".into(), code, ref_type: Some("chat".into()) };
    take(&mut table, ServerFrame { re: RequestId::parse("a").ok(), ..frame(refused) });
    table.reconnected();
    assert!(!table.holds_back());
}

#[test]
fn a_message_that_costs_the_connection_each_time_is_given_up() {
    let mut table = live();
    table.outgoing(chat("a"));
    let mut asked = 1;
    let mut again = || {
        table.reconnected();
        table.requests();
        asked += 1;
        let resumed = Resumed { head_seq: 2, active: None, pending_approvals: Vec::new() };
        let told = take(&mut table, ServerFrame { re: Some(own_request(asked)), ..frame(resumed) });
        (table.requests(), told.len())
    };
    for _ in 1..MAX_WRITES {
        assert_eq!(again(), (vec!["chat a".to_owned()], 1));
    }
    assert_eq!(again(), (Vec::new(), 2));
    assert!(!table.holds_back());
}

#[test]
fn more_than_the_limit_of_messages_on_their_way_wait() {
    let mut table = live();
    for n in 0..MAX_UNCONFIRMED {
        assert!(!table.holds_back());
        table.outgoing(chat(&n.to_string()));
    }
    assert!(table.holds_back());
}

#[test]
fn more_sessions_than_the_limit_are_not_admitted() {
    let mut table = Sessions::default();
    let id = |n: usize| SessionId::parse(format!("s{n}")).unwrap();
    for n in 0..MAX_SESSIONS {
        assert!(table.admit(&id(n)));
    }
    assert!(table.admit(&id(0)) && !table.admit(&id(MAX_SESSIONS)));
}

#[test]
fn a_server_that_knows_no_log_is_used_as_before() {
    for (code, re) in [(ErrorCode::UnknownType, None), (ErrorCode::InvalidMessage, Some(own_request(1)))] {
        let mut table = Sessions::default();
        table.admit(&session());
        assert_eq!(table.outgoing(chat("a")).len(), 2);
        let message = "type \"hello\" is not known".to_owned();
        let refused = ErrorEvent { message, code: Some(code), ref_type: Some("hello".into()) };
        let told = take(&mut table, ServerFrame { re, ..frame(refused) });
        assert_eq!(told, [ClientEvent::Plain { session: session() }]);
        assert!(table.requests()[0].contains("mcp_tools"));
        // Its places have gaps, and nobody minds.
        assert_eq!(take(&mut table, at(7)).len(), 1);
        assert_eq!(table.outgoing(chat("b")), ["chat b"]);
        table.reconnected();
        assert!(!table.holds_back() && table.requests().len() == 1);
        assert_eq!(table.missed(), [ClientEvent::Plain { session: session() }]);
    }
}

#[test]
fn a_session_that_ends_is_not_made_anew() {
    let mut table = live();
    let closing = tns_protocol::session::SessionClosing { reason: "deleted".into() };
    take(&mut table, ServerFrame { seq: Some(3), ..frame(closing) });
    table.reconnected();
    assert_eq!(table.requests(), [] as [String; 0]);
}
