//! The pool: slots, the seats beside them, and who is waiting.

#![allow(unsafe_code, reason = "claims on seats follow from the slots' steps")]

use std::error::Error;
use std::future::Future;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::pool::acquire::{Acquire, Acquiring, Driven};
use crate::pool::clock::{deadline_after, now, prepare};
use crate::pool::connect::{Cause, Connector};
use crate::pool::error::{AcquireError, AuthenticateError};
use crate::pool::event::{LongOperation, PoolEvent};
use crate::pool::lease::{BorrowedLease, Held, Lease};
use crate::pool::meter::{Meter, Sample, Timings, Totals, Writers};
use crate::pool::seat::{Claim, Occupant, Seat};
use crate::pool::settings::{PoolSettings, Sharing};
use crate::pool::sizing::{Load, Sizing, measured};
use crate::pool::slot::{Settled, State};
use crate::pool::table::{Assigned, Place, Released, Table};
use crate::sync::{
    AtomicBool, AtomicUsize, CachePadded, Event, Ordering, Plain, Snapshot, block_on,
};

/// Connections that many sessions share. See the [module](crate::pool).
///
/// Shape: a table of `max_shared` slots, allocated once; none of it grows. Dropping the pool shuts
/// it down.
pub struct SharedPool<C: Connector> {
    table: Table,
    seats: Box<[Seat<C>]>,
    meters: Box<[Meter]>,
    /// Set once. The slots carry it too; this one is for those who find no slot.
    shut: AtomicBool,
    settings: PoolSettings,
    /// The setting, where every operation looks.
    long_running_ns: u64,
    connector: C,
    /// Notified when a waiting session could go on.
    changes: CachePadded<Event>,
    failure: Snapshot<Failure<C::Error>>,
    /// Connections of sessions that share nothing.
    own: AtomicUsize,
    own_meter: Meter,
    /// Connections that logins opened for their authentication.
    authenticating: AtomicUsize,
}

/// The last failure to connect.
struct Failure<E> {
    /// How many there were.
    count: u64,
    cause: Option<Cause<E>>,
}

/// What is in a pool, at about one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Shared connections that are open.
    pub open: usize,
    /// Shared connections in the making.
    pub connecting: usize,
    /// Shared connections that left the pool and are being closed.
    pub closing: usize,
    /// Sessions on shared connections.
    pub sessions: usize,
    /// Connections of sessions that share nothing.
    pub own: usize,
    /// Connections that logins opened for their authentication, until they join the pool or are
    /// closed. They come on top of the others.
    pub authenticating: usize,
    /// Operations that wait for their turn.
    pub waiting: usize,
}

/// What shutdown found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Connections that it closed.
    pub closed: usize,
    /// Connections that were in use or in the making; the last session to leave closes each.
    pub in_use: usize,
}

/// Where a login's connection went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Authenticated {
    /// It joined the pool, which had room.
    Joined,
    /// The pool was full, so it was closed.
    Closed,
}

impl<C: Connector> SharedPool<C> {
    /// Makes an empty pool; connections are opened when sessions come.
    #[must_use]
    pub fn new(connector: C, settings: PoolSettings) -> Self {
        prepare();
        let (max, min) = match settings.sharing() {
            Sharing::Off => (0, 0),
            Sharing::Pooled { max, min } => (max, min),
        };
        Self {
            table: Table::new(max, min),
            seats: (0..max).map(|_| Seat::new(Occupant::Nothing)).collect(),
            meters: (0..max).map(|_| Meter::new()).collect(),
            shut: AtomicBool::new(false),
            long_running_ns: u64::try_from(settings.long_running.as_nanos()).unwrap_or(u64::MAX),
            settings,
            connector,
            changes: CachePadded::new(Event::new()),
            failure: Snapshot::new(Failure { count: 0, cause: None }),
            own: AtomicUsize::new(0),
            own_meter: Meter::new(),
            authenticating: AtomicUsize::new(0),
        }
    }

