//! What a store in a PostgreSQL database does when its server, the network or the broker before it
//! fail, with a real server.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test's deadlines are real time")]
#![allow(clippy::disallowed_types, reason = "a test's own bookkeeping")]

mod postgres_support;
mod support;

use std::{
    future::pending,
    pin::pin,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use event_listener::Event;
use postgres_support::{
    LONG, Lease, batch, commit_surely, connected, keys, opened, revived, try_revive,
};
use support::{
    postgres::{Server, signal, url_at},
    proxy::{Fault, Plan, Proxy, Script, Seed},
    wait_until,
};
use tidegate::store::{
    Durability::{Synced, Written},
    MessageStore, PostgresStore, Revival, StoreError, Wait,
};

/// Long enough for a busy machine not to lose it, short enough to wait for.
const SHORT: Duration = Duration::from_secs(3);

/// Waits for the lease as long as it takes.
fn take_over(store: &mut PostgresStore) -> u64 {
    store.acquire(Wait::Until(pin!(pending()))).unwrap()
}

/// As if another clock ran ahead: the lease is over though its holder has every reason to trust it.
fn end_lease(server: &Server) {
    let sql = "UPDATE tidegate_lease SET valid_until = now() - interval '1 second'";
    server.client("postgres").batch_execute(sql).unwrap();
}

#[test]
fn whoever_was_taken_over_writes_nothing_whatever_it_believes() {
    let server = Server::start();
    let url = server.url("postgres");
    let mut first = connected(&url, "first", LONG);
    assert_eq!(first.acquire(Wait::No).unwrap(), 1);
    first.commit(&batch(1, "first"), Synced).unwrap();
    end_lease(&server);
    let mut second = connected(&url, "second", LONG);
    assert_eq!(second.acquire(Wait::No).unwrap(), 2);
    let before = Lease::of(&server, "postgres");
    let late = first.commit(&batch(2, "late"), Synced).unwrap_err();
    assert!(matches!(late, StoreError::Fenced { .. }), "{late:?}");
    assert!(late.to_string().contains("second has it until"), "{late}");
    for error in [first.sync().unwrap_err(), first.revive().unwrap_err()] {
        assert!(matches!(error, StoreError::Fenced { .. }), "{error:?}");
    }
    assert!(matches!(first.close(), Err(StoreError::Fenced { .. })));
    drop(first);
    assert_eq!(Lease::of(&server, "postgres"), before, "nothing was changed");
    second.commit(&batch(2, "second"), Synced).unwrap();
    assert_eq!(keys(&server, "postgres"), ["first", "second"]);
}

#[test]
fn a_broker_that_stands_still_is_taken_over_after_its_lease_and_notices() {
    let server = Server::start();
    let url = server.url("postgres");
    let mut first = connected(&url, "first", SHORT);
    first.acquire(Wait::No).unwrap();
    first.commit(&batch(1, "first"), Synced).unwrap();
    let began = Instant::now();
    let mut second = connected(&url, "second", SHORT);
    let error = second.acquire(Wait::No).unwrap_err();
    assert!(error.to_string().contains("(first has it until 20"), "{error}");
    assert_eq!(take_over(&mut second), 2);
    let took = began.elapsed();
    assert!(took > SHORT / 2 && took < SHORT * 5, "{took:?}");
    // By its own clock the lease is over: it does not even ask.
    let late = first.commit(&batch(2, "late"), Synced).unwrap_err();
    assert!(late.to_string().contains("could not be extended in time"), "{late}");
    assert!(matches!(first.tend(), Err(StoreError::Lost { .. })));
    assert!(matches!(try_revive(&mut first), Err(StoreError::Fenced { .. })));
    assert_eq!(keys(&server, "postgres"), ["first"]);
}

#[test]
fn a_lease_that_ran_out_is_taken_up_again_if_nobody_came() {
    let server = Server::start();
    let mut store = connected(&server.url("postgres"), "first", Duration::from_secs(1));
    store.acquire(Wait::No).unwrap();
    wait_until("the lease is over", || {
        let sql = "SELECT valid_until < now() FROM tidegate_lease";
        server.client("postgres").query_one(sql, &[]).unwrap().get(0)
    });
    let batch = batch(1, "k");
    assert!(matches!(store.commit(&batch, Synced), Err(StoreError::Lost { .. })));
    assert_eq!(revived(&mut store), Revival::NotApplied);
    assert_eq!(commit_surely(&mut store, &batch), []);
    assert!(Lease::of(&server, "postgres").fence > 1);
}

#[test]
fn a_lease_is_kept_up_by_tending_alone() {
    let server = Server::start();
    let url = server.url("postgres");
    let mut store = connected(&url, "first", SHORT);
    store.acquire(Wait::No).unwrap();
    let mut other = connected(&url, "other", SHORT);
    let until = Instant::now() + SHORT * 2;
    let mut renewals = 0;
    while Instant::now() < until {
        let next = store.tend().unwrap().unwrap();
        assert!(next <= SHORT / 3, "{next:?}");
        renewals += u32::from(next == SHORT / 3);
        assert!(matches!(other.acquire(Wait::No), Err(StoreError::InUse { .. })));
    }
    assert!((5..=7).contains(&renewals), "{renewals} in six thirds of a lease");
}

#[test]
fn who_waits_takes_over_at_once_when_the_lease_is_given_back() {
    let server = Server::start();
    let url = server.url("postgres");
    for end in [|mut store: PostgresStore| store.close().unwrap(), drop::<PostgresStore>] {
        let mut first = connected(&url, "first", LONG);
        let fence = first.acquire(Wait::No).unwrap();
        let (told, hears) = mpsc::channel();
        let waiting = thread::spawn({
            let url = url.clone();
            move || {
                let mut second = connected(&url, "second", LONG);
                told.send(second.acquire(Wait::No).is_err()).unwrap();
                (take_over(&mut second), second)
            }
        });
        assert!(hears.recv().unwrap());
        let began = Instant::now();
        end(first);
        let (next, second) = waiting.join().unwrap();
        assert_eq!(next, fence + 1);
        assert!(began.elapsed() < LONG / 4, "{:?}", began.elapsed());
        drop(second);
    }
}

#[test]
fn who_waits_can_be_told_to_stop_and_outlives_the_server() {
    let mut server = Server::start();
    let url = server.url("postgres");
    let mut first = connected(&url, "first", SHORT);
    first.acquire(Wait::No).unwrap();
    let mut second = connected(&url, "second", SHORT);
    let stop = Event::new();
    let mut stopped = pin!(stop.listen());
    stop.notify(1);
    let error = second.acquire(Wait::Until(stopped.as_mut())).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error:?}");
    let waiting = thread::spawn(move || {
        let mut second = second;
        take_over(&mut second)
    });
    // A server that ends meanwhile is waited for as well, and the lease is found as it was.
    server.kill();
    server.restart();
    assert_eq!(waiting.join().unwrap(), 2);
    assert!(matches!(first.commit(&batch(1, "late"), Synced), Err(StoreError::Lost { .. })));
    assert!(matches!(try_revive(&mut first), Err(StoreError::Fenced { .. })));
}

