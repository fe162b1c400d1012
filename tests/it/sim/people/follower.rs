//! A client that uses the client library, which follows its session by itself.

use std::time::Duration;

use tns_client::{Client, ClientConfig, ClientEvent, Cursor, Events, Network, Reconnect, Stream};
use tns_protocol::approval::ToolApprove;
use tns_protocol::chat::{Cancel, Chat};
use tns_protocol::session::{QueueEdit, QueueList, QueueRemove};
use tns_protocol::{ClientMessage, ClientMessageId, MessageId, ToolCallId};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Act, Person, Waiting};
use crate::sim::told::{Kind, Seen, What};
use crate::sim::world::URL;

/// How long a call of the library may take before the client does without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Lives until the run's end, one program after the other.
pub(in crate::sim) async fn live(person: Person) {
    let mut follower = Follower::new(person);
    loop {
        if let Some((client, events)) = follower.connect().await {
            follower.use_it(client, events).await;
        }
        sleep(follower.person.thinks()).await;
    }
}

/// Joins and reads nothing of what it is told, to the run's end.
pub(in crate::sim) async fn sleep_in(person: Person) {
    person.notes.lock().unwrap().is_live = true;
    let follower = Follower::new(person);
    // Where nobody listens yet it comes again.
    loop {
        if let Some(unread) = follower.connect().await {
            std::future::pending::<()>().await;
            drop(unread);
        }
        sleep(follower.person.thinks()).await;
    }
}

struct Follower {
    person: Person,
    epoch: Option<String>,
    /// Messages that it sent: their names and words.
    sent: Vec<(String, String)>,
    waiting: Waiting,
    /// A message that waits for its turn.
    queued: Option<String>,
}

impl Follower {
    fn new(person: Person) -> Self {
        Self { person, epoch: None, sent: Vec::new(), waiting: Waiting::default(), queued: None }
    }

    async fn connect(&self) -> Option<(Client, Events)> {
        let (net, number, clock) = (self.person.net.clone(), self.person.number, self.person.clock);
        let chance = self.person.chance.split();
        let dial = move |_| {
            let net = net.clone();
            async move { net.connect(number, clock).await.map(|end| Box::new(end) as Box<dyn Stream>) }
        };
        let network = Network::new(dial, move || chance.fraction());
        let config = ClientConfig { network, ..ClientConfig::new(URL, Reconnect::Backoff) };
        let (client, events) = Client::connect(config).await.ok()?;
        let (kind, last) = {
            let mut notes = self.person.notes.lock().unwrap();
            if notes.last == 0 && notes.kind == Kind::Tail {
                // What it saw says nothing of what follows: it comes for the first time.
                notes.seen.clear();
            }
            (notes.kind, notes.last)
        };
        self.person.saw(Seen::Opened);
        if kind == Kind::Whole || last > 0 {
            let cursor = Cursor { seq: last, epoch: self.epoch.clone() };
            client.join(&self.person.session, cursor).await.ok()?;
        } else {
            client.send(&self.person.session, QueueList {}).await.ok()?;
        }
        // The program before this one may have died with them on their way.
        let open = self.person.notes.lock().unwrap().open.clone();
        for (name, words) in self.sent.iter().filter(|(name, _)| open.contains(name)) {
            client.send(&self.person.session, chat(name, words.clone())).await.ok()?;
        }
        Some((client, events))
    }

    async fn use_it(&mut self, client: Client, mut events: Events) {
        let mut acts_at = Instant::now() + self.person.thinks();
        let mut has_lost = true;
        loop {
            let event = tokio::select! {
                biased;
                event = events.next() => event,
                () = sleep_until(acts_at) => {
                    match self.person.next_act() {
                        Act::Leave => return self.leave(client, events).await,
                        Act::Stall => {
                            if let Some(message) = self.message(Act::Chat) {
                                drop(timeout(PATIENCE, client.send(&self.person.session, message)).await);
                            }
                            self.person.stall().await;
                        }
                        act => {
                            if let Some(message) = self.message(act) {
                                // The library's queue may be full; the message is lost with this call then.
                                let sent = client.send(&self.person.session, message);
                                drop(timeout(PATIENCE, sent).await);
                            }
                        }
                    }
                    acts_at = Instant::now() + self.person.thinks();
                    continue;
                }
            };
            match event {
                Some(event) => {
                    if !self.note(event, &mut has_lost) {
                        return;
                    }
                }
                None => return,
            }
        }
    }