    /// Gives a session its connection: an unused one, else a new one while under the maximum,
    /// else the one with the fewest sessions. Waits at most the pool's `wait_timeout`, and only
    /// if every connection is in the making or being closed.
    ///
    /// A connector that blocks does so on this thread, and is not interrupted by the timeout.
    ///
    /// # Errors
    /// [`AcquireError`]: shut down, not connected (with the cause, for everybody who waited), or
    /// not in time.
    #[inline]
    pub fn acquire(&self) -> Result<BorrowedLease<'_, C>, AcquireError<C::Error>> {
        match self.acquire_open() {
            Some(held) => Ok(Lease::new(self, held)),
            None => self.acquire_blocking(self, None),
        }
    }

    /// Gives a session its connection as [`acquire`](Self::acquire) does, and waits until
    /// `deadline`.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire).
    pub fn acquire_deadline(
        &self,
        deadline: Instant,
    ) -> Result<BorrowedLease<'_, C>, AcquireError<C::Error>> {
        match self.acquire_open() {
            Some(held) => Ok(Lease::new(self, held)),
            None => self.acquire_blocking(self, Some(deadline)),
        }
    }

    /// Gives a session its connection as [`acquire`](Self::acquire) does, as a future.
    pub fn acquire_async(&self) -> Acquire<C, &Self> {
        Acquire::new(self, Acquiring::new())
    }

    /// Gives a session an open connection if there is one for it now: never waits, and never makes
    /// one. `None` as well if a new one would have to be made.
    #[inline]
    #[must_use]
    pub fn try_acquire(&self) -> Option<BorrowedLease<'_, C>> {
        self.acquire_open().map(|held| Lease::new(self, held))
    }

    /// As [`acquire`](Self::acquire), with a lease that keeps the pool alive.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire).
    pub fn acquire_owned(self: &Plain<Self>) -> Result<Lease<C>, AcquireError<C::Error>> {
        self.acquire_blocking(Plain::clone(self), None)
    }

    /// As [`acquire_deadline`](Self::acquire_deadline), with a lease that keeps the pool alive.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire).
    pub fn acquire_owned_deadline(
        self: &Plain<Self>,
        deadline: Instant,
    ) -> Result<Lease<C>, AcquireError<C::Error>> {
        self.acquire_blocking(Plain::clone(self), Some(deadline))
    }

    /// As [`acquire_async`](Self::acquire_async), with a lease that keeps the pool alive.
    pub fn acquire_owned_async(self: &Plain<Self>) -> Acquire<C, Plain<Self>> {
        Acquire::new(Plain::clone(self), Acquiring::new())
    }

    /// A login with a connection of its own: `open` opens it with the user's credentials. If that
    /// succeeds, the connection joins the pool if there is room, else it is closed. The session
    /// then acquires as any other.
    ///
    /// # Errors
    /// [`AuthenticateError::Refused`] with what `open` said.
    ///
    /// # Source
    /// Siebel shared connection pooling, database authentication: a connection per login, even if
    /// the pool is full; it counts apart.
    pub fn authenticate<A: Error + 'static>(
        &self,
        open: impl FnOnce() -> Result<C::Connection, A>,
    ) -> Result<Authenticated, AuthenticateError<A>> {
        let login = self.count_login()?;
        let connection = open().map_err(AuthenticateError::Refused)?;
        Ok(self.admit(login, connection))
    }

    /// As [`authenticate`](Self::authenticate), with a future. Dropping it drops `open`.
    ///
    /// # Errors
    /// As for [`authenticate`](Self::authenticate).
    pub async fn authenticate_async<A: Error + 'static>(
        &self,
        open: impl Future<Output = Result<C::Connection, A>>,
    ) -> Result<Authenticated, AuthenticateError<A>> {
        let login = self.count_login()?;
        let connection = open.await.map_err(AuthenticateError::Refused)?;
        Ok(self.admit(login, connection))
    }

    /// Shuts the pool down: closes every connection nobody uses and refuses new sessions from now
    /// on. Sessions that have one go on; the last to leave a connection closes it. Repeating it
    /// does no harm.
    ///
    /// # Panics
    /// If [`Connector::close`] panics; every connection has been seen to before.
    pub fn shutdown(&self) -> ShutdownReport {
        // SeqCst is not needed: a waiter listens before it looks at this flag, and both `listen`
        // and `notify` contain the full fence. Release pairs with `is_shut`.
        self.shut.store(true, Ordering::Release);
        let mut report = ShutdownReport { closed: 0, in_use: self.own.load(Ordering::Relaxed) };
        let mut panic = None;
        for index in 0..self.table.len() {
            let slot = self.table.slot(index);
            if slot.shut() {
                // SAFETY: `shut` retired the slot for this caller.
                let occupant = unsafe { self.seats[index].claim() }.take();
                if let Occupant::Connection(connection) = occupant {
                    self.table.count_lost();
                    report.closed += 1;
                    panic = self.close(connection).or(panic);
                }
                slot.emptied();
                self.table.became_available();
            } else if matches!(slot.peek().state(), State::Open | State::Connecting) {
                report.in_use += 1;
            }
        }
        self.changes.notify(usize::MAX);
        rethrow(panic);
        report
    }

    /// Whether the pool was shut down.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        // Acquire pairs with the store of `shutdown`; it carries nothing, the slots do.
        self.shut.load(Ordering::Acquire)
    }

    /// What is in the pool.
    #[must_use]
    pub fn counts(&self) -> Counts {
        // Relaxed: statistics.
        let mut counts = Counts {
            own: self.own.load(Ordering::Relaxed),
            authenticating: self.authenticating.load(Ordering::Relaxed),
            ..Counts::default()
        };
        for (index, seat) in self.seats.iter().enumerate() {
            let word = self.table.slot(index).peek();
            match word.state() {
                State::Open => {
                    counts.open += 1;
                    // A usage count has 28 bits.
                    counts.sessions += usize::try_from(word.usage()).unwrap_or(usize::MAX);
                }
                State::Connecting => counts.connecting += 1,
                State::Retiring => counts.closing += 1,
                State::Empty => {}
            }
            counts.waiting += seat.turn.waiting();
        }
        counts
    }

    /// Sessions on each shared connection, by place; `None` where none is open.
    #[must_use]
    pub fn usage(&self) -> Vec<Option<usize>> {
        (0..self.table.len())
            .map(|index| self.table.slot(index).peek())
            .map(|word| {
                (word.state() == State::Open)
                    .then(|| usize::try_from(word.usage()).unwrap_or(usize::MAX))
            })
            .collect()
    }

    /// How long operations waited and took, over all connections since the pool was made.
    #[must_use]
    pub fn timings(&self) -> Timings {
        self.totals().timings()
    }

    /// What the pool measured of its sessions' operations.
    #[must_use]
    pub fn load(&self) -> Load {
        self.totals().load()
    }

    /// The size that would keep the mean wait for a turn under `wait`, for `tasks` sessions, from
    /// what this pool measured; `None` before 100 operations. See [`measured`].
    #[must_use]
    pub fn recommend(&self, tasks: usize, wait: Duration) -> Option<Sizing> {
        measured(tasks, &self.load(), wait)
    }

    /// The pool's settings.
    #[must_use]
    pub fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// The pool's connector.
    #[must_use]
    pub fn connector(&self) -> &C {
        &self.connector
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::new();
        for meter in self.meters.iter().chain([&self.own_meter]) {
            totals.add(meter);
        }
        totals
    }

    /// An open connection that the rules give to this session without making one.
    #[inline]
    fn acquire_open(&self) -> Option<Held<C>> {
        if let Some(place) = self.table.join_hinted() {
            return Some(Held::Pooled(place));
        }
        match self.table.assign_open() {
            Assigned::Joined(place) => Some(Held::Pooled(place)),
            _ => None,
        }
    }

    #[cold]
    fn acquire_blocking<P>(
        &self,
        pool: P,
        deadline: Option<Instant>,
    ) -> Result<Lease<C, P>, AcquireError<C::Error>>
    where
        P: Deref<Target = Self> + Unpin,
    {
        let deadline = deadline.or_else(|| deadline_after(self.settings.wait_timeout));
        let timeout =
            deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(now()));
        block_on(Acquire::new(pool, Acquiring::new()), deadline)
            .unwrap_or_else(|| Err(self.timed_out(timeout)))
    }
}

