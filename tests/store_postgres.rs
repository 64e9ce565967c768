//! The store in a PostgreSQL database does what every store does, with a real server.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "tests")]

mod postgres_support;
mod store_support;
mod support;

use std::{sync::Barrier, thread};

use bytes::Bytes;
use postgres_support::{LONG, Lease, batch, connected, keys, opened, settings};
use store_support::{Store, contents};
use support::postgres::Server;
use tidegate::store::{
    Batch, Durability, MessageStore, Outcome, PostgresSettings, PostgresStore, Space, StoreError,
    Wait,
};

#[test]
fn a_database_is_a_store() {
    let server = Server::start();
    let mut number = 0;
    store_support::run(|| {
        number += 1;
        let name = format!("place_{number}");
        server.create(&name);
        let url = server.url(&name);
        move || Box::new(opened(&url)) as Store
    });
}

#[test]
fn tables_are_made_from_nothing_from_halves_and_never_over_newer_ones() {
    let server = Server::start();
    let url = server.url("postgres");
    let mut client = server.client("postgres");
    // Made by whoever comes first, and only what the lease needs.
    let waiting = connected(&url, "waiting", LONG);
    let tables = "SELECT count(*) FROM pg_class WHERE relname LIKE 'tidegate%' AND relkind = 'r'";
    let count =
        |client: &mut postgres::Client| -> i64 { client.query_one(tables, &[]).unwrap().get(0) };
    let all = 2 + i64::try_from(Space::ALL.len()).unwrap();
    assert_eq!(count(&mut client), 2);
    let mut store = opened(&url);
    assert_eq!(count(&mut client), all);
    assert_eq!(store.recover().unwrap().outcome, Outcome::Fresh);
    store.commit(&batch(1, "kept"), Durability::Synced).unwrap();
    store.close().unwrap();

    // As an older version, or one that did not get to its end, left them.
    for left in [
        "DELETE FROM tidegate_schema",
        "DELETE FROM tidegate_schema; DROP TABLE tidegate_recent, tidegate_copies",
        "DROP TABLE tidegate_lease",
    ] {
        client.batch_execute(left).unwrap();
        let mut store: Store = Box::new(opened(&url));
        assert_eq!(count(&mut client), all, "{left}");
        assert_eq!(contents(&mut store).len(), 1, "{left}");
        let version: i64 =
            client.query_one("SELECT max(version) FROM tidegate_schema", &[]).unwrap().get(0);
        assert_eq!(version, 1, "{left}");
    }

    // By a newer version.
    client.batch_execute("INSERT INTO tidegate_schema VALUES (7)").unwrap();
    for mut store in [waiting, connected(&url, "late", LONG)] {
        let error = store.acquire(Wait::No).unwrap_err();
        assert!(matches!(error, StoreError::Format { found: 7, known: 1 }), "{error}");
    }
    assert_eq!(Lease::of(&server, "postgres").token, "", "nobody took it");
}

#[test]
fn of_many_that_come_at_once_exactly_one_has_the_lease() {
    const ROUNDS: u64 = 50;
    let server = Server::start();
    let mut last_fence = 0;
    for round in 0..ROUNDS {
        // A new place now and then: the tables are made at the same time, too.
        let name = format!("round_{}", round / 10);
        if round % 10 == 0 {
            server.create(&name);
            last_fence = 0;
        }
        let url = server.url(&name);
        let start = Barrier::new(2);
        let come = |holder: &'static str| {
            start.wait();
            let store = PostgresStore::connect(&url, settings(holder, LONG));
            start.wait();
            let taken = store.map(|mut store| (store.acquire(Wait::No), store));
            // Nobody gives it back before both have tried.
            start.wait();
            let (fence, store) = taken.unwrap();
            (store, fence)
        };
        let mut both = thread::scope(|scope| {
            ["one", "other"]
                .map(|holder| scope.spawn(move || come(holder)))
                .map(|thread| thread.join().unwrap())
        });
        let [(_, first), (_, second)] = &both;
        let (fence, error) = match (first, second) {
            (Ok(fence), Err(error)) | (Err(error), Ok(fence)) => (*fence, error),
            other => panic!("round {round}: {other:?}"),
        };
        assert!(matches!(error, StoreError::InUse { .. }), "{error}");
        assert!(fence > last_fence, "{fence} after {last_fence}");
        last_fence = fence;
        let batch = batch(round % 10 + 1, "k");
        for (store, fence) in &mut both {
            let committed = store.commit(&batch, Durability::Written);
            assert_eq!(committed.is_ok(), fence.is_ok(), "{committed:?}");
        }
    }
}

