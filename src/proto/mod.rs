//! The two ends of a connection as pure state machines: packets and a time in, packets and events
//! out. No socket, clock, lock or thread.

pub mod auth;
#[cfg(feature = "broker")]
pub mod broker_in;
#[cfg(feature = "broker")]
pub mod broker_out;
#[cfg(feature = "client")]
pub mod client;
#[cfg(any(feature = "broker", feature = "client"))]
pub mod transaction;
