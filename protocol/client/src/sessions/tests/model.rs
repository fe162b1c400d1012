//! The model of the server, with what is on its way to and from it, and a consumer that checks what it is told.

use std::collections::VecDeque;

use tns_protocol::chat::{self, AssistantMessage, Done, Token, UserMessage};
use tns_protocol::live::{ResponseStart, ResponseType};
use tns_protocol::log::{
    ActiveResponse, HistorySync, Lagged, Program, RawFrame, Resume, Resumed, ResyncRequired, Welcome,
};
use tns_protocol::rest::ServerLimits;
use tns_protocol::{
    ClientMessage, ErrorCode, ErrorEvent, MessageId, RequestId, Seq, ServerFrame, ServerMessage,
    decode_client, encode_server,
};

use super::{agent, frame, id};
use crate::events::ClientEvent;

/// Events of one page of the model's log.
const PAGE: usize = 2;

/// A reply as the model's server writes it.
#[derive(Debug, Clone)]
pub(super) struct Writing {
    response: MessageId,
    pub(super) step: String,
    index: u64,
}

/// The server, and what is on its way in both directions.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) store: u64,
    pub(super) log: Vec<ServerFrame>,
    pub(super) writing: Option<Writing>,
    pub(super) replies: u64,
    pub(super) connected: bool,
    pub(super) joined: bool,
    pub(super) lagging: bool,
    pub(super) mailbox: VecDeque<(Option<RequestId>, ClientMessage)>,
    pub(super) to_server: VecDeque<String>,
    pub(super) to_client: VecDeque<ServerFrame>,
}

impl Server {
    pub(super) fn epoch(&self) -> String {
        format!("e{}", self.store)
    }

    pub(super) fn head(&self) -> Seq {
        self.log.len() as Seq
    }

    pub(super) fn announce(&mut self, frame: ServerFrame) {
        if self.joined && !self.lagging {
            self.to_client.push_back(frame);
        }
    }

    pub(super) fn answer(&mut self, re: Option<RequestId>, message: impl Into<ServerMessage>) {
        self.to_client.push_back(ServerFrame { re, ..frame(message) });
    }

    pub(super) fn store(&mut self, message: impl Into<ServerMessage>) {
        let frame = ServerFrame { seq: Some(self.head() + 1), ..frame(message) };
        self.log.push(frame.clone());
        self.announce(frame);
    }

    pub(super) fn write(&mut self, text: &str) {
        if self.writing.is_none() {
            self.replies += 1;
            let response = id(&format!("r{}-{}", self.store, self.replies));
            self.announce(frame(ResponseStart {
                response_id: response.clone(),
                agent_id: agent(),
                response_type: ResponseType::Text,
            }));
            self.writing = Some(Writing { response, step: String::new(), index: 0 });
        }
        let Some(writing) = &mut self.writing else { return };
        let token = Token {
            agent_id: agent(),
            content: text.into(),
            response_id: Some(writing.response.clone()),
            index: Some(writing.index),
        };
        writing.step.push_str(text);
        writing.index += text.chars().count() as u64;
        self.announce(frame(token));
    }

    pub(super) fn end_step(&mut self) {
        let Some(writing) = &mut self.writing else { return };
        let step = AssistantMessage {
            message_id: id("m"),
            agent_id: agent(),
            message: std::mem::take(&mut writing.step),
            model: "x".into(),
            interrupted: false,
            response_id: Some(writing.response.clone()),
        };
        self.store(step);
    }

    pub(super) fn end_reply(&mut self) {
        if self.writing.is_some() {
            self.end_step();
            self.writing = None;
            self.store(Done { usage: chat::Usage::default(), stop_reason: None, cancelled: false });
        }
    }

    /// Reads one frame of the client, or does one thing that it asked for.
    pub(super) fn act(&mut self) {
        if let Some((re, message)) = self.mailbox.pop_front() {
            return self.ask(re, message);
        }
        let Some(text) = self.to_server.pop_front() else { return };
        let frame = decode_client(&text).unwrap();
        if let ClientMessage::Hello(hello) = &frame.message {
            self.joined = true;
            let (epoch, head_seq) = (self.epoch(), self.head());
            let server = Program { name: "tns".into(), version: "0".into() };
            let limits = ServerLimits { max_message_bytes: 1, max_small_message_bytes: 1 };
            self.answer(frame.req_id.clone(), Welcome { ext: Vec::new(), epoch, head_seq, limits, server });
            if let Some(last_seq) = hello.last_seq {
                // Things may happen before it is taken up.
                let resume = Resume { last_seq, epoch: hello.epoch.clone() };
                self.mailbox.push_back((frame.req_id, resume.into()));
            }
            return;
        }
        self.ask(frame.req_id, frame.message);
    }

