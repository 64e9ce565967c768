//! What a consumer's connection and its destination share.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries |
//! | --- | --- | --- | --- |
//! | C1 | `Session::set_running` | `Session::epoch` in dispatch and lane | nothing but the number |
//! | C2 | `Consumer::close` | `Consumer::is_closed` in the lane | nothing but the flag |
//! | C3 | `Consumer::sent` in the lane | `Consumer::sent_through` at the consumer's removal | the number |
//!
//! None of them guards other data, so all are relaxed: what must be seen in order travels through
//! the queues and gates of connection and destination, whose edges order these words as well.

use std::ops::Deref;

use crate::{
    flow::{Credit, Taken, Window},
    selector::Selector,
    sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use super::{destination::Destination, output::Output};

/// Deliveries on the way to a consumer whose credit is unlimited. What it has been sent is not
/// limited; what waits to be sent is.
pub(super) const UNLIMITED_ON_THE_WAY: u32 = 1000;

/// Whether a session takes deliveries, as a number that changes whenever that changes.
///
/// Shape: even while it runs, odd while it is stopped. A delivery carries the number it was
/// dispatched under; the output lane sends it only if the number is still the same, and gives it
/// back otherwise. So nothing dispatched before a stop is sent after it.
#[derive(Debug)]
pub(super) struct SessionState {
    epoch: AtomicU32,
}

impl SessionState {
    /// A session that is stopped.
    pub(super) fn stopped() -> Self {
        Self { epoch: AtomicU32::new(1) }
    }

    /// Starts or stops it; `true` if that changed anything. Only the connection's loop calls this.
    pub(super) fn set_running(&self, running: bool) -> bool {
        // Relaxed: one writer, and the number alone decides (C1).
        let epoch = self.epoch.load(Ordering::Relaxed);
        if is_running(epoch) == running {
            return false;
        }
        self.epoch.store(epoch.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// The present number, if it runs.
    pub(super) fn running_epoch(&self) -> Option<u32> {
        // Relaxed (C1): dispatch under an old number is caught by the lane, which looks again.
        Some(self.epoch.load(Ordering::Relaxed)).filter(|&epoch| is_running(epoch))
    }

    /// Whether a delivery dispatched under `epoch` may be sent.
    pub(super) fn is_current(&self, epoch: u32) -> bool {
        // Relaxed (C1): the request that stopped the session reaches the lane behind the new
        // number, through the lane's queue.
        self.epoch.load(Ordering::Relaxed) == epoch
    }
}

const fn is_running(epoch: u32) -> bool {
    epoch.is_multiple_of(2)
}

/// What a consumer is.
#[derive(Debug)]
pub(super) struct ConsumerParts {
    /// Its id, unique in the broker.
    pub(super) id: i64,
    /// Its connection's id.
    pub(super) connection_id: i64,
    /// Where its messages wait: its destination, or the subscription it belongs to.
    pub(super) destination: Arc<Destination>,
    /// Its connection's output.
    pub(super) output: Arc<Output>,
    /// Its session.
    pub(super) session: Arc<SessionState>,
    /// Messages are forgotten when they are sent.
    pub(super) forgets: bool,
    /// Its session is transacted: when it leaves, only what a transaction holds stays out.
    pub(super) transacted: bool,
    /// It does not get what its own connection produced.
    pub(super) no_local: bool,
    /// It gets what this says, out of what waits for all.
    pub(super) selector: Option<Selector>,
    /// The most its destination allows it to be sent ahead.
    pub(super) limit: Credit,
    /// Prefetch agreed on.
    pub(super) prefetch: Credit,
}

/// One consumer: what it is, and how far it has come.
#[derive(Debug)]
pub(super) struct Consumer {
    parts: ConsumerParts,
    window: Window,
    /// Its credit never ends.
    unlimited: AtomicBool,
    closed: AtomicBool,
    sent: AtomicU64,
    /// For people: how many were dispatched, and how many of them are unsettled.
    dispatched: AtomicU64,
    unsettled: AtomicU64,
}

impl Deref for Consumer {
    type Target = ConsumerParts;

    fn deref(&self) -> &ConsumerParts {
        &self.parts
    }
}

impl Consumer {
    /// A consumer with its whole prefetch as credit.
    pub(super) fn new(parts: ConsumerParts) -> Self {
        Self {
            window: Window::new(on_the_way(parts.prefetch)),
            unlimited: AtomicBool::new(parts.prefetch == Credit::Unlimited),
            parts,
            closed: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            dispatched: AtomicU64::new(0),
            unsettled: AtomicU64::new(0),
        }
    }

    /// Takes one credit. The mark says whether the packet is to carry C.
    pub(super) fn take_credit(&self) -> Option<(Taken, bool)> {
        let taken = self.window.try_take()?;
        Some((taken, taken.last() && !self.is_unlimited()))
    }

    /// Gives a credit back whose packet was not sent; `true` if dispatch must be started again.
    pub(super) fn give_back(&self, taken: Taken) -> bool {
        self.window.give_back(taken).was_paused
    }

    /// Replaces the credit; `true` if dispatch must be started again. No size asks for credit that
    /// never ends.
    pub(super) fn resume(&self, size: Option<i32>) -> bool {
        let credit = size.map_or(Credit::Unlimited, Credit::from_wire).agree(self.limit);
        // Relaxed: whoever takes of the new credit sees the window's change, which follows and
        // releases this; a delivery of the old credit may be counted either way.
        self.unlimited.store(credit == Credit::Unlimited, Ordering::Relaxed);
        self.window.resume(on_the_way(credit)).was_paused
    }

    /// Whether its credit never ends.
    pub(super) fn is_unlimited(&self) -> bool {
        // Relaxed: see `resume`.
        self.unlimited.load(Ordering::Relaxed)
    }

    /// Credit left; `None` if it never ends.
    pub(super) fn credit_left(&self) -> Option<u32> {
        if self.is_unlimited() { None } else { self.window.left() }
    }

    /// Messages it would be sent now.
    pub(super) fn takes_now(&self) -> u64 {
        if self.is_closed() || self.session.running_epoch().is_none() {
            return 0;
        }
        self.credit_left().map_or(u64::MAX, u64::from)
    }

    /// Nothing more is sent to it.
    pub(super) fn close(&self) {
        // Relaxed (C2).
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether nothing more is sent to it.
    pub(super) fn is_closed(&self) -> bool {
        // Relaxed (C2).
        self.closed.load(Ordering::Relaxed)
    }

    /// The delivery with this number is on the wire, whole.
    pub(super) fn set_sent(&self, number: u64) {
        // Relaxed (C3): the lane is the one writer, and the removal comes through the lane.
        self.sent.store(number, Ordering::Relaxed);
    }

    /// Deliveries up to this number are on the wire.
    pub(super) fn sent_through(&self) -> u64 {
        // Relaxed (C3).
        self.sent.load(Ordering::Relaxed)
    }

    /// For people: a message was dispatched, and `unsettled` are out now.
    pub(super) fn count_dispatched(&self, unsettled: usize) {
        // Relaxed: statistics, written under the destination's gate only.
        let dispatched = self.dispatched.load(Ordering::Relaxed);
        self.dispatched.store(dispatched + 1, Ordering::Relaxed);
        self.count_unsettled(unsettled);
    }

    /// For people: `unsettled` are out now.
    pub(super) fn count_unsettled(&self, unsettled: usize) {
        // Relaxed: a statistic.
        self.unsettled.store(unsettled as u64, Ordering::Relaxed);
    }

    /// How many were dispatched, and how many of those are unsettled.
    pub(super) fn counts(&self) -> (u64, u64) {
        // Relaxed: statistics.
        (self.dispatched.load(Ordering::Relaxed), self.unsettled.load(Ordering::Relaxed))
    }
}

const fn on_the_way(credit: Credit) -> Credit {
    match credit {
        Credit::Unlimited => Credit::Limited(UNLIMITED_ON_THE_WAY),
        limited => limited,
    }
}
