//! A session's hold on a connection.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::pool::acquire::Acquiring;
use crate::pool::clock::{Stamp, deadline_after, stamp};
use crate::pool::connect::Connector;
use crate::pool::error::{AcquireError, OperationError};
use crate::pool::operation::{BeginOperation, Operation, Target};
use crate::pool::seat::Seat;
use crate::pool::shared::SharedPool;
use crate::pool::table::Place;
use crate::sync::{Plain, block_on};

/// A lease that borrows its pool, and so costs no reference count.
pub type BorrowedLease<'p, C> = Lease<C, &'p SharedPool<C>>;

/// A session's hold on a connection, from login to logout.
///
/// Shape: one count on one connection; or the connection itself, in a pool that does not share.
/// Dropping it ends the session: the count goes back, and the connection is closed if that was
/// the last session on it and more than the minimum are open. All operations of a session go
/// through its lease, one at a time. What must not mix with other sessions' operations (a
/// transaction) belongs into one operation.
///
/// If [`Connector::close`] panics while a lease is dropped, the count is back and the slot free
/// before the panic goes on; a second panic during unwinding is swallowed instead.
#[must_use = "dropping a lease ends the session"]
pub struct Lease<C: Connector, P: Deref<Target = SharedPool<C>> = Plain<SharedPool<C>>> {
    pool: P,
    held: Held<C>,
    /// When the session's last operation ended.
    idle_since: Option<Stamp>,
}

/// What a session holds.
pub(crate) enum Held<C: Connector> {
    /// A count on a connection of the table.
    Pooled(Place),
    /// A connection of its own.
    Own(Box<Seat<C>>),
    /// Nothing: taking another connection failed.
    Nothing,
}

impl<C: Connector, P: Deref<Target = SharedPool<C>>> Lease<C, P> {
    #[inline]
    pub(crate) fn new(pool: P, held: Held<C>) -> Self {
        Self { pool, held, idle_since: None }
    }

