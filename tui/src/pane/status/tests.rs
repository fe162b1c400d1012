//! The status line at its sizes.

use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::fixture;

fn drawn(status: &Status, width: u16, waiting: usize, now: Duration) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, 1)).unwrap();
    terminal.draw(|frame| status.view(frame.area(), frame.buffer_mut(), Theme::Plain, waiting, now)).unwrap();
    fixture::text_of(terminal.backend().buffer())
}

fn busy() -> Status {
    let mut status = Status::new("职员-notes", "anthropic", "sonnet\u{7}");
    status.autonomy = Some(AutonomyLevel::Supervised);
    status.count(Some(4), &Usage { tokens: 1_234, cost: 0.012_34, unpriced: false });
    status.begin(&AgentId::parse("a").unwrap());
    status
}

#[test]
fn looks_at_80_and_40_columns() {
    let status = busy();
    let now = Duration::from_secs(9);
    let rows = [drawn(&status, 80, 0, now), drawn(&status, 40, 1, now)].join("\n");
    assert_snapshot!(rows, @r"
     thinking · SUPERVISED · anthropic/sonnet\u{7} · 1234 tokens $0.0123 · connected
     waits for you · SUPERVISED · connected
    ");
}

#[test]
fn looks_empty() {
    let status = Status::new("s", "offline", "small");
    assert_snapshot!(drawn(&status, 40, 0, Duration::ZERO), @" idle · offline/small · s · connected");
}

#[test]
fn a_running_tool_counts_seconds_and_nothing_else_does() {
    let mut status = busy();
    let second = Duration::from_secs;
    assert_eq!(status.next_change(second(9)), None);
    let call = ToolCallId::parse("c").unwrap();
    status.tool_began(&call, "shell", second(9));
    assert_eq!(status.next_change(Duration::from_millis(11_500)), Some(second(12)));
    assert!(drawn(&status, 40, 0, second(12)).contains("runs shell 3 s"));
    status.tool_ended(&call);
    assert_eq!(status.next_change(second(13)), None);
}

#[test]
fn a_turn_that_is_told_twice_is_counted_once() {
    let mut status = busy();
    status.count(Some(4), &Usage { tokens: 1_234, cost: 0.012_34, unpriced: false });
    assert_eq!(spent(&status.usage), "1234 tokens $0.0123");
    status.count(Some(5), &Usage { tokens: 20_000, cost: 0.0, unpriced: true });
    assert_eq!(spent(&status.usage), "21k tokens $0.0123+");
}

#[test]
fn a_lost_connection_counts_down() {
    let mut status = busy();
    let millis = Duration::from_millis;
    status.connection = Connection::Lost { reason: "it\u{1b}c ended".into(), retry_at: millis(3_500) };
    assert_eq!(status.banner(millis(1_000)).unwrap(), "! not connected, again in 3 s: it\\u{1B}c ended");
    assert_eq!(status.next_change(millis(1_000)), Some(millis(1_500)));
    assert_eq!(status.banner(millis(4_000)).unwrap(), "! not connected, trying now: it\\u{1B}c ended");
    assert_eq!(status.next_change(millis(4_000)), None);
    // At 80 columns the address and the time of the next attempt have room.
    let reason = "reach the server: http://192.168.100.200:54321: connection refused".to_owned();
    status.connection = Connection::Lost { reason, retry_at: millis(30_000) };
    let banner = status.banner(millis(0)).unwrap();
    assert!(text::width(&banner) <= 80, "{banner}");
    assert_eq!(banner, "! not connected, again in 30 s: http://192.168.100.200:54321: connection refused");
}
