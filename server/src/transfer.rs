//! Sessions as files: JSON Lines, which can be taken in again, and Markdown for people. Pure: bytes in, bytes out.
//!
//! The first line of a JSON Lines file is a [`Header`], each other one an [`Entry`] of the log in its order. An event
//! stands in the form in which it is stored, with all that only the model was shown and with the provider's own
//! blocks. Documents of the knowledge base are not in it, only that they were added.

mod file;
mod lines;
mod markdown;
mod reader;

pub(crate) use file::{Entry, Header};
pub(crate) use lines::{Lines, TooLong};
pub(crate) use markdown::Markdown;
pub(crate) use reader::{Fault, Item, Reader};
