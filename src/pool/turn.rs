//! One operation at a time on a connection, in order of arrival.
//!
//! A count of the one who has the turn and all who wait for it, and a queue of the waiting. Who
//! finds the count at zero has the turn. Anybody else leaves a ticket in the queue *and then*
//! counts itself; so whoever gives the turn up and finds the count above one finds a ticket, and
//! hands the turn over to it. Nobody can slip in between: the count only falls to zero when the
//! queue has been served.
//!
//! ```text
//!            take: 0 -> 1                      wait: push ticket, n -> n+1
//!  [free 0] --------------> [taken, n-1 wait] <--------------------------.
//!     ^   pass: 1 -> 0             | pass, n > 1: pop a ticket, n -> n-1  \
//!     '----------------------------'--> grant it; given up: pop the next --'
//! ```
//!
//! # Invariants
//! - Tickets in the queue ≥ count − 1 at every look of the one who has the turn.
//! - A ticket is granted or given up, never both. A granted one is passed on by its owner, also if
//!   the owner stopped waiting at that moment.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | T1 | `pass`: 1 → 0 | `take` or `wait`: 0 → 1 | all use of the connection | `one_operation_at_a_time` |
//! | T2 | grant of a ticket | its owner's look | all use of the connection | `turn_is_handed_over` |
//! | T3 | `wait`: n → n + 1 | `pass` that sees n + 1 | the ticket in the queue | `turn_is_handed_over` |

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::sync::{
    Arc, AtomicU32, AtomicUsize, Event, EventListener, Inbox, Ordering, broken, edge,
};

/// Who may use one connection, and who is next.
///
/// Shape: a count and a queue of at most `waiters_max` tickets.
#[derive(Debug)]
pub struct TurnQueue {
    /// The one who has the turn, and those who wait or gave up in the queue.
    count: AtomicUsize,
    tickets: Inbox<Arc<Ticket>>,
}

/// A place in the queue.
#[derive(Debug)]
struct Ticket {
    state: AtomicU32,
    event: Event,
}

const WAITING: u32 = 0;
const GRANTED: u32 = 1;
const GIVEN_UP: u32 = 2;

/// What asking for the turn gave.
#[derive(Debug)]
#[must_use = "a granted turn must be passed on"]
#[allow(clippy::exhaustive_enums, reason = "inside the crate")]
pub enum Granted<'q> {
    /// The caller has the turn.
    Now,
    /// The turn comes later.
    Later(Waiting<'q>),
    /// The queue has as many places taken as allowed.
    TooMany(usize),
}

impl Default for TurnQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl TurnQueue {
    /// A free turn.
    #[must_use]
    pub fn new() -> Self {
        Self { count: AtomicUsize::new(0), tickets: Inbox::new() }
    }

    /// Takes the turn if it is free. Costs one exchange.
    #[inline]
    #[must_use]
    pub fn take(&self) -> bool {
        // Forbids two holders. Acquire (T1): the last holder's use of the connection. Failure
        // Relaxed: the caller queues.
        let order = edge("turn.take", Ordering::Acquire, Ordering::Relaxed);
        self.count.compare_exchange(0, 1, order, Ordering::Relaxed).is_ok()
    }

    /// Takes the turn, or a place in the queue unless `waiters_max` are taken.
    pub fn request(&self, waiters_max: usize) -> Granted<'_> {
        if self.take() {
            return Granted::Now;
        }
        // Relaxed: the limit may be passed by as many as ask at the same moment.
        let waiting = self.count.load(Ordering::Relaxed).saturating_sub(1);
        if waiting >= waiters_max {
            return Granted::TooMany(waiting);
        }
        let ticket = Arc::new(Ticket { state: AtomicU32::new(WAITING), event: Event::new() });
        if broken("turn.announce") {
            return self.announce_first(ticket);
        }
        self.tickets.push(Arc::clone(&ticket));
        self.announce();
        Granted::Later(Waiting { queue: self, ticket: Some(ticket), listener: None })
    }

    /// Counts one more ticket, which is in the queue.
    fn announce(&self) {
        // Release (T3): the ticket is in the queue before it counts. Acquire (T1): the turn may
        // have become free meanwhile; then the caller has it and hands it to who is first.
        let order = edge("turn.wait", Ordering::AcqRel, Ordering::Relaxed);
        if self.count.fetch_add(1, order) == 0 {
            self.hand_over();
        }
    }

    /// The canary's wrong order: counts a ticket that is not in the queue yet.
    fn announce_first(&self, ticket: Arc<Ticket>) -> Granted<'_> {
        self.announce();
        self.tickets.push(Arc::clone(&ticket));
        Granted::Later(Waiting { queue: self, ticket: Some(ticket), listener: None })
    }

    /// Gives the turn up: to the first who waits, if anybody does. Returns how many places stood
    /// behind the caller, those of waiters that had given up included.
    #[inline]
    pub fn pass(&self) -> usize {
        // Forbids that the turn is set free while somebody counted itself. Release (T1): this
        // holder's use of the connection.
        let order = edge("turn.pass", Ordering::Release, Ordering::Relaxed);
        match self.count.compare_exchange(1, 0, order, Ordering::Relaxed) {
            Ok(_) => 0,
            Err(_) => self.pass_on(),
        }
    }

    #[cold]
    fn pass_on(&self) -> usize {
        // Acquire (T3): the tickets that counted themselves are in the queue. Release (T1): this
        // holder's use, for whoever takes the turn after a grant that was given up.
        let order = edge("turn.pass_on", Ordering::AcqRel, Ordering::Relaxed);
        let behind = self.count.fetch_sub(1, order) - 1;
        self.hand_over();
        behind
    }

    /// Grants the first ticket whose owner still waits. The caller has the turn, but is not
    /// counted; a counted ticket is in the queue.
    fn hand_over(&self) {
        loop {
            let ticket = self.tickets.pop().expect("a counted ticket is in the queue");
            // Forbids that a ticket is granted after its owner gave it up: the turn would be lost.
            // Release (T2): the last holder's use of the connection, which the caller has seen.
            // No canary breaks this one: the queue's pop has a full fence before it.
            if ticket
                .state
                .compare_exchange(WAITING, GRANTED, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                // Emits the fence that pairs with the one of `listen`, see `Waiting::poll`.
                if !broken("turn.notify") {
                    ticket.event.notify(1);
                }
                return;
            }
            // AcqRel, as in `pass` and `pass_on`: the given-up place is not counted any more.
            if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
                return;
            }
        }
    }

    /// How many places are taken behind the one who has the turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        // Relaxed: a statistic.
        self.count.load(Ordering::Relaxed).saturating_sub(1)
    }
}

