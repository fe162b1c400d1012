//! Changes to an input: of bytes, of characters, of JSON values and of whole events. It knows how events are
//! divided and what JSON looks like, and no wire.

use crate::random::Random;

/// Longest input; changes that make it longer are cut.
const MAX_BYTES: usize = 8 << 10;
/// Most changes to one input.
const MAX_CHANGES: usize = 5;
/// Levels of nesting around the limits of the product and of its JSON reader.
const DEPTHS: [usize; 6] = [3, 64, 65, 127, 129, 2_000];
/// Values of every type, and numbers at the edges.
const VALUES: [&str; 24] = [
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1",
    "7",
    "0.5",
    "1e400",
    "-0.0",
    "1e-7",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "99999999999999999999999999",
    "\"\"",
    "\" \"",
    "\"ls\"",
    "\"{}\"",
    "[]",
    "[null]",
    "{}",
    "{\"a\":1}",
    "[{\"text\":\"a\"}]",
];
/// Pieces that mean something to framing, JSON or a wire.
const PIECES: [&[u8]; 30] = [
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\r\r",
    b"\r\n\r\n",
    b"data:",
    b"data: ",
    b"data",
    b":",
    b": x\n\n",
    b"event: x\n",
    b"id: 1\n",
    b"retry: 1\n",
    b"[DONE]",
    b"data: [DONE]\n\n",
    b"\xEF\xBB\xBF",
    b"\xE6\x9D",
    b"\xF0\x9F\x94",
    b"\xFF",
    b"\xC0\x80",
    b"\\ud800",
    b"\\u0000",
    b"\\\"",
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\0",
];

/// Makes changes.
#[derive(Debug)]
pub(crate) struct Mutator {
    /// Strings of the known inputs, names above all.
    words: Vec<Vec<u8>>,
}

impl Mutator {
    /// Takes the words of the known inputs.
    pub(crate) fn new(known: &[Vec<u8>]) -> Self {
        let mut words: Vec<Vec<u8>> = known.iter().flat_map(|input| strings(input)).collect();
        words.sort_unstable();
        words.dedup();
        words.retain(|word| (1..=64).contains(&word.len()));
        Self { words }
    }

    /// Changes an input in a few ways; `known` are inputs to take from.
    pub(crate) fn change(&self, input: &mut Vec<u8>, known: &[Vec<u8>], random: &mut Random) {
        for _ in 0..1 + random.below(MAX_CHANGES) {
            match random.below(16) {
                0 => flip(input, random),
                1 => insert(input, random.pick(&PIECES).copied().unwrap_or_default(), random),
                2 => drop_range(input, random),
                3 => repeat_range(input, random),
                4 => splice(input, known, random),
                5 => swap_events(input, random),
                6 => repeat_event(input, random),
                7 => drop_event(input, random),
                8 => take_event(input, known, random),
                9 | 10 => {
                    replace_value(input, random.pick(&VALUES).copied().unwrap_or_default().as_bytes(), random)
                }
                11 => nest(input, random),
                12 => self.rename(input, random),
                13 => change_line_ends(input, random),
                14 => input.truncate(random.below(input.len() + 1)),
                _ => set_bytes(input, random),
            }
            input.truncate(MAX_BYTES);
        }
    }

    /// Puts another word in place of a string.
    fn rename(&self, input: &mut Vec<u8>, random: &mut Random) {
        let quotes: Vec<usize> = places(input, |byte| byte == b'"');
        let (Some(from), Some(word)) = (random.pick(&quotes).copied(), random.pick(&self.words)) else {
            return;
        };
        if let Some(to) = quotes.iter().copied().find(|at| *at > from) {
            input.splice(from + 1..to, word.iter().copied());
        }
    }
}

fn strings(input: &[u8]) -> Vec<Vec<u8>> {
    input.split(|byte| *byte == b'"').skip(1).step_by(2).map(<[u8]>::to_vec).collect()
}

fn places(input: &[u8], is_it: impl Fn(u8) -> bool) -> Vec<usize> {
    input.iter().enumerate().filter(|(_, byte)| is_it(**byte)).map(|(at, _)| at).collect()
}

fn range(input: &[u8], random: &mut Random) -> std::ops::Range<usize> {
    let from = random.below(input.len() + 1);
    let most = if random.once_in(4) { input.len() - from } else { (input.len() - from).min(12) };
    from..from + random.below(most + 1)
}

fn flip(input: &mut [u8], random: &mut Random) {
    let at = random.below(input.len());
    if let Some(byte) = input.get_mut(at) {
        *byte ^= 1 << random.below(8);
    }
}

