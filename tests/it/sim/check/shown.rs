//! What a client shows while a reply is written: its pieces are pieces of the text that is stored, and where
//! nothing was lost they are all of it.

use std::collections::{BTreeMap, BTreeSet};

use super::lost_its_end;
use crate::sim::told::{Client, History, Kind, Seen, Told, What};

pub(super) fn check(history: &History, client: &Client, faults: &mut Vec<String>) {
    let texts = Texts::of(&history.log);
    for told in client.seen.iter().filter_map(Seen::told) {
        if let What::Token { response, index, text } = &told.what {
            texts.holds(response, *index, text, faults);
        }
    }
    if client.kind != Kind::Strict {
        steps(history, client, faults);
    }
}

/// The text of each reply: its steps one after the other.
struct Texts<'a> {
    replies: BTreeMap<&'a str, String>,
    /// Replies whose last step may be nowhere: the server died, or the store failed.
    cut: BTreeSet<&'a str>,
}

impl<'a> Texts<'a> {
    fn of(log: &'a [Told]) -> Self {
        let mut replies: BTreeMap<&str, String> = BTreeMap::new();
        let failed: BTreeSet<&Option<String>> =
            log.iter().filter(|row| lost_its_end(row)).map(|row| &row.turn).collect();
        let mut cut = BTreeSet::new();
        for row in log {
            if let What::Step { response: Some(response), text, .. } = &row.what {
                replies.entry(response).or_default().push_str(text);
                if failed.contains(&row.turn) {
                    cut.insert(response.as_str());
                }
            }
        }
        Self { replies, cut }
    }

    fn holds(&self, response: &str, index: u64, piece: &str, faults: &mut Vec<String>) {
        // A reply of which nothing is stored was cut before its first step was.
        let Some(text) = self.replies.get(response) else { return };
        let index = usize::try_from(index).unwrap();
        // A place in such a text is a byte's; long ones are such.
        if text.as_bytes().get(index..).is_some_and(|rest| rest.starts_with(piece.as_bytes()))
            && text.is_ascii()
        {
            return;
        }
        let mut rest = text.chars().skip(index);
        let same =
            piece.chars().all(|piece| rest.next().map_or(self.cut.contains(response), |own| own == piece));
        if !same {
            let shown: String = piece.chars().take(20).collect();
            faults.push(format!("shows {shown:?}… at {index} of reply {response}, which is not its text"));
        }
    }
}

/// What the client shows of the running step, joined, against the step as it is stored.
fn steps(history: &History, client: &Client, faults: &mut Vec<String>) {
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    // The client is told what is shown, and was from the running step's beginning on.
    let (mut live, mut whole) = (false, false);
    // A client that came in the middle of a reply can't tell where its later steps begin, and shows none of them.
    let mut begun = BTreeSet::new();
    for seen in &client.seen {
        match seen {
            Seen::Lost | Seen::Opened | Seen::JoinedEnd => {
                shown.clear();
                live = *seen == Seen::JoinedEnd;
                whole = false;
            }
            Seen::CaughtUp { active } => {
                shown.clear();
                (live, whole) = (true, true);
                if let Some((response, text)) = active {
                    shown.insert(response.clone(), text.clone());
                }
            }
            Seen::Told(told) => match &told.what {
                What::Token { response, text, index } => {
                    if *index == 0 {
                        begun.insert(response);
                    }
                    shown.entry(response.clone()).or_default().push_str(text);
                }
                What::Step { response: Some(response), text, .. } => {
                    let joined = shown.remove(response).unwrap_or_default();
                    let knows = client.kind == Kind::Whole || begun.contains(response);
                    let complete = whole && knows && history.all_shown;
                    if !text.starts_with(&joined) || (complete && text.len() != joined.len()) {
                        let (joined, text) = (clipped(&joined), clipped(text));
                        faults.push(format!("shows {joined:?} of a step of {response} that is {text:?}"));
                    }
                    // Whatever was missed of it: the next one begins now.
                    whole = live;
                }
                _ => {}
            },
        }
    }
}

fn clipped(text: &str) -> String {
    text.chars().take(80).collect()
}
