//! How full the broker is, and what that leaves to each connection.
//!
//! Messages of all destinations, and what open transactions have sent to them, are counted in
//! messages and bytes. As the bytes come near the
//! memory the broker may use, its connections are given less and less credit, down to none.
//!
//! | level | from | credit of a connection |
//! | --- | ---: | ---: |
//! | green | 0 % | 5000 messages |
//! | yellow | 80 % | 500, divided by the producers there are |
//! | orange | 90 % | 50 |
//! | red | 98 % | 0 |
//!
//! # Ordering
//! All counts are `Relaxed`: each is a sum of its own, nothing is published through it, and a limit
//! may be passed by what other threads add in the same moment.
//!
//! # Source
//! The wire protocol: connection-level producer credit, broker-wide limits.

use std::fs;

use crate::sync::{AtomicU64, Ordering};

/// How near the broker's memory is to full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Plenty of room.
    Green,
    /// Getting full.
    Yellow,
    /// Nearly full.
    Orange,
    /// Full.
    Red,
}

/// Each level's share of the memory, in percent, the highest first.
const LEVELS: [(u64, Level); 3] = [(98, Level::Red), (90, Level::Orange), (80, Level::Yellow)];

/// Messages and bytes of all destinations, against the limits of the broker.
#[derive(Debug)]
pub(super) struct Memory {
    memory_max: u64,
    messages_max: AtomicU64,
    total_bytes_max: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
    producers: AtomicU64,
    bodies_max: u64,
    waiting: AtomicU64,
    away: AtomicU64,
}

impl Memory {
    /// Nothing yet. `memory_max` bytes are the broker's memory, the other two its limits;
    /// `u64::MAX` is none.
    pub(super) fn new(memory_max: u64, messages_max: u64, total_bytes_max: u64) -> Self {
        Self {
            memory_max,
            messages_max: AtomicU64::new(messages_max),
            total_bytes_max: AtomicU64::new(total_bytes_max),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            producers: AtomicU64::new(0),
            bodies_max: u64::MAX,
            waiting: AtomicU64::new(0),
            away: AtomicU64::new(0),
        }
    }

    /// Bodies of stored messages wait in memory up to so many bytes, or a quarter of the broker's
    /// memory if that is less.
    pub(super) fn with_bodies_max(self, bodies_max: u64) -> Self {
        Self { bodies_max: bodies_max.min(self.memory_max / 4), ..self }
    }

    /// Counts bytes of stored messages that wait with their bodies, and bytes of bodies that are in
    /// the store only, in, or out with negative numbers.
    pub(super) fn add_bodies(&self, waiting: i64, away: i64) {
        self.waiting.fetch_add(waiting.cast_unsigned(), Ordering::Relaxed);
        self.away.fetch_add(away.cast_unsigned(), Ordering::Relaxed);
    }

    /// Whether the body of a stored message that has to wait stays in memory.
    pub(super) fn keeps_bodies(&self) -> bool {
        count(&self.waiting) < self.bodies_max
    }

    /// Bytes of bodies of messages that are in the store only.
    pub(super) fn away(&self) -> u64 {
        count(&self.away)
    }

    /// Counts messages in, or out with negative numbers.
    pub(super) fn add(&self, messages: i64, bytes: i64) {
        // A negative number wraps round to what it takes away.
        self.messages.fetch_add(messages.cast_unsigned(), Ordering::Relaxed);
        self.bytes.fetch_add(bytes.cast_unsigned(), Ordering::Relaxed);
    }

    /// Counts producers in, or out with a negative number.
    pub(super) fn add_producers(&self, producers: i64) {
        self.producers.fetch_add(producers.cast_unsigned(), Ordering::Relaxed);
    }

    /// Replaces the two limits.
    pub(super) fn set_limits(&self, messages_max: u64, total_bytes_max: u64) {
        self.messages_max.store(messages_max, Ordering::Relaxed);
        self.total_bytes_max.store(total_bytes_max, Ordering::Relaxed);
    }

    /// Why the broker does not take another message of so many bytes; `None` if it does.
    pub(super) fn refusal(&self, bytes: u64) -> Option<String> {
        let (messages, held) = (self.messages(), self.bytes());
        if messages >= self.messages_max.load(Ordering::Relaxed) {
            return Some(format!("the broker is full with {messages} messages"));
        }
        if held.saturating_add(bytes) > self.total_bytes_max.load(Ordering::Relaxed) {
            return Some(format!("the broker is full with {held} bytes"));
        }
        None
    }

