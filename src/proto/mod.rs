//! The two ends of a connection as pure state machines: packets and a time in, packets and events
//! out. No socket, clock, lock or thread.

pub mod auth;
