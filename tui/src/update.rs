//! What happens → how the state changes and what is to be done. Pure: no clock, no terminal, no network.
#![warn(clippy::wildcard_enum_match_arm)]

pub(crate) mod command;
mod key;
mod server;

use std::time::Duration;

use tns_client::{ClientEvent, Cursor};
use tns_protocol::ClientMessageId;
use tns_protocol::approval::ToolApproveRequest;
use tns_protocol::chat::Chat;
use tns_protocol::log::ActiveResponse;

use crate::model::{Effect, Focus, History, Model, Msg, Page, Stage};
use crate::pane::composer::TooLong;
use crate::pane::status::Connection;
use crate::pane::transcript::entry::Delivery;
use crate::theme::Role;

/// How every hint begins that holds only while the server is not there.
const NOT_CONNECTED: &str = "not connected";

/// Takes in what happened at `now`, on the screen's clock.
pub(crate) fn update(model: &mut Model, now: Duration, msg: Msg) -> Vec<Effect> {
    model.now = now;
    let effects = take(model, msg);
    if model.stage == Stage::Reading && !model.plain { hold(model, effects) } else { effects }
}

/// Keeps what is to be sent until the session is joined, so that nothing of it is missed.
fn hold(model: &mut Model, effects: Vec<Effect>) -> Vec<Effect> {
    let mut others = Vec::new();
    for effect in effects {
        match effect {
            Effect::Send(message) => model.unsent.push(*message),
            Effect::Load | Effect::Join(_) | Effect::Quit | Effect::Suspend | Effect::Redraw => {
                others.push(effect);
            }
        }
    }
    others
}

fn take(model: &mut Model, msg: Msg) -> Vec<Effect> {
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
            not_sent(model, message.as_ref(), &reason);
            Vec::new()
        }
        Msg::Tick => Vec::new(),
    }
}

/// Begins the screen: reads the newest stored events. The session is joined behind them.
pub(crate) fn start() -> Vec<Effect> {
    vec![Effect::Load]
}

fn not_sent(model: &mut Model, message: Option<&ClientMessageId>, reason: &str) {
    if let Some(id) = message {
        model.transcript.deliver(id, Delivery::Failed);
    }
    model.approvals.unanswer();
    model.transcript.notice(Role::Bad, &format!("not sent: {reason}"));
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
        ClientEvent::Frame(frame) => return server::on_frame(model, *frame),
        ClientEvent::Joined { .. } => {}
        ClientEvent::CaughtUp { session, active, pending } if session == model.session => {
            on_caught_up(model, active, pending);
        }
        ClientEvent::CaughtUp { .. } => {}
        ClientEvent::Resync { reason, .. } => {
            forget(model);
            model
                .transcript
                .notice(Role::Warn, &format!("the conversation is told from its beginning: {reason}"));
            model.stage = Stage::CatchingUp;
        }
        ClientEvent::Plain { .. } => {
            model.plain = true;
            return vec![Effect::Load];
        }
        ClientEvent::Unsent { message, reason, .. } => not_sent(model, Some(&message), &reason),
        ClientEvent::Disconnected { reason, retry_in } => {
            if model.status.connection == Connection::Up {
                model.approvals.doubt_all();
            }
            model.status.connection = Connection::Lost { reason, retry_at: model.now + retry_in };
            if model.stage == Stage::Live && !model.plain {
                model.stage = Stage::CatchingUp;
            }
        }
        ClientEvent::Reconnected => {
            model.status.connection = Connection::Up;
            model.hint.take_if(|hint| hint.starts_with(NOT_CONNECTED));
        }
        // The loop ends with the reason.
        ClientEvent::Closed { .. } => return vec![Effect::Quit],
    }
    Vec::new()
}

/// The log was told to its end: what is said of now is known again.
fn on_caught_up(model: &mut Model, active: Option<ActiveResponse>, pending: Vec<ToolApproveRequest>) {
    model.stage = Stage::Live;
    model.status.set_running(active.is_some());
    match active {
        Some(active) => {
            model.status.begin(&active.agent_id);
            let (place, name) = model.speaker(&active.agent_id);
            model.transcript.written_so_far(&active.agent_id, place, &name, &active.text_so_far);
        }
        None => model.transcript.close_streams(),
    }
    await_answers(model, pending);
}

/// Exactly these calls wait for an answer.
fn await_answers(model: &mut Model, pending: Vec<ToolApproveRequest>) {
    for id in model.approvals.keep_only(&pending, model.now) {
        tracing::debug!(call = %id, "settled meanwhile");
    }
    for request in pending {
        server::ask(model, request);
    }
    focus_after_change(model);
}

/// Takes back everything that the log told; what is not known to be stored stays.
fn forget(model: &mut Model) {
    model.transcript.forget_stored();
    model.status.forget_usage();
    await_answers(model, Vec::new());
}

fn on_history(model: &mut Model, history: History) -> Vec<Effect> {
    let History { detail, events, head, cut } = history;
    if model.plain {
        forget(model);
    }
    if let Some(detail) = detail {
        model.status.set_running(detail.running);
        model.status.autonomy = Some(detail.autonomy);
        model.status.set_title(detail.title.as_deref());
        model.workspace = Some(detail.workspace);
        model.set_roster(detail.agents);
        await_answers(model, detail.pending_approvals);
    }
    if cut {
        model.transcript.notice(Role::Faint, "earlier messages are not shown");
    }
    for frame in events {
        server::write_stored(model, frame);
    }
    follow(model, Cursor::at(head))
}

fn on_no_history(model: &mut Model, reason: &str) -> Vec<Effect> {
    model.transcript.notice(Role::Bad, &format!("the stored conversation can't be read: {reason}"));
    // The log is told from its beginning then.
    follow(model, Cursor::default())
}

/// Joins the session behind what was read, and sends what waited for that.
fn follow(model: &mut Model, from: Cursor) -> Vec<Effect> {
    let mut effects = Vec::new();
    if model.plain {
        model.stage = Stage::Live;
    } else {
        effects.push(Effect::Join(from));
        model.stage = Stage::CatchingUp;
    }
    let unsent = std::mem::take(&mut model.unsent);
    effects.extend(unsent.into_iter().map(|message| Effect::Send(Box::new(message))));
    if let Some(text) = model.first_message.take() {
        effects.extend(submit_chat(model, text));
    }
    effects
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
