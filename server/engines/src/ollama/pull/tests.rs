//! The decoder: every cut, every end, every limit.

use super::*;

const GOOD: &str = concat!(
    "{\"status\":\"pulling manifest\"}\n",
    "{\"status\":\"pulling 8eeb52dfb3bb\",\"digest\":\"sha256:8eeb52dfb3bb\",\"total\":300}\r\n",
    "{\"status\":\"pulling 8eeb52dfb3bb\",\"digest\":\"sha256:8eeb52dfb3bb\",\"total\":300,\"completed\":200}\n",
    "\n",
    "{\"status\":\"pulling 8eeb52dfb3bb\",\"digest\":\"sha256:8eeb52dfb3bb\",\"total\":300,\"completed\":301}\n",
    "{\"status\":\"verifying sha256 digest\"}\n",
    "{\"status\":\"größe \\u001b[31mnew\\nstep\",\"total\":-1}\n",
    "{\"status\":\"success\"}\n",
);

fn status(text: &str, bytes: Option<(u64, u64)>) -> PullStatus {
    let layer = bytes.map(|(completed, total)| LayerBytes { completed, total });
    PullStatus { text: text.to_owned(), layer }
}

fn good() -> Vec<PullStatus> {
    vec![
        status("pulling manifest", None),
        status("pulling 8eeb52dfb3bb", Some((0, 300))),
        status("pulling 8eeb52dfb3bb", Some((200, 300))),
        status("pulling 8eeb52dfb3bb", Some((300, 300))),
        status("verifying sha256 digest", None),
        status("größe [31mnew step", None),
    ]
}

/// Plays pieces and the end of the connection.
fn played(pieces: &[&[u8]]) -> (Vec<PullStatus>, Result<(), StreamFault>) {
    let (mut decoder, mut told) = (PullDecoder::new(), Vec::new());
    let mut tell = |status| told.push(status);
    for piece in pieces {
        match decoder.push(piece, &mut tell) {
            Ok(Progress::More) => {}
            Ok(Progress::Done) => return (told, Ok(())),
            Err(fault) => return (told, Err(fault)),
        }
    }
    let ended = decoder.end(&mut tell);
    (told, ended)
}

#[test]
fn cut_anywhere_the_statuses_are_the_same() {
    let bytes = GOOD.as_bytes();
    for at in 0..=bytes.len() {
        let (head, tail) = bytes.split_at(at);
        assert_eq!(played(&[head, tail]), (good(), Ok(())), "cut at {at}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(played(&single), (good(), Ok(())));
}

#[test]
fn a_pull_that_ends_anywhere_before_success_is_incomplete() {
    let whole = GOOD.trim_end().len();
    for at in 0..whole {
        let (told, ended) = played(&[&GOOD.as_bytes()[..at]]);
        assert_eq!(ended, Err(StreamFault::Incomplete), "ends at {at}");
        assert_eq!(told, good()[..told.len()], "ends at {at}");
    }
    assert_eq!(played(&[&GOOD.as_bytes()[..whole]]), (good(), Ok(())));
}

#[test]
fn an_error_ends_it_whatever_came_before_or_comes_after() {
    let error = "{\"error\":\"pull model manifest: file does not exist\"}";
    let stream = format!("{{\"status\":\"pulling manifest\"}}\n{error}\n{{\"status\":\"success\"}}\n");
    for at in 0..stream.len() {
        let (head, tail) = stream.as_bytes().split_at(at);
        let (told, ended) = played(&[head, tail]);
        assert_eq!(told, [status("pulling manifest", None)]);
        assert_eq!(ended, Err(StreamFault::Refused(error.to_owned())), "cut at {at}");
    }
}

#[test]
fn what_is_no_status_is_told_from_what_says_nothing() {
    let unreadable = |body: &str| matches!(played(&[body.as_bytes()]).1, Err(StreamFault::Unreadable(_)));
    for body in ["<html>\n", "[1]\n", "{\"status\":1}\n", "{\"status\":\"x\",\"total\":\"y\"}\n"] {
        assert!(unreadable(body), "{body}");
    }
    for body in
        ["", "\n\n", "{}\n", "{\"status\":\"\"}\n", "{\"status\":\"\\u0007\"}\n", "{\"status\":null}\n"]
    {
        assert_eq!(played(&[body.as_bytes()]), (Vec::new(), Err(StreamFault::Incomplete)), "{body}");
    }
    // A word that only holds the last one is a status as any other.
    let (told, ended) = played(&[b"{\"status\":\"success soon\"}\n"]);
    assert_eq!((told, ended), (vec![status("success soon", None)], Err(StreamFault::Incomplete)));
}

#[test]
fn lines_and_statuses_have_their_limits() {
    for (size, passes) in [(MAX_LINE_BYTES, true), (MAX_LINE_BYTES + 1, false)] {
        let frame = "{\"status\":\"\"}".len();
        let line = format!("{{\"status\":\"{}\"}}\n{{\"status\":\"success\"}}", "x".repeat(size - frame));
        let (told, ended) = played(&[line.as_bytes()]);
        if passes {
            assert_eq!(ended, Ok(()));
            assert_eq!(told[0].text.chars().count(), MAX_STATUS_CHARS + 1);
            assert!(told[0].text.ends_with("x…"));
        } else {
            assert_eq!(ended, Err(StreamFault::TooLarge("a line of more than 64 KiB")));
        }
    }
}