#[test]
fn many_keys_behind_a_prefix_go_in_pieces_and_what_follows_stays() {
    const KEYS: u32 = 25_000;
    let server = Server::start();
    let url = server.url("postgres");
    let mut store = opened(&url);
    for (number, prefix) in (0..).zip([b"gone".as_slice(), &[0xFF, 0xFF]]) {
        let mut batch = Batch::new(1 + 2 * number);
        for key in 0..KEYS {
            let key = [prefix, &key.to_be_bytes()].concat();
            batch.put(Space::Copies, &key, |_| {}, Bytes::from_static(b"v"));
        }
        batch.put(Space::Copies, b"before", |_| {}, Bytes::new());
        batch.put(Space::Copies, b"gonf", |_| {}, Bytes::new());
        store.commit(&batch, Durability::Written).unwrap();
        batch.reset(2 + 2 * number);
        batch.remove_all(Space::Copies, prefix);
        batch.put(Space::Copies, &[prefix, b"!"].concat(), |_| {}, Bytes::new());
        store.commit(&batch, Durability::Written).unwrap();
    }
    let mut store: Store = Box::new(store);
    let keys: Vec<Bytes> = contents(&mut store).into_keys().map(|(_, key)| key).collect();
    assert_eq!(keys, [&b"before"[..], b"gone!", b"gonf", b"\xFF\xFF!"]);
}

#[test]
fn a_lease_is_kept_up_while_everything_is_read() {
    let server = Server::start();
    let url = server.url("postgres");
    let mut store = opened(&url);
    let mut batch = Batch::new(1);
    for key in 0..20_000_u32 {
        let body = Bytes::from(vec![7; 1000]);
        batch.put(Space::Messages, &key.to_be_bytes(), |_| {}, body);
    }
    store.commit(&batch, Durability::Synced).unwrap();
    drop(store);
    let lease = std::time::Duration::from_secs(2);
    let mut store = connected(&url, "reader", lease);
    store.acquire(Wait::No).unwrap();
    let mut other = connected(&url, "other", lease);
    let mut entries = store.recover().unwrap().entries;
    let (mut count, first) = (0, Lease::of(&server, "postgres").until);
    // As slow as it takes for the lease to be over twice.
    let mut client = server.client("postgres");
    for entry in entries.by_ref() {
        entry.unwrap();
        count += 1;
        if count % 1000 == 0 {
            client.batch_execute("SELECT pg_sleep(0.2)").unwrap();
            assert!(matches!(other.acquire(Wait::No), Err(StoreError::InUse { .. })));
        }
    }
    assert_eq!(count, 20_000);
    drop(entries);
    assert!(Lease::of(&server, "postgres").until > first);
    store.commit(&postgres_support::batch(2, "after"), Durability::Synced).unwrap();
}

