//! A pool of connections to a real PostgreSQL server: what a session that panicked left behind in
//! its transaction is nobody else's.
#![cfg(feature = "postgres")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test program")]
#![allow(clippy::disallowed_types, reason = "a test's own bookkeeping")]
#![allow(clippy::disallowed_methods, reason = "a test's deadlines are real time")]

mod pool_support;
mod support;

use std::{
    future::{Ready, ready},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use pool_support::{hide_planned_panics, until};
use postgres::{Client, NoTls};
use support::postgres::Server;
use tidegate::pool::{AcquireError, Connector, OperationError, PoolSettings, SharedPool};

/// How often the connection was left in the middle of a transaction.
const ROUNDS: i32 = 1_000;

/// Connects to a server.
#[derive(Default)]
struct Record {
    url: String,
    panics_in_connect: AtomicBool,
    panics_in_close: AtomicBool,
    opened: AtomicUsize,
    closed: AtomicUsize,
}

struct Connects(Arc<Record>);

impl Connector for Connects {
    type Connection = Client;
    type Error = postgres::Error;
    type Connecting = Ready<Result<Client, postgres::Error>>;

    fn connect(&self) -> Self::Connecting {
        assert!(!self.0.panics_in_connect.swap(false, Ordering::SeqCst), "planned");
        self.0.opened.fetch_add(1, Ordering::SeqCst);
        ready(Client::connect(&self.0.url, NoTls))
    }

    fn close(&self, connection: Client) {
        self.0.closed.fetch_add(1, Ordering::SeqCst);
        drop(connection);
        assert!(!self.0.panics_in_close.swap(false, Ordering::SeqCst), "planned");
    }

    fn is_broken(&self, connection: &mut Client) -> bool {
        connection.is_closed()
    }
}

type Pool = SharedPool<Connects>;

/// A pool of one connection that sessions share, and a table of numbers.
fn pool(server: &Server) -> (Arc<Pool>, Arc<Record>) {
    hide_planned_panics();
    let mut client = server.client("postgres");
    // To be there after the server was killed.
    client.batch_execute("SET synchronous_commit = on").unwrap();
    client.batch_execute("CREATE TABLE numbers (number INT PRIMARY KEY)").unwrap();
    let url = server.url("postgres").replace("application_name=test", "application_name=pool");
    let record = Arc::new(Record { url, ..Record::default() });
    let settings = PoolSettings::builder().max_shared(1).min_shared(1).build().unwrap();
    (Arc::new(SharedPool::new(Connects(Arc::clone(&record)), settings)), record)
}

fn panic_in_transaction(pool: &Pool, number: i32) {
    let mut session = pool.acquire().unwrap();
    let mut operation = session.begin().unwrap();
    operation.batch_execute("BEGIN").unwrap();
    operation.execute("INSERT INTO numbers VALUES ($1)", &[&number]).unwrap();
    panic!("planned");
}

fn numbers(client: &mut Client) -> Vec<i32> {
    let rows = client.query("SELECT number FROM numbers ORDER BY number", &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn a_panic_in_a_transaction_closes_the_connection_and_the_next_session_sees_nothing_of_it() {
    let server = Server::start();
    let (pool, record) = pool(&server);
    for round in 0..ROUNDS {
        if round % 10 == 0 {
            let pool = Arc::clone(&pool);
            thread::spawn(move || panic_in_transaction(&pool, round)).join().unwrap_err();
        } else {
            catch_unwind(AssertUnwindSafe(|| panic_in_transaction(&pool, round))).unwrap_err();
        }
        assert_eq!((pool.counts().sessions, pool.counts().open), (0, 0));
        let mut session = pool.acquire().unwrap();
        let mut operation = session.begin().unwrap();
        assert_eq!(numbers(&mut operation), [] as [i32; 0]);
        // As the next user would, without having begun anything.
        operation.batch_execute("COMMIT").unwrap();
        operation.batch_execute("BEGIN").unwrap();
        operation.batch_execute("COMMIT").unwrap();
    }
    assert_eq!(numbers(&mut server.client("postgres")), [] as [i32; 0]);
    let rounds = usize::try_from(ROUNDS).unwrap();
    assert_eq!(record.opened.load(Ordering::SeqCst), 1 + rounds);
    assert_eq!(record.closed.load(Ordering::SeqCst), rounds);
    assert_eq!((pool.counts().sessions, pool.counts().open), (0, 1));
    assert_eq!(server.serving("pool").len(), 1);
}

#[test]
fn who_waits_for_its_turn_while_the_holder_panics_is_told_and_gets_a_new_connection() {
    let server = Server::start();
    let (pool, record) = pool(&server);
    for round in 0..100 {
        let entered = Barrier::new(2);
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                let mut session = pool.acquire().unwrap();
                let mut operation = session.begin().unwrap();
                entered.wait();
                operation.batch_execute("BEGIN").unwrap();
                operation.execute("INSERT INTO numbers VALUES ($1)", &[&round]).unwrap();
                until("the other session waits", || pool.counts().waiting == 1);
                panic!("planned");
            });
            let mut session = pool.acquire().unwrap();
            entered.wait();
            assert_eq!(session.begin().unwrap_err(), OperationError::Broken);
            session.renew().unwrap();
            let mut operation = session.begin().unwrap();
            assert_eq!(numbers(&mut operation), [] as [i32; 0]);
            operation.batch_execute("COMMIT").unwrap();
            drop(operation);
            first.join().unwrap_err();
        });
        assert_eq!(pool.counts().sessions, 0);
    }
    assert_eq!(numbers(&mut server.client("postgres")), [] as [i32; 0]);
    let opened = record.opened.load(Ordering::SeqCst);
    assert_eq!(opened - record.closed.load(Ordering::SeqCst), 1);
}

