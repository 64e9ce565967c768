//! Which connection a session gets, what happens when it leaves, and how operations take turns.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test program")]
#![allow(clippy::disallowed_methods, reason = "a test's deadlines are real time")]

mod pool_support;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pool_support::{
    Connection, Plan, Refused, block_on, hide_planned_panics, now_or_never, poll_once, pool,
    pool_with, until,
};
use tidegate::pool::{
    AcquireError, AuthenticateError, Authenticated, OperationError, Partition, PoolEvent,
    PoolSettings,
};

#[test]
fn pool_starts_empty_and_opens_with_the_sessions() {
    let (pool, record) = pool(3, 1);
    assert_eq!((pool.counts().open, record.begun()), (0, 0));
    assert!(pool.try_acquire().is_none(), "nothing is open, and this call makes nothing");
    let sessions: Vec<_> = (0..3).map(|_| pool.acquire().unwrap()).collect();
    assert_eq!((pool.counts().open, record.opened()), (3, 3));
    let fourth = pool.acquire().unwrap();
    assert_eq!((record.opened(), fourth.connection()), (3, Some(0)));
    drop((sessions, fourth));
}

/// C21: Oracle's example, and who shares when 100 sessions log in one after the other.
#[test]
fn a_hundred_sessions_share_ten_connections_of_a_server_in_order() {
    let partition = Partition::new(500, 5, 50, 50).unwrap();
    for server in 0..partition.servers() {
        let (pool, record) = pool_with(partition.settings(server, &PoolSettings::default()));
        let share = partition.share(server);
        let mut sessions = Vec::new();
        for session in 0..share.tasks {
            sessions.push(pool.acquire_owned().unwrap());
            assert_eq!(sessions[session].connection(), Some(session % 10));
        }
        assert_eq!(record.opened(), 10);
        assert_eq!(pool.usage(), vec![Some(10); 10]);
        // Sessions 1, 11, 21, ... are on the first connection.
        let on_first: Vec<_> =
            (1..=100).filter(|number| sessions[number - 1].connection() == Some(0)).collect();
        assert_eq!(on_first, [1, 11, 21, 31, 41, 51, 61, 71, 81, 91]);
        drop(sessions);
        assert_eq!((pool.counts().open, pool.counts().sessions), (10, 0));
    }
}

#[test]
fn a_session_keeps_its_connection_and_the_least_used_gets_the_next() {
    let (pool, _record) = pool(3, 3);
    let mut sessions: Vec<_> = (0..9).map(|_| pool.acquire().unwrap()).collect();
    let before: Vec<_> = sessions.iter().map(|session| session.connection()).collect();
    drop(sessions.remove(4)); // It was on connection 1.
    let next = pool.acquire().unwrap();
    assert_eq!(next.connection(), Some(1));
    let mut expected = before;
    expected.remove(4);
    assert_eq!(sessions.iter().map(|session| session.connection()).collect::<Vec<_>>(), expected);
}

#[test]
fn more_than_the_minimum_closes_and_the_minimum_itself_stays() {
    let (pool, record) = pool(4, 2);
    let mut sessions: Vec<_> = (0..5).map(|_| pool.acquire().unwrap()).collect();
    drop(sessions.pop()); // The second session on connection 0: nothing to close.
    assert_eq!((record.closed(), pool.counts().open), (0, 4));
    drop(sessions.pop());
    drop(sessions.pop());
    assert_eq!((record.closed(), pool.counts().open), (2, 2));
    // "At least the minimum" in the source would close here and fall under it.
    drop(sessions);
    assert_eq!((record.closed(), pool.counts().open), (2, 2));
    assert_eq!(pool.counts().sessions, 0);
}

#[test]
fn shutdown_closes_the_rest_and_refuses_new_sessions() {
    let (pool, record) = pool(3, 3);
    let mut staying = pool.acquire().unwrap();
    drop([pool.acquire().unwrap(), pool.acquire().unwrap()]);
    let report = pool.shutdown();
    assert_eq!((report.closed, report.in_use, record.closed()), (2, 1, 2));
    assert!(matches!(pool.acquire(), Err(AcquireError::Shutdown)));
    assert!(pool.try_acquire().is_none());
    assert!(matches!(
        pool.authenticate(|| Ok::<_, Infallible>(Connection::new(&record))),
        Err(AuthenticateError::Shutdown)
    ));
    // Who is in goes on to its end.
    assert_eq!(staying.begin().unwrap().number, 1);
    drop(staying);
    assert_eq!((record.closed(), record.live()), (3, 0));
    assert_eq!(pool.shutdown().closed, 0);
    assert_eq!(record.begun(), 3);
}

#[test]
fn dropping_the_pool_closes_its_connections() {
    let (pool, record) = pool(2, 2);
    let lease = pool.acquire_owned().unwrap();
    drop(pool);
    assert_eq!(record.closed(), 0, "an owned lease keeps its pool");
    drop(lease);
    assert_eq!((record.opened(), record.closed()), (1, 1));
}

