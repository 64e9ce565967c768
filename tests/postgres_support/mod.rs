//! What tests of the store in a PostgreSQL database share.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::{
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tidegate::store::{
    Batch, Durability, MessageStore, PostgresSettings, PostgresStore, Revival, Space, StoreError,
    Wait,
};

use crate::support::postgres::Server;

/// A lease longer than whatever this machine may be busy with.
pub const LONG: Duration = Duration::from_secs(60);

pub fn settings(holder: &str, lease: Duration) -> PostgresSettings {
    let mut settings = PostgresSettings::default();
    settings.holder = holder.into();
    settings.lease = lease;
    settings
}

/// A store that does not have the lease yet.
pub fn connected(url: &str, holder: &str, lease: Duration) -> PostgresStore {
    PostgresStore::connect(url, settings(holder, lease)).unwrap()
}

/// A store that has it, for long.
pub fn opened(url: &str) -> PostgresStore {
    let mut store = connected(url, "test", LONG);
    store.acquire(Wait::No).unwrap();
    store
}

/// A batch of one message.
pub fn batch(number: u64, key: &str) -> Batch {
    let mut batch = Batch::new(number);
    batch.put(Space::Messages, key.as_bytes(), |_| {}, Bytes::from_static(b"v"));
    batch
}

/// Commits a batch, whatever happens to the database meanwhile; what it was found as each time it
/// came back.
pub fn commit_surely(store: &mut PostgresStore, batch: &Batch) -> Vec<Revival> {
    let mut found = Vec::new();
    loop {
        match store.commit(batch, Durability::Synced) {
            Ok(()) => return found,
            Err(StoreError::Lost { .. }) => found.push(revived(store)),
            Err(error) => panic!("{error}"),
        }
        if found.last() == Some(&Revival::Applied) {
            return found;
        }
    }
}

/// Asks until the store is back.
pub fn revived(store: &mut PostgresStore) -> Revival {
    try_revive(store).unwrap()
}

/// Asks until the store is back, or is not lost but something else.
#[allow(clippy::disallowed_methods, reason = "a test's deadline is real time")]
pub fn try_revive(store: &mut PostgresStore) -> Result<Revival, StoreError> {
    let until = Instant::now() + Duration::from_secs(90);
    loop {
        match store.revive() {
            Err(StoreError::Lost { reason, .. }) => {
                assert!(Instant::now() < until, "it does not come back: {reason}");
                thread::yield_now();
            }
            result => return result,
        }
    }
}

/// Keys of all messages, read past the store.
pub fn keys(server: &Server, database: &str) -> Vec<String> {
    let mut client = server.client(database);
    let rows = client.query("SELECT key FROM tidegate_messages ORDER BY key", &[]).unwrap();
    let key = |row: &postgres::Row| String::from_utf8(row.get(0)).unwrap();
    rows.iter().map(key).collect()
}

/// The row of the lease, read past the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub fence: i64,
    pub holder: String,
    pub token: String,
    pub until: String,
    pub last_batch: i64,
}

impl Lease {
    pub fn of(server: &Server, database: &str) -> Self {
        let sql = "SELECT fence, holder, token, valid_until::text, last_batch FROM tidegate_lease";
        let row = server.client(database).query_one(sql, &[]).unwrap();
        Self {
            fence: row.get(0),
            holder: row.get(1),
            token: row.get(2),
            until: row.get(3),
            last_batch: row.get(4),
        }
    }
}