#[test]
fn times_are_those_of_the_database() {
    let server = Server::start();
    let url = server.url("postgres");
    let mut client = server.client("postgres");
    client.batch_execute("ALTER ROLE tidegate SET timezone = 'Pacific/Auckland'").unwrap();
    let mut store = connected(&url, "first", LONG);
    store.acquire(Wait::No).unwrap();
    let sql = "SELECT extract(epoch FROM valid_until - now())::float8 FROM tidegate_lease";
    let left: f64 = client.query_one(sql, &[]).unwrap().get(0);
    assert!(left > 0.0 && left <= LONG.as_secs_f64(), "{left} s");
    let error = connected(&url, "other", LONG).acquire(Wait::No).unwrap_err().to_string();
    assert!(error.contains("+00)"), "{error}");
}

#[test]
fn what_is_still_under_way_after_coming_back_changes_nothing() {
    let server = Server::start();
    let url = server.url("postgres").replace("application_name=test", "application_name=slow");
    let mut store = connected(&url, "first", SHORT);
    store.acquire(Wait::No).unwrap();
    store.commit(&batch(1, "before"), Synced).unwrap();
    for number in 2..4 {
        // What serves the connection stands still: it reads the commit only later.
        let [serving] = server.serving("slow")[..] else { panic!("one connection") };
        signal("STOP", serving);
        let late = format!("late {number}");
        let fence = Lease::of(&server, "postgres").fence;
        let error = store.commit(&batch(number, &late), Synced).unwrap_err();
        assert!(error.to_string().contains("no answer within"), "{error}");
        assert_eq!(revived(&mut store), Revival::NotApplied);
        // What has not been read yet was said under the fence before; the end of its connection,
        // which would stop it as well, may take its time to arrive.
        assert!(Lease::of(&server, "postgres").fence > fence);
        let retried = batch(number, "again");
        store.commit(&retried, Synced).unwrap();
        signal("CONT", serving);
        wait_until("it has read all and is gone", || !server.serving("slow").contains(&serving));
        assert_eq!(keys(&server, "postgres"), ["again", "before"]);
        assert_eq!(Lease::of(&server, "postgres").last_batch, i64::try_from(number).unwrap());
    }
}

