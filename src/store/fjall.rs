//! The embedded store: a directory, written by fjall, a log-structured engine.
//!
//! Each [`Space`] is a keyspace; a batch is one atomic batch of fjall and one sync of its journal. As the
//! last change of each goes a mark with the batch's number. By these marks, which lie in the journal as
//! they were written, a start finds out whether everything that was acknowledged is there: see
//! [`journal`].
//!
//! # Files
//! | name | what |
//! | --- | --- |
//! | `lock` | locked as long as the store is open; the lock is the kernel's and ends with the process |
//! | `messages/` | what fjall keeps |
//! | `messages/torn` | what the last start with a torn tail left out |
//! | `messages.new/` | the same while it is being made; whatever is in there is thrown away |
//!
//! # Failure
//! After a failed write or sync nothing is written any more: nobody knows what of it is on the disk.
//! The next start finds out.

mod buffers;
mod journal;
mod tables;

use std::{
    borrow::Cow,
    collections::HashSet,
    fmt,
    fs::{File, TryLockError},
    io::{self, ErrorKind},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
    Slice, config::CompressionPolicy,
};

use self::journal::{Journals, MARK_KEY, Mark, Renewed, sync_directory};
use super::{
    Batch, Change, Durability, Entry, MessageStore, Outcome, Recovery, Space, StoreError,
    StoreReader, Value,
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
/// | `buffer_bytes` | 32 MiB | memory for messages that were written lately, before a table is made of them; an eighth of it for each other space. Up to four times as much while tables are made |
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
        Self { create: true, cache_bytes: 32 << 20, buffer_bytes: 32 << 20 }
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
    /// The number of the last batch, and of the last one that was certainly synced.
    last: u64,
    synced: u64,
    buffer_bytes: u64,
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
    fn open(database: &Database, is_new: bool) -> Result<Self, String> {
        let options = |space: Space| {
            let uncompressed = || CompressionPolicy::all(CompressionType::None);
            let options = KeyspaceCreateOptions::default()
                // See `buffers`.
                .max_memtable_size(u64::MAX)
                .data_block_compression_policy(uncompressed())
                .index_block_compression_policy(uncompressed());
            if space == Space::Messages {
                let separation = KvSeparationOptions::default()
                    .separation_threshold(SEPARATED_FROM)
                    .compression(CompressionType::None);
                options.with_kv_separation(Some(separation))
            } else {
                options
            }
        };
        let open = |name: &str, space: Space| {
            // The engine takes one whose directory is gone for one that never was.
            if !is_new && !database.keyspace_exists(name) {
                return Err(format!("the keyspace {name} is missing"));
            }
            let keyspace = database.keyspace(name, || options(space));
            keyspace.map_err(|error| error.to_string())
        };
        let mut all = Vec::with_capacity(Space::ALL.len());
        for space in Space::ALL {
            all.push(open(space.name(), space)?);
        }
        let all = all.try_into().map_err(|_| "spaces are missing".to_owned())?;
        Ok(Self { all, marks: open(MARKS, Space::About)? })
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
        if is_new {
            make(directory, &inner, settings)
                .map_err(|error| failed("making a store in", &error))?;
        }
        tables::check(&inner)?;
        let journals = Journals::read(&inner)?;
        let Opened { database, spaces, last, dropped } = opened(&inner, settings, journals)?;
        let outcome = if is_new {
            Outcome::Fresh
        } else {
            dropped.map_or(Outcome::Loaded, |what| Outcome::TornTailDropped { what })
        };
        let directory = directory.to_path_buf();
        // What was read was written again before it was read, or lies in tables, which are synced.
        let synced = last;
        Ok(Self {
            directory,
            database,
            spaces,
            outcome,
            last,
            synced,
            buffer_bytes: settings.buffer_bytes,
            failed: None,
            _lock: lock,
        })
    }

    fn usable(&self) -> Result<(), StoreError> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => Err(StoreError::failed("an earlier write", reason)),
        }
    }

    /// Nothing is written from now on.
    fn fail(&mut self, action: &str, error: &fjall::Error) -> StoreError {
        let reason = match error {
            // The first that is heard of what its thread could not do.
            fjall::Error::Poisoned => "a table could not be written; see whether the disk is full \
                 or broken, and start again"
                .to_owned(),
            other => other.to_string(),
        };
        self.failed = Some(reason.clone());
        StoreError::failed(format!("{action} in {}", self.directory.display()), reason)
    }

    /// Removes what a batch left over because it was too much for it. Whatever is still there after
    /// a crash belongs to nobody.
    fn remove_left(&self, number: u64, left: &Left) -> fjall::Result<()> {
        let keyspace = self.spaces.get(left.space);
        loop {
            let mut batch = self.database.batch();
            for guard in keyspace.prefix(&left.prefix) {
                let key = guard.key()?;
                if !left.kept.contains(&*key) {
                    batch.remove(keyspace, key);
                }
                if batch.len() == REMOVED_AT_ONCE {
                    break;
                }
            }
            let is_last = batch.len() < REMOVED_AT_ONCE;
            batch.insert(&self.spaces.marks, MARK_KEY, self.mark(number));
            batch.commit()?;
            self.empty_buffers()?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// The mark of a batch that is written next.
    fn mark(&self, number: u64) -> Vec<u8> {
        let (synced, sequence) = (self.synced, self.database.seqno());
        Mark { number, synced, sequence }.to_bytes().to_vec()
    }

    fn write(&self, batch: &Batch, durability: Durability) -> fjall::Result<()> {
        let mode = match durability {
            Durability::Synced => PersistMode::SyncData,
            Durability::Written => PersistMode::Buffer,
        };
        let mut out = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), batch.len() + 1)
            .durability(Some(mode));
        let mut left = Vec::new();
        let mut steps: Vec<Step<'_>> = Vec::with_capacity(batch.len());
        for (at, change) in batch.changes().enumerate() {
            match change {
                Change::Put { space, key, value } => {
                    steps.push(Step { space, key: key.into(), at, value: Some(value) });
                }
                Change::Remove { space, key } => {
                    steps.push(Step { space, key: key.into(), at, value: None });
                }
                Change::RemoveAll { space, prefix } => {
                    for before in 0..steps.len() {
                        let Step { space: of, key, .. } = &steps[before];
                        if *of == space && key.starts_with(prefix) {
                            let key = key.clone();
                            steps.push(Step { space, key, at, value: None });
                        }
                    }
                    let count = steps.len();
                    for guard in self.spaces.get(space).prefix(prefix).take(REMOVED_AT_ONCE) {
                        let key = guard.key()?.to_vec().into();
                        steps.push(Step { space, key, at, value: None });
                    }
                    if steps.len() - count == REMOVED_AT_ONCE {
                        left.push(Left { space, prefix: prefix.to_vec(), kept: HashSet::new() });
                    }
                }
            }
        }
        // All changes of a batch have one sequence number, so each key may come once only.
        steps.sort_unstable_by(|a, b| (a.place(), a.at).cmp(&(b.place(), b.at)));
        let mut steps = steps.into_iter().peekable();
        while let Some(step) = steps.next() {
            if steps.peek().is_some_and(|next| next.place() == step.place()) {
                continue;
            }
            let keyspace = self.spaces.get(step.space);
            match step.value {
                Some(value) => {
                    for left in left.iter_mut().filter(|left| left.covers(&step)) {
                        left.kept.insert(step.key.to_vec());
                    }
                    out.insert(keyspace, &*step.key, Slice::fused(value.head, value.body));
                }
                None => out.remove(keyspace, &*step.key),
            }
        }
        out.insert(&self.spaces.marks, MARK_KEY, self.mark(batch.number()));
        out.commit()?;
        self.empty_buffers()?;
        left.iter().try_for_each(|left| self.remove_left(batch.number(), left))
    }

    /// Has tables made of what is in memory, where it has become enough.
    fn empty_buffers(&self) -> fjall::Result<()> {
        let small = self.buffer_bytes / 8;
        buffers::empty(&self.database, self.spaces.get(Space::Messages), self.buffer_bytes)?;
        let others = Space::ALL.into_iter().filter(|space| *space != Space::Messages);
        let others = others.map(|space| self.spaces.get(space));
        others
            .chain([&self.spaces.marks])
            .try_for_each(|keyspace| buffers::empty(&self.database, keyspace, small))
    }
}