#[test]
fn waiters_hear_of_a_shutdown_at_once() {
    let (pool, record) = pool(1, 1);
    let held = Arc::default();
    record.next(Plan::Hold(Arc::clone(&held)));
    let mut driver = pin!(pool.acquire_async());
    let mut waiter = pin!(pool.acquire_async());
    assert!(poll_once(driver.as_mut()).is_pending() && poll_once(waiter.as_mut()).is_pending());
    assert_eq!(pool.shutdown().in_use, 1);
    assert!(matches!(block_on(waiter), Err(AcquireError::Shutdown)));
    held.open();
    assert!(matches!(block_on(driver), Err(AcquireError::Shutdown)));
    assert_eq!((record.opened(), record.closed()), (1, 1), "what arrived late was closed");
}

#[test]
fn without_sharing_each_session_has_a_connection_of_its_own() {
    let (pool, record) = pool_with(PoolSettings::default());
    let mut first = pool.acquire().unwrap();
    let mut second = block_on(pool.acquire_async()).unwrap();
    assert_eq!(pool.counts().own, 2);
    assert_eq!((first.connection(), pool.counts().open), (None, 0));
    let (one, two) = (first.begin().unwrap(), second.begin().unwrap());
    assert_ne!(one.number, two.number);
    drop((one, two));
    first.begin().unwrap().condemn();
    assert_eq!((pool.counts().own, record.closed()), (1, 1));
    assert!(first.is_broken());
    assert_eq!(first.begin().unwrap_err(), OperationError::Broken);
    first.renew().unwrap();
    assert_eq!(first.begin().unwrap().number, 3);
    assert_eq!(pool.shutdown().in_use, 2);
    assert!(matches!(pool.acquire(), Err(AcquireError::Shutdown)));
    drop((first, second));
    assert_eq!((record.closed(), pool.counts().own), (3, 0));
    assert_eq!(pool.timings().service.count, 4);
}

#[test]
fn operations_on_a_connection_run_one_at_a_time_in_order_of_arrival() {
    let (pool, _record) = pool(1, 1);
    let mut sessions: Vec<_> = (0..5).map(|_| pool.acquire().unwrap()).collect();
    let (holder, waiting) = sessions.split_first_mut().unwrap();
    let operation = holder.begin().unwrap();
    assert!(waiting[0].try_begin().unwrap().is_none());
    let mut queue: Vec<_> = waiting.iter_mut().map(|lease| Box::pin(lease.begin_async())).collect();
    for begin in &mut queue {
        assert!(poll_once(begin.as_mut()).is_pending());
    }
    assert_eq!(pool.counts().waiting, 4);
    drop(operation);
    drop(queue.remove(1)); // Gave up: its place is skipped.
    for next in 0..queue.len() {
        for later in &mut queue[next + 1..] {
            assert!(poll_once(later.as_mut()).is_pending());
        }
        let std::task::Poll::Ready(turn) = poll_once(queue[next].as_mut()) else {
            panic!("it is the turn of {next}")
        };
        drop(turn.unwrap());
    }
    drop(queue);
    assert_eq!(pool.counts().waiting, 0);
    let timings = pool.timings();
    assert_eq!((timings.wait.count, timings.service.count), (4, 4));
    assert!(timings.wait.max > Duration::ZERO, "three of them waited");
}

#[test]
fn waiting_for_a_turn_has_a_deadline_and_a_maximum() {
    let mut settings = PoolSettings::builder();
    settings.max_shared(1).min_shared(1).waiters_max(1).wait_timeout(Duration::from_millis(2));
    let (pool, _record) = pool_with(settings.build().unwrap());
    let (mut first, mut second) = (pool.acquire().unwrap(), pool.acquire().unwrap());
    let operation = first.begin().unwrap();
    let error = second.begin().unwrap_err();
    assert!(
        matches!(error, OperationError::Timeout { waited, .. } if waited >= Duration::from_millis(2))
    );
    let error = second.begin_deadline(Instant::now()).unwrap_err();
    // Who gave up still has its place.
    assert!(matches!(error, OperationError::TooManyWaiting { waiting: 1, .. }), "{error}");
    drop(operation);
    assert!(second.begin().is_ok(), "the session kept its connection");
}

