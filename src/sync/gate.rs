//! A gate: state that many threads hand work to and one at a time works on, without blocking.
//!
//! Callers first leave their work where the state will find it (an [`Inbox`](super::Inbox)), then
//! [`enter`](Gate::enter). Who finds nobody inside becomes the runner and stays until everything
//! that was announced has been seen; everybody else returns at once and the runner does their
//! work. So nobody waits, the state needs no lock, and its order is total.
//!
//! ```text
//!            enter: 0 -> 1, run                 enter while inside: n -> n+1, return
//!  [idle 0] --------------------> [runner inside, pending n] <---------------------.
//!     ^                                |          |   \____________________________/
//!     |  leave: pending == seen        |          | leave: pending > seen, run again
//!     '--------------------------------'          '--> more: runner takes a Handoff away
//! ```
//!
//! # Invariants
//! - One runner at a time. Work announced by `enter` is seen by a run that starts after it.
//! - A run that stops early (bounded work) keeps the gate closed until it is resumed.
//! - A run that panics leaves it closed for good: nobody gets to a state that is half changed.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | G1 | `fetch_add` of `enter` | `fetch_add`, `swap` or exchange of the runner | the announced work | `gate_loses_no_work` |
//! | G2 | last exchange of a leaving runner | `fetch_add` or exchange of the next runner | the state | `gate_has_one_runner` |
//!
//! # Source
//! The combining pattern of flat combining and of actor mailboxes; the counter instead of a flag
//! is what makes "announced after I last looked" visible without a second check.

use super::{AtomicUsize, Ordering, UnsafeCell, edge};

/// State behind a gate. See the module's text.
///
/// Shape: one counter of announcements not yet seen (0 = nobody inside) and one `T`.
#[derive(Debug)]
pub struct Gate<T> {
    pending: AtomicUsize,
    state: UnsafeCell<T>,
}

/// What became of a call of [`Gate::enter`] or [`Gate::resume`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "`More` means that the gate stays closed until `resume` is called"]
#[allow(clippy::exhaustive_enums, reason = "callers must handle each of the three")]
pub enum Entered {
    /// This call ran the state and everything announced is done.
    Done,
    /// Somebody else is inside and does the work.
    Elsewhere,
    /// This call ran the state and `work` left some for later. The caller owns the gate until it
    /// calls [`Gate::resume`]; until then nobody else gets in.
    More,
}

/// What a run of the state says at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Finished,
    Bounded,
}

// SAFETY: the gate hands `&mut T` to one thread at a time (G2), so moving it between threads is
// moving a `T`.
#[allow(unsafe_code, reason = "the cell is guarded by the counter")]
unsafe impl<T: Send> Sync for Gate<T> {}

impl<T> Gate<T> {
    /// Puts a state behind an open gate.
    pub fn new(state: T) -> Self {
        Self { pending: AtomicUsize::new(0), state: UnsafeCell::new(state) }
    }

    /// Announces work and, if nobody is inside, does it: `work` is called with the state as often
    /// as announcements come in meanwhile. It returns `true` when it has taken away everything
    /// it found, `false` when it stopped early because its work is bounded.
    pub fn enter(&self, work: impl FnMut(&mut T) -> bool) -> Entered {
        // AcqRel. Release (G1): what the caller left for the state comes before this count.
        // Acquire (G2): if the count was zero, the last runner's changes are visible.
        let order = edge("gate.enter", Ordering::AcqRel, Ordering::Relaxed);
        if self.pending.fetch_add(1, order) != 0 {
            return Entered::Elsewhere;
        }
        self.run(1, work)
    }

    /// Does `work` if nobody is inside. If somebody is, nothing is announced and `None` comes back:
    /// whoever is inside does not learn of this call.
    pub fn try_enter(&self, work: impl FnMut(&mut T) -> bool) -> Option<Entered> {
        // Forbids a second runner: only from zero does the count become this caller's.
        // Success Acquire (G2): the last runner's changes are visible; nothing is announced, so
        // there is nothing to release before the run ends. Failure Relaxed: nothing is read.
        let acquire = edge("gate.try", Ordering::Acquire, Ordering::Relaxed);
        let entered = self.pending.compare_exchange(0, 1, acquire, Ordering::Relaxed);
        entered.is_ok().then(|| self.run(1, work))
    }

    /// Whether nobody was inside at some instant during the call: a guess, unless a fence on both
    /// sides orders it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        // Relaxed: a guess; who acts on it enters, which synchronizes.
        self.pending.load(Ordering::Relaxed) == 0
    }

    /// Goes on after [`Entered::More`]. Only the thread (or the run list) that was given `More`
    /// may call this, once.
    pub fn resume(&self, work: impl FnMut(&mut T) -> bool) -> Entered {
        // Acquire (G1): see what has been announced since the run stopped. The gate is ours, so
        // the count cannot fall meanwhile.
        let seen = self.pending.load(edge("gate.resume", Ordering::Acquire, Ordering::Relaxed));
        debug_assert!(seen > 0, "resume without a gate that stayed closed");
        self.run(seen, work)
    }

    fn run(&self, mut seen: usize, mut work: impl FnMut(&mut T) -> bool) -> Entered {
        loop {
            if self.turn(&mut work) == Turn::Bounded {
                return Entered::More;
            }
            // Forbids leaving while an announcement is newer than the last run: it would find the
            // gate closed, return, and its work would lie there with nobody inside.
            // Success AcqRel: Release (G2) hands the state to the next runner; failure Acquire
            // (G1): the next run must see the work of those who announced meanwhile.
            let success = edge("gate.leave", Ordering::AcqRel, Ordering::Relaxed);
            let failure = edge("gate.again", Ordering::Acquire, Ordering::Relaxed);
            match self.pending.compare_exchange(seen, 0, success, failure) {
                Ok(_) => return Entered::Done,
                Err(now) => seen = now,
            }
        }
    }

    fn turn(&self, work: &mut impl FnMut(&mut T) -> bool) -> Turn {
        let finished = self.state.with_mut(|state| {
            // SAFETY: only the runner gets here. It saw the counter at zero and raised it (or was
            // handed the closed gate), nobody else does so before it is zero again, and the edge
            // G2 makes the last runner's writes visible.
            #[allow(unsafe_code, reason = "the counter admits one runner")]
            let state = unsafe { &mut *state };
            work(state)
        });
        if finished { Turn::Finished } else { Turn::Bounded }
    }
}
