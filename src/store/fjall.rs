//! The embedded store: a directory, written by fjall, a log-structured engine.
//!
//! Each [`Space`] is a keyspace; a batch is one atomic batch of fjall and one sync of its journal. As the
//! last change of each goes a mark with the batch's number. By these marks, which lie in the journal as
//! they were written, a start finds out whether fjall recovered everything that was acknowledged: see
//! [`journal`].
//!
//! # Files
//! | name | what |
//! | --- | --- |
//! | `lock` | locked as long as the store is open; the lock is the kernel's and ends with the process |
//! | `messages/` | what fjall keeps |
//!
//! # Failure
//! After a failed write or sync nothing is written any more: nobody knows what of it is on the disk.
//! The next start finds out.

mod journal;

use std::{
    fmt,
    fs::{File, TryLockError},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
    config::CompressionPolicy,
};

use self::journal::{Journals, MARK_KEY, mark};
use super::{
    Batch, Change, Durability, Entry, MessageStore, Outcome, Recovery, Space, StoreError,
    StoreReader,
};

/// Where the marks of batches are.
const MARKS: &str = "marks";

/// Values from this size on are kept beside the tables, so that tidying those up moves keys only.
const SEPARATED_FROM: u32 = 512;

/// Keys that are removed in one batch, if there are many to remove.
const REMOVED_AT_ONCE: usize = 10_000;

/// How much memory the store uses, and whether it makes its directory.
///
/// | Setting | Default | What |
/// | --- | --- | --- |
/// | `create` | yes | make the directory if it is not there |
/// | `cache_bytes` | 32 MiB | memory for what was read |
/// | `buffer_bytes` | 64 MiB | memory for what was written lately, for messages; a quarter of it for each other space |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FjallSettings {
    /// Whether to make the directory if it is not there.
    pub create: bool,
    /// Memory for what was read, in bytes.
    pub cache_bytes: u64,
    /// Memory for messages that were written lately, in bytes.
    pub buffer_bytes: u64,
}

impl Default for FjallSettings {
    fn default() -> Self {
        Self { create: true, cache_bytes: 32 << 20, buffer_bytes: 64 << 20 }
    }
}

/// A store in a directory.
///
/// Dropping it unlocks the directory.
pub struct FjallStore {
    directory: PathBuf,
    database: Database,
    spaces: Spaces,
    outcome: Outcome,
    failed: Option<String>,
    /// Held for its lock.
    _lock: File,
}

impl fmt::Debug for FjallStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FjallStore").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// The keyspaces, and that of the marks.
#[derive(Clone)]
struct Spaces {
    all: [Keyspace; Space::ALL.len()],
    marks: Keyspace,
}

impl Spaces {
    fn open(database: &Database, settings: FjallSettings) -> fjall::Result<Self> {
        let options = |space: Space| {
            let uncompressed = || CompressionPolicy::all(CompressionType::None);
            let options = KeyspaceCreateOptions::default()
                .data_block_compression_policy(uncompressed())
                .index_block_compression_policy(uncompressed());
            if space == Space::Messages {
                let separation = KvSeparationOptions::default()
                    .separation_threshold(SEPARATED_FROM)
                    .compression(CompressionType::None);
                options
                    .max_memtable_size(settings.buffer_bytes)
                    .with_kv_separation(Some(separation))
            } else {
                options.max_memtable_size(settings.buffer_bytes / 4)
            }
        };
        let open = |space: Space| database.keyspace(space.name(), || options(space));
        let mut all = Vec::with_capacity(Space::ALL.len());
        for space in Space::ALL {
            all.push(open(space)?);
        }
        let all = all.try_into().map_err(|_| fjall::Error::Unrecoverable)?;
        Ok(Self { all, marks: database.keyspace(MARKS, || options(Space::About))? })
    }

    const fn get(&self, space: Space) -> &Keyspace {
        &self.all[space as usize]
    }
}

