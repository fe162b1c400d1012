//! What happens → how the state changes and what is to be done. Pure: no clock, no terminal, no network.
#![warn(clippy::wildcard_enum_match_arm)]

pub(crate) mod command;
mod key;
mod server;

use std::time::Duration;

use tns_client::ClientEvent;
use tns_protocol::chat::Chat;
use tns_protocol::tool::McpTools;
use tns_protocol::{ClientMessageId, ServerFrame, ServerMessage};

use crate::model::{Effect, Focus, From, History, MAX_HELD_FRAMES, Model, Msg, Page};
use crate::pane::composer::TooLong;
use crate::pane::status::Connection;
use crate::pane::transcript::entry::Delivery;
use crate::theme::Role;

/// How every hint begins that holds only while the server is not there.
const NOT_CONNECTED: &str = "not connected";

/// Takes in what happened at `now`, on the screen's clock.
pub(crate) fn update(model: &mut Model, now: Duration, msg: Msg) -> Vec<Effect> {
    model.now = now;
    match msg {
        Msg::Key(key) => key::on_key(model, &key),
        Msg::Paste(text) => {
            on_paste(model, &text);
            Vec::new()
        }
        Msg::Resize(columns, rows) => {
            model.size = (columns, rows);
            // Until the next frame nobody has seen a request at this size.
            model.approvals.hide();
            Vec::new()
        }
        Msg::Client(event) => on_client(model, event),
        Msg::Loaded(Ok(history)) => on_history(model, *history),
        Msg::Loaded(Err(reason)) => on_no_history(model, &reason),
        Msg::SendFailed { message, reason } => {
            if let Some(id) = message {
                model.transcript.deliver(&id, Delivery::Failed);
            }
            model.approvals.unanswer();
            model.transcript.notice(Role::Bad, &format!("not sent: {reason}"));
            Vec::new()
        }
        Msg::Tick => Vec::new(),
    }
}

/// Begins the screen: joins the session (an empty set of tools changes nothing else), then reads what is
/// stored of it, so that nothing falls between the two.
pub(crate) fn start(model: &mut Model) -> Vec<Effect> {
    let join = Effect::Send(Box::new(McpTools { tools: Vec::new() }.into()));
    std::iter::once(join).chain(read(model, From::Recent)).collect()
}

fn on_paste(model: &mut Model, text: &str) {
    // A paste is text, never an answer.
    model.page = None;
    model.focus = Focus::Composer;
    if model.composer.insert(text) == Err(TooLong) {
        model.hint = Some("too long for one message: not pasted");
    }
}

fn on_client(model: &mut Model, event: ClientEvent) -> Vec<Effect> {
    match event {
        ClientEvent::Frame(frame) => server::on_frame(model, *frame),
        ClientEvent::Disconnected { reason, retry_in } => {
            if model.status.connection == Connection::Up {
                model.approvals.doubt_all();
            }
            model.status.connection = Connection::Lost { reason, retry_at: model.now + retry_in };
            Vec::new()
        }
        ClientEvent::Reconnected => {
            model.status.connection = Connection::Up;
            model.hint.take_if(|hint| hint.starts_with(NOT_CONNECTED));
            model.reading.resend = true;
            read(model, From::After(model.synced)).into_iter().collect()
        }
        // The loop ends with the reason.
        ClientEvent::Closed { .. } => vec![Effect::Quit],
    }
}

/// Asks for the stored events, or notes that they are wanted once more.
fn read(model: &mut Model, from: From) -> Option<Effect> {
    if model.reading.under_way {
        model.reading.again = true;
        return None;
    }
    model.reading.under_way = true;
    model.incomplete = false;
    Some(Effect::Load(from))
}