/// What leases, operations and sessions on their way ask of the pool.
impl<C: Connector> SharedPool<C> {
    #[inline]
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    #[inline]
    pub(crate) fn seat(&self, index: usize) -> &Seat<C> {
        &self.seats[index]
    }

    pub(crate) fn changes(&self) -> &Event {
        &self.changes
    }

    pub(crate) fn is_unshared(&self) -> bool {
        self.table.is_empty()
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failure.read(|failure| failure.count)
    }

    /// The last failure, if there was one since there were `seen`.
    pub(crate) fn failure_since(&self, seen: u64) -> Option<Cause<C::Error>> {
        self.failure
            .read(|failure| (failure.count != seen).then(|| failure.cause.clone()).flatten())
    }

    pub(crate) fn timed_out(&self, waited: Duration) -> AcquireError<C::Error> {
        let last_failure = self.failure_since(0).and_then(|cause| match cause {
            Cause::Refused(cause) => Some(cause),
            Cause::Panicked => None,
        });
        AcquireError::Timeout { waited, last_failure }
    }

    /// Begins an attempt in a slot that the caller drives. If the connector panics, the attempt
    /// has failed.
    pub(crate) fn begin_attempt(&self, place: Place) {
        let trap = FailedByPanic { pool: self, place };
        let attempt = Box::pin(self.connector.connect());
        trap.disarm();
        self.driver_claim(place).put(Occupant::Attempt(attempt));
    }