fn set_bytes(input: &mut [u8], random: &mut Random) {
    let range = range(input, random);
    for byte in input[range].iter_mut().take(4) {
        *byte = random.byte();
    }
}

fn insert(input: &mut Vec<u8>, piece: &[u8], random: &mut Random) {
    let at = random.below(input.len() + 1);
    input.splice(at..at, piece.iter().copied());
}

fn drop_range(input: &mut Vec<u8>, random: &mut Random) {
    let range = range(input, random);
    input.drain(range);
}

fn repeat_range(input: &mut Vec<u8>, random: &mut Random) {
    let range = range(input, random);
    let (end, piece) = (range.end, input[range].to_vec());
    input.splice(end..end, piece);
}

/// The head of the input and the tail of another.
fn splice(input: &mut Vec<u8>, known: &[Vec<u8>], random: &mut Random) {
    let Some(other) = random.pick(known) else { return };
    let tail = random.below(other.len() + 1);
    input.truncate(random.below(input.len() + 1));
    input.extend_from_slice(&other[tail..]);
}

/// Divides an input into its events, each with its end.
fn events(input: &[u8]) -> Vec<Vec<u8>> {
    let end: &[u8] = if input.windows(2).any(|two| two == b"\n\n") { b"\n\n" } else { b"\n" };
    let mut events = Vec::new();
    let mut rest = input;
    while let Some(at) = rest.windows(end.len()).position(|window| window == end) {
        let (event, tail) = rest.split_at(at + end.len());
        events.push(event.to_vec());
        rest = tail;
    }
    if !rest.is_empty() {
        events.push(rest.to_vec());
    }
    events
}

fn swap_events(input: &mut Vec<u8>, random: &mut Random) {
    let mut events = events(input);
    let (a, b) = (random.below(events.len()), random.below(events.len()));
    if !events.is_empty() {
        events.swap(a, b);
    }
    *input = events.concat();
}

fn repeat_event(input: &mut Vec<u8>, random: &mut Random) {
    let mut events = events(input);
    if let Some(event) = random.pick(&events).cloned() {
        let times = if random.once_in(8) { 140 } else { 1 };
        let at = random.below(events.len() + 1);
        events.splice(at..at, std::iter::repeat_n(event, times));
    }
    *input = events.concat();
}

fn drop_event(input: &mut Vec<u8>, random: &mut Random) {
    let mut events = events(input);
    let at = random.below(events.len());
    if at < events.len() {
        events.remove(at);
    }
    *input = events.concat();
}

fn take_event(input: &mut Vec<u8>, known: &[Vec<u8>], random: &mut Random) {
    let theirs = random.pick(known).map(|other| events(other)).unwrap_or_default();
    let mut events = events(input);
    if let Some(event) = random.pick(&theirs).cloned() {
        let at = random.below(events.len() + 1);
        events.insert(at, event);
    }
    *input = events.concat();
}

/// Puts JSON text in place of a value, which stands after a colon, a comma or a bracket.
fn replace_value(input: &mut Vec<u8>, json: &[u8], random: &mut Random) {
    let Some(from) = random.pick(&places(input, |byte| matches!(byte, b':' | b',' | b'['))).copied() else {
        return;
    };
    let rest = &input[from + 1..];
    let length = value_length(rest);
    input.splice(from + 1..from + 1 + length, json.iter().copied());
}

/// Returns how long the value is that the bytes begin with.
fn value_length(bytes: &[u8]) -> usize {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            _ if std::mem::take(&mut escaped) => {}
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' if depth == 0 => return at,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    bytes.len()
}

fn nest(input: &mut Vec<u8>, random: &mut Random) {
    let depth = random.pick(&DEPTHS).copied().unwrap_or_default();
    let (open, close) = if random.once_in(2) { ("[", "]") } else { ("{\"a\":", "}") };
    let core = if open == "[" { "" } else { "1" };
    let json = format!("{}{core}{}", open.repeat(depth), close.repeat(depth));
    replace_value(input, json.as_bytes(), random);
}

fn change_line_ends(input: &mut Vec<u8>, random: &mut Random) {
    let end: &[u8] = if random.once_in(2) { b"\r\n" } else { b"\r" };
    let mut changed = Vec::with_capacity(input.len() + 16);
    for byte in input.iter() {
        match byte {
            b'\n' => changed.extend_from_slice(end),
            other => changed.push(*other),
        }
    }
    *input = changed;
}
