//! A published value that many read and few replace.
//!
//! Contract: a `publish` happens before any `read` that returns its value, and one thread's reads
//! never go back. Nothing is promised between two snapshots, nor about when an old value is
//! dropped; so `T` is plain data.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries |
//! | --- | --- | --- | --- |
//! | S1 | `publish`, `update` | `read`, `load_full` | the published value |
//!
//! arc-swap has no loom support. The model's stand-in keeps every value in an append-only history
//! behind a `std` mutex (no modelled operation runs while it is held) and publishes the index of
//! the newest one in a loom atomic, so a reader may see an older value, as it may in reality.

use super::Arc;
#[cfg(loom)]
use super::{Ordering, broken, edge};

/// An immutable value behind an atomically swapped pointer.
#[derive(Debug)]
pub struct Snapshot<T> {
    #[cfg(not(loom))]
    #[allow(clippy::disallowed_types, reason = "the facade wraps the real swap")]
    inner: arc_swap::ArcSwap<T>,
    #[cfg(loom)]
    history: std::sync::Mutex<Vec<Arc<T>>>,
    #[cfg(loom)]
    newest: super::AtomicUsize,
}

impl<T> Snapshot<T> {
    /// Publishes the first value.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self {
            #[cfg(not(loom))]
            #[allow(clippy::disallowed_types, reason = "the facade wraps the real swap")]
            inner: arc_swap::ArcSwap::from_pointee(value),
            #[cfg(loom)]
            history: std::sync::Mutex::new(vec![Arc::new(value)]),
            #[cfg(loom)]
            newest: super::AtomicUsize::new(0),
        }
    }
}

#[cfg(not(loom))]
impl<T> Snapshot<T> {
    /// Runs `f` on the newest value this thread can see. Costs one load; takes no lock.
    #[inline]
    pub fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.inner.load())
    }

    /// The newest value, to keep.
    #[must_use]
    pub fn load_full(&self) -> Arc<T> {
        self.inner.load_full()
    }

    /// Replaces the value.
    pub fn publish(&self, value: T) {
        self.inner.store(Arc::new(value));
    }

    /// Replaces the value by `f` of it; `f` may run several times, so it is pure. `None` leaves
    /// the value alone. Returns the value `f` was given and the one it gave, if any.
    pub fn update(&self, f: impl Fn(&T) -> Option<T>) -> (Arc<T>, Option<Arc<T>>) {
        let mut seen = self.inner.load_full();
        loop {
            let Some(next) = f(&seen) else { return (seen, None) };
            let next = Arc::new(next);
            let previous = self.inner.compare_and_swap(&seen, Arc::clone(&next));
            if Arc::ptr_eq(&previous, &seen) {
                return (seen, Some(next));
            }
            seen = arc_swap::Guard::into_inner(previous);
        }
    }
}

#[cfg(loom)]
#[allow(clippy::expect_used, clippy::missing_panics_doc, reason = "the model's stand-in")]
impl<T> Snapshot<T> {
    fn at(&self, index: usize) -> Arc<T> {
        Arc::clone(&self.history.lock().expect("no panic while it is held")[index])
    }

    fn append(&self, value: Arc<T>) -> usize {
        let mut history = self.history.lock().expect("no panic while it is held");
        history.push(value);
        history.len() - 1
    }

    /// Runs `f` on the newest value this thread can see.
    pub fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.at(self.newest.load(read_order())))
    }

    /// The newest value, to keep.
    pub fn load_full(&self) -> Arc<T> {
        self.at(self.newest.load(read_order()))
    }

    /// Replaces the value.
    pub fn publish(&self, value: T) {
        let index = self.append(Arc::new(value));
        // AcqRel (S1): publishes the value; the acquire half keeps publishes in one order.
        let order = edge("snapshot.publish", Ordering::AcqRel, Ordering::Relaxed);
        self.newest.swap(index, order);
    }

    /// Replaces the value by `f` of it, as in the real one.
    pub fn update(&self, f: impl Fn(&T) -> Option<T>) -> (Arc<T>, Option<Arc<T>>) {
        let mut index = self.newest.load(read_order());
        loop {
            let seen = self.at(index);
            let Some(next) = f(&seen) else { return (seen, None) };
            let next = Arc::new(next);
            let new_index = self.append(Arc::clone(&next));
            if broken("snapshot.update") {
                self.newest.swap(new_index, Ordering::AcqRel);
                return (seen, Some(next));
            }
            // AcqRel (S1): forbids two updates from the same value; failure re-reads.
            let failure = Ordering::Acquire;
            let success = edge("snapshot.exchange", Ordering::AcqRel, Ordering::Relaxed);
            match self.newest.compare_exchange(index, new_index, success, failure) {
                Ok(_) => return (seen, Some(next)),
                Err(now) => index = now,
            }
        }
    }
}

/// Acquire (S1): pairs with the exchange or swap that published the index.
#[cfg(loom)]
fn read_order() -> Ordering {
    edge("snapshot.read", Ordering::Acquire, Ordering::Relaxed)
}