    /// Goes on with an attempt that the caller drives.
    pub(crate) fn drive(&self, place: Place, context: &mut Context<'_>) -> Poll<Driven<C::Error>> {
        let mut claim = self.driver_claim(place);
        let trap = FailedByPanic { pool: self, place };
        let polled = claim.poll_attempt(context);
        trap.disarm();
        match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(connection)) => {
                claim.put(Occupant::Connection(connection));
                Poll::Ready(self.open(place, claim, 1))
            }
            Poll::Ready(Err(error)) => {
                claim.put(Occupant::Nothing);
                Poll::Ready(Driven::Failed(Cause::Refused(Plain::new(error))))
            }
        }
    }

    /// The caller's attempt failed: tells everybody who waits.
    pub(crate) fn attempt_failed(&self, place: Place, cause: Cause<C::Error>) {
        self.failure.update(|last| {
            Some(Failure { count: last.count.wrapping_add(1), cause: Some(cause.clone()) })
        });
        // After the failure: who finds the slot empty has seen it.
        let abandoned = self.driver_claim(place).take();
        self.emptied(place);
        drop(abandoned);
    }

    /// The caller stops driving an attempt.
    pub(crate) fn park_attempt(&self, place: Place) {
        match self.table.slot(place.index).park() {
            Settled::Done => self.became_available(),
            Settled::Shut => {
                let abandoned = self.retired_claim(place).take();
                self.emptied(place);
                drop(abandoned);
            }
        }
    }

    /// The end of an attempt at a connection outside the table.
    pub(crate) fn own_connected(
        &self,
        result: Result<C::Connection, C::Error>,
    ) -> Result<Held<C>, AcquireError<C::Error>> {
        let connection = result.map_err(|error| AcquireError::Connect(Plain::new(error)))?;
        if self.is_shut() {
            rethrow(self.close(connection));
            return Err(AcquireError::Shutdown);
        }
        // Relaxed: a statistic.
        self.own.fetch_add(1, Ordering::Relaxed);
        Ok(Held::Own(Box::new(Seat::new(Occupant::Connection(connection)))))
    }

    /// A session leaves its shared connection.
    #[inline]
    pub(crate) fn release(&self, place: Place) {
        match self.table.release(place) {
            Released::Done => {}
            Released::Kept => {
                self.changes.notify(usize::MAX);
            }
            Released::Close => self.close_retired(place),
        }
    }

    /// A session leaves its own connection.
    pub(crate) fn release_own(&self, seat: &Seat<C>) {
        // SAFETY: the seat is the session's own, and the session is ending.
        let connection = unsafe { seat.claim() }.take_connection();
        if let Some(connection) = connection {
            // Relaxed: a statistic.
            self.own.fetch_sub(1, Ordering::Relaxed);
            rethrow(self.close(connection));
        }
    }

    /// Records an operation; the caller has the turn of its connection.
    #[inline]
    pub(crate) fn record(&self, place: Option<Place>, sample: Sample) {
        match place {
            Some(place) => self.meters[place.index].record(Writers::One, sample),
            None => self.own_meter.record(Writers::Many, sample),
        }
    }

    /// Whether an operation took longer than the long-running mark.
    #[inline]
    pub(crate) fn is_long(&self, service_ns: u64) -> bool {
        service_ns > self.long_running_ns
    }

    /// Takes a connection out of the pool; the caller has its turn. Returns how many sessions held
    /// it.
    pub(crate) fn condemn(&self, place: Option<Place>) -> usize {
        let Some(place) = place else {
            // Relaxed: a statistic.
            self.own.fetch_sub(1, Ordering::Relaxed);
            return 1;
        };
        let sessions = self.table.slot(place.index).condemn(place.generation);
        self.table.count_lost();
        // The caller found it open under its turn, so nobody else condemned it.
        sessions.map_or(0, |sessions| usize::try_from(sessions).unwrap_or(usize::MAX))
    }

    /// What is left to do, after the turn was passed on, for an operation that was long or broke
    /// its connection.
    #[cold]
    pub(crate) fn finish_unusual(
        &self,
        place: Option<Place>,
        service_ns: u64,
        held_up: usize,
        broken: Option<(usize, Option<C::Connection>)>,
    ) {
        let connection = place.map(|place| place.index);
        let mut panic = None;
        let mut events = [None, None];
        if let Some((sessions, lost)) = broken {
            panic = lost.and_then(|lost| self.close(lost));
            if let Some(place) = place {
                self.emptied(place);
            }
            events[0] = Some(PoolEvent::Broken { connection, sessions });
        }
        if self.is_long(service_ns) {
            let service = Duration::from_nanos(service_ns);
            let long = LongOperation { connection, service, held_up };
            events[1] = Some(PoolEvent::LongOperation(long));
        }
        if let Some(observe) = &self.settings.observer {
            for event in events.iter().flatten() {
                observe(event);
            }
        }
        rethrow(panic);
    }

    /// A connection is in the seat that the caller claimed: opens it with `usage` sessions.
    fn open(&self, place: Place, mut claim: Claim<'_, C>, usage: u64) -> Driven<C::Error> {
        self.table.count_opened();
        match self.table.slot(place.index).opened(usage) {
            Settled::Done => {
                self.became_available();
                Driven::Opened
            }
            Settled::Shut => {
                self.table.count_lost();
                let panic = claim.take_connection().and_then(|made| self.close(made));
                self.emptied(place);
                rethrow(panic);
                Driven::Shut
            }
        }
    }

    /// The caller retired this connection: closes it and frees the slot.
    #[cold]
    fn close_retired(&self, place: Place) {
        let panic = self.retired_claim(place).take_connection().and_then(|made| self.close(made));
        self.emptied(place);
        rethrow(panic);
    }

    /// The caller's slot has nothing in its seat any more: it is free for a new connection.
    fn emptied(&self, place: Place) {
        self.table.slot(place.index).emptied();
        self.became_available();
    }

    /// A slot changed so that somebody else could go on.
    fn became_available(&self) {
        self.table.became_available();
        self.changes.notify(usize::MAX);
    }

    /// Closes a connection; a panic of the connector is given back, so that the caller can put
    /// things in order before it goes on.
    fn close(&self, connection: C::Connection) -> Option<Panic> {
        catch_unwind(AssertUnwindSafe(|| self.connector.close(connection))).err()
    }

    fn count_login<A: Error + 'static>(&self) -> Result<Login<'_>, AuthenticateError<A>> {
        if self.is_shut() {
            return Err(AuthenticateError::Shutdown);
        }
        Ok(Login::new(&self.authenticating))
    }

    /// A login's connection joins the pool or is closed.
    fn admit(&self, login: Login<'_>, connection: C::Connection) -> Authenticated {
        let Some(place) = self.table.reserve_vacant() else {
            // Counted until it is closed.
            let panic = self.close(connection);
            drop(login);
            rethrow(panic);
            return Authenticated::Closed;
        };
        let mut claim = self.driver_claim(place);
        claim.put(Occupant::Connection(connection));
        drop(login);
        match self.open(place, claim, 0) {
            Driven::Opened => Authenticated::Joined,
            Driven::Shut | Driven::Failed(_) => Authenticated::Closed,
        }
    }

    fn driver_claim(&self, place: Place) -> Claim<'_, C> {
        // SAFETY: callers drive the attempt in this slot: it is `Connecting` and counts them.
        unsafe { self.seats[place.index].claim() }
    }

    fn retired_claim(&self, place: Place) -> Claim<'_, C> {
        // SAFETY: callers retired this slot: it is `Retiring`, and nobody else has a say in it.
        unsafe { self.seats[place.index].claim() }
    }
}

