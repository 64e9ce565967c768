//! The store in memory does what every store does, and shows what a crash would leave.
#![cfg(feature = "broker")]
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "tests")]

mod store_support;

use bytes::Bytes;
use tidegate::store::{Batch, Durability, MemoryStore, MessageStore, Space, StoreError};

#[test]
fn memory_is_a_store() {
    store_support::run(|| {
        let mut store = MemoryStore::new();
        move || {
            store = store.reopened();
            // The one that is used; the one kept only opens the next.
            Box::new(store.reopened()) as store_support::Store
        }
    });
}

fn batch(number: u64, key: &str) -> Batch {
    let mut batch = Batch::new(number);
    batch.put(Space::Messages, key.as_bytes(), |_| {}, Bytes::from_static(b"v"));
    batch
}

fn keys(store: MemoryStore) -> Vec<Bytes> {
    let mut store: store_support::Store = Box::new(store);
    store_support::contents(&mut store).into_keys().map(|(_, key)| key).collect()
}

#[test]
fn a_power_cut_takes_what_was_only_written() {
    let mut store = MemoryStore::new();
    store.commit(&batch(1, "synced"), Durability::Synced).unwrap();
    store.commit(&batch(2, "written, then synced"), Durability::Written).unwrap();
    store.sync().unwrap();
    store.commit(&batch(3, "written"), Durability::Written).unwrap();
    let mut store = store.reopened_after_power_cut();
    store.commit(&batch(3, "after"), Durability::Written).unwrap();
    assert_eq!(keys(store.reopened()), ["after", "synced", "written, then synced"]);
}

#[test]
fn whoever_was_taken_over_writes_nothing_more() {
    let mut first = MemoryStore::new();
    first.commit(&batch(1, "first"), Durability::Synced).unwrap();
    let mut second = first.reopened();
    let late = first.commit(&batch(2, "late"), Durability::Synced);
    assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
    assert!(matches!(first.sync(), Err(StoreError::Fenced { .. })));
    second.commit(&batch(2, "second"), Durability::Synced).unwrap();
    // Nor does it hear of a wrong number, now that the other one has gone on.
    let later = first.commit(&batch(2, "later"), Durability::Synced);
    assert!(matches!(later, Err(StoreError::Fenced { .. })), "{later:?}");
    assert_eq!(keys(second.reopened()), ["first", "second"]);
}

#[test]
fn a_number_that_does_not_ascend_is_refused() {
    let mut store = MemoryStore::new();
    store.commit(&batch(5, "a"), Durability::Synced).unwrap();
    let mut store = store.reopened();
    let error = store.commit(&batch(5, "b"), Durability::Synced).unwrap_err().to_string();
    assert!(error.starts_with("committing batch 5 failed: its number is not greater"), "{error}");
    assert_eq!(keys(store.reopened()), ["a"]);
}
