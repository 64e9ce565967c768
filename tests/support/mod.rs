//! What several integration tests use.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    reason = "each test uses its part, and may fail by panic"
)]

#[cfg(all(feature = "broker", feature = "unstable-internals"))]
pub mod asking;
#[cfg(all(feature = "broker", feature = "unstable-internals"))]
pub mod raw;

#[cfg(feature = "postgres")]
pub mod postgres;
pub mod proxy;

use std::net::SocketAddr;

/// An address of this machine with a free port.
pub fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

#[cfg(feature = "broker")]
pub fn broker(loops: usize) -> tidegate::broker::Broker {
    let mut builder = tidegate::broker::Broker::builder();
    builder.listen(local()).loops(loops);
    builder.start().expect("a broker starts on free ports")
}

/// Waits until something outside becomes true, for ten seconds at most.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !condition() {
        assert!(std::time::Instant::now() < until, "not in time: {what}");
        std::thread::yield_now();
    }
}
