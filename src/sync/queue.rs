//! Lock-free queues of many producers and many consumers.
//!
//! Both are crossbeam's in a normal build. crossbeam's queues have no loom form, so a model gets
//! concurrent-queue's, the same algorithms with loom support.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries |
//! | --- | --- | --- | --- |
//! | Q1 | `push` | the `pop` that returns the value | the value and all before the push |

/// A queue with a fixed number of places, allocated once.
#[derive(Debug)]
pub struct Queue<T> {
    #[cfg(not(loom))]
    #[allow(clippy::disallowed_types, reason = "the facade wraps the real queue")]
    inner: crossbeam_queue::ArrayQueue<T>,
    #[cfg(loom)]
    inner: concurrent_queue::ConcurrentQueue<T>,
}

impl<T> Queue<T> {
    /// Makes an empty queue with `capacity` places.
    ///
    /// # Panics
    /// If `capacity` is 0.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            #[cfg(not(loom))]
            #[allow(clippy::disallowed_types, reason = "the facade wraps the real queue")]
            inner: crossbeam_queue::ArrayQueue::new(capacity),
            #[cfg(loom)]
            inner: concurrent_queue::ConcurrentQueue::bounded(capacity),
        }
    }

    /// Adds at the end.
    ///
    /// # Errors
    /// Gives the value back if every place is taken.
    pub fn push(&self, value: T) -> Result<(), T> {
        #[cfg(not(loom))]
        {
            self.inner.push(value)
        }
        #[cfg(loom)]
        {
            self.inner.push(value).map_err(concurrent_queue::PushError::into_inner)
        }
    }

    /// Takes from the front, if there is anything.
    pub fn pop(&self) -> Option<T> {
        #[cfg(not(loom))]
        {
            self.inner.pop()
        }
        #[cfg(loom)]
        {
            self.inner.pop().ok()
        }
    }

    /// Whether the queue was empty at some instant during the call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// How many values the queue held at some instant during the call.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.len()
    }
}

/// A queue that grows. Whoever pushes must be bounded by something else (credit, a window), and
/// says by what.
#[derive(Debug)]
pub struct Inbox<T> {
    #[cfg(not(loom))]
    #[allow(clippy::disallowed_types, reason = "the facade wraps the real queue")]
    inner: crossbeam_queue::SegQueue<T>,
    #[cfg(loom)]
    inner: concurrent_queue::ConcurrentQueue<T>,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Inbox<T> {
    /// Makes an empty inbox.
    #[must_use]
    pub fn new() -> Self {
        Self {
            #[cfg(not(loom))]
            #[allow(clippy::disallowed_types, reason = "the facade wraps the real queue")]
            inner: crossbeam_queue::SegQueue::new(),
            #[cfg(loom)]
            inner: concurrent_queue::ConcurrentQueue::unbounded(),
        }
    }

    /// Adds at the end.
    pub fn push(&self, value: T) {
        #[cfg(not(loom))]
        self.inner.push(value);
        #[cfg(loom)]
        assert!(self.inner.push(value).is_ok(), "an inbox is never closed");
    }

    /// Takes from the front, if there is anything.
    pub fn pop(&self) -> Option<T> {
        #[cfg(not(loom))]
        {
            self.inner.pop()
        }
        #[cfg(loom)]
        {
            self.inner.pop().ok()
        }
    }

    /// Whether the inbox was empty at some instant during the call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
}
