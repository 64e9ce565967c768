//! What lies in the engine's journals, read before the engine reads it.
//!
//! The engine takes the first batch that it cannot read for the end of a journal, and cuts off what
//! follows. That is right for batches that were being written when the machine stopped, and wrong
//! for all others. So each batch ends with a [`Mark`], which says up to which batch everything was
//! synced when it was written, and all journals are read here first, without a change.
//!
//! # A batch in a journal
//! | bytes | what |
//! | --- | --- |
//! | 1, 4, 8 | 1; changes; sequence number, not covered by the checksum |
//! | 1, 1, 1, 8, 2, 4, 4 | for each change 2; kind; compression; keyspace; lengths of key, value, and value as stored |
//! | key, value | |
//! | 1, 8, 4 | 3; checksum (XXH3) of all changes; `FJL` 3 |
//!
//! Numbers are little-endian. A new journal is 64 MiB of zeros.
//!
//! # What counts as torn
//! Bytes that are no batch, in the newest journal only, and only if no mark behind them says that a
//! batch among them was synced. If they end as a batch ends, there must be a sector among them that
//! was never written, and holds zeros: otherwise something was altered later.

use std::{
    fs::File,
    io::{self, Write},
    ops::Range,
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::xxh3_64;

use crate::store::StoreError;

/// The key of the mark.
pub(super) const MARK_KEY: &[u8] = b"last";

/// How a mark begins. Random, so that no message holds it by chance.
const MAGIC: [u8; 16] = *b"\x93tg-mark\xd1\x5e\xf7\x0c\x88\xb2\x41\xea";

const START_LEN: usize = 1 + 4 + 8;
const ITEM_LEN: usize = 1 + 1 + 1 + 8 + 2 + 4 + 4;
const END_LEN: usize = 1 + 8 + 4;
const END_MAGIC: &[u8] = b"FJL\x03";
const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;

/// What a disk writes whole.
const SECTOR: usize = 512;

/// How far a sequence number may be ahead of what was seen before the batch: the engine's own work
/// takes some, too.
const SEQUENCE_AHEAD: u64 = 1 << 32;

/// What a batch ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// The number of the batch.
    pub(super) number: u64,
    /// All batches up to this number were synced before this one was written.
    pub(super) synced: u64,
    /// The engine's next sequence number at that time.
    pub(super) sequence: u64,
}

impl Mark {
    const LEN: usize = MAGIC.len() + 3 * 8 + 4;

    /// As it is written.
    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&MAGIC);
        for number in [self.number, self.synced, self.sequence] {
            put(&number.to_be_bytes());
        }
        let check = crc32fast::hash(&bytes[..Self::LEN - 4]);
        bytes[Self::LEN - 4..].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    /// One at the start of these bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk()?;
        let (covered, check) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(covered).to_be_bytes() != *check {
            return None;
        }
        let (numbers, _) = covered.strip_prefix(&MAGIC)?.as_chunks::<8>();
        let &[number, synced, sequence] = numbers else { return None };
        let [number, synced, sequence] = [number, synced, sequence].map(u64::from_be_bytes);
        Some(Self { number, synced, sequence })
    }
}

/// What the journals hold.
#[derive(Debug, Default)]
pub(super) struct Journals {
    /// The number of their last batch; 0: they have none.
    pub(super) last: u64,
    newest: Option<Newest>,
}

/// The journal the engine goes on with.
#[derive(Debug)]
struct Newest {
    path: PathBuf,
    /// Behind the last whole batch.
    keep: usize,
    /// How long the file is.
    length: u64,
    /// What is in it, without zeros at the end.
    bytes: Vec<u8>,
}