#[test]
fn a_commit_that_is_held_up_in_the_server_is_waited_for_before_anything_is_said_of_it() {
    let server = Server::start();
    let mut store = connected(&server.url("postgres"), "first", SHORT);
    store.acquire(Wait::No).unwrap();
    let mut client = server.client("postgres");
    client.batch_execute("BEGIN; LOCK TABLE tidegate_messages IN EXCLUSIVE MODE").unwrap();
    // The row of the lease is locked by a transaction that is not over.
    let batch = batch(1, "k");
    assert!(matches!(store.commit(&batch, Synced), Err(StoreError::Lost { .. })));
    client.batch_execute("COMMIT").unwrap();
    let found = revived(&mut store);
    let is_in = keys(&server, "postgres") == ["k"];
    assert_eq!(found == Revival::Applied, is_in);
    if !is_in {
        store.commit(&batch, Synced).unwrap();
    }
    assert_eq!(keys(&server, "postgres"), ["k"]);
}

#[test]
fn a_server_that_stands_still_is_noticed_within_the_lease() {
    let server = Server::start();
    let mut store = connected(&server.url("postgres"), "first", SHORT);
    store.acquire(Wait::No).unwrap();
    let mut reader = store.reader().unwrap();
    server.freeze(true);
    let began = Instant::now();
    let batch = batch(1, "k");
    let error = store.commit(&batch, Synced).unwrap_err();
    assert!(matches!(error, StoreError::Lost { .. }), "{error:?}");
    assert!(matches!(store.revive(), Err(StoreError::Lost { .. })));
    assert!(began.elapsed() < SHORT * 2, "{:?}", began.elapsed());
    let keys = [bytes::Bytes::from_static(b"k")];
    let space = tidegate::store::Space::Messages;
    assert!(matches!(reader.get_all(space, &keys), Err(StoreError::Lost { .. })));
    server.freeze(false);
    let found = revived(&mut store);
    if found == Revival::NotApplied {
        store.commit(&batch, Synced).unwrap();
    }
    assert_eq!(reader.get_all(space, &keys).unwrap(), [Some(bytes::Bytes::from_static(b"v"))]);
}

/// Notes every batch that the lease was moved on by, in the transaction that did.
fn audit(server: &Server) {
    let sql = "CREATE TABLE audit (batch BIGINT NOT NULL);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO audit VALUES (NEW.last_batch); RETURN NEW; END $$;
        CREATE TRIGGER note AFTER UPDATE ON tidegate_lease FOR EACH ROW
        WHEN (NEW.last_batch <> OLD.last_batch) EXECUTE FUNCTION note()";
    server.client("postgres").batch_execute(sql).unwrap();
}

/// Asserts that batches up to `last` are in the database, each of them once.
fn assert_once_each(server: &Server, last: u64) {
    let rows = server.client("postgres").query("SELECT batch FROM audit ORDER BY batch", &[]);
    let noted: Vec<i64> = rows.unwrap().iter().map(|row| row.get(0)).collect();
    let last = i64::try_from(last).unwrap();
    assert!(noted.iter().copied().eq(1..=last), "{noted:?} up to {last}");
    let keys = keys(server, "postgres");
    assert!(keys.iter().map(|key| key.parse::<i64>().unwrap()).eq(1..=last), "{keys:?}");
}

#[test]
fn a_server_that_is_killed_under_load_loses_no_batch_and_has_none_twice() {
    const ROUNDS: u32 = 10;
    let mut server = Server::start();
    let url = server.url("postgres");
    let mut store = connected(&url, "first", SHORT * 5);
    store.acquire(Wait::No).unwrap();
    audit(&server);
    let stop = AtomicBool::new(false);
    let (told, hears) = mpsc::channel();
    let last = thread::scope(|scope| {
        let committing = scope.spawn(|| {
            let mut number = 0;
            let mut found = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                number += 1;
                let key = format!("{number:09}");
                found.extend(commit_surely(&mut store, &batch(number, &key)));
                let _nobody_counts_any_more = told.send(number);
            }
            println!("{number} batches, found again as {found:?}");
            assert!(!found.is_empty(), "the server was killed");
            number
        });
        let mut seed = Seed(7);
        for _ in 0..ROUNDS {
            // Anywhere within the commits that follow.
            for _ in 0..=seed.below(30) {
                hears.recv().unwrap();
            }
            while hears.try_recv().is_ok() {}
            server.kill();
            server.restart();
        }
        hears.recv().unwrap();
        stop.store(true, Ordering::SeqCst);
        committing.join().unwrap()
    });
    assert_once_each(&server, last);
    // Between commits, with nothing in doubt.
    server.kill();
    server.restart();
    assert!(matches!(store.sync(), Err(StoreError::Lost { .. })));
    assert_eq!(revived(&mut store), Revival::NotApplied);
    let key = format!("{:09}", last + 1);
    assert_eq!(commit_surely(&mut store, &batch(last + 1, &key)), []);
    assert_once_each(&server, last + 1);
}

