//! How a session comes to its connection: takes one, makes one, or waits.
//!
//! A session that finds nothing open and every slot in the making waits until something changes.
//! Whoever drives an attempt and gives up leaves it in its seat, where the next one goes on with
//! it; so no attempt, and no connection that comes of it, is lost with the session that began it.
//!
//! # Invariants
//! - Whoever changes a slot so that a waiter could go on notifies after the change; a waiter
//!   listens, looks again, and only then sleeps. Both sides have a full fence in between.
//! - A failure is published before its slot is empty. So a waiter that wakes by the empty slot
//!   sees the failure, and gets its cause instead of a try of its own.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::pool::connect::{Cause, Connector};
use crate::pool::error::AcquireError;
use crate::pool::lease::{Held, Lease};
use crate::pool::shared::SharedPool;
use crate::pool::table::{Assigned, Place};
use crate::sync::{EventListener, broken};

/// A future that resolves to a session's [`Lease`].
///
/// It needs no executor in particular. It has no deadline of its own: bound it with your
/// executor's, or use the blocking forms. Dropping it loses nothing: an attempt it drove goes on
/// with the next session. But one that drives an attempt and is neither polled nor dropped holds
/// that attempt up, and those who wait for it.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<C: Connector, P: Deref<Target = SharedPool<C>>> {
    /// `None` once the future has resolved.
    pool: Option<P>,
    acquiring: Acquiring<C>,
}

impl<C: Connector, P: Deref<Target = SharedPool<C>>> Acquire<C, P> {
    pub(crate) fn new(pool: P, acquiring: Acquiring<C>) -> Self {
        Self { pool: Some(pool), acquiring }
    }
}

impl<C, P> Future for Acquire<C, P>
where
    C: Connector,
    P: Deref<Target = SharedPool<C>> + Unpin,
{
    type Output = Result<Lease<C, P>, AcquireError<C::Error>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let pool = this.pool.as_ref().expect("a future is not polled after it has resolved");
        let Poll::Ready(result) = this.acquiring.poll(pool, context) else {
            return Poll::Pending;
        };
        let pool = this.pool.take().expect("it was there a line ago");
        Poll::Ready(result.map(|held| Lease::new(pool, held)))
    }
}

impl<C: Connector, P: Deref<Target = SharedPool<C>>> Drop for Acquire<C, P> {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            self.acquiring.abandon(pool);
        }
    }
}

impl<C: Connector, P: Deref<Target = SharedPool<C>>> std::fmt::Debug for Acquire<C, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stage = match self.acquiring.stage {
            Stage::Looking => "looking",
            Stage::Driving { .. } | Stage::DrivingOwn(_) => "connecting",
        };
        f.debug_struct("Acquire").field("stage", &stage).finish_non_exhaustive()
    }
}

/// The state of a session on its way to a connection. Whoever owns it calls
/// [`abandon`](Self::abandon) if it stops before the end.
pub(crate) struct Acquiring<C: Connector> {
    stage: Stage<C>,
    /// How many failures the pool had when this session began to wait.
    failures_seen: Option<u64>,
    listener: Option<EventListener>,
}

enum Stage<C: Connector> {
    Looking,
    Driving { place: Place, origin: Origin },
    DrivingOwn(Pin<Box<C::Connecting>>),
}

/// Whose attempt it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Begun by this session, or while it waited: its failure is this session's.
    Ours,
    /// Left by somebody before this session came: its failure is old news, and the session makes
    /// a try of its own.
    Found,
}

impl<C: Connector> Acquiring<C> {
    pub(crate) const fn new() -> Self {
        Self { stage: Stage::Looking, failures_seen: None, listener: None }
    }

    pub(crate) fn poll(
        &mut self,
        pool: &SharedPool<C>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Held<C>, AcquireError<C::Error>>> {
        loop {
            // The stage is taken out: if the connector panics, there is nothing left to abandon.
            match std::mem::replace(&mut self.stage, Stage::Looking) {
                Stage::Looking => {}
                Stage::Driving { place, origin } => match pool.drive(place, context) {
                    Poll::Pending => {
                        self.stage = Stage::Driving { place, origin };
                        return Poll::Pending;
                    }
                    Poll::Ready(Driven::Opened) => {
                        return Poll::Ready(Ok(Held::Pooled(place)));
                    }
                    Poll::Ready(Driven::Shut) => {
                        return Poll::Ready(Err(AcquireError::Shutdown));
                    }
                    Poll::Ready(Driven::Failed(cause)) => {
                        if origin == Origin::Ours {
                            pool.attempt_failed(place, cause.clone());
                            return Poll::Ready(Err(AcquireError::from_cause(cause)));
                        }
                        self.begin(pool, place);
                        continue;
                    }
                },
                Stage::DrivingOwn(mut attempt) => {
                    let Poll::Ready(result) = attempt.as_mut().poll(context) else {
                        self.stage = Stage::DrivingOwn(attempt);
                        return Poll::Pending;
                    };
                    return Poll::Ready(pool.own_connected(result));
                }
            }
            if pool.is_shut() {
                return Poll::Ready(Err(AcquireError::Shutdown));
            }
            if pool.is_unshared() {
                self.stage = Stage::DrivingOwn(Box::pin(pool.connector().connect()));
                continue;
            }
            if let Some(cause) = self.failures_seen.and_then(|seen| pool.failure_since(seen)) {
                return Poll::Ready(Err(AcquireError::from_cause(cause)));
            }
            match pool.table().assign() {
                Assigned::Joined(place) => return Poll::Ready(Ok(Held::Pooled(place))),
                Assigned::Full => return Poll::Ready(Err(AcquireError::TooManySessions)),
                Assigned::Reserved(place) => {
                    self.begin(pool, place);
                    continue;
                }
                Assigned::TakenOver(place) => {
                    let waited = self.failures_seen.is_some();
                    let origin = if waited { Origin::Ours } else { Origin::Found };
                    self.stage = Stage::Driving { place, origin };
                    continue;
                }
                Assigned::Nothing => {}
            }
            if self.failures_seen.is_none() {
                self.failures_seen = Some(pool.failures());
            }
            // Listen, look again, wait: what changes between the look and the wait is not lost.
            if self.listener.is_none() {
                self.listener = Some(pool.changes().listen());
                if !broken("acquire.look") {
                    continue;
                }
            }
            if let Some(listener) = &mut self.listener {
                if Pin::new(listener).poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.listener = None;
            }
        }
    }

    /// Begins an attempt in a slot that this session claimed.
    fn begin(&mut self, pool: &SharedPool<C>, place: Place) {
        pool.begin_attempt(place);
        self.stage = Stage::Driving { place, origin: Origin::Ours };
    }

    /// Stops on the way. An attempt is left for the next session.
    pub(crate) fn abandon(&mut self, pool: &SharedPool<C>) {
        self.listener = None;
        if let Stage::Driving { place, .. } = std::mem::replace(&mut self.stage, Stage::Looking) {
            pool.park_attempt(place);
        }
    }
}

/// How far an attempt has come.
pub(crate) enum Driven<E> {
    /// The connection is open and counts the driver.
    Opened,
    /// The pool was shut down; the connection was closed.
    Shut,
    /// No connection; the slot is still the driver's.
    Failed(Cause<E>),
}
