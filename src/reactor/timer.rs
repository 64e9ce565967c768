//! Deadlines of a loop.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

use super::Key;

/// A heap of deadlines, each with the key of whom it concerns.
///
/// Deadlines are not taken back: who gets one looks whether it still means anything. So each
/// occupant keeps few of them in here at a time.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Key)>>,
}

impl Timers {
    pub(super) fn set(&mut self, at: Instant, key: Key) {
        self.heap.push(Reverse((at, key)));
    }

    /// Whom a deadline that has passed concerns.
    pub(super) fn due(&mut self, now: Instant) -> Option<Key> {
        self.heap.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.heap.pop().map(|Reverse((_, key))| key)
    }

    /// How long until the next one.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.heap.peek().map(|Reverse((at, _))| at.saturating_duration_since(now))
    }
}
