//! Panics, broken connectors, waits that end, and futures that are dropped half-way.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test program")]
#![allow(clippy::disallowed_methods, reason = "a test's deadlines are real time")]

mod pool_support;

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use pool_support::{Fake, Plan, Record, block_on, hide_planned_panics, poll_once, pool, until};
use tidegate::pool::{AcquireError, OperationError, SharedPool};

/// What the session of case C17 does: a transaction that panics half-way.
fn panic_in_transaction(pool: &SharedPool<Fake>, row: u64) {
    let mut session = pool.acquire().unwrap();
    let mut operation = session.begin().unwrap();
    operation.begin();
    operation.insert(row);
    panic!("planned");
}

/// C17: the next session neither sees nor commits what a session that panicked left.
#[test]
fn a_panic_in_a_transaction_closes_the_connection_and_the_next_session_sees_nothing_of_it() {
    hide_planned_panics();
    let (pool, record) = pool(1, 1);
    for round in 0..1_000_u64 {
        let row = round + 1_000_000;
        if round.is_multiple_of(10) {
            let pool = Arc::clone(&pool);
            thread::spawn(move || panic_in_transaction(&pool, row)).join().unwrap_err();
        } else {
            catch_unwind(AssertUnwindSafe(|| panic_in_transaction(&pool, row))).unwrap_err();
        }
        assert_eq!((pool.counts().sessions, record.live()), (0, 0));
        let mut session = pool.acquire().unwrap();
        let mut operation = session.begin().unwrap();
        operation.begin();
        operation.insert(round);
        assert!(!operation.select().contains(&row));
        operation.commit();
        operation.broken = round.is_multiple_of(7);
    }
    assert!(record.table.lock().unwrap().iter().copied().eq(0..1_000));
    assert_eq!(record.live_max.load(Ordering::SeqCst), 1);
    assert!(record.closed() >= 1_000);
    assert_eq!((pool.counts().sessions, pool.counts().closing), (0, 0));
}

/// C17, variant: the other session waits for its turn on the same connection.
#[test]
fn who_waits_for_its_turn_while_the_holder_panics_is_told_and_can_take_another() {
    hide_planned_panics();
    let (pool, record) = pool(1, 1);
    for round in 0..200 {
        let entered = Barrier::new(2);
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                let mut session = pool.acquire().unwrap();
                let mut operation = session.begin().unwrap();
                entered.wait();
                operation.begin();
                operation.insert(round);
                until("the other session waits", || pool.counts().waiting == 1);
                panic!("planned");
            });
            let mut session = pool.acquire().unwrap();
            entered.wait();
            assert_eq!(session.begin().unwrap_err(), OperationError::Broken);
            session.renew().unwrap();
            assert!(session.begin().unwrap().select().is_empty());
            first.join().unwrap_err();
        });
        assert_eq!(pool.counts().sessions, 0);
    }
    assert_eq!(record.live_max.load(Ordering::SeqCst), 1);
    assert_eq!(record.opened() - record.closed(), 1);
}

/// C17, variant: the panic is inside the connector.
#[test]
fn a_connector_that_panics_frees_its_slot_and_tells_who_waited() {
    hide_planned_panics();
    let (pool, record) = pool(1, 1);
    for plan in [Plan::PanicInConnect, Plan::PanicInPoll] {
        record.next(plan);
        assert!(catch_unwind(AssertUnwindSafe(|| pool.acquire().map(drop))).is_err());
        assert_eq!(pool.counts(), tidegate::pool::Counts::default());
    }
    let held = Arc::default();
    record.next(Plan::Hold(Arc::clone(&held)));
    let mut driver = Box::pin(pool.acquire_async());
    assert!(poll_once(driver.as_mut()).is_pending());
    let mut waiter = pin!(pool.acquire_async());
    assert!(poll_once(waiter.as_mut()).is_pending());
    held.refuse();
    assert!(matches!(poll_once(driver.as_mut()), Poll::Ready(Err(AcquireError::Connect(_)))));
    assert!(matches!(poll_once(waiter), Poll::Ready(Err(AcquireError::Connect(_)))));
    assert!(pool.acquire().is_ok());
}

