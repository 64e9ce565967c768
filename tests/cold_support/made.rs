//! A store that makes its messages when they are read, so that any number of them needs no memory.

use bytes::Bytes;
use tidegate::internals::sync::{Arc, AtomicU64, Ordering::SeqCst};
use tidegate::store::{
    Batch, Change, Durability, Entry, MessageStore, Outcome, Recovery, Space, StoreError,
    StoreReader,
    record::{self, RecentRecord},
};

use super::{HEAD, PLACE, packet, queue};

/// So many messages of so many bytes in one queue, `m1` and so on.
#[derive(Debug)]
pub struct Made {
    pub queue: &'static str,
    pub count: u64,
    pub bytes: usize,
    /// Messages that were removed.
    pub removed: Arc<AtomicU64>,
    /// Bodies that were read.
    pub read: Arc<AtomicU64>,
}

impl Made {
    pub fn new(queue: &'static str, count: u64, bytes: usize) -> Self {
        Self { queue, count, bytes, removed: Arc::default(), read: Arc::default() }
    }
}

/// The value of the message with this sequence.
fn message(batch: &mut Batch, name: &str, sequence: u64, bytes: usize) -> Entry {
    batch.reset(1);
    let text = format!("{:<bytes$}", format!("m{sequence}"));
    record::put_message(batch, PLACE, sequence, HEAD, &packet(name, sequence, text));
    entry(batch)
}

fn entry(batch: &Batch) -> Entry {
    match batch.changes().next() {
        Some(Change::Put { space, key, value }) => {
            Entry { space, key: Bytes::copy_from_slice(key), value: value.to_vec().into() }
        }
        other => panic!("one entry was put: {other:?}"),
    }
}

impl MessageStore for Made {
    fn describe(&self) -> String {
        "messages that are made when they are read".into()
    }

    fn recover(&mut self) -> Result<Recovery<'_>, StoreError> {
        let one = |put: &dyn Fn(&mut Batch)| {
            let mut batch = Batch::new(1);
            put(&mut batch);
            entry(&batch)
        };
        let before = [
            one(&|batch| record::put_format(batch)),
            one(&|batch| record::put_destination(batch, &queue(self.queue))),
        ];
        let recent =
            RecentRecord { batch: 1, sequence: self.count, place: PLACE, ..Default::default() };
        let behind = one(&|batch| record::put_recent(batch, 1, &recent));
        let (name, bytes, mut batch) = (self.queue, self.bytes, Batch::new(1));
        let messages =
            (1..=self.count).map(move |sequence| message(&mut batch, name, sequence, bytes));
        let entries = before.into_iter().chain(messages).chain([behind]).map(Ok);
        Ok(Recovery { outcome: Outcome::Loaded, estimate: None, entries: Box::new(entries) })
    }

    fn commit(&mut self, batch: &Batch, _: Durability) -> Result<(), StoreError> {
        let is_removal =
            |change: &Change<'_>| matches!(change, Change::Remove { space: Space::Messages, .. });
        let removed = batch.changes().filter(is_removal).count();
        self.removed.fetch_add(removed as u64, SeqCst);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError> {
        let (queue, bytes, read) = (self.queue, self.bytes, Arc::clone(&self.read));
        Ok(Box::new(MadeReader { queue, bytes, batch: Batch::new(1), read }))
    }

    fn close(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[derive(Debug)]
struct MadeReader {
    queue: &'static str,
    bytes: usize,
    batch: Batch,
    read: Arc<AtomicU64>,
}

impl StoreReader for MadeReader {
    fn get_all(&mut self, _: Space, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.read.fetch_add(keys.len() as u64, SeqCst);
        let sequence = |key: &Bytes| u64::from_be_bytes(key[8..16].try_into().unwrap());
        let made = keys
            .iter()
            .map(|key| Some(message(&mut self.batch, self.queue, sequence(key), self.bytes).value));
        Ok(made.collect())
    }
}
