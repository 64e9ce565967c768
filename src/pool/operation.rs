//! One operation of a session: its turn on the connection, from beginning to end.
//!
//! # Invariants
//! - The turn is passed on exactly once per operation, also when it panics.
//! - A connection whose operation did not come to its end (a panic, an `async` operation that was
//!   dropped half-way) is condemned: a half-done exchange cannot be trusted.
//! - A condemned connection is out of the pool before the turn is passed on, so whoever waited for
//!   the turn is told; it is closed afterwards, outside the turn.

#![allow(unsafe_code, reason = "the turn is what makes a claim on the seat")]

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::pool::clock::{Stamp, stamp};
use crate::pool::connect::Connector;
use crate::pool::error::OperationError;
use crate::pool::meter::Sample;
use crate::pool::seat::{Claim, Seat};
use crate::pool::shared::SharedPool;
use crate::pool::table::Place;
use crate::pool::turn::{Granted, Waiting};

/// A session's turn on its connection; dereferences to the connection.
///
/// Dropping it ends the operation: its times are recorded, [`Connector::is_broken`] is asked, and
/// the turn goes to the next session. Dropping it while a panic unwinds condemns the connection,
/// which is then closed and not used again. Leaking it (`mem::forget`) keeps the turn for ever;
/// others then wait until their deadlines.
#[must_use = "dropping an operation ends it"]
pub struct Operation<'l, C: Connector> {
    target: Target<'l, C>,
    claim: Claim<'l, C>,
    idle_since: &'l mut Option<Stamp>,
    began: Stamp,
    waited_ns: u64,
    verdict: Verdict,
    /// Whether the operation began while a panic was unwinding, in a destructor: then unwinding at
    /// its end says nothing about it.
    began_unwinding: bool,
}

/// The connection an operation is for.
pub(crate) struct Target<'l, C: Connector> {
    pub(crate) pool: &'l SharedPool<C>,
    pub(crate) seat: &'l Seat<C>,
    pub(crate) place: Option<Place>,
}

impl<C: Connector> Clone for Target<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Connector> Copy for Target<'_, C> {}

impl<C: Connector> Target<'_, C> {
    /// Whether the connection is still the one the session was given.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        match self.place {
            Some(place) => self.pool.table().slot(place.index).is_current(place.generation),
            None => {
                // SAFETY: the seat is the session's own, borrowed here, so nobody changes it; and
                // the claim only looks.
                let claim = unsafe { self.seat.claim() };
                claim.has_connection()
            }
        }
    }
}

/// What is known of a connection at the end of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Sound,
    Condemned,
}

impl<'l, C: Connector> Operation<'l, C> {
    /// The caller has the turn of `target`, since `asked` if it had to wait for it.
    #[inline]
    pub(crate) fn with_turn(
        target: Target<'l, C>,
        idle_since: &'l mut Option<Stamp>,
        asked: Option<Stamp>,
    ) -> Result<Self, OperationError> {
        if !target.is_current() {
            target.seat.turn.pass();
            return Err(OperationError::Broken);
        }
        // SAFETY: the caller has the turn, and its session is counted in the slot's generation,
        // which is open: looked up a line ago, and nobody can retire or condemn it meanwhile.
        let claim = unsafe { target.seat.claim() };
        let began = stamp();
        Ok(Self {
            target,
            claim,
            idle_since,
            began,
            waited_ns: asked.map_or(0, |asked| began.nanos_since(asked)),
            verdict: Verdict::Sound,
            began_unwinding: std::thread::panicking(),
        })
    }

    /// Condemns the connection: at the end of this operation it leaves the pool and is closed.
    /// Its sessions are told on their next operation.
    pub fn condemn(&mut self) {
        self.verdict = Verdict::Condemned;
    }

    /// Runs `work` on the connection. If it panics, the connection is condemned even if the panic
    /// is caught before this operation is dropped.
    pub fn run<R>(&mut self, work: impl FnOnce(&mut C::Connection) -> R) -> R {
        let before = std::mem::replace(&mut self.verdict, Verdict::Condemned);
        let result = self.claim.with_connection(work);
        self.verdict = before;
        result
    }

    /// Runs an `async` operation on the connection to its end. If the future is dropped half-way,
    /// or panics, the connection is condemned: nobody knows where its exchange stands.
    pub async fn run_async<R>(mut self, work: impl AsyncFnOnce(&mut C::Connection) -> R) -> R {
        let before = std::mem::replace(&mut self.verdict, Verdict::Condemned);
        let result = work(&mut self).await;
        self.verdict = before;
        result
    }

