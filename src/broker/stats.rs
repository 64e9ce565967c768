//! Counters of a broker, for people.

use crate::sync::{AtomicU64, Ordering};

/// Counts since the start.
#[derive(Debug, Default)]
pub(super) struct Stats {
    connections: AtomicU64,
    expired: AtomicU64,
    violations: AtomicU64,
}

impl Stats {
    /// A connection was accepted.
    pub(super) fn connected(&self) {
        // Relaxed: a statistic, as are all below.
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection ended.
    pub(super) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Connections there are now.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// A message expired before anybody took it.
    pub(super) fn expired(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    /// Messages that expired.
    pub(super) fn expired_count(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// A peer sent what is no packet.
    pub(super) fn violation(&self) {
        self.violations.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a peer sent what is no packet.
    pub(super) fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }
}
