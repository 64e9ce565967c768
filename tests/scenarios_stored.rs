//! All scenarios once more, with a broker that stores what is persistent. See
//! `support/scenario.rs`.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::duplicate_mod, reason = "each scenario file has its own copy of the stage")]

#[path = "scenarios_messages.rs"]
mod messages;
#[path = "scenarios_reconnect.rs"]
mod reconnect;
#[path = "scenarios_sessions.rs"]
mod sessions;
#[path = "scenarios_topics.rs"]
mod topics;
