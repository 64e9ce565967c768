//! How far inputs come: what the client did, what it said and was told.

use std::{collections::BTreeMap, fmt};

use super::hostile::Mischief;
use crate::wire::PacketType;

/// Counts of one operation of the client's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcomes {
    /// It did what it is for.
    pub done: u64,
    /// It ended with an error.
    pub failed: u64,
}

/// What was reached, over one input or many.
///
/// Shape: maps; what was never seen is not in them.
#[derive(Debug, Clone, Default)]
pub struct ClientReached {
    operations: BTreeMap<&'static str, Outcomes>,
    mischief: BTreeMap<Mischief, u64>,
    said: BTreeMap<u16, u64>,
    heard: BTreeMap<u16, u64>,
}

impl ClientReached {
    /// How an operation ended, and how often.
    #[must_use]
    pub fn outcomes(&self, operation: &str) -> Outcomes {
        self.operations.get(operation).copied().unwrap_or_default()
    }

    /// Packets of this type that the client was told.
    #[must_use]
    pub fn times_said(&self, kind: PacketType) -> u64 {
        self.said.get(&kind.0).copied().unwrap_or_default()
    }

    /// Packets of this type that the client sent.
    #[must_use]
    pub fn times_heard(&self, kind: PacketType) -> u64 {
        self.heard.get(&kind.0).copied().unwrap_or_default()
    }

    pub(super) fn has_done(&self, mischief: Mischief) -> bool {
        self.mischief.contains_key(&mischief)
    }

    /// Adds what another input reached.
    pub fn add(&mut self, other: &Self) {
        for (name, outcomes) in &other.operations {
            let own = self.operations.entry(name).or_default();
            own.done += outcomes.done;
            own.failed += outcomes.failed;
        }
        add(&mut self.mischief, &other.mischief);
        add(&mut self.said, &other.said);
        add(&mut self.heard, &other.heard);
    }

    pub(super) fn ended(&mut self, operation: &'static str, well: bool) {
        let outcomes = self.operations.entry(operation).or_default();
        if well {
            outcomes.done += 1;
        } else {
            outcomes.failed += 1;
        }
    }

    pub(super) fn did(&mut self, mischief: Mischief) {
        *self.mischief.entry(mischief).or_default() += 1;
    }

    pub(super) fn said(&mut self, kind: PacketType) {
        *self.said.entry(kind.0).or_default() += 1;
    }

    pub(super) fn heard(&mut self, kind: PacketType) {
        *self.heard.entry(kind.0).or_default() += 1;
    }

    pub(super) fn heard_in_all(&self) -> u64 {
        self.heard.values().sum()
    }
}

fn add<K: Ord + Copy>(own: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
    for (key, count) in other {
        *own.entry(*key).or_default() += count;
    }
}

impl fmt::Display for ClientReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<28} {:>9} {:>9}", "operation", "done", "failed")?;
        for (name, Outcomes { done, failed }) in &self.operations {
            writeln!(f, "{name:<28} {done:>9} {failed:>9}")?;
        }
        writeln!(f, "{:<28} {:>9} {:>9}", "packet", "said", "heard")?;
        // Types that have no name are nonsense the input made up.
        for kind in PacketType::all() {
            let (said, heard) = (self.times_said(kind), self.times_heard(kind));
            if said + heard > 0 {
                writeln!(f, "{kind:<28} {said:>9} {heard:>9}")?;
            }
        }
        writeln!(f, "{:<28} {:>9}", "mischief", "times")?;
        for (mischief, times) in &self.mischief {
            writeln!(f, "{:<28} {times:>9}", format!("{mischief:?}"))?;
        }
        Ok(())
    }
}
