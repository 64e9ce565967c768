//! What a thread beside the loops needs to have destinations do something.
//!
//! Such a thread has mail of its own and hands commands to destinations as a loop does, so it may
//! find itself behind their gates, and ticks may be left with it.

use std::time::{Duration, Instant};

use crate::{
    reactor::{Io, Key, Slots},
    sync::Arc,
};

use super::{
    shared::Shared,
    turn::{Carry, Turn},
};

/// Longest time between two looks at the wall clock, in milliseconds.
const CLOCK_MS_MAX: u64 = 30_000;

/// The broker as a thread beside the loops sees it.
#[derive(Debug)]
pub(super) struct Side {
    shared: Arc<Shared>,
    carry: Carry,
    /// The key of the next deadline, whatever it is for, and when that is.
    clock: Key,
    clock_at: Option<Instant>,
}

impl Side {
    /// Goes on with the turns of `carry`.
    pub(super) fn new(shared: Arc<Shared>, carry: Carry) -> Self {
        let clock = Slots::default().insert(());
        Self { shared, carry, clock, clock_at: None }
    }

    /// This turn. Its last view finishes it.
    pub(super) fn turn(&mut self, io: &Io) -> Turn<'_> {
        Turn::new(io.wall_ms(), &self.shared, &mut self.carry)
    }

    /// Whether there is work left for the next turn.
    pub(super) const fn has_work(&self) -> bool {
        self.carry.has_work()
    }

    /// Sets the deadline for what a destination wants done by itself, and for what the thread wants
    /// to do `after` some time.
    pub(super) fn set_clock(&mut self, io: &mut Io, after: Option<Duration>) {
        // The wall clock may be moved meanwhile, so it is looked at again after a while.
        let tick = self.carry.next_tick().map(|at| {
            let ms = u64::try_from(at.saturating_sub(io.wall_ms())).unwrap_or(0);
            Duration::from_millis(ms.clamp(1, CLOCK_MS_MAX))
        });
        let Some(after) = [after, tick].into_iter().flatten().min() else { return };
        let at = io.now() + after;
        if self.clock_at.is_none_or(|set| at < set) {
            self.clock_at = Some(at);
            io.set_deadline(self.clock, after);
        }
    }

    /// A deadline has passed.
    pub(super) const fn deadline(&mut self) {
        self.clock_at = None;
    }
}
