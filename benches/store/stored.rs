//! The store alone.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate::store::{Batch, Durability, FjallSettings, FjallStore, MessageStore, Space};

use crate::{BODY_BYTES, folder, plan::Plan};

fn fill(batch: &mut Batch, number: u64, messages: u64, body: &Bytes) {
    batch.reset(number);
    for message in 0..messages {
        batch.put(
            Space::Messages,
            &key(number, message),
            |head| head.extend_from_slice(&[5; 60]),
            body.clone(),
        );
    }
}

fn key(number: u64, message: u64) -> Vec<u8> {
    [1_u64.to_be_bytes(), (number * 1000 + message).to_be_bytes()].concat()
}

/// Messages a second that are committed and synced, so many at a time.
pub(crate) fn rate(plan: &Plan, size: usize) -> f64 {
    let folder = folder();
    let mut store = FjallStore::open(folder.path(), FjallSettings::default()).unwrap();
    let body = Bytes::from(vec![7; BODY_BYTES]);
    let mut batch = Batch::default();
    let mut number = 0;
    let mut commit = || {
        number += 1;
        fill(&mut batch, number, size as u64, &body);
        store.commit(&batch, Durability::Synced).unwrap();
    };
    let begun = Instant::now();
    while begun.elapsed() < plan.warm {
        commit();
    }
    let (begun, mut batches) = (Instant::now(), 0_u32);
    while begun.elapsed() < plan.window {
        commit();
        batches += 1;
    }
    f64::from(batches) * size as f64 / begun.elapsed().as_secs_f64()
}

/// What came of messages that come and go.
#[derive(Clone, Copy)]
pub(crate) struct Passed {
    /// Messages a second.
    pub(crate) rate: f64,
    /// How long the longest commit took.
    pub(crate) longest_ms: f64,
}

/// Messages that are committed 64 at a time, and removed when `depth` others have come; twenty times
/// as long as others are measured, so that tables are made and merged meanwhile.
pub(crate) fn passing(plan: &Plan, depth: u64) -> Passed {
    const BATCH: u64 = 64;
    let folder = folder();
    let mut store = FjallStore::open(folder.path(), FjallSettings::default()).unwrap();
    let body = Bytes::from(vec![7; BODY_BYTES]);
    let mut batch = Batch::default();
    let (mut number, behind) = (0, depth / BATCH);
    let mut commit = |durability| {
        number += 1;
        fill(&mut batch, number, BATCH, &body);
        if number > behind {
            (0..BATCH)
                .for_each(|message| batch.remove(Space::Messages, &key(number - behind, message)));
        }
        let begun = Instant::now();
        store.commit(&batch, durability).unwrap();
        begun.elapsed()
    };
    for _ in 0..behind {
        commit(Durability::Written);
    }
    let (begun, mut longest, mut batches) = (Instant::now(), Duration::ZERO, 0_u32);
    while begun.elapsed() < plan.window * 20 {
        longest = longest.max(commit(Durability::Synced));
        batches += 1;
    }
    let rate = f64::from(batches) * BATCH as f64 / begun.elapsed().as_secs_f64();
    Passed { rate, longest_ms: longest.as_secs_f64() * 1e3 }
}

/// Seconds until a store of so many messages is opened and read.
pub(crate) fn recovery(count: u32) -> f64 {
    let folder = folder();
    let mut store = FjallStore::open(folder.path(), FjallSettings::default()).unwrap();
    let body = Bytes::from(vec![7; BODY_BYTES]);
    let mut batch = Batch::default();
    for number in 1..=u64::from(count / 500) {
        fill(&mut batch, number, 500, &body);
        store.commit(&batch, Durability::Written).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let begun = Instant::now();
    let mut store = FjallStore::open(folder.path(), FjallSettings::default()).unwrap();
    let opened = begun.elapsed();
    let found = store.recover().unwrap().entries.map(Result::unwrap).count();
    assert_eq!(found, count as usize / 500 * 500);
    println!("  opened after {:.2} s", opened.as_secs_f64());
    begun.elapsed().as_secs_f64()
}
