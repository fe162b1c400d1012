//! What the stand-in wrote and signed: a provider takes its own blocks back only as they were, where
//! they were. It compares, and knows no wire.

use std::sync::Mutex;

use serde_json::Value;

/// The blocks of whole replies that held something signed.
#[derive(Debug, Default)]
pub(super) struct Memory {
    replies: Mutex<Vec<Vec<Value>>>,
}

/// How a wire's blocks are told apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    /// Returns the id of a call.
    pub(super) call: fn(&Value) -> Option<&str>,
    /// Whether it is signed, and goes back as it came.
    pub(super) is_signed: fn(&Value) -> bool,
}

impl Memory {
    /// Keeps the blocks of a reply.
    pub(super) fn keep(&self, reply: Vec<Value>) {
        self.replies.lock().unwrap().push(reply);
    }

    /// Whether any block that was written is like this.
    pub(super) fn has(&self, is_like: impl Fn(&Value) -> bool) -> bool {
        self.replies.lock().unwrap().iter().flatten().any(is_like)
    }

    /// Checks a model's turn: signed blocks are those that were written, among their own neighbours, and
    /// a reply whose call is there is there as a whole.
    pub(super) fn check(&self, turn: &[Value], blocks: Blocks) -> Result<(), String> {
        let replies = self.replies.lock().unwrap();
        let mut is_covered = vec![false; turn.len()];
        for reply in replies.iter() {
            let is_here = |kept: &Value| {
                (blocks.call)(kept).is_some_and(|id| turn.iter().any(|sent| (blocks.call)(sent) == Some(id)))
            };
            let found = turn
                .windows(reply.len())
                .position(|sent| sent.iter().zip(reply).all(|(sent, kept)| same(sent, kept, blocks)));
            match found {
                Some(at) => is_covered[at..at + reply.len()].fill(true),
                None if reply.iter().any(is_here) => {
                    let kept = Value::from(reply.clone());
                    let sent = Value::from(turn.to_vec());
                    return Err(format!("thinking blocks cannot be modified; written: {kept}, sent: {sent}"));
                }
                None => {}
            }
        }
        let strange =
            turn.iter().zip(is_covered).find(|(block, covered)| (blocks.is_signed)(block) && !covered);
        match strange {
            Some((block, _)) => Err(format!("invalid `signature` in `thinking` block: {block}")),
            None => Ok(()),
        }
    }
}

fn same(sent: &Value, kept: &Value, blocks: Blocks) -> bool {
    if (blocks.is_signed)(kept) {
        return sent == kept;
    }
    match ((blocks.call)(sent), (blocks.call)(kept)) {
        // Broken arguments can't go back as they came.
        (Some(sent), Some(kept)) => sent == kept,
        (None, None) => unmarked(sent) == unmarked(kept),
        _ => false,
    }
}

/// Returns a block without the mark for the cache.
fn unmarked(block: &Value) -> Value {
    let mut block = block.clone();
    if let Some(fields) = block.as_object_mut() {
        fields.shift_remove("cache_control");
    }
    block
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BLOCKS: Blocks =
        Blocks { call: |block| block["id"].as_str(), is_signed: |block| block.get("signature").is_some() };

    #[test]
    fn what_was_signed_goes_back_as_it_was_and_where_it_was() {
        let memory = Memory::default();
        let (thought, text, call) =
            (json!({ "signature": "s", "t": " a" }), json!({ "text": "b" }), json!({ "id": "1" }));
        memory.keep(vec![thought.clone(), text.clone(), call.clone()]);
        let check = |turn: &[&Value]| {
            let turn: Vec<Value> = turn.iter().map(|&block| block.clone()).collect();
            memory.check(&turn, BLOCKS).is_ok()
        };
        assert!(check(&[&thought, &text, &call]));
        assert!(check(&[&json!({ "text": "x" }), &thought, &text, &json!({ "id": "1", "input": {} })]));
        assert!(check(&[&json!({ "id": "other" })]));
        for wrong in [
            &[&text, &call] as &[&Value],
            &[&text, &thought, &call],
            &[&thought, &call],
            &[&thought],
            &[&json!({ "signature": "s", "t": "a" }), &text, &call],
            &[&json!({ "signature": "forged" })],
        ] {
            assert!(!check(wrong), "{wrong:?}");
        }
    }
}