/// A place in the queue of a turn.
///
/// Dropping it before the turn came gives the place up; dropping it at the moment the turn comes
/// passes the turn on.
#[derive(Debug)]
#[must_use = "a place in the queue is given up when dropped"]
pub struct Waiting<'q> {
    queue: &'q TurnQueue,
    ticket: Option<Arc<Ticket>>,
    listener: Option<EventListener>,
}

impl Waiting<'_> {
    /// Whether the turn has come. If so, the caller has it and must pass it on.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Some(ticket) = &self.ticket {
            // Acquire (T2): the last holder's use of the connection.
            let order = edge("turn.granted", Ordering::Acquire, Ordering::Relaxed);
            if ticket.state.load(order) == GRANTED {
                self.ticket = None;
                self.listener = None;
                break;
            }
            // Listen, look again, wait: a grant between the look and the wait is not lost.
            match &mut self.listener {
                None => self.listener = Some(ticket.event.listen()),
                Some(listener) => {
                    if Pin::new(listener).poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    self.listener = None;
                }
            }
        }
        Poll::Ready(())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        // Forbids that a grant is lost: either the grant comes first, then the turn is ours to
        // pass on, or the giver finds the ticket given up. Relaxed: nothing was done here, and
        // what the last holder did reaches the next one through the count, each change of which
        // continues the release sequence of the last holder's own.
        if ticket
            .state
            .compare_exchange(WAITING, GIVEN_UP, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            self.queue.pass();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Granted, TurnQueue, Waiting};
    use std::task::{Context, Poll, Waker};

    fn queue(turn: &TurnQueue) -> Waiting<'_> {
        match turn.request(10) {
            Granted::Later(waiting) => waiting,
            other => panic!("{other:?}"),
        }
    }

    fn has_turn(waiting: &mut Waiting<'_>) -> bool {
        waiting.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn turns_come_in_order_of_arrival() {
        let turn = TurnQueue::new();
        assert!(turn.take() && !turn.take());
        let mut waiting: Vec<_> = (0..5).map(|_| queue(&turn)).collect();
        for next in 0..5 {
            assert!(waiting.iter_mut().skip(next).all(|waiting| !has_turn(waiting)));
            assert_eq!(turn.pass(), 5 - next);
            assert!(has_turn(&mut waiting[next]));
        }
        assert_eq!(turn.pass(), 0);
        assert!(turn.take());
    }

    #[test]
    fn a_place_given_up_is_skipped() {
        let turn = TurnQueue::new();
        assert!(turn.take());
        let (first, mut second, third) = (queue(&turn), queue(&turn), queue(&turn));
        drop(first);
        drop(third);
        assert_eq!(turn.waiting(), 3);
        turn.pass();
        assert!(has_turn(&mut second));
        turn.pass();
        assert_eq!(turn.waiting(), 0);
        assert!(turn.take());
    }

    #[test]
    fn a_turn_that_comes_to_nobody_goes_on() {
        let turn = TurnQueue::new();
        assert!(turn.take());
        let (first, mut second) = (queue(&turn), queue(&turn));
        turn.pass();
        drop(first);
        assert!(has_turn(&mut second));
        turn.pass();
        assert!(turn.take());
    }

    #[test]
    fn the_queue_has_a_maximum() {
        let turn = TurnQueue::new();
        assert!(turn.take());
        let _first = queue(&turn);
        assert!(matches!(turn.request(1), Granted::TooMany(1)));
    }
}
