//! What happened in a run, as one number and, where a run is looked at alone, as text. Ids that a run draws by
//! itself are named by the order in which they turn up, so that two runs of a seed compare.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

/// The trace of a run. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Trace(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    digest: Digest,
    names: BTreeMap<String, usize>,
    lines: Option<Vec<String>>,
}

/// FNV-1a over what is written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Digest(u64);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

impl Trace {
    pub(super) fn new(keeps_lines: bool) -> Self {
        let digest = Digest(0xcbf2_9ce4_8422_2325);
        let lines = keeps_lines.then(Vec::new);
        Self(Arc::new(Mutex::new(Inner { digest, names: BTreeMap::new(), lines })))
    }

    /// Adds a line of something that happened at `at` milliseconds.
    pub(super) fn add(&self, at: u64, what: fmt::Arguments<'_>) {
        let mut inner = self.0.lock().unwrap();
        writeln!(inner.digest, "{at} {what}").unwrap();
        if let Some(lines) = &mut inner.lines {
            lines.push(format!("{at:>8} {what}"));
        }
    }

    /// Returns the run's own name of a drawn id.
    pub(super) fn name(&self, id: &str) -> usize {
        let mut inner = self.0.lock().unwrap();
        let next = inner.names.len();
        *inner.names.entry(id.to_owned()).or_insert(next)
    }

    /// Returns what stands for the whole run.
    pub(super) fn digest(&self) -> u64 {
        self.0.lock().unwrap().digest.0
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().lines.clone().unwrap_or_default()
    }
}