/// One change of one key; of several, the last counts.
struct Step<'a> {
    space: Space,
    key: Cow<'a, [u8]>,
    at: usize,
    value: Option<Value<'a>>,
}

impl Step<'_> {
    fn place(&self) -> (Space, &[u8]) {
        (self.space, &self.key)
    }
}

/// What is still to be removed when a batch is in.
struct Left {
    space: Space,
    prefix: Vec<u8>,
    /// What the batch put there.
    kept: HashSet<Vec<u8>>,
}

impl Left {
    fn covers(&self, step: &Step<'_>) -> bool {
        self.space == step.space && step.key.starts_with(&self.prefix)
    }
}

/// Makes an empty store, under its name only when it is complete.
fn make(directory: &Path, inner: &Path, settings: FjallSettings) -> Result<(), String> {
    let new = directory.join("messages.new");
    match std::fs::remove_dir_all(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.to_string()),
        _ => {}
    }
    drop(open_engine(&new, settings, true)?);
    let named = || {
        sync_directories(&new)?;
        std::fs::rename(&new, inner)?;
        sync_directory(directory)?;
        // The directory may be new as well.
        directory.canonicalize()?.parent().map_or(Ok(()), sync_directory)
    };
    named().map_err(|error| error.to_string())
}

/// Makes all names below a directory survive the end of the machine.
fn sync_directories(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_directories(&entry.path())?;
        }
    }
    sync_directory(directory)
}

