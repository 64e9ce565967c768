//! What must survive the broker: it is left as units of changes, and goes on when they are stored.
//!
//! ```text
//! behind a gate          committer's thread                        behind the gate again
//! checked, counted ──▶ batch ──▶ commit and sync ──▶ replies, ──▶ to the consumers, or settled
//!                      (the next one gathers meanwhile)
//! ```
//!
//! A persistent message of a queue, or of a topic with durable subscriptions, is delivered when it
//! is stored and not before; an acknowledgement settles it when its removal is stored and not
//! before. Until then it counts at its destination, so limits hold for what is on its way, too.
//!
//! # Invariants
//! - Units are left behind the gate they concern, so the store has a destination's order.
//! - A message has its sequence before anybody but its producer's gate and the committer knows it.
//! - A reply that tells of a change is left with its output after the change is stored.

mod committer;
mod destination;
mod marks;
mod unit;

use std::fmt;

use crate::{
    sync::{AtomicBool, AtomicU64, Ordering, Plain, Snapshot},
    throttle::StressSignal,
    wire::Status,
};

pub(super) use self::{
    committer::{CommitLoop, CommitMail, Committer, Position},
    marks::Marks,
    unit::{Copy, Op, Ops, Places, Prepared, StoredKey, Then, Unit, Unstored},
};
use super::{ahead::Ask, room::Refused};

/// What the store's side of a broker shows to everybody else.
pub(super) struct Persist {
    /// What and where the store is, for people.
    pub description: String,
    /// Whether the store is stressed.
    pub stress: StressSignal,
    /// For people.
    pub counts: Counts,
    send: Box<SendUnits>,
    fetch: Box<SendAsk>,
    refuses: AtomicBool,
    taken_over: AtomicBool,
    reason: Snapshot<Option<Unstored>>,
}

type SendUnits = dyn Fn(Vec<Unit>) + Send + Sync;
type SendAsk = dyn Fn(Ask) + Send + Sync;

/// What is counted of a store. One writer, the committer; times in microseconds.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Commits that are through.
    pub commits: AtomicU64,
    /// Changes in them.
    pub changes: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// How long the last one took, its sync included.
    pub last_us: AtomicU64,
    /// How long the longest one took.
    pub longest_us: AtomicU64,
    /// Half of the latest took no longer.
    pub median_us: AtomicU64,
    /// 99 of 100 of the latest took no longer.
    pub p99_us: AtomicU64,
    /// Messages that the store did not have as they were written. Written by whoever finds one.
    pub unreadable: AtomicU64,
    /// How often the store became stressed.
    pub alarms: AtomicU64,
}

impl fmt::Debug for Persist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persist").field("description", &self.description).finish_non_exhaustive()
    }
}

impl Persist {
    /// For a store like this; `send` brings units to its committer, `fetch` requests to whoever
    /// reads from it.
    pub(super) fn new(
        description: String,
        stress: StressSignal,
        send: impl Fn(Vec<Unit>) + Send + Sync + 'static,
        fetch: impl Fn(Ask) + Send + Sync + 'static,
    ) -> Self {
        Self {
            description,
            stress,
            counts: Counts::default(),
            send: Box::new(send),
            fetch: Box::new(fetch),
            refuses: AtomicBool::new(false),
            taken_over: AtomicBool::new(false),
            reason: Snapshot::new(None),
        }
    }

    /// Leaves units, to be committed in this order.
    pub(super) fn send(&self, units: Vec<Unit>) {
        (self.send)(units);
    }

    /// Has bodies fetched.
    pub(super) fn fetch(&self, ask: Ask) {
        (self.fetch)(ask);
    }

    /// Whether anything is stored now.
    ///
    /// # Errors
    /// What whoever wants something stored is told.
    pub(super) fn check(&self) -> Result<(), Refused> {
        // Relaxed: a hint; whatever is left with a store that takes nothing is refused by the
        // committer.
        if !self.refuses.load(Ordering::Relaxed) {
            return Ok(());
        }
        let reason = self.reason.read(Option::clone);
        Err(refused(&reason.unwrap_or_else(|| "the store is closed".into())))
    }

    /// Why nothing is stored now, if so.
    pub(super) fn reason(&self) -> Option<Unstored> {
        self.reason.read(Option::clone)
    }

    /// Why nothing is ever stored again, if another broker has taken over the store.
    pub(super) fn taken_over(&self) -> Option<String> {
        // Acquire: with the Release of `end`, the reason is there as well.
        let is_taken = self.taken_over.load(Ordering::Acquire);
        self.reason().filter(|_| is_taken).map(|reason| reason.to_string())
    }

    /// Nothing is ever stored again: another broker has taken over the store.
    fn end(&self, reason: &Unstored) {
        self.refuse(reason);
        // Release: see `taken_over`.
        self.taken_over.store(true, Ordering::Release);
    }

    /// Nothing is stored from now on.
    fn refuse(&self, reason: &Unstored) {
        self.reason.publish(Some(Plain::clone(reason)));
        // Relaxed: see `check`.
        self.refuses.store(true, Ordering::Relaxed);
    }

    /// Everything is stored again.
    fn go_on(&self) {
        // Relaxed: see `check`.
        self.refuses.store(false, Ordering::Relaxed);
        self.reason.publish(None);
    }
}

/// What somebody is told whose change is not stored.
pub(super) fn refused(reason: &Unstored) -> Refused {
    (Status::UNAVAILABLE, reason.to_string())
}