#[test]
fn panics_in_the_connector_and_in_the_close_use_up_nothing() {
    let server = Server::start();
    let (pool, record) = pool(&server);
    for round in 0..100 {
        record.panics_in_connect.store(true, Ordering::SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| pool.acquire().map(drop))).is_err());
        assert_eq!(pool.counts(), tidegate::pool::Counts::default());
        record.panics_in_close.store(true, Ordering::SeqCst);
        // The connection is closed while its user unwinds, and panics, too.
        catch_unwind(AssertUnwindSafe(|| panic_in_transaction(&pool, round))).unwrap_err();
        assert!(!record.panics_in_close.load(Ordering::SeqCst), "it was closed");
        assert_eq!((pool.counts().sessions, pool.counts().open), (0, 0));
        let mut session = pool.acquire().unwrap();
        let mut operation = session.begin().unwrap();
        assert_eq!(numbers(&mut operation), [] as [i32; 0]);
        drop(operation);
        drop(session);
        // So that the next round connects again.
        let mut session = pool.acquire().unwrap();
        let operation = session.begin().unwrap();
        catch_unwind(AssertUnwindSafe(move || {
            let _held = operation;
            panic!("planned");
        }))
        .unwrap_err();
    }
}

#[test]
fn a_server_that_ends_breaks_its_connections_and_is_found_again() {
    let mut server = Server::start();
    let (pool, _record) = pool(&server);
    let mut session = pool.acquire().unwrap();
    assert_eq!(numbers(&mut session.begin().unwrap()), [] as [i32; 0]);
    server.kill();
    assert!(session.begin().unwrap().batch_execute("SELECT 1").is_err());
    assert_eq!(session.begin().unwrap_err(), OperationError::Broken);
    drop(session);
    let refused = pool.acquire().unwrap_err();
    assert!(matches!(refused, AcquireError::Connect(_)), "{refused}");
    server.restart();
    let mut session = pool.acquire().unwrap();
    assert_eq!(numbers(&mut session.begin().unwrap()), [] as [i32; 0]);
}