#[test]
fn a_long_operation_is_reported_with_the_sessions_it_held_up() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut settings = PoolSettings::builder();
    settings.max_shared(1).min_shared(1).long_running(Duration::from_millis(3));
    let reported = Arc::clone(&seen);
    settings.observer(move |event| reported.lock().unwrap().push(event.clone()));
    let (pool, _record) = pool_with(settings.build().unwrap());
    let mut sessions: Vec<_> = (0..4).map(|_| pool.acquire().unwrap()).collect();
    drop(sessions[0].begin().unwrap());
    assert!(seen.lock().unwrap().is_empty());

    let (holder, waiting) = sessions.split_first_mut().unwrap();
    let long = holder.begin().unwrap();
    let began = Instant::now();
    let mut queue: Vec<_> = waiting.iter_mut().map(|lease| Box::pin(lease.begin_async())).collect();
    for begin in &mut queue {
        assert!(poll_once(begin.as_mut()).is_pending());
    }
    until("the operation is long", || began.elapsed() > Duration::from_millis(4));
    drop(long);
    let events = seen.lock().unwrap();
    let [PoolEvent::LongOperation(long)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((long.connection, long.held_up), (Some(0), 3));
    assert!(long.service >= Duration::from_millis(4));
}

#[test]
fn an_authenticated_connection_joins_a_pool_with_room_and_is_closed_otherwise() {
    let (pool, record) = pool(2, 1);
    let login = || pool.authenticate(|| Ok::<_, Infallible>(Connection::new(&record)));
    assert_eq!(login().unwrap(), Authenticated::Joined);
    assert_eq!((pool.counts().open, pool.counts().sessions), (1, 0));
    // The login's session uses what the login opened.
    let session = pool.acquire().unwrap();
    assert_eq!((session.connection(), record.begun()), (Some(0), 0));
    let second = pool.acquire().unwrap();
    // The pool is full, and still each login has a connection of its own.
    pool.authenticate(|| {
        assert_eq!((pool.counts().authenticating, pool.counts().open), (1, 2));
        let connection = Connection::new(&record);
        assert_eq!(record.live(), 3);
        Ok::<_, Infallible>(connection)
    })
    .unwrap();
    assert_eq!((record.live(), pool.counts().authenticating), (2, 0));
    assert_eq!(
        now_or_never(
            pool.authenticate_async(async { Ok::<_, Infallible>(Connection::new(&record)) })
        )
        .unwrap()
        .unwrap(),
        Authenticated::Closed
    );
    let refused = pool.authenticate(|| Err(Refused)).unwrap_err();
    assert_eq!(std::error::Error::source(&refused).unwrap().to_string(), "connection refused");
    assert_eq!(pool.counts().authenticating, 0);
    drop((session, second));
}

#[test]
fn a_login_that_panics_or_is_dropped_is_not_counted_any_more() {
    hide_planned_panics();
    let (pool, _record) = pool(1, 1);
    let login = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pool.authenticate(|| -> Result<Connection, Infallible> { panic!("planned") })
    }));
    assert!(login.is_err());
    let mut never =
        Box::pin(pool.authenticate_async(std::future::pending::<Result<Connection, Infallible>>()));
    assert!(poll_once(never.as_mut()).is_pending());
    assert_eq!(pool.counts().authenticating, 1);
    drop(never);
    assert_eq!(pool.counts().authenticating, 0);
}

#[test]
fn a_broken_connection_is_told_to_its_sessions_and_never_handed_out_again() {
    let (pool, record) = pool(1, 1);
    let (mut first, mut second) = (pool.acquire().unwrap(), pool.acquire().unwrap());
    first.begin().unwrap().broken = true;
    assert_eq!((record.closed(), pool.counts().open, pool.counts().sessions), (1, 0, 0));
    let third = pool.acquire().unwrap();
    assert_eq!(record.opened(), 2);
    assert_eq!(first.begin().unwrap_err(), OperationError::Broken);
    assert_eq!(second.try_begin().unwrap_err(), OperationError::Broken);
    second.renew().unwrap();
    assert_eq!(second.begin().unwrap().number, 2);
    assert_eq!(pool.counts().sessions, 2);
    second.renew().unwrap();
    assert_eq!(pool.counts().sessions, 2, "a good connection is not renewed");
    drop(first); // Its count went with the broken connection.
    assert_eq!(pool.counts().sessions, 2);
    drop((second, third));
    assert_eq!(pool.counts().sessions, 0);
}

#[test]
fn a_running_pool_says_what_ratio_keeps_waits_short() {
    let (pool, _record) = pool(1, 1);
    let mut session = pool.acquire().unwrap();
    assert_eq!(pool.recommend(500, Duration::from_secs(1)), None, "nothing measured yet");
    for _ in 0..200 {
        drop(session.begin().unwrap());
    }
    let load = pool.load();
    assert_eq!((load.operations, load.thinks), (200, 199));
    assert!(load.service_mean_s > 0.0 && load.service_square_s2 > 0.0 && load.think_mean_s > 0.0);
    let short = pool.recommend(500, Duration::ZERO).unwrap();
    assert_eq!((short.sessions_per_connection, short.connections), (1, 500));
    let long = pool.recommend(500, Duration::from_secs(3600)).unwrap();
    assert!(long.sessions_per_connection >= short.sessions_per_connection);
    assert_eq!(long.connections, 500_usize.div_ceil(long.sessions_per_connection));
}