/// C17, variant: the panic is inside drop of the lease.
#[test]
fn a_close_that_panics_leaves_counts_and_slots_in_order() {
    hide_planned_panics();
    let (pool, record) = pool(2, 1);
    for _ in 0..100 {
        let (first, second) = (pool.acquire().unwrap(), pool.acquire().unwrap());
        record.panic_in_close.store(1, Ordering::SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(first))).is_err());
        drop(second);
        assert_eq!((pool.counts().open, pool.counts().sessions), (1, 0));
        assert_eq!((pool.counts().closing, record.live()), (0, 1));
    }
    // A panic in an operation whose connection then panics on close: no abort.
    record.panic_in_close.store(1, Ordering::SeqCst);
    catch_unwind(AssertUnwindSafe(|| panic_in_transaction(&pool, 0))).unwrap_err();
    assert_eq!((pool.counts().open, pool.counts().closing, record.live()), (0, 0, 0));
    // A look for damage that panics counts as damage.
    let mut session = pool.acquire().unwrap();
    record.panic_in_is_broken.store(1, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(session.begin().unwrap()))).is_err());
    assert_eq!(session.begin().unwrap_err(), OperationError::Broken);
    drop(session);
    assert!(pool.acquire().unwrap().begin().is_ok());
    // Shutdown sees to every connection before the panic goes on.
    let both = [pool.acquire().unwrap(), pool.acquire().unwrap()];
    let third = pool
        .authenticate(|| Ok::<_, pool_support::Refused>(pool_support::Connection::new(&record)));
    assert_eq!(third.unwrap(), tidegate::pool::Authenticated::Closed);
    drop(both);
    record.panic_in_close.store(1, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| pool.shutdown())).is_err());
    assert_eq!((record.live(), pool.counts().closing), (0, 0));
}

#[test]
fn a_caught_panic_inside_run_condemns_although_the_operation_lives_on() {
    hide_planned_panics();
    let (pool, record) = pool(1, 1);
    let mut session = pool.acquire().unwrap();
    let mut operation = session.begin().unwrap();
    assert_eq!(operation.run(|connection| connection.number), 1);
    catch_unwind(AssertUnwindSafe(|| operation.run(|_| panic!("planned")))).unwrap_err();
    drop(operation);
    assert_eq!(record.closed(), 1);
    assert_eq!(session.begin().unwrap_err(), OperationError::Broken);
}

#[test]
fn an_async_operation_dropped_half_way_condemns_its_connection() {
    let (pool, record) = pool(1, 1);
    let mut session = pool.acquire().unwrap();
    let operation = session.begin().unwrap();
    let number = block_on(operation.run_async(async |connection| connection.number));
    assert_eq!((number, record.closed()), (1, 0));
    let operation = session.begin().unwrap();
    let mut half_way = Box::pin(operation.run_async(async |connection| {
        connection.begin();
        std::future::pending::<()>().await;
    }));
    assert!(poll_once(half_way.as_mut()).is_pending());
    drop(half_way);
    assert_eq!(record.closed(), 1);
    assert!(session.is_broken());
}

/// C19: deadlines around the moment at which the connection arrives, a third of the futures
/// dropped. The connector takes 5 ms here, so that 2,000 rounds take seconds.
#[test]
fn callers_with_deadlines_around_the_arrival_lose_no_connection() {
    const LANES: usize = 8;
    const ROUNDS: usize = 2_000 / LANES;
    const CALLERS: usize = 20;
    let lanes: Vec<_> = (0..LANES)
        .map(|_| {
            thread::spawn(|| {
                let pools: Vec<_> = (0..ROUNDS).map(|_| pool(1, 1)).collect();
                for (_, record) in &pools {
                    record.usually(Plan::OpenAfter(Duration::from_millis(5)));
                }
                let together = Barrier::new(CALLERS);
                let outcomes: usize = thread::scope(|scope| {
                    let callers: Vec<_> = (0..CALLERS)
                        .map(|caller| {
                            let (pools, together) = (&pools, &together);
                            scope.spawn(move || call(pools, together, caller))
                        })
                        .collect();
                    callers.into_iter().map(|caller| caller.join().unwrap()).sum()
                });
                assert!(outcomes > 0, "somebody got a connection");
            })
        })
        .collect();
    for lane in lanes {
        lane.join().unwrap();
    }
}

/// One caller of C19 through all rounds: how often it got a lease.
fn call(
    pools: &[(Arc<SharedPool<Fake>>, Arc<Record>)],
    together: &Barrier,
    caller: usize,
) -> usize {
    let mut leases = 0;
    for (pool, record) in pools {
        together.wait();
        let began = Instant::now();
        // 4 ms to 5.9 ms, where the connection arrives after 5 ms.
        let deadline = began + Duration::from_micros(4_000 + 100 * caller as u64);
        if caller.is_multiple_of(3) {
            let mut future = Box::pin(pool.acquire_async());
            let mut lease = None;
            while lease.is_none() && Instant::now() < deadline {
                if let Poll::Ready(result) = poll_once(future.as_mut()) {
                    lease = Some(result.unwrap());
                }
                thread::yield_now();
            }
            leases += usize::from(lease.is_some());
            drop(future);
        } else {
            match pool.acquire_deadline(deadline) {
                Ok(_lease) => leases += 1,
                Err(AcquireError::Timeout { .. }) => assert!(Instant::now() >= deadline),
                Err(error) => panic!("{error}"),
            }
        }
        if together.wait().is_leader() {
            assert_eq!((pool.counts().sessions, pool.counts().connecting <= 1), (0, true));
            let lease = pool.acquire_deadline(Instant::now() + Duration::from_secs(30)).unwrap();
            assert_eq!(lease.connection(), Some(0));
            // Whoever left, the one attempt went on: nothing was lost and nothing made twice.
            assert_eq!((record.begun(), record.opened(), record.live()), (1, 1, 1));
        }
        together.wait();
    }
    leases
}

