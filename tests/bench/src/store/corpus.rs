//! Conversations out of nothing, the same in every run: words whose frequency falls with their rank as in a
//! language, in messages, calls and outputs of the usual lengths.

use tns_protocol::chat::{StopReason, Usage};
use tns_protocol::{AgentId, MessageId, ToolCallId};
use tns_server_core::event::{
    AssistantMessage, DurableEvent, MessageStatus, ToolFinished, TurnDone, UserMessage,
};
use tns_server_core::message::{Part, ToolResult};
use tns_server_core::store::NewEvent;

/// How many words the language has.
const WORDS: usize = 50_000;
const SYLLABLES: [&str; 20] = [
    "ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "va", "we",
    "xi", "yo", "zu",
];
/// Words of a question, of a reply, of a tool's output.
const LENGTHS: [usize; 3] = [20, 80, 100];

/// The source of conversations.
pub(super) struct Corpus {
    random: u64,
    /// How often the words up to a rank occur.
    weights: Vec<f64>,
}

impl Corpus {
    pub(super) fn new() -> Self {
        let mut total = 0.0;
        let weights = (1..=WORDS)
            .map(|rank| {
                total += 1.0 / rank as f64;
                total
            })
            .collect();
        Self { random: 0x9E37_79B9_7F4A_7C15, weights }
    }

    /// Returns the word of a rank; 0 is the commonest.
    pub(super) fn word(&self, rank: usize) -> String {
        // Spread, so that neighbours in rank don't begin alike.
        let mut number = (rank * 7_919 + 13) % 160_000;
        let mut word = String::with_capacity(8);
        while word.is_empty() || number > 0 {
            word.push_str(SYLLABLES[number % SYLLABLES.len()]);
            number /= SYLLABLES.len();
        }
        word
    }

    pub(super) fn title(&mut self) -> String {
        self.text(4)
    }

    /// Makes a reply.
    pub(super) fn reply(&mut self) -> NewEvent {
        let text = self.text(LENGTHS[1]);
        let message = AssistantMessage {
            id: self.id("m"),
            agent: agent(),
            parts: vec![Part::Text(text)],
            model: "bench".into(),
            native: None,
            notes: Vec::new(),
            status: MessageStatus::Complete,
            response: None,
            usage: None,
            provider: None,
            counted_on: None,
        };
        NewEvent { turn: None, event: DurableEvent::AssistantMessage(message) }
    }

    /// Makes a log of turns: a question, a reply, an output, another reply, the end.
    pub(super) fn log(&mut self, length: usize) -> Vec<NewEvent> {
        (0..length)
            .map(|number| match number % 5 {
                0 => self.question(),
                2 => self.output(),
                4 => NewEvent {
                    turn: None,
                    event: DurableEvent::Done(TurnDone { usage: Usage::default(), stop: StopReason::End }),
                },
                _ => self.reply(),
            })
            .collect()
    }

    fn question(&mut self) -> NewEvent {
        let text = self.text(LENGTHS[0]);
        let message = UserMessage {
            id: self.id("m"),
            agent: agent(),
            parts: vec![Part::Text(text)],
            client_message_id: None,
            context: None,
            queued: false,
            during: None,
        };
        NewEvent { turn: None, event: DurableEvent::UserMessage(message) }
    }

    fn output(&mut self) -> NewEvent {
        let result = ToolResult {
            call: match ToolCallId::parse(format!("call-{:016x}", self.next())) {
                Ok(id) => id,
                Err(_) => unreachable!("hex digits are a valid id"),
            },
            provider_id: None,
            name: "shell".into(),
            output: self.text(LENGTHS[2]),
            is_error: false,
            untrusted_source: None,
        };
        let finished = ToolFinished { agent: agent(), result, ran: true, duration_ms: 1, truncated: false };
        NewEvent { turn: None, event: DurableEvent::ToolFinished(finished) }
    }

    fn text(&mut self, words: usize) -> String {
        let mut text = String::with_capacity(words * 8);
        for number in 0..words {
            if number > 0 {
                text.push(' ');
            }
            let rank = self.rank();
            text.push_str(&self.word(rank));
        }
        text
    }

    fn rank(&mut self) -> usize {
        let total = self.weights.last().copied().unwrap_or(1.0);
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        self.weights.partition_point(|weight| *weight < share * total).min(WORDS - 1)
    }

    fn id(&mut self, kind: &str) -> MessageId {
        match MessageId::parse(format!("{kind}-{:016x}", self.next())) {
            Ok(id) => id,
            Err(_) => unreachable!("hex digits are a valid id"),
        }
    }

    /// The next number that looks like chance (xorshift).
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

fn agent() -> AgentId {
    match AgentId::parse("bench-00000000") {
        Ok(id) => id,
        Err(_) => unreachable!("it is a valid id"),
    }
}