    /// Ends this program: with a goodbye, at once, or with its machine.
    async fn leave(&self, client: Client, events: Events) {
        self.person.count("clients that left");
        match self.person.chance.within(0, 2) {
            0 => drop(timeout(PATIENCE, client.close()).await),
            1 => {}
            _ => self.person.net.lose_client(self.person.number),
        }
        drop((client, events));
        self.person.saw(Seen::Lost);
    }

    /// Takes an event; `false`: this program is of no more use.
    fn note(&mut self, event: ClientEvent, has_lost: &mut bool) -> bool {
        let person = &self.person;
        match event {
            ClientEvent::Frame(frame) => {
                let told = person.told(&frame);
                self.waiting.note(&told);
                match &told.what {
                    What::User { id, queued: true, .. } => self.queued = Some(id.clone()),
                    _ if told.name == "error" && told.seq.is_none() => {
                        person.count("refusals");
                        let re = frame.re.as_ref().map(ToString::to_string);
                        let mut notes = person.notes.lock().unwrap();
                        notes.open.retain(|open| Some(open) != re.as_ref());
                    }
                    _ => {}
                }
            }
            ClientEvent::Joined { epoch, .. } => {
                self.epoch = Some(epoch);
                let comes = {
                    let notes = person.notes.lock().unwrap();
                    notes.kind == Kind::Tail && !notes.seen.contains(&Seen::JoinedEnd)
                };
                if comes {
                    person.saw(Seen::JoinedEnd);
                }
            }
            ClientEvent::CaughtUp { active, pending, .. } => {
                person.count("resumes");
                if !std::mem::replace(has_lost, false) {
                    person.count("lagged");
                }
                let active = active.map(|active| (active.response_id.to_string(), active.text_so_far));
                person.saw(Seen::CaughtUp { active });
                self.waiting.0 = pending.iter().map(|request| request.tool_call_id.to_string()).collect();
            }
            ClientEvent::Disconnected { .. } => {
                person.count("losses");
                *has_lost = true;
                person.saw(Seen::Lost);
            }
            ClientEvent::Reconnected => {}
            ClientEvent::Unsent { message, .. } => {
                person.count("messages given up");
                person.notes.lock().unwrap().open.retain(|open| *open != message.as_str());
            }
            ClientEvent::Resync { reason, .. } => {
                person.fault(format!("E7: a resync though nothing changed: {reason}"))
            }
            ClientEvent::Plain { .. } => person.fault("the server is taken for an old one".to_owned()),
            ClientEvent::Closed { reason } => {
                person.count("clients that gave up");
                person.saw(Seen::Lost);
                person.fault(format!("the client gave up: {reason}"));
                return false;
            }
        }
        true
    }

    fn message(&mut self, act: Act) -> Option<ClientMessage> {
        let person = &self.person;
        match act {
            Act::Chat => {
                let name = format!("c{}-{}", person.number, self.sent.len());
                let words = format!("words of {name}");
                self.sent.push((name.clone(), words.clone()));
                person.count("messages");
                person.notes.lock().unwrap().open.push(name.clone());
                Some(chat(&name, words))
            }
            Act::Resend => {
                let (name, words) = person.chance.pick(&self.sent)?.clone();
                person.count("resends");
                Some(chat(&name, words))
            }
            Act::Cancel => {
                person.count("cancels");
                Some(Cancel::default().into())
            }
            Act::Decide => {
                let Some((call, decision)) = self.waiting.answer(&person.chance) else {
                    // Whatever waits in the queue begins when somebody is there.
                    return (!person.is_busy()).then(|| QueueList {}.into());
                };
                person.count("answers");
                let tool_call_id = ToolCallId::parse(call).unwrap();
                let decision = decision.to_owned();
                Some(ToolApprove { tool_call_id, decision, reason: None, edited_args: None }.into())
            }
            Act::Queue => {
                let Some(queued) = self.queued.take() else { return Some(QueueList {}.into()) };
                let message_id = MessageId::parse(queued).unwrap();
                person.count("queue changes");
                Some(match person.chance.percent(50) {
                    true => QueueRemove { message_id }.into(),
                    false => QueueEdit { message_id, message: "other words".to_owned() }.into(),
                })
            }
            Act::Stall | Act::Leave => None,
        }
    }
}

fn chat(name: &str, message: String) -> ClientMessage {
    let client_message_id = Some(ClientMessageId::parse(name).unwrap());
    Chat { message, client_message_id, ..Chat::default() }.into()
}