/// C19: a time-out without its cause sends people the wrong way.
#[test]
fn every_waiter_gets_the_cause_when_the_connector_fails_and_not_at_its_deadline() {
    let (pool, record) = pool(1, 1);
    let held = Arc::default();
    record.next(Plan::Hold(Arc::clone(&held)));
    let mut waiters: Vec<_> = (0..10).map(|_| Box::pin(pool.acquire_async())).collect();
    for waiter in &mut waiters {
        assert!(poll_once(waiter.as_mut()).is_pending());
    }
    held.refuse();
    let mut causes = Vec::new();
    for waiter in &mut waiters {
        let Poll::Ready(Err(error)) = poll_once(waiter.as_mut()) else { panic!("it failed") };
        assert_eq!(error.source().unwrap().to_string(), "connection refused");
        let AcquireError::Connect(cause) = error else { panic!("{error}") };
        causes.push(cause);
    }
    assert!(causes.iter().all(|cause| Arc::ptr_eq(cause, &causes[0])), "one and the same cause");
    assert_eq!(record.begun(), 1, "nobody tried again by itself");
    assert!(pool.acquire().is_ok());
}

#[test]
fn blocked_waiters_get_the_cause_long_before_their_deadline() {
    let (pool, record) = pool(1, 1);
    record.usually(Plan::RefuseAfter(Duration::from_millis(20)));
    let began = Instant::now();
    let waiters: Vec<_> = (0..10)
        .map(|_| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.acquire().map(drop))
        })
        .collect();
    for waiter in waiters {
        let error = waiter.join().unwrap().unwrap_err();
        assert!(matches!(error, AcquireError::Connect(_)), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(25), "the deadline is after 30 s");
    let late = pool.acquire_deadline(Instant::now() + Duration::from_millis(1)).unwrap_err();
    assert!(matches!(late, AcquireError::Timeout { .. }));
    assert_eq!(late.source().unwrap().to_string(), "connection refused");
}

#[test]
fn an_attempt_whose_session_left_goes_on_with_the_next_and_its_old_failure_is_not_news() {
    let (pool, record) = pool(1, 1);
    let (first, second) = (Arc::default(), Arc::default());
    record.next(Plan::Hold(Arc::clone(&first)));
    record.next(Plan::Hold(Arc::clone(&second)));
    let mut driver = Box::pin(pool.acquire_async());
    assert!(poll_once(driver.as_mut()).is_pending());
    drop(driver);
    assert_eq!(pool.counts().connecting, 1);
    first.refuse();
    // The failure was nobody's: the next session makes a try of its own in the same slot.
    let mut next = Box::pin(pool.acquire_async());
    assert!(poll_once(next.as_mut()).is_pending());
    assert_eq!(record.begun(), 2);
    drop(next);
    second.open();
    assert!(pool.acquire().is_ok(), "what arrived for nobody is in the pool");
    assert_eq!((record.begun(), record.opened()), (2, 1));
}

#[test]
fn a_waiter_takes_over_when_the_driver_leaves() {
    let (pool, record) = pool(1, 1);
    let held = Arc::default();
    record.next(Plan::Hold(Arc::clone(&held)));
    let mut driver = Box::pin(pool.acquire_async());
    assert!(poll_once(driver.as_mut()).is_pending());
    let waiter = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.acquire().map(drop))
    };
    drop(driver);
    held.open();
    waiter.join().unwrap().unwrap();
    assert_eq!((record.begun(), record.opened()), (1, 1));
}

/// C19: two sessions taking turns on one connection.
#[test]
fn two_sessions_take_a_hundred_thousand_turns_without_a_stall() {
    let (pool, _record) = pool(1, 1);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut session = pool.acquire().unwrap();
                for turn in 0..50_000_u32 {
                    let mut operation = session.begin().unwrap();
                    operation.inside += 1;
                    assert_eq!(operation.inside, 1);
                    if turn.is_multiple_of(64) {
                        thread::yield_now();
                    }
                    operation.inside -= 1;
                }
            });
        }
    });
    let timings = pool.timings();
    assert_eq!(timings.service.count, 100_000);
    assert!(timings.wait.max < Duration::from_secs(1), "{timings:?}");
}
