//! How far inputs come: which packets were asked, which were carried out, which came back.

use std::{collections::BTreeMap, fmt};

use crate::wire::PacketType;

/// Counts of packets of one type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// Sent by a client.
    pub sent: u64,
    /// Answered with success.
    pub done: u64,
    /// Received by a client.
    pub received: u64,
}

/// Packets by type, over one input or many.
///
/// Shape: a map; what was never seen is not in it.
#[derive(Debug, Clone, Default)]
pub struct Reached(BTreeMap<u16, Times>);

impl Reached {
    /// How often a type was seen.
    #[must_use]
    pub fn times(&self, kind: PacketType) -> Times {
        self.0.get(&kind.0).copied().unwrap_or_default()
    }

    /// Adds what another input reached.
    pub fn add(&mut self, other: &Self) {
        for (kind, times) in &other.0 {
            let own = self.0.entry(*kind).or_default();
            own.sent += times.sent;
            own.done += times.done;
            own.received += times.received;
        }
    }

    pub(super) fn sent(&mut self, kind: PacketType) {
        self.0.entry(kind.0).or_default().sent += 1;
    }

    pub(super) fn done(&mut self, kind: PacketType) {
        self.0.entry(kind.0).or_default().done += 1;
    }

    pub(super) fn received(&mut self, kind: PacketType) {
        self.0.entry(kind.0).or_default().received += 1;
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<28} {:>9} {:>9} {:>9}", "packet", "sent", "done", "received")?;
        // Types that have no name are nonsense the input made up.
        for (kind, times) in &self.0 {
            if let Some(name) = PacketType(*kind).name() {
                let Times { sent, done, received } = times;
                writeln!(f, "{name:<28} {sent:>9} {done:>9} {received:>9}")?;
            }
        }
        Ok(())
    }
}