fn on_history(model: &mut Model, history: History) -> Vec<Effect> {
    let History { detail, events, head, cut } = history;
    let kept = model.transcript.take_unsettled();
    let mut running = false;
    if let Some(detail) = detail {
        running = detail.running;
        model.status.autonomy = Some(detail.autonomy);
        // What arrived since is newer than the answer.
        if !model.reading.held.iter().any(tells_who_works) {
            model.status.set_running(running);
        }
        model.workspace = Some(detail.workspace);
        model.set_roster(detail.agents);
        for id in model.approvals.keep_only(&detail.pending_approvals, model.now) {
            tracing::debug!(call = %id, "settled while the connection was lost");
        }
        for request in detail.pending_approvals {
            server::ask(model, request);
        }
    }
    if cut {
        model.transcript.notice(Role::Faint, "earlier messages are not shown");
    }
    let mut stored = Vec::new();
    for frame in events {
        server::replay(model, frame, &mut stored);
    }
    model.read_to = model.read_to.max(head);
    model.incomplete |= running;
    model.transcript.put_back(kept, &stored, running);
    focus_after_change(model);
    let mut effects = after_reading(model);
    if std::mem::take(&mut model.reading.resend) {
        let sending = model.transcript.sending();
        effects.extend(sending.into_iter().map(|(id, text)| send_chat(id, text)));
    }
    effects
}

fn on_no_history(model: &mut Model, reason: &str) -> Vec<Effect> {
    model.transcript.notice(Role::Bad, &format!("the stored conversation can't be read: {reason}"));
    // The next turn's end tries again.
    model.incomplete = true;
    after_reading(model)
}

/// Takes in what arrived during the reading, then sends the message that the program was started with.
fn after_reading(model: &mut Model) -> Vec<Effect> {
    model.reading.under_way = false;
    let mut effects = Vec::new();
    let held = std::mem::take(&mut model.reading.held);
    // Tokens before a frame that the reading had are part of what it had.
    let is_read = |frame: &ServerFrame| frame.seq.is_some_and(|seq| seq <= model.read_to);
    let known = held.iter().rposition(is_read).map_or(0, |last| last + 1);
    for (index, frame) in held.into_iter().enumerate() {
        if index >= known || !matches!(frame.message, ServerMessage::Token(_)) {
            effects.extend(server::write_live(model, frame));
        }
    }
    if std::mem::take(&mut model.reading.again) {
        effects.extend(read(model, From::After(model.synced)));
    } else if let Some(text) = model.first_message.take() {
        effects.extend(submit_chat(model, text));
    }
    effects
}

fn tells_who_works(frame: &ServerFrame) -> bool {
    matches!(
        frame.message,
        ServerMessage::AgentState(_) | ServerMessage::Done(_) | ServerMessage::Interrupted(_)
    )
}

/// Keeps a frame until the reading is done.
fn hold(model: &mut Model, frame: ServerFrame) {
    if model.reading.held.len() == MAX_HELD_FRAMES {
        model.reading.held.clear();
        model.reading.again = true;
    }
    model.reading.held.push(frame);
}

/// Puts the user's message into the transcript and sends it.
fn submit_chat(model: &mut Model, text: String) -> Vec<Effect> {
    let Some(id) = model.next_message_id() else { return Vec::new() };
    model.transcript.user_sends(id.clone(), &text, model.status.is_busy());
    vec![send_chat(id, text)]
}

fn send_chat(id: ClientMessageId, text: String) -> Effect {
    let chat = Chat { message: text, client_message_id: Some(id), ..Chat::default() };
    Effect::Send(Box::new(chat.into()))
}

/// Gives the keys to whom they belong after requests came or went, or the composer was emptied.
fn focus_after_change(model: &mut Model) {
    if model.approvals.is_empty() {
        model.focus = Focus::Composer;
        if model.page == Some(Page::Approval) {
            model.page = None;
        }
    } else if model.composer.is_empty() && model.focus == Focus::Composer {
        model.focus = Focus::Approval;
        model.approvals.rearm(model.now);
    }
}

#[cfg(test)]
mod tests;