    /// Begins an operation: waits until it is this session's turn on its connection, at most the
    /// pool's `wait_timeout`.
    ///
    /// # Errors
    /// [`OperationError::Broken`] if the connection broke since the last operation: take another
    /// with [`renew`](Self::renew). [`OperationError::Timeout`] and
    /// [`OperationError::TooManyWaiting`] leave the session as it is.
    #[inline]
    pub fn begin(&mut self) -> Result<Operation<'_, C>, OperationError> {
        // One exchange if the turn is free.
        if !self.target().is_some_and(|target| target.seat.turn.take()) {
            let deadline = deadline_after(self.pool.settings().wait_timeout);
            return self.begin_until(deadline);
        }
        // Looked up again, since what is looked up above cannot be returned below.
        let target = target_of(&self.pool, &self.held).ok_or(OperationError::Broken)?;
        Operation::with_turn(target, &mut self.idle_since, None)
    }

    /// Begins an operation as [`begin`](Self::begin) does, and waits until `deadline`.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub fn begin_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<Operation<'_, C>, OperationError> {
        self.begin_until(Some(deadline))
    }

    /// Begins an operation if the turn is free now; `None` if it is not.
    ///
    /// # Errors
    /// [`OperationError::Broken`] as for [`begin`](Self::begin).
    pub fn try_begin(&mut self) -> Result<Option<Operation<'_, C>>, OperationError> {
        let target = target_of(&self.pool, &self.held).ok_or(OperationError::Broken)?;
        if !target.seat.turn.take() {
            return Ok(None);
        }
        Operation::with_turn(target, &mut self.idle_since, None).map(Some)
    }

    /// Begins an operation, as a future that needs no executor in particular. It has no deadline
    /// of its own; dropping it gives up the place in the queue.
    pub fn begin_async(&mut self) -> BeginOperation<'_, C> {
        let target = target_of(&self.pool, &self.held);
        BeginOperation::new(target, &mut self.idle_since)
    }

    /// Whether the session's connection broke. The next operation would say so.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.target().is_none_or(|target| !target.is_current())
    }

    /// Takes another connection if this session's broke; does nothing otherwise. Waits at most
    /// the pool's `wait_timeout`.
    ///
    /// # Errors
    /// As for [`SharedPool::acquire`]; the session then holds no connection and can try again.
    pub fn renew(&mut self) -> Result<(), AcquireError<C::Error>> {
        if !self.is_broken() {
            return Ok(());
        }
        let timeout = self.pool.settings().wait_timeout;
        match block_on(self.renew_async(), deadline_after(timeout)) {
            Some(result) => result,
            None => Err(self.pool.timed_out(timeout)),
        }
    }

    /// Takes another connection as [`renew`](Self::renew) does, as a future without a deadline.
    ///
    /// # Errors
    /// As for [`SharedPool::acquire`]. If the future is dropped before its end, the session holds
    /// no connection and can try again.
    pub async fn renew_async(&mut self) -> Result<(), AcquireError<C::Error>> {
        if !self.is_broken() {
            return Ok(());
        }
        self.give_back();
        let renewal = Renewal { pool: &*self.pool, acquiring: Acquiring::new() };
        self.held = renewal.await?;
        Ok(())
    }

    /// Place of the connection in the pool's table, from 0; `None` if it is the session's own or
    /// there is none.
    #[must_use]
    pub fn connection(&self) -> Option<usize> {
        match &self.held {
            Held::Pooled(place) => Some(place.index),
            Held::Own(_) | Held::Nothing => None,
        }
    }

    fn begin_until(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Operation<'_, C>, OperationError> {
        let began = stamp();
        let target = target_of(&self.pool, &self.held);
        let begin = BeginOperation::new(target, &mut self.idle_since);
        block_on(begin, deadline).unwrap_or_else(|| {
            let waited = Duration::from_nanos(stamp().nanos_since(began));
            Err(OperationError::Timeout { waited })
        })
    }

    #[inline]
    fn target(&self) -> Option<Target<'_, C>> {
        target_of(&self.pool, &self.held)
    }

    fn give_back(&mut self) {
        match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Pooled(place) => self.pool.release(place),
            Held::Own(seat) => self.pool.release_own(&seat),
            Held::Nothing => {}
        }
        self.idle_since = None;
    }
}

#[inline]
fn target_of<'l, C: Connector>(
    pool: &'l SharedPool<C>,
    held: &'l Held<C>,
) -> Option<Target<'l, C>> {
    match held {
        Held::Pooled(place) => {
            Some(Target { pool, seat: pool.seat(place.index), place: Some(*place) })
        }
        Held::Own(seat) => Some(Target { pool, seat, place: None }),
        Held::Nothing => None,
    }
}

impl<C: Connector, P: Deref<Target = SharedPool<C>>> Drop for Lease<C, P> {
    #[inline]
    fn drop(&mut self) {
        match &self.held {
            Held::Pooled(place) => self.pool.release(*place),
            Held::Own(_) | Held::Nothing => self.give_back(),
        }
    }
}

impl<C: Connector, P: Deref<Target = SharedPool<C>>> std::fmt::Debug for Lease<C, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("connection", &self.connection())
            .field("is_broken", &self.is_broken())
            .finish_non_exhaustive()
    }
}

/// A lease on its way to another connection.
struct Renewal<'l, C: Connector> {
    pool: &'l SharedPool<C>,
    acquiring: Acquiring<C>,
}

impl<C: Connector> Future for Renewal<'_, C> {
    type Output = Result<Held<C>, AcquireError<C::Error>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let pool = self.pool;
        self.acquiring.poll(pool, context)
    }
}

impl<C: Connector> Drop for Renewal<'_, C> {
    fn drop(&mut self) {
        self.acquiring.abandon(self.pool);
    }
}
