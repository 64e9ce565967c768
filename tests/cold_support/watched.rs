//! A store in memory that counts what is read from it, and may be told to read badly.

use bytes::Bytes;
use tidegate::internals::sync::{Arc, AtomicBool, AtomicU64, Ordering::SeqCst};
use tidegate::store::{
    Batch, Durability, MemoryStore, MessageStore, Recovery, Revival, Space, StoreError, StoreReader,
};

/// How a store is read: what is asked for, and what is wrong with the answers.
#[derive(Debug, Default)]
pub struct Reading {
    /// Requests so far.
    pub requests: AtomicU64,
    /// Keys in all of them.
    pub keys: AtomicU64,
    /// Keys in the largest of them.
    pub most: AtomicU64,
    /// The message of this sequence is not there.
    pub missing: AtomicU64,
    /// The message of this sequence was altered.
    pub altered: AtomicU64,
    /// A request for the message of this sequence, and others, fails as a whole.
    pub corrupt: AtomicU64,
    /// Every request fails.
    pub fails: AtomicBool,
}

impl Reading {
    /// Keys asked for so far.
    pub fn keys(&self) -> u64 {
        self.keys.load(SeqCst)
    }
}

/// A [`MemoryStore`] whose readers are watched.
#[derive(Debug)]
pub struct Watched {
    store: MemoryStore,
    reading: Arc<Reading>,
}

impl Watched {
    /// An empty one.
    pub fn new() -> Self {
        Self { store: MemoryStore::new(), reading: Arc::default() }
    }

    /// Opens it again; the handles before write nothing more.
    pub fn reopened(&self) -> Self {
        Self { store: self.store.reopened(), reading: Arc::clone(&self.reading) }
    }

    /// How it is read.
    pub fn reading(&self) -> Arc<Reading> {
        Arc::clone(&self.reading)
    }
}

impl MessageStore for Watched {
    fn describe(&self) -> String {
        self.store.describe()
    }

    fn recover(&mut self) -> Result<Recovery<'_>, StoreError> {
        self.store.recover()
    }

    fn commit(&mut self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        self.store.commit(batch, durability)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.store.sync()
    }

    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError> {
        let (reader, reading) = (self.store.reader()?, Arc::clone(&self.reading));
        Ok(Box::new(WatchedReader { reader, reading }))
    }

    fn revive(&mut self) -> Result<Revival, StoreError> {
        self.store.revive()
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.store.close()
    }
}

#[derive(Debug)]
struct WatchedReader {
    reader: Box<dyn StoreReader>,
    reading: Arc<Reading>,
}

fn sequence(key: &Bytes) -> u64 {
    u64::from_be_bytes(key[8..16].try_into().unwrap())
}

impl StoreReader for WatchedReader {
    fn get_all(&mut self, space: Space, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let reading = &self.reading;
        let count = keys.len() as u64;
        reading.requests.fetch_add(1, SeqCst);
        reading.keys.fetch_add(count, SeqCst);
        reading.most.fetch_max(count, SeqCst);
        if reading.fails.load(SeqCst) {
            return Err(StoreError::lost("reading", "the cable is out"));
        }
        let is = |key: &Bytes, which: &AtomicU64| sequence(key) == which.load(SeqCst);
        if let Some(key) = keys.iter().find(|key| is(key, &reading.corrupt)) {
            return Err(StoreError::corrupt(space, key, "a block is torn"));
        }
        let mut values = self.reader.get_all(space, keys)?;
        for (key, value) in keys.iter().zip(&mut values) {
            if is(key, &reading.missing) {
                *value = None;
            }
            if let Some(bytes) = value.as_mut().filter(|_| is(key, &reading.altered)) {
                let mut altered = bytes.to_vec();
                *altered.last_mut().unwrap() ^= 1;
                *bytes = altered.into();
            }
        }
        Ok(values)
    }
}
