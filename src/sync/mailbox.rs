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
//! | M2 | fence of `send` | fence of `prepare_sleep` | either the mail or the sleep flag is seen | `no_lost_wake` |

use super::{AtomicBool, Inbox, Ordering, broken, fence_edge};

/// Wakes the owner of a mailbox. Called by senders, from any thread.
pub trait Wake: Send + Sync {
    /// Ends the owner's present or next sleep.
    fn wake(&self);
}

/// Mail for one owner from many senders.
///
/// Shape: an unbounded inbox and a flag. Senders are bounded by what they speak for: one mail per
/// accepted connection, per handed-over destination.
#[derive(Debug)]
pub struct Mailbox<T, W> {
    inbox: Inbox<T>,
    asleep: AtomicBool,
    waker: W,
}

impl<T, W: Wake> Mailbox<T, W> {
    /// Makes an empty mailbox whose owner is awake.
    pub fn new(waker: W) -> Self {
        Self { inbox: Inbox::new(), asleep: AtomicBool::new(false), waker }
    }

    /// Leaves mail and wakes the owner if it sleeps.
    pub fn send(&self, mail: T) {
        self.inbox.push(mail);
        self.nudge();
    }

    /// Wakes the owner if it sleeps, without mail.
    pub fn nudge(&self) {
        // SeqCst fence (M2): the push above and the load below against the flag and the look of
        // `prepare_sleep`. A release/acquire pair would let both sides miss each other.
        fence_edge("mailbox.send", Ordering::SeqCst);
        // Relaxed: the fence orders it. Mostly the owner is awake, and a load is all it takes.
        if self.asleep.load(Ordering::Relaxed) && self.claim_wake() {
            self.waker.wake();
        }
    }

    /// Lets one sender of a burst do the waking.
    fn claim_wake(&self) -> bool {
        // Relaxed, both: the flag carries nothing but itself. Forbids that two senders wake for
        // one sleep. Unlike a swap it writes nothing for a sender that comes too late, so every
        // sender that clears the flag also wakes; nothing else has to be argued (and loom, which
        // does not order a late swap before the owner's next sleep, can follow).
        let order = Ordering::Relaxed;
        self.asleep.compare_exchange(true, false, order, order).is_ok()
    }

    /// Owner: takes the next mail.
    pub fn receive(&self) -> Option<T> {
        self.inbox.pop()
    }

    /// Owner: says that it is about to sleep. `true` if it may; `false` if mail came meanwhile,
    /// in which case the owner counts as awake.
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        // Relaxed: the fence below orders the flag before the look at the inbox.
        self.asleep.store(true, Ordering::Relaxed);
        // SeqCst fence (M2): see `nudge`.
        fence_edge("mailbox.sleep", Ordering::SeqCst);
        if broken("mailbox.look") || self.inbox.is_empty() {
            return true;
        }
        self.awake();
        false
    }

    /// Owner: says that it is awake again.
    pub fn awake(&self) {
        // Relaxed: a sender that still sees the flag wakes once too often, which is harmless.
        self.asleep.store(false, Ordering::Relaxed);
    }
}