    /// Messages in all destinations, and on their way there in open transactions.
    pub(super) fn messages(&self) -> u64 {
        count(&self.messages)
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> u64 {
        count(&self.bytes)
    }

    /// Producers of all connections.
    pub(super) fn producers(&self) -> u64 {
        count(&self.producers)
    }

    /// How near to full the memory is.
    pub(super) fn level(&self) -> Level {
        let full = u128::from(self.bytes().saturating_sub(self.away())) * 100;
        let reached = |percent: u64| full >= u128::from(self.memory_max) * u128::from(percent);
        if self.memory_max == u64::MAX {
            return Level::Green;
        }
        LEVELS
            .into_iter()
            .find(|&(percent, _)| reached(percent))
            .map_or(Level::Green, |(_, level)| level)
    }

    /// Messages a connection may send before it asks for more.
    pub(super) fn credit(&self) -> i32 {
        match self.level() {
            Level::Green => 5000,
            Level::Yellow => i32::try_from(500 / self.producers().max(1)).unwrap_or(500).max(1),
            Level::Orange => 50,
            Level::Red => 0,
        }
    }
}

/// A count that threads add to and take from; in between it may seem to be below zero.
fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed).cast_signed().max(0).cast_unsigned()
}

/// Memory of a machine that does not say how much it has.
const MEMORY_ASSUMED: u64 = 4 << 30;

/// Half of the memory this process may use: the machine's, or that of the container it runs in.
pub(super) fn default_memory_max() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let container = fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let known = [machine, container].into_iter().flatten().min();
    known.unwrap_or(MEMORY_ASSUMED) / 2
}

/// The line `MemTotal: 16303456 kB`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{Level, Memory, default_memory_max, total};

    #[test]
    fn credit_shrinks_as_memory_fills() {
        let memory = Memory::new(1000, u64::MAX, u64::MAX);
        for (bytes, level, credit) in [
            (0, Level::Green, 5000),
            (799, Level::Green, 5000),
            (800, Level::Yellow, 500),
            (899, Level::Yellow, 500),
            (900, Level::Orange, 50),
            (979, Level::Orange, 50),
            (980, Level::Red, 0),
            (5000, Level::Red, 0),
        ] {
            memory.add(1, bytes);
            assert_eq!((memory.level(), memory.credit()), (level, credit), "{bytes} bytes");
            memory.add(-1, -bytes);
        }
        assert_eq!((memory.messages(), memory.bytes()), (0, 0));
        memory.add(1, 800);
        memory.add_producers(4);
        assert_eq!(memory.credit(), 125);
        memory.add_producers(10_000);
        assert_eq!(memory.credit(), 1);
        memory.add_producers(-10_004);
        assert_eq!((memory.producers(), memory.credit()), (0, 500));
    }

    #[test]
    fn memory_without_limit_is_never_full() {
        let memory = Memory::new(u64::MAX, u64::MAX, u64::MAX);
        memory.add(1, i64::MAX);
        assert_eq!((memory.level(), memory.credit()), (Level::Green, 5000));
        assert_eq!(memory.refusal(u64::MAX), None);
    }

    #[test]
    fn limits_hold_with_the_new_message_counted_in() {
        let memory = Memory::new(u64::MAX, 2, 100);
        memory.add(1, 60);
        assert_eq!(memory.refusal(40), None);
        assert!(memory.refusal(41).unwrap().contains("60 bytes"));
        memory.add(1, 0);
        assert!(memory.refusal(0).unwrap().contains("2 messages"));
        memory.set_limits(u64::MAX, u64::MAX);
        assert_eq!(memory.refusal(41), None);
    }

    #[test]
    fn a_count_that_goes_out_before_it_came_in_is_none() {
        let memory = Memory::new(100, u64::MAX, u64::MAX);
        memory.add(-1, -50);
        assert_eq!((memory.messages(), memory.bytes(), memory.level()), (0, 0, Level::Green));
        memory.add(1, 50);
        assert_eq!((memory.messages(), memory.bytes()), (0, 0));
    }

    #[test]
    fn the_machines_memory_is_read() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2048 << 10));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(default_memory_max() >= 64 << 20);
    }
}
