//! Epochs: which of a connection's links something belongs to.
//!
//! A connection that reconnects has one link after the other. Ids that the broker gave, packets
//! that use them and requests that wait for replies belong to the link on which they were made, and
//! mean nothing, or something else, on the next one.
//!
//! ```text
//!   0 up --lost--> 1 being restored --restored--> 2 up --lost--> 3 ...
//! ```

use crate::sync::{AtomicU64, Ordering};

/// One link of a connection, or the time without one after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Epoch(u64);

impl Epoch {
    /// The link that the connection was made with.
    pub(super) const FIRST: Self = Self(0);

    /// Whether there is a link.
    pub(super) const fn is_up(self) -> bool {
        self.0.is_multiple_of(2)
    }

    pub(super) const fn number(self) -> u64 {
        self.0
    }

    /// What comes after it.
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The epoch of a connection.
///
/// # Ordering
/// `SeqCst` throughout: whoever closes something looks here whether the broker must be told, after
/// it has marked it as closed; whoever restores the link looks for what was closed after it has
/// changed the epoch. One of the two sees the other. What was prepared for the new link is visible
/// to all who see its epoch.
#[derive(Debug)]
pub(super) struct Present(AtomicU64);

impl Present {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(super) fn get(&self) -> Epoch {
        Epoch(self.0.load(Ordering::SeqCst))
    }

    /// Ends this epoch; false if it has ended before.
    pub(super) fn end(&self, epoch: Epoch) -> bool {
        let next = epoch.next();
        self.0.compare_exchange(epoch.0, next.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// A number that the broker gave to a session, consumer or producer, and for which link.
///
/// Changed by whoever restores the link, while there is none; so readers that look at the epoch
/// before and after have a number of that epoch.
#[derive(Debug)]
pub(super) struct RemoteId {
    id: AtomicU64,
    epoch: AtomicU64,
    /// On which link its end was told; all ones for none.
    ended_on: AtomicU64,
}

impl RemoteId {
    pub(super) const fn new(id: i64, epoch: Epoch) -> Self {
        Self {
            id: AtomicU64::new(id.cast_unsigned()),
            epoch: AtomicU64::new(epoch.0),
            ended_on: AtomicU64::new(u64::MAX),
        }
    }

    /// The newest number.
    pub(super) fn get(&self) -> i64 {
        // Relaxed: the epoch's edge carries it; without a change there is nothing to carry.
        self.id.load(Ordering::Relaxed).cast_signed()
    }

    /// For which link the number is.
    pub(super) fn epoch(&self) -> Epoch {
        // Acquire: pairs with `set`, so that the number is that epoch's, or a newer one.
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// A link and the number there. If both change meanwhile, the link is the old one, which
    /// nothing is sent to any more.
    pub(super) fn on(&self) -> (Epoch, i64) {
        let epoch = self.epoch();
        (epoch, self.get())
    }

    /// Whether this caller is the one to tell the broker of its end on this link.
    pub(super) fn end_on(&self, epoch: Epoch) -> bool {
        // Relaxed: it decides between two callers, and hands nothing over.
        self.ended_on.swap(epoch.0, Ordering::Relaxed) != epoch.0
    }

    /// Changes both.
    pub(super) fn set(&self, id: i64, epoch: Epoch) {
        // Relaxed, then Release: see `epoch`.
        self.id.store(id.cast_unsigned(), Ordering::Relaxed);
        self.epoch.store(epoch.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{Epoch, Present, RemoteId};

    #[test]
    fn a_link_is_lost_once_and_an_old_loss_does_not_end_the_next_link() {
        let present = Present::new();
        let first = present.get();
        assert!(first.is_up() && first == Epoch::FIRST);
        assert!(present.end(first));
        assert!(!present.end(first));
        let between = present.get();
        assert!(!between.is_up());
        assert!(present.end(between));
        assert!(present.get().is_up() && !present.end(first));
    }

    #[test]
    fn a_number_tells_for_which_link_it_is() {
        let id = RemoteId::new(-5, Epoch::FIRST);
        assert_eq!((id.get(), id.epoch()), (-5, Epoch::FIRST));
        let next = Epoch::FIRST.next().next();
        id.set(i64::MAX, next);
        assert_eq!((id.get(), id.epoch()), (i64::MAX, next));
        assert!(id.end_on(next) && !id.end_on(next) && id.end_on(next.next()));
    }
}