#[test]
fn commits_are_synced_whatever_the_server_does_by_default() {
    let server = Server::start();
    let url = server.url("postgres");
    let mut store = opened(&url);
    // The server of these tests does not sync by default: what has not been written when a commit
    // returns shows in its log of changes.
    let mut client = server.client("postgres");
    let mut unsynced = || -> bool {
        let sql = "SELECT pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()";
        client.query_one(sql, &[]).unwrap().get(0)
    };
    let mut written = 0;
    for number in 0..50 {
        store.commit(&batch(2 * number + 1, "written"), Durability::Written).unwrap();
        written += u32::from(unsynced());
        store.commit(&batch(2 * number + 2, "synced"), Durability::Synced).unwrap();
        assert!(!unsynced(), "commit {number}");
    }
    assert!(written > 0, "commits that need not be synced are not, mostly");
    for number in 101..150 {
        store.commit(&batch(number, "written"), Durability::Written).unwrap();
        store.sync().unwrap();
        assert!(!unsynced(), "sync {number}");
    }
}

#[test]
fn no_credentials_are_told_to_anybody() {
    let server = Server::start();
    let url = server.url("postgres");
    let mut texts = Vec::new();
    let mut store = opened(&url);
    texts.push(store.describe());
    texts.push(format!("{store:?}"));
    assert!(store.describe().contains(&server.address().to_string()), "{}", store.describe());
    let mut other = connected(&url, "other", LONG);
    let in_use = other.acquire(Wait::No).unwrap_err().to_string();
    assert!(in_use.contains("test has it until 20"), "{in_use}");
    texts.push(in_use);
    texts.push(format!("{:?}", store.recover().unwrap()));
    let refusals = [
        url.replace("/postgres?", "/no_such_database?"),
        url.replace("tidegate:secret", "tidegate_nobody:secret"),
        url.replace("?", "?sslmode=require&"),
        url.replace("?", "?secret=1&"),
        "host=localhost password=tidegate secret=1".into(),
        "postgresql://tidegate:secret@[".into(),
    ];
    for url in refusals {
        let refused = PostgresStore::connect(&url, PostgresSettings::default()).unwrap_err();
        assert!(matches!(refused, StoreError::Failed { .. }), "{refused:?}");
        texts.push(format!("{refused} {refused:?}"));
    }
    let gone = url.replace(&server.address().port().to_string(), "1");
    let lost = PostgresStore::connect(&gone, PostgresSettings::default()).unwrap_err();
    assert!(matches!(lost, StoreError::Lost { .. }), "{lost:?}");
    texts.push(format!("{lost} {lost:?}"));
    for text in texts {
        println!("{text}");
        assert!(!text.contains("secret") && !text.contains("tidegate:"), "{text}");
        assert!(!text.contains("tidegate_nobody"), "{text}");
    }
}

#[test]
fn settings_that_cannot_work_and_batches_out_of_order_are_refused() {
    let server = Server::start();
    let url = server.url("postgres");
    for millis in [0, 99, 24 * 60 * 60 * 1000 + 1] {
        let lease = std::time::Duration::from_millis(millis);
        let error = PostgresStore::connect(&url, settings("x", lease)).unwrap_err().to_string();
        assert!(error.contains("100 ms to 86400000 ms"), "{error}");
    }
    let mut store = connected(&url, "x", LONG);
    assert_eq!(store.tend().unwrap(), None, "there is nothing to keep up");
    let early = [
        store.commit(&batch(1, "k"), Durability::Synced).unwrap_err(),
        store.recover().unwrap_err(),
        store.sync().unwrap_err(),
        store.revive().unwrap_err(),
    ];
    for error in early {
        assert!(error.to_string().contains("the lease"), "{error}");
        assert!(matches!(error, StoreError::Failed { .. }), "{error:?}");
    }
    store.acquire(Wait::No).unwrap();
    store.commit(&batch(5, "a"), Durability::Synced).unwrap();
    let mut store = {
        drop(store);
        opened(&url)
    };
    for number in [5, 4, 0, u64::MAX] {
        let error = store.commit(&batch(number, "b"), Durability::Synced).unwrap_err();
        assert!(matches!(error, StoreError::Failed { .. }), "{error:?}");
    }
    assert_eq!(keys(&server, "postgres"), ["a"]);
}
