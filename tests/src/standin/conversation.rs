//! What every provider demands of a conversation. It sees turns, no wire.

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    User,
    Model,
}

/// A piece of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Text(String),
    /// A call, by its id, or by its tool's name where the wire has no ids.
    Call(String),
    /// The result of a call, named as the call is.
    Result(String),
    /// A picture, or a block of the provider's own.
    Other,
}

/// A turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) author: Author,
    pub(super) said: Vec<Said>,
}

/// How results find their calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matching {
    ById,
    /// By their place: results stand in the order of the calls.
    ByOrder,
}

/// Adds pieces to the last turn where it has the same author, else a turn.
pub(super) fn add(turns: &mut Vec<Turn>, author: Author, said: Vec<Said>) {
    match turns.last_mut() {
        Some(last) if last.author == author => last.said.extend(said),
        _ => turns.push(Turn { author, said }),
    }
}

/// Returns the last paragraph of the last turn: messages that got no answer stand before it, as
/// paragraphs or as texts of their own.
pub(super) fn last_words(turns: &[Turn]) -> &str {
    let said = turns.last().map(|turn| &*turn.said).unwrap_or_default();
    let text = said.iter().rev().find_map(|said| match said {
        Said::Text(text) => Some(text.trim_end()),
        Said::Call(_) | Said::Result(_) | Said::Other => None,
    });
    text.map_or("", |text| text.rsplit_once("\n\n").map_or(text, |(_, last)| last))
}

/// Checks a conversation: turns alternate, begin and end with the user, nothing is empty, every call is
/// answered at the start of the next turn, and nothing else is.
pub(super) fn check(turns: &[Turn], matching: Matching) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        let expected = if at % 2 == 0 { Author::User } else { Author::Model };
        if turn.author != expected {
            return Err(format!("messages.{at}: roles must alternate and begin with the user's"));
        }
        check_pieces(at, turn)?;
        let results = named(turn, |said| match said {
            Said::Result(id) => Some(id),
            Said::Text(_) | Said::Call(_) | Said::Other => None,
        });
        let (mut wanted, mut given) = (open.clone(), results);
        if matching == Matching::ById {
            wanted.sort_unstable();
            given.sort_unstable();
        }
        if wanted != given {
            return Err(format!("messages.{at}: the turn before calls {wanted:?}, this answers {given:?}"));
        }
        open = named(turn, |said| match said {
            Said::Call(id) => Some(id),
            Said::Text(_) | Said::Result(_) | Said::Other => None,
        });
    }
    match turns.last() {
        Some(turn) if turn.author == Author::User => Ok(()),
        _ => Err("messages: the last turn must be the user's".to_owned()),
    }
}

fn check_pieces(at: usize, turn: &Turn) -> Result<(), String> {
    if turn.said.is_empty() {
        return Err(format!("messages.{at}: content must not be empty"));
    }
    let mut results_are_over = false;
    for said in &turn.said {
        match (said, turn.author) {
            (Said::Text(text), _) if text.trim().is_empty() => {
                return Err(format!("messages.{at}: text must hold a visible character"));
            }
            (Said::Call(_), Author::User) => return Err(format!("messages.{at}: a user calls no tools")),
            (Said::Result(_), Author::Model) => return Err(format!("messages.{at}: a model has no results")),
            (Said::Result(_), Author::User) if results_are_over => {
                return Err(format!("messages.{at}: results must stand before anything else"));
            }
            (Said::Result(_), Author::User) => {}
            (Said::Text(_) | Said::Call(_) | Said::Other, _) => results_are_over = true,
        }
    }
    Ok(())
}

fn named<'a>(turn: &'a Turn, name: impl Fn(&'a Said) -> Option<&'a String>) -> Vec<&'a str> {
    turn.said.iter().filter_map(name).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Said {
        Said::Text(text.into())
    }

    fn call(id: &str) -> Said {
        Said::Call(id.into())
    }

    fn result(id: &str) -> Said {
        Said::Result(id.into())
    }

    fn turns(all: &[&[Said]]) -> Vec<Turn> {
        let author = |at| if at % 2 == 0 { Author::User } else { Author::Model };
        all.iter().enumerate().map(|(at, said)| Turn { author: author(at), said: said.to_vec() }).collect()
    }

    #[test]
    fn a_call_is_answered_in_the_next_turn_and_only_there() {
        let asked = [text("a")];
        let called = [text("b"), call("1"), call("2")];
        let ok = |last: &[Said]| check(&turns(&[&asked, &called, last]), Matching::ById).is_ok();
        assert!(ok(&[result("2"), result("1"), text("more")]));
        assert!(!ok(&[result("1")]));
        assert!(!ok(&[result("1"), result("2"), result("2")]));
        assert!(!ok(&[result("1"), text("more"), result("2")]));
        assert!(!ok(&[text("more")]));
        let by_order = |last: &[Said]| check(&turns(&[&asked, &called, last]), Matching::ByOrder).is_ok();
        assert!(by_order(&[result("1"), result("2")]) && !by_order(&[result("2"), result("1")]));
    }

    #[test]
    fn only_the_last_of_several_unanswered_messages_counts() {
        assert_eq!(last_words(&turns(&[&[text("a"), text("b")]])), "b");
        assert_eq!(last_words(&turns(&[&[text("a\n\nb\nc\n")]])), "b\nc");
        assert_eq!(last_words(&turns(&[&[text("a")], &[call("1")], &[result("1")]])), "");
    }

    #[test]
    fn turns_alternate_begin_and_end_with_the_user_and_are_not_empty() {
        let (user, model) = ([text("a")], [text("b")]);
        assert_eq!(check(&turns(&[&user, &model, &user]), Matching::ById), Ok(()));
        for wrong in [vec![], turns(&[&user, &model]), turns(&[&[]]), turns(&[&[text(" \n")]])] {
            assert!(check(&wrong, Matching::ById).is_err(), "{wrong:?}");
        }
        let twice = [Turn { author: Author::User, said: user.to_vec() }, turns(&[&user])[0].clone()];
        assert!(check(&twice, Matching::ById).is_err());
        assert!(check(&turns(&[&[call("1")]]), Matching::ById).is_err());
    }
}