impl Journals {
    /// Reads them, without a change. A directory that is not there has none.
    pub(super) fn read(inner: &Path) -> Result<Self, StoreError> {
        let mut all = Self::default();
        let mut sequence = 0;
        let files = list(inner).map_err(|error| unread(inner, &error))?;
        for (at, (number, path)) in files.iter().enumerate() {
            if at > 0 && files[at - 1].0 + 1 != *number {
                let reason = format!("the one before, {}.jnl, is missing", number - 1);
                return Err(corrupt(path, 0, reason));
            }
            let mut bytes = std::fs::read(path).map_err(|error| unread(path, &error))?;
            let length = bytes.len() as u64;
            bytes.truncate(written(&bytes));
            let is_newest = at + 1 == files.len();
            let mut keep = 0;
            while keep < bytes.len() {
                let reason = match Whole::read(&bytes, keep, sequence) {
                    Ok(whole) => {
                        (all.last, sequence, keep) = (whole.mark.number, whole.sequence, whole.end);
                        continue;
                    }
                    Err(reason) => reason,
                };
                let rest = Rest { bytes: &bytes, keep, last: all.last };
                if !is_newest || !rest.is_torn() {
                    return Err(corrupt(path, keep, rest.told(reason)));
                }
                break;
            }
            if is_newest {
                all.newest = Some(Newest { path: path.clone(), keep, length, bytes });
            }
        }
        Ok(all)
    }

    /// Writes the newest one again, without what was not written to its end, which is kept in a file
    /// beside. What was read may never have reached the disk, if a sync failed before.
    pub(super) fn renew(self, inner: &Path) -> io::Result<Option<Renewed>> {
        let Some(newest) = self.newest else { return Ok(None) };
        let (whole, torn) = newest.bytes.split_at(newest.keep);
        let beside = inner.join("torn");
        if !torn.is_empty() {
            replace(&beside, torn, 0)?;
        }
        replace(&newest.path, whole, 0)?;
        Ok(Some(Renewed { newest, beside }))
    }
}

/// Puts a file there at once, with zeros up to this length.
fn replace(path: &Path, bytes: &[u8], length: u64) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    if length > bytes.len() as u64 {
        file.set_len(length)?;
    }
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Makes the names in a directory survive the end of the machine.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// How many bytes there are without the zeros at the end.
fn written(bytes: &[u8]) -> usize {
    // Blocks are compared at once, which takes a fraction of the time.
    const ZEROS: [u8; 4096] = [0; 4096];
    let is_zero = |block: &&[u8]| **block == ZEROS[..block.len()];
    let zeros: usize = bytes.rchunks(ZEROS.len()).take_while(is_zero).map(<[u8]>::len).sum();
    let bytes = &bytes[..bytes.len() - zeros];
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// The journals in their order.
fn list(inner: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    let listed = match std::fs::read_dir(inner) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        Err(error) => return Err(error),
    };
    for file in listed {
        let path = file?.path();
        let is_journal = path.extension().is_some_and(|end| end == "jnl");
        let number = path.file_stem().filter(|_| is_journal);
        if let Some(number) = number.and_then(|stem| stem.to_str()?.parse().ok()) {
            files.push((number, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn unread(path: &Path, error: &io::Error) -> StoreError {
    StoreError::failed(format!("reading {}", path.display()), error)
}

fn corrupt(path: &Path, at: usize, reason: String) -> StoreError {
    StoreError::Corrupt { place: format!("{} byte {at}", path.display()), reason }
}

/// A batch that is as it was written.
struct Whole {
    mark: Mark,
    sequence: u64,
    /// Behind its last byte.
    end: usize,
}

/// Where the parts of a batch lie, whatever they hold.
struct Shape {
    sequence: u64,
    items: Range<usize>,
    /// The last value.
    last: Range<usize>,
    end: usize,
}

impl Shape {
    /// Follows the lengths from the start of a batch.
    fn at(bytes: &[u8], start: usize) -> Result<Self, &'static str> {
        const SHORT: &str = "it goes beyond the end";
        let head = bytes.get(start..start + START_LEN).ok_or(SHORT)?;
        if head[0] != START {
            return Err("no batch begins there");
        }
        let (count, sequence) = (little(&head[1..5]), little(&head[5..]));
        let mut at = start + START_LEN;
        let mut last = at..at;
        for _ in 0..count {
            let head = bytes.get(at..at + ITEM_LEN).ok_or(SHORT)?;
            if head[0] != ITEM {
                return Err("no change begins where one should");
            }
            let (key, value) = (little(&head[11..13]), little(&head[17..21]));
            let value_at = at + ITEM_LEN + count_of(key);
            at = value_at + count_of(value);
            last = value_at..at;
            if at > bytes.len() {
                return Err(SHORT);
            }
        }
        let end = at + END_LEN;
        if end > bytes.len() {
            return Err(SHORT);
        }
        Ok(Self { sequence, items: start + START_LEN..at, last, end })
    }
}

impl Whole {
    fn read(bytes: &[u8], start: usize, sequence: u64) -> Result<Self, &'static str> {
        let shape = Shape::at(bytes, start)?;
        let end = &bytes[shape.items.end..shape.end];
        if end[0] != END || !end.ends_with(END_MAGIC) {
            return Err("its end is missing");
        }
        if xxh3_64(&bytes[shape.items]) != little(&end[1..9]) {
            return Err("its checksum is another one");
        }
        let mark = Mark::read(&bytes[shape.last]).ok_or("it has no mark")?;
        let ahead = shape.sequence.checked_sub(mark.sequence);
        if shape.sequence <= sequence && sequence > 0 || ahead.is_none_or(|a| a > SEQUENCE_AHEAD) {
            return Err("its sequence number is not possible");
        }
        Ok(Self { mark, sequence: shape.sequence, end: shape.end })
    }
}

fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// A length of at most four bytes.
fn count_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX >> 1)
}

/// What lies behind the last whole batch.
struct Rest<'a> {
    bytes: &'a [u8],
    keep: usize,
    /// The number of that batch.
    last: u64,
}