impl FjallStore {
    /// Opens the store in a directory, and locks it.
    ///
    /// # Errors
    /// [`StoreError::InUse`]; [`StoreError::Corrupt`] if something that was acknowledged cannot be
    /// read, in which case nothing was changed; [`StoreError::Failed`] with what the system says.
    pub fn open(directory: &Path, settings: FjallSettings) -> Result<Self, StoreError> {
        let place = directory.display();
        let failed = |what: &str, error: &dyn fmt::Display| {
            StoreError::failed(format!("{what} {place}"), error.to_string())
        };
        if settings.create {
            std::fs::create_dir_all(directory).map_err(|error| failed("making", &error))?;
        }
        let lock = File::options()
            .create(settings.create)
            .truncate(false)
            .write(true)
            .open(directory.join("lock"))
            .map_err(|error| failed("opening the lock of", &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse { place: place.to_string() });
            }
            Err(TryLockError::Error(error)) => return Err(failed("locking", &error)),
        }
        let inner = directory.join("messages");
        let is_new = !inner.exists();
        if is_new && !settings.create {
            let reason = "there is no store in it; start a broker with it, or check the name";
            return Err(failed("opening", &reason));
        }
        let before = Journals::scan(&inner).map_err(|error| failed("reading", &error))?;
        let (database, spaces, dropped) = recovered(&inner, settings, &before)?;
        let outcome = if is_new {
            Outcome::Fresh
        } else {
            dropped.map_or(Outcome::Loaded, |what| Outcome::TornTailDropped { what })
        };
        let directory = directory.to_path_buf();
        Ok(Self { directory, database, spaces, outcome, failed: None, _lock: lock })
    }

    fn usable(&self) -> Result<(), StoreError> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => Err(StoreError::failed("an earlier write", reason)),
        }
    }

    /// Nothing is written from now on.
    fn fail(&mut self, action: &str, error: &fjall::Error) -> StoreError {
        let reason = error.to_string();
        self.failed = Some(reason.clone());
        StoreError::failed(format!("{action} in {}", self.directory.display()), reason)
    }

    /// Removes what begins like this, too much for one batch. Whatever is left of it after a crash
    /// belongs to nobody.
    fn remove_many(&self, space: Space, prefix: &[u8]) -> fjall::Result<()> {
        loop {
            let keyspace = self.spaces.get(space);
            let mut batch = self.database.batch();
            for guard in keyspace.prefix(prefix).take(REMOVED_AT_ONCE) {
                batch.remove(keyspace, guard.key()?);
            }
            let count = batch.len();
            batch.commit()?;
            if count < REMOVED_AT_ONCE {
                return Ok(());
            }
        }
    }

    fn write(&self, batch: &Batch, durability: Durability) -> fjall::Result<()> {
        let mode = match durability {
            Durability::Synced => PersistMode::SyncData,
            Durability::Written => PersistMode::Buffer,
        };
        let mut out = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), batch.len() + 1)
            .durability(Some(mode));
        let (mut left, mut joined) = (Vec::new(), Vec::new());
        for change in batch.changes() {
            match change {
                Change::Put { space, key, value } => {
                    joined.clear();
                    joined.extend_from_slice(value.head);
                    joined.extend_from_slice(value.body);
                    out.insert(self.spaces.get(space), key, joined.as_slice());
                }
                Change::Remove { space, key } => out.remove(self.spaces.get(space), key),
                Change::RemoveAll { space, prefix } => {
                    let keyspace = self.spaces.get(space);
                    let keys: Vec<_> = keyspace
                        .prefix(prefix)
                        .take(REMOVED_AT_ONCE)
                        .map(fjall::Guard::key)
                        .collect::<fjall::Result<_>>()?;
                    if keys.len() == REMOVED_AT_ONCE {
                        left.push((space, prefix.to_vec()));
                    }
                    keys.into_iter().for_each(|key| out.remove(keyspace, key));
                }
            }
        }
        out.insert(&self.spaces.marks, MARK_KEY, mark(batch.number()).as_slice());
        out.commit()?;
        for (space, prefix) in left {
            self.remove_many(space, &prefix)?;
        }
        Ok(())
    }
}