    pub(super) fn ask(&mut self, re: Option<RequestId>, message: ClientMessage) {
        match message {
            ClientMessage::Resume(resume) => self.resume(re, resume.last_seq, resume.epoch),
            ClientMessage::Chat(chat) => {
                let name = chat.client_message_id;
                let known = |event: &ServerFrame| {
                    matches!(&event.message,
                    ServerMessage::UserMessage(stored) if stored.client_message_id == name)
                };
                if !self.log.iter().any(known) {
                    self.store(UserMessage {
                        message_id: id("u"),
                        message: chat.message,
                        content: Vec::new(),
                        agent_id: None,
                        client_message_id: name,
                        context: None,
                        queued: false,
                        during_response_id: None,
                    });
                }
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn resume(&mut self, re: Option<RequestId>, after: Seq, epoch: Option<String>) {
        let head_seq = self.head();
        if epoch.is_some_and(|epoch| epoch != self.epoch()) || after > head_seq {
            let required = ResyncRequired { reason: "another".into(), epoch: self.epoch(), head_seq };
            return self.answer(re, required);
        }
        self.lagging = false;
        self.to_client.retain(|frame| frame.re.is_some());
        let events = &self.log[usize::try_from(after).unwrap()..];
        let pages: Vec<Vec<ServerFrame>> = events.chunks(PAGE).map(<[_]>::to_vec).collect();
        let count = pages.len();
        for (at, page) in pages.into_iter().enumerate() {
            let seq = |frame: Option<&ServerFrame>| frame.and_then(|frame| frame.seq).unwrap();
            let sync = HistorySync {
                from_seq: seq(page.first()),
                to_seq: seq(page.last()),
                events: page.iter().map(|frame| RawFrame::new(encode_server(frame)).unwrap()).collect(),
                more: at + 1 < count,
            };
            self.answer(re.clone(), sync);
        }
        let active = self.writing.as_ref().map(|writing| ActiveResponse {
            response_id: writing.response.clone(),
            agent_id: agent(),
            text_so_far: writing.step.clone(),
            index: writing.index,
        });
        self.answer(re, Resumed { head_seq, active, pending_approvals: Vec::new() });
    }

    /// The client is too slow: what waits of the session is given up.
    pub(super) fn lag(&mut self) {
        if self.joined && !self.lagging {
            self.to_client.retain(|frame| frame.re.is_some());
            self.lagging = true;
            let head_seq = self.head();
            self.to_client.push_back(frame(Lagged { head_seq }));
        }
    }

    /// What is only shown may be given up without a word.
    pub(super) fn lose(&mut self, at: usize) {
        let live = |frame: &ServerFrame| matches!(frame.message, ServerMessage::Token(_));
        let found: Vec<usize> = (0..self.to_client.len()).filter(|at| live(&self.to_client[*at])).collect();
        if !found.is_empty() {
            self.to_client.remove(found[at % found.len()]);
        }
    }

    pub(super) fn cut(&mut self) {
        (self.connected, self.joined, self.lagging) = (false, false, false);
        self.mailbox.clear();
        self.to_server.clear();
        self.to_client.clear();
    }

    /// Starts anew over the same store: a reply that ran is over.
    pub(super) fn restart(&mut self) {
        self.cut();
        if self.writing.take().is_some() {
            let code = Some(ErrorCode::ServerRestarted);
            self.store(ErrorEvent { message: "restarted".into(), code, ref_type: None });
        }
    }
}

/// What a consumer has.
#[derive(Debug, Default)]
pub(super) struct Consumer {
    pub(super) log: Vec<ServerFrame>,
    pub(super) epoch: Option<String>,
    /// The text that it shows of a step, and of which reply it is.
    pub(super) shown: Option<(MessageId, String)>,
    pub(super) caught_up: bool,
}

impl Consumer {
    pub(super) fn take(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Frame(frame) => match &frame.message {
                ServerMessage::Token(token) => {
                    let response = token.response_id.clone().unwrap();
                    if self.shown.as_ref().is_none_or(|(of, _)| *of != response) {
                        self.shown = Some((response, String::new()));
                    }
                    self.shown.as_mut().unwrap().1.push_str(&token.content);
                }
                ServerMessage::AssistantMessage(step) => {
                    if let Some((of, shown)) = self.shown.take()
                        && Some(&of) == step.response_id.as_ref()
                    {
                        assert!(step.message.starts_with(&shown), "{shown:?} of {:?}", step.message);
                    }
                    self.log.push(*frame);
                }
                _ if frame.seq.is_some() => self.log.push(*frame),
                _ => {}
            },
            ClientEvent::CaughtUp { active, .. } => {
                self.caught_up = true;
                if let (Some((of, shown)), Some(active)) = (&self.shown, &active)
                    && *of == active.response_id
                {
                    assert!(active.text_so_far.starts_with(shown.as_str()));
                }
                self.shown = active.map(|active| (active.response_id, active.text_so_far));
            }
            ClientEvent::Resync { epoch, .. } => *self = Self { epoch: Some(epoch), ..Self::default() },
            ClientEvent::Joined { epoch, .. } => {
                self.epoch.get_or_insert(epoch);
            }
            other => panic!("{other:?}"),
        }
    }
}