impl Rest<'_> {
    /// Marks that lie here, with where.
    fn marks(&self) -> impl Iterator<Item = (usize, Mark)> {
        let rest = &self.bytes[self.keep..];
        let starts = rest.windows(MAGIC.len()).enumerate().filter(|(_, found)| *found == MAGIC);
        starts.filter_map(|(at, _)| Some((self.keep + at, Mark::read(&rest[at..])?)))
    }

    /// Whether it was being written when the machine stopped, as far as can be known.
    fn is_torn(&self) -> bool {
        if self.marks().any(|(_, mark)| mark.synced > self.last) {
            return false;
        }
        let before_end = self.bytes.len().checked_sub(END_LEN + Mark::LEN);
        let ends = self.marks().any(|(at, _)| Some(at) == before_end)
            || Shape::at(self.bytes, self.keep).is_ok_and(|shape| shape.end == self.bytes.len());
        !ends || self.has_hole()
    }

    fn has_hole(&self) -> bool {
        let first = (self.keep / SECTOR + 1) * SECTOR;
        let mut from = self.keep;
        for to in (first..self.bytes.len()).step_by(SECTOR).chain([self.bytes.len()]) {
            if self.bytes[from..to].iter().all(|byte| *byte == 0) {
                return true;
            }
            from = to;
        }
        false
    }

    fn told(&self, reason: &str) -> String {
        let synced = self.marks().map(|(_, mark)| mark.synced).max();
        let behind = match synced.filter(|synced| *synced > self.last) {
            Some(synced) => format!("all batches up to {synced} had been synced"),
            None => format!("{} bytes lie behind it", self.bytes.len() - self.keep),
        };
        format!("the batch behind batch {} cannot be read: {reason}; {behind}", self.last)
    }
}

/// A journal that was written again.
#[derive(Debug)]
pub(super) struct Renewed {
    newest: Newest,
    beside: PathBuf,
}

impl Renewed {
    /// Makes it what it was before.
    pub(super) fn restore(&self) -> io::Result<()> {
        replace(&self.newest.path, &self.newest.bytes, self.newest.length)
    }

    /// What was left out, for people.
    pub(super) fn dropped(&self) -> Option<String> {
        let bytes = self.newest.bytes.len() - self.newest.keep;
        (bytes > 0).then(|| {
            format!(
                "{bytes} bytes at the end of {}, which had not been written to their end; they are in {}",
                self.newest.path.display(),
                self.beside.display()
            )
        })
    }
}
