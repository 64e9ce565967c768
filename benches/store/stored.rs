//! The store alone.

use std::time::Instant;

use bytes::Bytes;
use tidegate::store::{Batch, Durability, FjallSettings, FjallStore, MessageStore, Space};

use crate::{BODY_BYTES, folder, plan::Plan};

fn fill(batch: &mut Batch, number: u64, messages: u64, body: &Bytes) {
    batch.reset(number);
    for message in 0..messages {
        let key = [1_u64.to_be_bytes(), (number * 1000 + message).to_be_bytes()].concat();
        batch.put(Space::Messages, &key, |head| head.extend_from_slice(&[5; 60]), body.clone());
    }
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
