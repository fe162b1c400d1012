//! Values that the tests of several files start from: a server, a session, frames, a drawn screen. Test only.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, CellWidth as _};
use serde_json::{Value, json};
use tns_client::ClientEvent;
use tns_protocol::approval::ToolApproveRequest;
use tns_protocol::log::ActiveResponse;
use tns_protocol::rest::{ServerInfo, SessionDetail};
use tns_protocol::{AgentId, MessageId, ServerFrame, SessionId, decode_server};

use crate::model::{Effect, History, Model, Msg};
use crate::theme::Theme;
use crate::update::{start, update};
use crate::view::{arrange, view};

/// A model with its own clock, as the loop would drive it.
pub(crate) struct Screen {
    pub(crate) model: Model,
    pub(crate) now: Duration,
}

impl Screen {
    /// Opens a screen whose stored conversation has not arrived yet.
    pub(crate) fn opening(first_message: Option<&str>, columns: u16, rows: u16) -> (Self, Vec<Effect>) {
        let session = SessionId::parse("notes").unwrap();
        let first = first_message.map(str::to_owned);
        let mut model = Model::new(session, info("offline"), first, Theme::Plain, "tui".into());
        model.size = (columns, rows);
        (Self { model, now: Duration::ZERO }, start())
    }

    /// Opens a screen on an empty session.
    pub(crate) fn new(columns: u16, rows: u16) -> Self {
        let (mut screen, _) = Self::opening(None, columns, rows);
        screen.loaded(&[], false);
        screen.caught_up(None, &[]);
        screen
    }

    pub(crate) fn after(&mut self, millis: u64) -> &mut Self {
        self.now += Duration::from_millis(millis);
        self
    }

    /// Takes in what happened, then measures the next frame as the loop does.
    pub(crate) fn take(&mut self, msg: Msg) -> Vec<Effect> {
        let effects = update(&mut self.model, self.now, msg);
        arrange(&mut self.model);
        effects
    }

    pub(crate) fn frame(&mut self, type_name: &str, seq: Option<u64>, body: Value) -> Vec<Effect> {
        self.take(Msg::Client(ClientEvent::Frame(Box::new(frame(type_name, seq, body)))))
    }

    pub(crate) fn key(&mut self, code: KeyCode) -> Vec<Effect> {
        self.take(Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    pub(crate) fn ctrl(&mut self, c: char) -> Vec<Effect> {
        self.take(Msg::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)))
    }

    pub(crate) fn write(&mut self, text: &str) {
        for c in text.chars() {
            assert_eq!(self.key(KeyCode::Char(c)), []);
        }
    }

    /// Writes a line and presses Enter.
    pub(crate) fn submit(&mut self, text: &str) -> Vec<Effect> {
        self.write(text);
        self.key(KeyCode::Enter)
    }

    pub(crate) fn loaded(&mut self, events: &[ServerFrame], running: bool) -> Vec<Effect> {
        let head = events.iter().filter_map(|event| event.seq).max().unwrap_or(0);
        let detail = Some(detail(head, running, &[]));
        self.take(Msg::Loaded(Ok(Box::new(History { detail, events: events.to_vec(), head, cut: false }))))
    }

    /// The log was told to its end; `active` is the text of a reply that is being written.
    pub(crate) fn caught_up(&mut self, active: Option<&str>, pending: &[ToolApproveRequest]) -> Vec<Effect> {
        let active = active.map(|text| ActiveResponse {
            response_id: MessageId::parse("r").unwrap(),
            agent_id: AgentId::parse(AGENT).unwrap(),
            text_so_far: text.to_owned(),
            index: text.chars().count() as u64,
        });
        let session = self.model.session.clone();
        self.take(Msg::Client(ClientEvent::CaughtUp { session, active, pending: pending.to_vec() }))
    }

    /// A whole turn without its stored messages.
    pub(crate) fn turn(&mut self, first_seq: u64, reply: &str) {
        self.frame("agent_state", None, json!({"agentId": AGENT, "status": "thinking", "role": "assistant"}));
        self.frame("token", None, json!({"agentId": AGENT, "content": reply}));
        self.frame("agent_state", None, json!({"agentId": AGENT, "status": "idle", "role": "assistant"}));
        self.frame("done", Some(first_seq), json!({"usage": {"tokens": 1200, "cost": 0.0123}}));
    }

    /// Draws the next frame, styles left out, and where the cursor stands if it is shown.
    pub(crate) fn drawn(&mut self) -> String {
        let (columns, rows) = self.model.size;
        self.model.now = self.now;
        arrange(&mut self.model);
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| view(&self.model, frame)).unwrap();
        text_of(terminal.backend().buffer())
    }
}

/// What a person reads on the screen: each wide character once, no spaces at the ends of rows.
pub(crate) fn text_of(buffer: &Buffer) -> String {
    let rows = (buffer.area.top()..buffer.area.bottom()).map(|y| {
        let (mut row, mut x) = (String::new(), buffer.area.left());
        while x < buffer.area.right() {
            let symbol = buffer[(x, y)].symbol();
            row.push_str(symbol);
            x += symbol.cell_width().max(1);
        }
        row.trim_end().to_owned()
    });
    rows.collect::<Vec<_>>().join("\n")
}

pub(crate) const AGENT: &str = "assistant-0a1b2c3d";

pub(crate) fn frame(type_name: &str, seq: Option<u64>, body: Value) -> ServerFrame {
    let mut frame =
        json!({"v": 1, "type": type_name, "sessionId": "notes", "date": "2026-01-02T03:04:05.678Z"});
    let object = frame.as_object_mut().unwrap();
    object.extend(seq.map(|seq| ("seq".to_owned(), json!(seq))));
    object.extend(body.as_object().unwrap().clone());
    decode_server(&frame.to_string()).unwrap()
}

pub(crate) fn info(provider: &str) -> ServerInfo {
    serde_json::from_value(json!({
        "name": "tns", "version": "0.1.0", "protocol": 1, "extensions": [], "activeSessions": 0, "uptimeSeconds": 1,
        "defaultProvider": provider, "defaultModel": "small", "defaultReason": "no key is set",
        "workspaces": ["/home/mei/职员"],
        "limits": {"maxMessageBytes": 8_388_608, "maxSmallMessageBytes": 1_048_576},
    }))
    .unwrap()
}

pub(crate) fn detail(head: u64, running: bool, pending: &[ToolApproveRequest]) -> SessionDetail {
    serde_json::from_value(json!({
        "id": "notes", "temp": false, "createdAt": "2026-01-02T03:04:05Z", "updatedAt": "2026-01-02T03:04:05Z",
        "headSeq": head, "autonomy": "SUPERVISED", "workspace": "/home/mei/职员", "supportsImageInput": false,
        "supportsImageOutput": false, "pendingApprovals": pending, "running": running,
        "agents": [{
            "agentId": AGENT, "name": "assistant", "role": "assistant", "status": "idle", "provider": "offline",
            "model": "small", "tools": ["shell"], "roles": [],
        }],
    }))
    .unwrap()
}

/// A request to run `command`.
pub(crate) fn request(id: &str, command: &str) -> Value {
    json!({
        "agentId": AGENT, "toolCallId": id, "tool": "shell", "risk": "high", "riskClass": "DESTRUCTIVE",
        "summary": command, "reasons": ["rm removes files for good"], "args": {"command": command},
    })
}
