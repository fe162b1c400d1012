//! The tests that run the real binary as a process of its own: what a newcomer, a script, a terminal, another
//! program and a crash see. What one function or one server in this process can show is tested there.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this crate is test code")]

mod binary;
mod config;
mod crash;
mod doctor;
mod documents;
mod failure;
mod keyring;
mod manage;
mod models;
mod newcomer;
mod node;
mod providers;
mod pty;
mod reconnect;
mod script;
mod serve;
mod sharing;
mod spend;
mod tail;
mod terminal;
mod wires;
