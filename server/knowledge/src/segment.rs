//! The one place where text is segmented into characters with their marks.
//!
//! A step costs as much as the character is long, and one character may be a whole document of marks. So callers
//! hand in no more text than they need; in tests the work is counted.

use unicode_segmentation::UnicodeSegmentation;

/// Returns the characters (extended grapheme clusters) of a text with where they start, in bytes.
pub(crate) fn characters(text: &str) -> impl DoubleEndedIterator<Item = (usize, &str)> {
    text.grapheme_indices(true).inspect(|(_, character)| note(character))
}

#[cfg(not(test))]
fn note(_: &str) {}

#[cfg(test)]
fn note(character: &str) {
    count::SEGMENTED_BYTES.with(|bytes| bytes.set(bytes.get() + character.len()));
}

#[cfg(test)]
pub(crate) mod count {
    //! Counts what this thread has segmented.

    use std::cell::Cell;

    thread_local! {
        pub(super) static SEGMENTED_BYTES: Cell<usize> = const { Cell::new(0) };
    }

    /// Returns how many bytes the work segments, each as often as it is looked at.
    pub(crate) fn segmented_bytes(work: impl FnOnce()) -> usize {
        SEGMENTED_BYTES.with(|bytes| bytes.set(0));
        work();
        SEGMENTED_BYTES.with(Cell::get)
    }
}
