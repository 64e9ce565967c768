//! A mailbox that wakes its owner only when it sleeps, and once per burst.
//!
//! The owner polls; before it sleeps it says so and looks once more. A sender pushes, then looks
//! whether the owner said it sleeps. Each does its own step before it looks at the other's, with
//! a full fence between, so at least one of them sees the other.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | M1 | push of the queue | pop of the queue | the mail | `mail_arrives_once` |
//! | M2 | the watch in `nudge` (V1) | the watch in `prepare_sleep` | either the mail or the sleep is seen | `no_lost_wake` |
//! | M3 | the watch in `nudge` (V1) | fence of `close` | either the mail or the end is seen | `mail_after_the_end_is_dropped` |

use super::{AtomicBool, Inbox, Ordering, Watch, broken, fence_edge};

/// Wakes the owner of a mailbox. Called by senders, from any thread.
pub trait Wake: Send + Sync {
    /// Ends the owner's present or next sleep.
    fn wake(&self);
}

/// Mail for one owner from many senders.
///
/// Shape: an unbounded inbox and two flags. Senders are bounded by what they speak for: one mail
/// per accepted connection, per handed-over destination.
#[derive(Debug)]
pub struct Mailbox<T, W> {
    inbox: Inbox<T>,
    /// Armed while the owner sleeps.
    asleep: Watch,
    closed: AtomicBool,
    waker: W,
}

impl<T, W: Wake> Mailbox<T, W> {
    /// Makes an empty mailbox whose owner is awake.
    pub fn new(waker: W) -> Self {
        let (asleep, closed) = (Watch::new(), AtomicBool::new(false));
        Self { inbox: Inbox::new(), asleep, closed, waker }
    }

    /// Leaves mail and wakes the owner if it sleeps. Mail for an owner that has ended is dropped.
    pub fn send(&self, mail: T) {
        self.inbox.push(mail);
        self.nudge();
        // Relaxed (M3): the fence of the watch stands between the push and this look.
        if self.closed.load(Ordering::Relaxed) {
            self.clear();
        }
    }

    /// Wakes the owner if it sleeps, without mail.
    pub fn nudge(&self) {
        if self.asleep.claim() {
            self.waker.wake();
        }
    }

    /// Owner: reads no more. Mail that is here is dropped, and so is what comes.
    pub fn close(&self) {
        // Relaxed: the fence below orders the flag before the look at the inbox.
        self.closed.store(true, Ordering::Relaxed);
        // SeqCst fence (M3): see `send`.
        fence_edge("mailbox.close", Ordering::SeqCst);
        self.clear();
    }

    fn clear(&self) {
        while !self.inbox.is_empty() {
            drop(self.inbox.pop());
        }
    }

    /// Whether there was no mail at some instant during the call.
    pub fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    /// Owner: takes the next mail.
    pub fn receive(&self) -> Option<T> {
        self.inbox.pop()
    }

    /// Owner: says that it is about to sleep. `true` if it may; `false` if mail came meanwhile,
    /// in which case the owner counts as awake.
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        self.asleep.arm();
        if broken("mailbox.look") || self.inbox.is_empty() {
            return true;
        }
        self.awake();
        false
    }

    /// Owner: says that it is awake again.
    pub fn awake(&self) {
        self.asleep.disarm();
    }
}
