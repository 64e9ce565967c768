//! What lies in the engine's journals as it was written.
//!
//! The engine takes the first batch that it cannot read for the end of a journal, and cuts it off. That
//! is right for the last one, whose write may have been interrupted, and wrong for every other. So
//! each batch ends with a mark, and before the engine sees a journal its marks are looked for.
//!
//! Batches are written one after the other, each synced before the next begins: a mark that is
//! written whole says that the batch before it was acknowledged, or may have been.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// The key of the mark.
pub(super) const MARK_KEY: &[u8] = b"last";

/// How a mark begins. Random, so that no message holds it by chance.
const MAGIC: [u8; 16] = *b"\x93tg-mark\xd1\x5e\xf7\x0c\x88\xb2\x41\xea";

const MARK_LEN: usize = MAGIC.len() + 8 + 4;

/// What the engine writes behind the last change of a batch: a tag, a checksum and four bytes.
const END_TAG: u8 = 3;
const END_LEN: usize = 1 + 8 + 4;
const END_MAGIC: &[u8] = b"FJL\x03";

/// Bytes read at once.
const STEP: usize = 1 << 20;

/// The mark of a batch.
pub(super) fn mark(number: u64) -> [u8; MARK_LEN] {
    let mut mark = [0; MARK_LEN];
    let (magic, rest) = mark.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    let (digits, check) = rest.split_at_mut(8);
    digits.copy_from_slice(&number.to_be_bytes());
    check.copy_from_slice(&crc32fast::hash(digits).to_be_bytes());
    mark
}

/// The number of a mark.
pub(super) fn read_mark(bytes: &[u8]) -> Option<u64> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (digits, check) = rest.split_first_chunk::<8>()?;
    let check = check.first_chunk::<4>()?;
    (crc32fast::hash(digits).to_be_bytes() == *check).then_some(u64::from_be_bytes(*digits))
}

/// Where a batch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    number: u64,
    /// Behind its last byte.
    end: u64,
    /// Its last bytes are there, too.
    is_whole: bool,
}

/// The journals of an engine, as they lie there.
#[derive(Debug, Default)]
pub(super) struct Journals {
    /// The newest one, and its marks in order.
    newest: Option<PathBuf>,
    marks: Vec<Found>,
    /// Behind the last byte of it that is not zero.
    written: u64,
    /// The greatest mark of all older ones.
    older: u64,
}

impl Journals {
    /// Reads them, without a change. A directory that is not there has none.
    pub(super) fn scan(inner: &Path) -> io::Result<Self> {
        let mut files: Vec<(u64, PathBuf)> = Vec::new();
        let listed = match std::fs::read_dir(inner) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
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
        let mut all = Self::default();
        if let Some((_, newest)) = files.pop() {
            (all.marks, all.written) = marks_of(&newest)?;
            all.newest = Some(newest);
        }
        for (_, older) in files {
            let (marks, _) = marks_of(&older)?;
            all.older = marks.iter().map(|mark| mark.number).max().unwrap_or(0).max(all.older);
        }
        Ok(all)
    }

    /// The last batch of which it is certain that it was written whole and may have been
    /// acknowledged, and that is not the very last one unless its end is there.
    pub(super) fn surely_acknowledged(&self) -> u64 {
        let last = self.marks.last().map_or(self.older, |last| {
            if last.is_whole { last.number } else { last.number.saturating_sub(1) }
        });
        last.max(self.older)
    }

    /// Where the last mark is, for people.
    pub(super) fn last_place(&self) -> Option<String> {
        let newest = self.newest.as_ref()?;
        let at = self.marks.last().map_or(0, |last| last.end);
        Some(format!("{} near byte {at}", newest.display()))
    }

    /// Bytes that lie behind a batch and belong to no whole one.
    pub(super) fn torn_after(&self, number: u64) -> Option<u64> {
        let end = self.marks.iter().rev().find(|mark| mark.number == number).map(|mark| mark.end);
        // Without its mark, the journal begins with the torn one.
        let torn = self.written.saturating_sub(end.unwrap_or(0));
        let may_be = end.is_some() || self.marks.is_empty();
        Some(torn).filter(|torn| may_be && *torn > 0)
    }