impl<C: Connector> Drop for SharedPool<C> {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl<C: Connector> std::fmt::Debug for SharedPool<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedPool")
            .field("settings", &self.settings)
            .field("counts", &self.counts())
            .field("is_shut", &self.is_shut())
            .finish_non_exhaustive()
    }
}

/// Fails an attempt if the connector panics in it.
struct FailedByPanic<'p, C: Connector> {
    pool: &'p SharedPool<C>,
    place: Place,
}

impl<C: Connector> FailedByPanic<'_, C> {
    #[allow(clippy::mem_forget, reason = "a trap that did not spring owns nothing")]
    fn disarm(self) {
        std::mem::forget(self);
    }
}

impl<C: Connector> Drop for FailedByPanic<'_, C> {
    fn drop(&mut self) {
        self.pool.attempt_failed(self.place, Cause::Panicked);
    }
}

/// A login's connection, counted while it lives outside the pool.
struct Login<'p> {
    authenticating: &'p AtomicUsize,
}

impl<'p> Login<'p> {
    fn new(authenticating: &'p AtomicUsize) -> Self {
        // Relaxed: a statistic.
        authenticating.fetch_add(1, Ordering::Relaxed);
        Self { authenticating }
    }
}

impl Drop for Login<'_> {
    fn drop(&mut self) {
        // Relaxed: a statistic.
        self.authenticating.fetch_sub(1, Ordering::Relaxed);
    }
}

type Panic = Box<dyn std::any::Any + Send>;

/// Goes on with a connector's panic, now that everything is in order; unless another one is
/// unwinding already, which a second one would turn into an abort.
fn rethrow(panic: Option<Panic>) {
    if let Some(panic) = panic
        && !std::thread::panicking()
    {
        resume_unwind(panic);
    }
}
