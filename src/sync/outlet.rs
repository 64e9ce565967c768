//! An outlet: what many threads send leaves in one order, in large pieces, and nobody waits.
//!
//! Two states, each behind a gate. In the *front* what is sent is put together; a sender is inside
//! for as long as it takes to copy. The *back* writes; who is inside may be there for long, as
//! writing is a system call. What is in the front is handed over to the back as a whole, so the two
//! never stand in each other's way.
//!
//! Who finds somebody in the front leaves a piece in the inbox, which the one inside takes along.
//! Who finds somebody in the back is sure that this one looks at the front once more.
//!
//! ```text
//!   send --> front <---- pieces of those who found it taken
//!              |  is it due?
//!              '-------> back --> written
//! ```
//!
//! # Invariants
//! - What one thread sends keeps its order: once it has left a piece, it finds nobody in the front
//!   only after the piece was taken in; and only the back writes, what it got first first.
//! - What is due is handed over and written, by whoever is in the back, unless that is held up.
//!
//! # Ordering
//! The gates' and the inbox's edges (G1, G2, Q1). Models: `nothing_is_lost_or_doubled`,
//! `a_flush_beside_a_sender_is_carried_out`, `what_is_due_does_not_wait_for_what_is_not`.

use super::{Entered, Gate, Inbox, broken};

/// The front: where what is sent is put together.
pub trait Front {
    /// What is left by a sender that found somebody inside.
    type Piece;
    /// The state that writes.
    type Back: Back;

    /// Takes a piece in, behind everything before it.
    fn gather(&mut self, piece: Self::Piece);

    /// Whether what has come should be written now. Asked after each change, and not again if not.
    fn is_due(&mut self) -> bool;

    /// Hands everything over to a back that has nothing left.
    fn hand_over(&mut self, back: &mut Self::Back);

    /// A piece with nothing in it that makes what is there due.
    fn call() -> Self::Piece;
}

/// The back: what writes.
pub trait Back {
    /// Writes what it was handed, as far as that goes without waiting.
    fn write(&mut self);

    /// Whether nothing is left of it.
    fn is_empty(&self) -> bool;
}

/// Front and back, each behind a gate. See the module's text.
///
/// Shape: one `F`, an unbounded inbox before it, bounded by what senders may leave unwritten, and
/// one `F::Back`.
#[derive(Debug)]
pub struct Outlet<F: Front> {
    front: Gate<F>,
    inbox: Inbox<F::Piece>,
    back: Gate<F::Back>,
}

impl<F: Front> Outlet<F> {
    /// Puts both states behind open gates.
    pub fn new(front: F, back: F::Back) -> Self {
        Self { front: Gate::new(front), inbox: Inbox::new(), back: Gate::new(back) }
    }

    /// Sends something: `add` puts it into the front, or returns the piece to leave if it is given
    /// none. Writes if that is due, as [`write`](Self::write) does; whether it was.
    pub fn send(
        &self,
        add: impl FnOnce(Option<&mut F>) -> Option<F::Piece>,
        see: impl FnMut(&mut F::Back),
    ) -> bool {
        let due = self.add(add);
        if due {
            self.write(see);
        }
        due
    }

    /// Has everything written that was sent before, as far as that goes without waiting. `see` is
    /// shown how far; not at all if somebody else is in the back and does it.
    pub fn write(&self, mut see: impl FnMut(&mut F::Back)) {
        let work = |back: &mut F::Back| {
            let mut goes_on = true;
            while goes_on {
                back.write();
                goes_on = back.is_empty() && self.take_over(back);
                back.write();
            }
            see(back);
            true
        };
        let entered = if broken("outlet.again") {
            // Nobody inside learns of this call.
            self.back.try_enter(work)
        } else {
            Some(self.back.enter(work))
        };
        debug_assert_ne!(entered, Some(Entered::More), "a run hands over all there is");
    }

    /// Takes over what is in the front. Whether something else became due there meanwhile.
    fn take_over(&self, back: &mut F::Back) -> bool {
        self.add(|front| match front {
            Some(front) => {
                front.hand_over(back);
                None
            }
            // The one inside comes to the back for it.
            None => (!broken("outlet.call")).then(F::call),
        })
    }

    /// Adds something to the front, or leaves it there. Whether the caller is to see to the writing.
    fn add(&self, add: impl FnOnce(Option<&mut F>) -> Option<F::Piece>) -> bool {
        let (mut add, mut due) = (Some(add), false);
        self.front.try_enter(|front| {
            match add.take() {
                Some(add) => {
                    let left = add(Some(front));
                    debug_assert!(left.is_none(), "added, so there is nothing to leave");
                }
                // Again, as something was left and announced meanwhile. Nothing that was announced
                // before this thread came in is left, so there is no need to look at first.
                None => self.take(front),
            }
            due |= front.is_due();
            true
        });
        if let Some(add) = add
            && let Some(piece) = add(None)
        {
            return self.leave(piece);
        }
        due
    }

    /// Leaves a piece for whoever is in the front, or goes in if that one has just left.
    fn leave(&self, piece: F::Piece) -> bool {
        self.inbox.push(piece);
        if broken("outlet.announce") {
            return false;
        }
        let mut due = false;
        let entered = self.front.enter(|front| {
            let late = broken("outlet.take");
            if !late {
                self.take(front);
            }
            due |= front.is_due();
            if late {
                self.take(front);
            }
            true
        });
        debug_assert_ne!(entered, Entered::More, "a run takes out all there is");
        due
    }

    fn take(&self, front: &mut F) {
        while let Some(piece) = self.inbox.pop() {
            front.gather(piece);
        }
    }
}
