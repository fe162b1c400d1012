//! The parts of the screen. Each keeps its own state, changes it and draws it; they meet in `update` and
//! `view` only.

pub(crate) mod approval;
pub(crate) mod composer;
pub(crate) mod status;
pub(crate) mod transcript;