    /// How long the session waited for its turn.
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns)
    }

    /// Everything after the verdict. Called once, by `Drop`.
    #[inline]
    fn finish(&mut self) {
        let Target { pool, seat, place } = self.target;
        let ended = stamp();
        let sample = Sample {
            wait_ns: self.waited_ns,
            service_ns: ended.nanos_since(self.began),
            think_ns: self.idle_since.map(|since| self.began.nanos_since(since)),
        };
        *self.idle_since = Some(ended);
        pool.record(place, sample);
        let broken = match self.verdict {
            Verdict::Sound => None,
            Verdict::Condemned => Some((pool.condemn(place), self.claim.take_connection())),
        };
        let held_up = seat.turn.pass();
        if pool.is_long(sample.service_ns) || broken.is_some() {
            pool.finish_unusual(place, sample.service_ns, held_up, broken);
        }
    }
}

impl<C: Connector> Deref for Operation<'_, C> {
    type Target = C::Connection;

    #[inline]
    fn deref(&self) -> &C::Connection {
        self.claim.connection()
    }
}

impl<C: Connector> DerefMut for Operation<'_, C> {
    #[inline]
    fn deref_mut(&mut self) -> &mut C::Connection {
        self.claim.connection_mut()
    }
}

impl<C: Connector> Drop for Operation<'_, C> {
    #[inline]
    fn drop(&mut self) {
        /// Ends the operation whatever the connector's look at the connection does.
        struct Ending<'o, 'l, C: Connector>(&'o mut Operation<'l, C>);

        impl<C: Connector> Drop for Ending<'_, '_, C> {
            #[inline]
            fn drop(&mut self) {
                self.0.finish();
            }
        }

        let ending = Ending(self);
        if ending.0.verdict == Verdict::Sound {
            // Condemned until the look is over: if it panics, that is the verdict.
            ending.0.verdict = Verdict::Condemned;
            let unwinding = std::thread::panicking() && !ending.0.began_unwinding;
            let connector = ending.0.target.pool.connector();
            if !unwinding && !ending.0.claim.with_connection(|c| connector.is_broken(c)) {
                ending.0.verdict = Verdict::Sound;
            }
        }
    }
}

impl<C: Connector> std::fmt::Debug for Operation<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operation")
            .field("connection", &self.target.place.map(|place| place.index))
            .field("waited", &self.waited())
            .finish_non_exhaustive()
    }
}

/// A future that resolves to an [`Operation`] when it is the session's turn.
///
/// Dropping it gives up the place in the queue; if the turn came at that moment, it goes on to the
/// next session.
#[must_use = "futures do nothing unless polled"]
pub struct BeginOperation<'l, C: Connector> {
    target: Option<Target<'l, C>>,
    /// `None` once the future has resolved.
    idle_since: Option<&'l mut Option<Stamp>>,
    waiting: Option<(Waiting<'l>, Stamp)>,
}

impl<'l, C: Connector> BeginOperation<'l, C> {
    pub(crate) fn new(target: Option<Target<'l, C>>, idle_since: &'l mut Option<Stamp>) -> Self {
        Self { target, idle_since: Some(idle_since), waiting: None }
    }

    fn resolve(
        &mut self,
        target: Target<'l, C>,
        asked: Option<Stamp>,
    ) -> Result<Operation<'l, C>, OperationError> {
        let idle_since =
            self.idle_since.take().expect("a future is not polled after it has resolved");
        Operation::with_turn(target, idle_since, asked)
    }
}

impl<'l, C: Connector> Future for BeginOperation<'l, C> {
    type Output = Result<Operation<'l, C>, OperationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(target) = this.target else {
            return Poll::Ready(Err(OperationError::Broken));
        };
        if this.waiting.is_none() {
            // A session whose connection is gone need not queue to be told.
            if !target.is_current() {
                return Poll::Ready(Err(OperationError::Broken));
            }
            match target.seat.turn.request(target.pool.settings().waiters_max) {
                Granted::Now => return Poll::Ready(this.resolve(target, None)),
                Granted::TooMany(waiting) => {
                    return Poll::Ready(Err(OperationError::TooManyWaiting { waiting }));
                }
                Granted::Later(waiting) => this.waiting = Some((waiting, stamp())),
            }
        }
        let (waiting, asked) = this.waiting.as_mut().expect("set above");
        let asked = *asked;
        if waiting.poll(context).is_pending() {
            return Poll::Pending;
        }
        this.waiting = None;
        Poll::Ready(this.resolve(target, Some(asked)))
    }
}

impl<C: Connector> std::fmt::Debug for BeginOperation<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BeginOperation")
            .field("waiting", &self.waiting.is_some())
            .finish_non_exhaustive()
    }
}
