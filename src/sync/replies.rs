//! A table of requests that wait for their replies.
//!
//! A request claims a slot; the slot's number is the low bits of the reply id that it sends. Who
//! receives the reply puts it into the slot and wakes the slot's waiter. A waiter that gives up
//! frees the slot under a new id, so a late reply finds nobody and is dropped.
//!
//! ```text
//!            claim                    deliver                 take
//!   [free] --------> [wanted: id] --------------> [reply] -----------> [wanted: id]
//!      ^                  |                          |                      |
//!      '------------------'--------- release --------'----------------------'
//! ```
//!
//! # Invariants
//! - A waiter gets the reply with its own id, or none.
//! - One thread at a time delivers.
//! - A slot is claimed by one request at a time.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | Q1 | push of the slot's queue | pop | the reply | `a_reply_wakes_its_waiter` |
//! | Q1 | push of the free slots | pop | who had the slot before | `a_late_reply_finds_nobody` |
//!
//! That a reply's id is wanted when it arrives needs no edge of its own: the request is sent after
//! the claim, and whatever carries it there and the reply back orders the two.

use super::{Arc, AtomicU64, Ordering, Queue, Signal, broken, sized, spin};

/// Requests that wait for replies of type `R`. See the module's text.
#[derive(Debug)]
pub struct ReplyTable<R> {
    slots: Box<[Slot<R>]>,
    free: Queue<usize>,
    /// Wakes those who wait for a free slot.
    freed: Arc<Signal>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Slot<R> {
    /// The reply id that is waited for; 0 for none.
    wanted: AtomicU64,
    /// The reply with its id, or a late one of an earlier request.
    reply: Queue<(u64, R)>,
    signal: Arc<Signal>,
}

/// A claimed slot. Give it back with [`ReplyTable::release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a slot that is not released is lost"]
pub struct Ticket {
    slot: usize,
    id: u64,
}

impl Ticket {
    /// The id that the reply must carry.
    #[must_use]
    pub const fn id(self) -> u64 {
        self.id
    }
}

impl<R> ReplyTable<R> {
    /// Requests that may be under way at one time; more wait for a free slot.
    pub const SLOTS: usize = sized(64, 1);

    /// An empty table, whose numbers count up from `first`, which is not 0.
    #[must_use]
    pub fn new(first: u64) -> Self {
        let slot = || Slot {
            wanted: AtomicU64::new(0),
            reply: Queue::new(1),
            signal: Arc::new(Signal::new()),
        };
        let free = Queue::new(Self::SLOTS);
        for at in 0..Self::SLOTS {
            let pushed = free.push(at);
            debug_assert!(pushed.is_ok(), "as many places as slots");
        }
        Self {
            slots: std::iter::repeat_with(slot).take(Self::SLOTS).collect(),
            free,
            freed: Arc::new(Signal::new()),
            next: AtomicU64::new(first),
        }
    }

    /// Claims a slot, if one is free.
    pub fn claim(&self) -> Option<Ticket> {
        let slot = self.free.pop()?;
        let id = self.next_number() * Self::SLOTS as u64 + slot as u64;
        if let Some(slot) = self.slots.get(slot) {
            // Relaxed: the way of the request and its reply orders it, see above.
            slot.wanted.store(id, Ordering::Relaxed);
        }
        Some(Ticket { slot, id })
    }

    /// A number that no other claim or call gets.
    pub fn next_number(&self) -> u64 {
        // Relaxed: only the number's uniqueness matters.
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Where to sleep until a slot is free.
    pub const fn freed(&self) -> &Arc<Signal> {
        &self.freed
    }

    /// Where to sleep until the reply is there.
    pub fn signal(&self, ticket: Ticket) -> Arc<Signal> {
        self.slots.get(ticket.slot).map_or_else(Arc::default, |slot| Arc::clone(&slot.signal))
    }

    /// Takes the reply, if it has arrived.
    pub fn take(&self, ticket: Ticket) -> Option<R> {
        let (id, reply) = self.slots.get(ticket.slot)?.reply.pop()?;
        // A late reply of an earlier request is dropped here.
        (id == ticket.id || broken("replies.id")).then_some(reply)
    }

    /// Gives the slot back.
    pub fn release(&self, ticket: Ticket) {
        if broken("replies.freed") {
            self.freed.wake_all();
        }
        if let Some(slot) = self.slots.get(ticket.slot) {
            // Relaxed: a reply that still finds the old id is told apart by its own.
            slot.wanted.store(0, Ordering::Relaxed);
            drop(slot.reply.pop());
        }
        let pushed = self.free.push(ticket.slot);
        debug_assert!(pushed.is_ok(), "as many places as slots");
        if !broken("replies.freed") {
            self.freed.wake_all();
        }
    }

    /// Puts the reply with this id into its slot and wakes the waiter; drops it if nobody waits.
    pub fn deliver(&self, id: u64, reply: R) {
        let at = usize::try_from(id % Self::SLOTS as u64).unwrap_or(usize::MAX);
        let Some(slot) = self.slots.get(at) else { return };
        // Relaxed: as in `claim`.
        if slot.wanted.load(Ordering::Relaxed) != id {
            return;
        }
        if broken("replies.wake") {
            slot.signal.wake_all();
        }
        // The place may hold a late reply of an earlier request, which is dropped, or somebody is
        // just taking that out. Only one thread pushes, so the place is free after that.
        let mut reply = (id, reply);
        while let Err(refused) = slot.reply.push(reply) {
            if broken("replies.place") {
                return;
            }
            drop(slot.reply.pop());
            reply = refused;
            spin();
        }
        if !broken("replies.wake") {
            slot.signal.wake_all();
        }
    }

    /// Wakes everybody: no reply will come any more.
    pub fn wake_all(&self) {
        for slot in &self.slots {
            slot.signal.wake_all();
        }
        self.freed.wake_all();
    }
}