/// The engine, with what was found.
struct Opened {
    database: Database,
    spaces: Spaces,
    last: u64,
    dropped: Option<String>,
}

/// Opens the engine, and finds out whether it has all that lies in its journals.
fn opened(inner: &Path, settings: FjallSettings, journals: Journals) -> Result<Opened, StoreError> {
    let corrupt =
        |reason: String| StoreError::Corrupt { place: inner.display().to_string(), reason };
    let wanted = journals.last;
    let renewed = journals.renew(inner).map_err(|error| {
        StoreError::failed(format!("writing the journal in {} again", inner.display()), error)
    })?;
    // Whatever is wrong elsewhere, the journal is as it was found.
    let give_up = |reason: String| {
        let restored = renewed.as_ref().map_or(Ok(()), Renewed::restore);
        corrupt(match restored {
            Ok(()) => reason,
            Err(error) => format!("{reason}; and the journal cannot be put back: {error}"),
        })
    };
    let (database, spaces) = open_engine(inner, settings, false).map_err(give_up)?;
    let mark = spaces.marks.get(MARK_KEY).map_err(|error| error.to_string());
    let last = match mark {
        Err(reason) => Err(reason),
        Ok(None) => Ok(0),
        Ok(Some(mark)) => match Mark::read(&mark) {
            Some(mark) => Ok(mark.number),
            None => Err("the mark of the last batch cannot be read".to_owned()),
        },
    };
    let last = last.and_then(|last| {
        if last >= wanted {
            return Ok(last);
        }
        Err(format!("batch {wanted} was written, and the engine has no more than batch {last}"))
    });
    match last {
        Ok(last) => {
            let dropped = renewed.and_then(|renewed| renewed.dropped());
            Ok(Opened { database, spaces, last, dropped })
        }
        Err(reason) => {
            drop((database, spaces));
            Err(give_up(reason))
        }
    }
}

/// Opens the engine; what it says, or panics with, as text.
fn open_engine(
    inner: &Path,
    settings: FjallSettings,
    is_new: bool,
) -> Result<(Database, Spaces), String> {
    let open = || {
        let database = Database::builder(inner)
            .cache_size(settings.cache_bytes)
            .journal_compression(CompressionType::None)
            .manual_journal_persist(true)
            .worker_threads(1)
            .open()
            .map_err(|error| error.to_string())?;
        let spaces = Spaces::open(&database, is_new)?;
        Ok((database, spaces))
    };
    match catch_unwind(AssertUnwindSafe(open)) {
        Ok(opened) => opened,
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
        let number = batch.number();
        if number <= self.last {
            let reason = format!("its number is not greater than {}, the last one", self.last);
            return Err(StoreError::failed(format!("committing batch {number}"), reason));
        }
        self.write(batch, durability).map_err(|error| self.fail("a commit", &error))?;
        self.last = number;
        if durability == Durability::Synced {
            self.synced = number;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.usable()?;
        let synced = self.database.persist(PersistMode::SyncData);
        synced.map_err(|error| self.fail("a sync", &error))?;
        self.synced = self.last;
        Ok(())
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
                let (key, value) = (Bytes::from(key), Bytes::from(value));
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
            Ok(value.map(Bytes::from))
        };
        keys.iter().map(get).collect()
    }
}