/// Opens the engine, and finds out whether it recovered all that was acknowledged; what it dropped
/// of the last batch, if anything.
fn recovered(
    inner: &Path,
    settings: FjallSettings,
    before: &Journals,
) -> Result<(Database, Spaces, Option<String>), StoreError> {
    let corrupt = |reason: String| StoreError::Corrupt {
        place: before.last_place().unwrap_or_else(|| inner.display().to_string()),
        reason,
    };
    let (opened, cut) = match open_engine(inner, settings) {
        Ok(opened) => (opened, None),
        Err(reason) => {
            // A last batch that was not written to its end may look like anything. It was never
            // acknowledged, and may go; whatever lies before another one may not.
            let cut = before.cut_last(inner).map_err(|error| corrupt(error.to_string()))?;
            let Some(cut) = cut else { return Err(corrupt(reason)) };
            let opened = open_engine(inner, settings).map_err(|again| {
                // What was cut off is put back: nothing was changed.
                let restored = cut.restore();
                corrupt(match restored {
                    Ok(()) => again,
                    Err(error) => {
                        format!("{again}; and what was cut off is in a file beside: {error}")
                    }
                })
            })?;
            (opened, Some(cut.what()))
        }
    };
    let (database, spaces) = opened;
    let found = spaces
        .marks
        .get(MARK_KEY)
        .map_err(|error| corrupt(error.to_string()))?
        .and_then(|value| journal::read_mark(&value))
        .unwrap_or(0);
    let wanted = before.surely_acknowledged();
    if found < wanted {
        return Err(corrupt(format!(
            "batch {} and what follows cannot be read, and batch {wanted} was written whole",
            found + 1
        )));
    }
    let dropped = cut.or_else(|| {
        before.torn_after(found).map(|bytes| format!("{bytes} bytes behind batch {found}"))
    });
    Ok((database, spaces, dropped))
}

/// Opens the engine; what it says, or panics with, as text.
fn open_engine(inner: &Path, settings: FjallSettings) -> Result<(Database, Spaces), String> {
    let open = || {
        let database = Database::builder(inner)
            .cache_size(settings.cache_bytes)
            .journal_compression(CompressionType::None)
            .manual_journal_persist(true)
            .worker_threads(1)
            .open()?;
        let spaces = Spaces::open(&database, settings)?;
        fjall::Result::Ok((database, spaces))
    };
    match catch_unwind(AssertUnwindSafe(open)) {
        Ok(opened) => opened.map_err(|error| error.to_string()),
        Err(panic) => Err(panic_text(panic.as_ref())),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the engine gave up: {}", text.unwrap_or("no reason"))
}

impl MessageStore for FjallStore {
    fn describe(&self) -> String {
        format!("fjall in {}", self.directory.display())
    }

    fn recover(&mut self) -> Result<Recovery<'_>, StoreError> {
        let spaces = &self.spaces;
        let estimate = spaces.all.iter().map(|one| one.approximate_len() as u64).sum();
        let entries = Space::ALL.into_iter().flat_map(move |space| Scan::new(space, spaces));
        Ok(Recovery {
            outcome: self.outcome.clone(),
            estimate: Some(estimate),
            entries: Box::new(entries),
        })
    }

    fn commit(&mut self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        self.usable()?;
        self.write(batch, durability).map_err(|error| self.fail("a commit", &error))
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.usable()?;
        let synced = self.database.persist(PersistMode::SyncData);
        synced.map_err(|error| self.fail("a sync", &error))
    }

    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(Reader(self.spaces.clone())))
    }

    fn close(&mut self) -> Result<(), StoreError> {
        if self.failed.is_some() {
            return Ok(());
        }
        let synced = self.database.persist(PersistMode::SyncAll);
        synced.map_err(|error| self.fail("the last sync", &error))
    }
}

/// The entries of one space; after an error nothing more comes.
struct Scan {
    space: Space,
    iter: Option<fjall::Iter>,
}

impl Scan {
    fn new(space: Space, spaces: &Spaces) -> Self {
        Self { space, iter: Some(spaces.get(space).iter()) }
    }
}

impl Iterator for Scan {
    type Item = Result<Entry, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let iter = self.iter.as_mut()?;
        let step = || iter.next().map(fjall::Guard::into_inner);
        let place = || format!("the tables of {}", self.space);
        let read = match catch_unwind(AssertUnwindSafe(step)) {
            Ok(None) => None,
            Ok(Some(Ok((key, value)))) => {
                let (key, value) = (Bytes::from_owner(key), Bytes::from_owner(value));
                return Some(Ok(Entry { space: self.space, key, value }));
            }
            Ok(Some(Err(error))) => {
                Some(Err(StoreError::Corrupt { place: place(), reason: error.to_string() }))
            }
            Err(panic) => {
                let reason = panic_text(panic.as_ref());
                Some(Err(StoreError::Corrupt { place: place(), reason }))
            }
        };
        self.iter = None;
        read
    }
}

struct Reader(Spaces);

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

impl StoreReader for Reader {
    fn get_all(&mut self, space: Space, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let keyspace = self.0.get(space);
        let get = |key: &Bytes| {
            let value = keyspace.get(key);
            let value = value.map_err(|error| StoreError::corrupt(space, key, error))?;
            Ok(value.map(Bytes::from_owner))
        };
        keys.iter().map(get).collect()
    }
}
