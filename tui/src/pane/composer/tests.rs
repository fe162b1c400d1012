//! The composer: editing, history, paste and its looks.

use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::fixture;

fn written(text: &str) -> Composer {
    let mut composer = Composer::new();
    composer.insert(text).unwrap();
    composer
}

fn edited(text: &str, edits: &[Edit]) -> (String, usize) {
    let mut composer = written(text);
    composer.lay_out(40);
    edits.iter().for_each(|edit| composer.edit(*edit));
    (composer.text.clone(), composer.cursor)
}

fn drawn(composer: &mut Composer, width: u16, height: u16) -> String {
    composer.lay_out(width);
    composer.scroll(height - 1);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| {
            let area = frame.area();
            let cursor = composer.view(area, frame.buffer_mut(), Theme::Plain, "message · Enter sends");
            frame.set_cursor_position(cursor);
        })
        .unwrap();
    let position = terminal.backend().cursor_position();
    format!("{}\ncursor {},{}", fixture::text_of(terminal.backend().buffer()), position.x, position.y)
}

#[test]
fn editing_goes_by_grapheme() {
    assert_eq!(edited("안녕", &[Edit::Backspace]), ("안".into(), 3));
    assert_eq!(edited("안녕", &[Edit::Backspace; 3]), (String::new(), 0));
    assert_eq!(edited("e\u{301}👩\u{200D}👧", &[Edit::Backspace]), ("e\u{301}".into(), 3));
    assert_eq!(edited("a\u{202F}“b”", &[Edit::Left; 4]).1, 1);
    assert_eq!(edited("ab", &[Edit::Left, Edit::Left, Edit::Left, Edit::Delete]), ("b".into(), 0));
    assert_eq!(edited("x", &[Edit::Delete, Edit::Right]), ("x".into(), 1));
}

#[test]
fn words_and_lines_are_moved_over_and_deleted() {
    assert_eq!(edited("one two  ", &[Edit::DeleteWord]), ("one ".into(), 4));
    assert_eq!(edited("职员 表", &[Edit::DeleteWord]).0, "职员 ");
    assert_eq!(edited("one two", &[Edit::WordLeft, Edit::WordLeft, Edit::WordRight]).1, 3);
    assert_eq!(edited("a\nbcd", &[Edit::Left, Edit::DeleteToStart]), ("a\nd".into(), 2));
    assert_eq!(edited("a\nbcd", &[Edit::LineStart, Edit::DeleteToEnd]), ("a\n".into(), 2));
    assert_eq!(edited("ab\ncd", &[Edit::Up, Edit::LineEnd]).1, 2);
}

#[test]
fn a_large_paste_is_one_block_and_is_cut_nowhere() {
    let korean = "안".repeat(1200);
    let mut composer = written(&korean);
    composer.insert("\r\nline\u{1b}[2J\t.").unwrap();
    assert_eq!(composer.text(), format!("{korean}\nline\\u{{1B}}[2J\t."));
    composer.lay_out(80);
    composer.edit(Edit::Up);
    composer.edit(Edit::Up);
    composer.edit(Edit::Backspace);
    assert_eq!(composer.text().chars().filter(|c| *c == '안').count(), 1199);
}

#[test]
fn what_exceeds_the_limit_is_refused_whole() {
    let mut composer = written(&"x".repeat(MAX_DRAFT_BYTES));
    assert_eq!(composer.insert("y"), Err(TooLong));
    assert_eq!(composer.text().len(), MAX_DRAFT_BYTES);
    composer.edit(Edit::Backspace);
    assert_eq!(composer.insert("y"), Ok(()));
}

#[test]
fn an_emoji_typed_in_parts_is_one_grapheme() {
    let mut composer = Composer::new();
    for part in ["👩", "\u{200D}", "👧"] {
        composer.insert(part).unwrap();
    }
    assert_eq!(composer.text(), "👩\u{200D}👧");
    composer.edit(Edit::Left);
    assert_eq!(composer.cursor, 0);
}

#[test]
fn sent_messages_come_back_and_the_draft_is_kept() {
    let mut composer = Composer::new();
    for text in ["first", "second", "second"] {
        composer.insert(text).unwrap();
        assert_eq!(composer.take(), text);
    }
    composer.insert("draft").unwrap();
    composer.lay_out(40);
    let mut shown = |edit| {
        composer.edit(edit);
        composer.text().to_owned()
    };
    assert_eq!([shown(Edit::Up), shown(Edit::Up), shown(Edit::Up)], ["second", "first", "first"]);
    assert_eq!([shown(Edit::Down), shown(Edit::Down), shown(Edit::Down)], ["second", "draft", "draft"]);
}

#[test]
fn the_history_forgets_the_oldest_at_its_limit() {
    let mut composer = Composer::new();
    for n in 0..=MAX_HISTORY {
        composer.insert(&n.to_string()).unwrap();
        composer.take();
    }
    assert_eq!((composer.history.len(), composer.history[0].as_str()), (MAX_HISTORY, "1"));
}

#[test]
fn a_backslash_at_the_end_continues_the_text() {
    let mut composer = written("a\\");
    assert!(composer.take_continuation());
    assert!(!composer.take_continuation());
    assert_eq!(composer.text(), "a");
}

#[test]
fn a_row_is_moved_over_before_the_history_is_opened_before_the_next_layout_too() {
    let mut composer = written("one");
    composer.take();
    composer.lay_out(40);
    composer.insert("ab\ncd").unwrap();
    composer.edit(Edit::Up);
    assert_eq!((composer.text(), composer.cursor), ("ab\ncd", 2));
}

#[test]
fn looks_at_80_columns() {
    let mut composer =
        written("Compare the tables 职员表 and 部门表,\nthen write a short summary 👩\u{200D}👧 of it.");
    assert_snapshot!(drawn(&mut composer, 80, 4));
    assert_snapshot!(drawn(&mut Composer::new(), 80, 2));
}

#[test]
fn looks_at_40_columns() {
    let mut composer =
        written("Compare the tables 职员表 and 部门表,\nthen write a short summary 👩\u{200D}👧 of it.");
    assert_snapshot!(drawn(&mut composer, 40, 3));
    assert_snapshot!(drawn(&mut Composer::new(), 40, 2));
}