#[test]
fn what_was_only_written_may_be_lost_with_the_server_and_what_was_synced_never_is() {
    let mut server = Server::start();
    let mut store = opened(&server.url("postgres"));
    for number in (1..100).step_by(2) {
        store.commit(&batch(number, &format!("{number:09}")), Synced).unwrap();
        store.commit(&batch(number + 1, &format!("{:09}", number + 1)), Written).unwrap();
    }
    server.kill();
    server.restart();
    let keys = keys(&server, "postgres");
    // A prefix of them, up to the last that was synced at least.
    assert!(keys.len() >= 99, "{}", keys.len());
    assert_eq!(revived(&mut store), Revival::NotApplied);
    commit_surely(&mut store, &batch(101, "after"));
}

/// Connects through a network that fails once, takes the lease and commits three batches from
/// `first` on; what was in doubt and found again, and whether the network failed at all.
fn through(server: &Server, first: u64, lease: Duration, plan: Plan) -> (Vec<Revival>, bool) {
    let proxy = Proxy::start_with(server.address(), move |number| match number {
        0 => plan.clone(),
        _ => Plan::default(),
    });
    let url = url_at(proxy.address(), "postgres");
    let is_lost = |error: StoreError| assert!(matches!(error, StoreError::Lost { .. }), "{error}");
    let mut store = loop {
        match PostgresStore::connect(&url, postgres_support::settings("proxied", lease)) {
            Ok(store) => break store,
            Err(error) => is_lost(error),
        }
    };
    while let Err(error) = store.acquire(Wait::No) {
        is_lost(error);
    }
    let mut found = Vec::new();
    for number in first..first + 3 {
        let key = format!("{number:09}");
        found.extend(commit_surely(&mut store, &batch(number, &key)));
    }
    if let Err(error) = store.close() {
        is_lost(error);
        end_lease(server);
    }
    (found, proxy.accepted() > 1)
}

#[test]
fn a_connection_that_is_cut_anywhere_leaves_each_batch_in_once() {
    let server = Server::start();
    drop(opened(&server.url("postgres")));
    audit(&server);
    let (mut last, mut found) = (0, Vec::new());
    for to_server in [true, false] {
        // Through the whole exchange, until it is over before the fault.
        let mut at = 0;
        loop {
            let fault = if at % 2 == 0 { Fault::Cut } else { Fault::Reset };
            let script = Script::at(at, fault);
            let plan = if to_server {
                Plan { to_broker: script, ..Plan::default() }
            } else {
                Plan { to_client: script, ..Plan::default() }
            };
            let (again, failed) = through(&server, last + 1, LONG, plan);
            last += 3;
            found.extend(again);
            if !failed {
                break;
            }
            at += 31;
        }
        println!("{at} bytes, to the server: {to_server}");
        assert!(at > 500, "{at} bytes are no exchange");
    }
    assert_once_each(&server, last);
    let applied = found.iter().filter(|found| **found == Revival::Applied).count();
    println!("{applied} of {} in doubt were applied", found.len());
    assert!(applied > 0 && applied < found.len(), "{found:?}");
}

#[test]
fn a_network_that_says_nothing_any_more_leaves_each_batch_in_once() {
    let server = Server::start();
    drop(opened(&server.url("postgres")));
    audit(&server);
    let mut last = 0;
    for at in [0, 700, 1_500, 2_200] {
        for to_server in [true, false] {
            let script = Script::at(at, Fault::Stall);
            let plan = if to_server {
                Plan { to_broker: script, ..Plan::default() }
            } else {
                Plan { to_client: script, ..Plan::default() }
            };
            through(&server, last + 1, Duration::from_millis(900), plan);
            last += 3;
        }
    }
    assert_once_each(&server, last);
}