    /// Cuts the last batch off the newest journal, if nothing whole lies behind the one before. What
    /// is cut off is kept in a file beside.
    pub(super) fn cut_last(&self, inner: &Path) -> io::Result<Option<Cut>> {
        let Some(journal) = &self.newest else { return Ok(None) };
        let keep = match self.marks.as_slice() {
            [] => 0,
            [.., before, last] if last.is_whole => before.end,
            [last] if last.is_whole => 0,
            [.., before] if !before.is_whole => {
                self.marks.iter().rev().nth(1).map_or(0, |mark| mark.end)
            }
            [.., last] => last.end,
        };
        if keep >= self.written {
            return Ok(None);
        }
        let mut file = OpenOptions::new().read(true).write(true).open(journal)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(keep))?;
        let mut tail = Vec::new();
        (&file).take(self.written - keep).read_to_end(&mut tail)?;
        let beside = inner.join("torn");
        let mut kept = File::create(&beside)?;
        kept.write_all(&tail)?;
        kept.sync_all()?;
        file.set_len(keep)?;
        file.sync_all()?;
        Ok(Some(Cut { journal: journal.clone(), keep, length, tail, beside }))
    }
}

/// What was cut off a journal.
#[derive(Debug)]
pub(super) struct Cut {
    journal: PathBuf,
    keep: u64,
    length: u64,
    tail: Vec<u8>,
    beside: PathBuf,
}

impl Cut {
    /// Puts it back.
    pub(super) fn restore(&self) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(&self.journal)?;
        file.seek(SeekFrom::Start(self.keep))?;
        file.write_all(&self.tail)?;
        file.set_len(self.length)?;
        file.sync_all()?;
        std::fs::remove_file(&self.beside)
    }

    /// What it was, for people.
    pub(super) fn what(&self) -> String {
        format!(
            "{} bytes of the last batch, which had not been written to its end; they are in {}",
            self.tail.len(),
            self.beside.display()
        )
    }
}

/// The marks of a journal in their order, and where its last byte lies that is not zero.
fn marks_of(path: &Path) -> io::Result<(Vec<Found>, u64)> {
    let file = File::open(path)?;
    let (mut marks, mut written) = (Vec::new(), 0);
    // A mark and the end of its batch may lie across two steps.
    let overlap = MARK_LEN + END_LEN;
    let (mut window, mut start) = (Vec::new(), 0_u64);
    loop {
        let before = window.len();
        let read = (&file).take(STEP as u64).read_to_end(&mut window)?;
        let fresh = &window[before..];
        if let Some(last) = fresh.iter().rposition(|byte| *byte != 0) {
            written = start + (before + last + 1) as u64;
        }
        let is_end = read < STEP;
        // What begins in the last bytes is looked at with the next step.
        let until = if is_end { window.len() } else { window.len().saturating_sub(overlap) };
        let mut at = 0;
        while let Some(found) = find(&window[at..], &MAGIC).map(|found| at + found) {
            if found >= until {
                break;
            }
            at = found + 1;
            let Some(number) = read_mark(&window[found..]) else { continue };
            let behind = &window[found + MARK_LEN..];
            let whole = behind.first() == Some(&END_TAG)
                && behind.get(END_LEN - END_MAGIC.len()..END_LEN) == Some(END_MAGIC);
            let end = start + (found + MARK_LEN + if whole { END_LEN } else { 0 }) as u64;
            marks.push(Found { number, end, is_whole: whole });
        }
        if is_end {
            return Ok((marks, written));
        }
        window.drain(..until);
        start += until as u64;
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = wanted.first()?;
    let mut at = 0;
    while let Some(next) = bytes.get(at..)?.iter().position(|byte| byte == first) {
        at += next;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        at += 1;
    }
    None
}
