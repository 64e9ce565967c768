//! The whole pool, with a connector that counts: never more connections than the maximum, each
//! closed once, no waiter lost, no count left.
#![allow(clippy::disallowed_types, reason = "real counters: no part of what is explored")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use loom::thread;
use tidegate::pool::{AcquireError, Connector, PoolSettings, SharedPool};

use crate::support::{Canary, RealCount, canary, model};

pub const CANARIES: &[Canary] = &[canary("acquire.look", "pool_shared::no_waiter_is_lost")];

/// Counts, with the real counters: they are no part of what is explored.
#[derive(Default)]
struct Record {
    opened: RealCount,
    closed: RealCount,
    live_max: RealCount,
}

struct Counting {
    record: Arc<Record>,
    plan: Plan,
}

/// How each attempt goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    Opens,
    Fails,
    /// Opens when it is polled for the second time.
    Pends,
}

#[derive(Debug)]
struct Refused;

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {}

type Pool = SharedPool<Counting>;

impl Connector for Counting {
    /// Operations that the connection has seen; the seat's cell watches that they are ordered.
    type Connection = usize;
    type Error = Refused;
    type Connecting = Attempt;

    fn connect(&self) -> Attempt {
        Attempt { record: Arc::clone(&self.record), plan: self.plan }
    }

    fn close(&self, _connection: usize) {
        self.record.closed.fetch_add(1, Ordering::SeqCst);
    }
}

struct Attempt {
    record: Arc<Record>,
    plan: Plan,
}

impl Future for Attempt {
    type Output = Result<usize, Refused>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.plan {
            Plan::Opens => {}
            Plan::Fails => return Poll::Ready(Err(Refused)),
            Plan::Pends => {
                self.plan = Plan::Opens;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let closed = self.record.closed.load(Ordering::SeqCst);
        let live = self.record.opened.fetch_add(1, Ordering::SeqCst) + 1 - closed;
        self.record.live_max.fetch_max(live, Ordering::SeqCst);
        Poll::Ready(Ok(0))
    }
}

fn pool(max: i64, min: i64, plan: Plan) -> (Arc<Pool>, Arc<Record>) {
    let record = Arc::new(Record::default());
    let settings = PoolSettings::builder().max_shared(max).min_shared(min).build().unwrap();
    let connector = Counting { record: Arc::clone(&record), plan };
    (Arc::new(SharedPool::new(connector, settings)), record)
}

/// At the end of each model: nothing is left, and what was opened was closed, once.
fn settle(pool: &Pool, record: &Record, max: usize) {
    assert_eq!(pool.counts().sessions, 0, "a count was left");
    pool.shutdown();
    assert_eq!(record.opened.load(Ordering::SeqCst), record.closed.load(Ordering::SeqCst));
    assert!(record.live_max.load(Ordering::SeqCst) <= max);
}

#[test]
fn no_waiter_is_lost() {
    model("no_waiter_is_lost", || {
        let (pool, record) = pool(1, 1, Plan::Opens);
        let other = Arc::clone(&pool);
        // One connects, the other shares or waits for it: a lost wake is a deadlock.
        let thread = thread::spawn(move || drop(other.acquire().unwrap()));
        drop(pool.acquire().unwrap());
        thread.join().unwrap();
        assert_eq!(record.opened.load(Ordering::SeqCst), 1);
        settle(&pool, &record, 1);
    });
}

#[test]
fn a_failure_reaches_everybody() {
    model("a_failure_reaches_everybody", || {
        let (pool, record) = pool(1, 1, Plan::Fails);
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.acquire().map(drop));
        assert!(matches!(pool.acquire().map(drop), Err(AcquireError::Connect(_))));
        assert!(matches!(thread.join().unwrap(), Err(AcquireError::Connect(_))));
        settle(&pool, &record, 0);
    });
}

#[test]
fn operations_on_a_shared_connection_are_ordered() {
    model("operations_on_a_shared_connection_are_ordered", || {
        let (pool, record) = pool(1, 1, Plan::Opens);
        let mut mine = pool.acquire_owned().unwrap();
        let mut theirs = pool.acquire_owned().unwrap();
        // The cell in the seat ends the model on a use that is not ordered.
        let thread = thread::spawn(move || {
            theirs.begin().unwrap().run(|operations| *operations += 1);
        });
        mine.begin().unwrap().run(|operations| *operations += 1);
        thread.join().unwrap();
        assert_eq!(mine.begin().unwrap().run(|operations| *operations), 2);
        drop(mine);
        settle(&pool, &record, 1);
    });
}

#[test]
fn dropped_leases_return_their_counts_and_close_what_is_over_the_minimum() {
    model("dropped_leases_return_their_counts", || {
        let (pool, record) = pool(2, 1, Plan::Opens);
        let (mine, theirs) = (pool.acquire_owned().unwrap(), pool.acquire_owned().unwrap());
        let thread = thread::spawn(move || drop(theirs));
        drop(mine);
        thread.join().unwrap();
        assert_eq!((pool.counts().open, record.closed.load(Ordering::SeqCst)), (1, 1));
        settle(&pool, &record, 2);
    });
}

#[test]
fn a_release_and_a_login_agree_on_the_connection() {
    model("a_release_and_a_login_agree", || {
        let (pool, record) = pool(2, 1, Plan::Opens);
        let (first, second) = (pool.acquire_owned().unwrap(), pool.acquire_owned().unwrap());
        let thread = thread::spawn(move || drop(first));
        let mut third = pool.acquire_owned().unwrap();
        third.begin().unwrap().run(|operations| *operations += 1);
        drop((second, third));
        thread.join().unwrap();
        assert_eq!(pool.counts().open, 1);
        settle(&pool, &record, 2);
    });
}

#[test]
fn a_condemned_connection_is_told_and_replaced() {
    model("a_condemned_connection_is_told_and_replaced", || {
        let (pool, record) = pool(1, 1, Plan::Opens);
        let (mut mine, mut theirs) = (pool.acquire_owned().unwrap(), pool.acquire_owned().unwrap());
        let thread = thread::spawn(move || mine.begin().unwrap().condemn());
        let told = theirs.begin().map(drop).is_err();
        if told {
            theirs.renew().unwrap();
            theirs.begin().unwrap().run(|operations| *operations += 1);
        }
        thread.join().unwrap();
        assert_ne!(told, theirs.is_broken());
        drop(theirs);
        settle(&pool, &record, 1);
    });
}

#[test]
fn shutdown_meets_a_login_and_a_logout() {
    model("shutdown_meets_a_login_and_a_logout", || {
        let (pool, record) = pool(1, 1, Plan::Opens);
        drop(pool.acquire().unwrap());
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || match other.acquire() {
            Ok(lease) => drop(lease),
            Err(error) => assert!(matches!(error, AcquireError::Shutdown), "{error}"),
        });
        pool.shutdown();
        thread.join().unwrap();
        settle(&pool, &record, 1);
    });
}

#[test]
fn a_dropped_future_leaves_its_attempt_to_the_next() {
    model("a_dropped_future_leaves_its_attempt", || {
        let (pool, record) = pool(1, 1, Plan::Pends);
        // The driver polls once, is told to come again, and leaves; wherever that happens in the
        // other's way, the other ends with a connection, and it is the one that was begun.
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || drop(other.acquire().unwrap()));
        let mut future = Box::pin(pool.acquire_async());
        let polled = future.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
        drop((polled, future));
        thread.join().unwrap();
        assert_eq!(record.opened.load(Ordering::SeqCst), 1);
        settle(&pool, &record, 1);
    });
}
