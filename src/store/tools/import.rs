//! Lines of JSON into an empty store.

use std::{
    collections::HashMap,
    io::{self, BufRead, Read as _},
};

use bytes::Bytes;

use super::{
    super::{
        Batch, Durability, MessageStore, Space, StoreError,
        record::{self, FORMAT, RecentRecord, Record},
    },
    Progress, TOLD_EVERY,
    line::{EndLine, Line},
};

/// Longest line that is read, in bytes: the largest packet in base64, and a good deal more.
const LINE_BYTES_MAX: u64 = 4 << 30;

/// What is committed at once.
const BATCH_RECORDS_MAX: usize = 10_000;
const BATCH_BYTES_MAX: usize = 16 << 20;

/// Why lines were not read into a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// There is something in the store already.
    #[error("{store} is not empty; an import needs a store of its own")]
    NotEmpty {
        /// Which store.
        store: String,
    },
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The lines cannot be read.
    #[error("cannot read line {line}: {error}")]
    Read {
        /// Which line, from 1.
        line: u64,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// A line is not what an export writes in its place.
    #[error("line {line}: {reason}")]
    Line {
        /// Which line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
}

impl ImportError {
    /// Whether the lines are to blame and not the store.
    #[must_use]
    pub const fn is_of_input(&self) -> bool {
        matches!(self, Self::Line { .. } | Self::Read { .. })
    }
}

/// Reads what [`export`](super::export()) has written into an empty store, and returns how many records
/// that were.
///
/// Every record is checked. The format of the store is written last: a store whose import was not
/// finished has none and is not used. After an error remove it.
///
/// # Errors
/// [`ImportError`].
pub fn import(
    store: &mut dyn MessageStore,
    input: &mut dyn BufRead,
    progress: Progress<'_>,
) -> Result<u64, ImportError> {
    let first = store.recover()?.entries.next().transpose()?;
    if first.is_some() {
        return Err(ImportError::NotEmpty { store: store.describe() });
    }
    Importer::new(store, Lines { input, number: 0, line: Vec::new() }).run(progress)
}

/// Lines with their numbers.
struct Lines<'a> {
    input: &'a mut dyn BufRead,
    number: u64,
    line: Vec<u8>,
}

impl Lines<'_> {
    fn next(&mut self) -> Result<Option<Line>, ImportError> {
        self.number += 1;
        self.line.clear();
        let read = (&mut *self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        let len = read.map_err(|error| ImportError::Read { line: self.number, error })?;
        if len == 0 {
            return Ok(None);
        }
        if self.line.last() != Some(&b'\n') && len as u64 == LINE_BYTES_MAX {
            return Err(self.wrong(format!("it is longer than {LINE_BYTES_MAX} bytes")));
        }
        serde_json::from_slice(&self.line).map(Some).map_err(|error| {
            // To the parser each line is the first.
            self.wrong(error.to_string().replace(" at line 1 column ", " at column "))
        })
    }

    fn wrong(&self, reason: impl Into<String>) -> ImportError {
        ImportError::Line { line: self.number, reason: reason.into() }
    }
}

struct Importer<'a> {
    store: &'a mut dyn MessageStore,
    lines: Lines<'a>,
    batch: Batch,
    counts: EndLine,
    names: HashMap<u64, String>,
    /// Space and key of the last record.
    last: Option<(Space, Bytes)>,
    /// The greatest batch, sequence and id there are.
    latest: RecentRecord,
}

impl<'a> Importer<'a> {
    fn new(store: &'a mut dyn MessageStore, lines: Lines<'a>) -> Self {
        Self {
            store,
            lines,
            batch: Batch::new(1),
            counts: EndLine::default(),
            names: HashMap::new(),
            last: None,
            latest: RecentRecord::default(),
        }
    }

    fn run(mut self, progress: Progress<'_>) -> Result<u64, ImportError> {
        self.first()?;
        let mut records = 0;
        loop {
            let Some(line) = self.lines.next()? else {
                return Err(self.lines.wrong("the end is missing, and perhaps more than that"));
            };
            if let Line::End(end) = line {
                self.end(&end)?;
                return Ok(records);
            }
            self.take(line)?;
            records += 1;
            if records % TOLD_EVERY == 0 {
                progress(records, None);
            }
            let is_full = self.batch.len() >= BATCH_RECORDS_MAX;
            if is_full || self.batch.size() >= BATCH_BYTES_MAX {
                self.commit(Durability::Written)?;
            }
        }
    }

    fn first(&mut self) -> Result<(), ImportError> {
        let Some(Line::Store(first)) = self.lines.next()? else {
            return Err(self.lines.wrong("this is no export of a store: `store` comes first"));
        };
        if first.format != FORMAT {
            return Err(StoreError::Format { found: first.format, known: FORMAT }.into());
        }
        Ok(())
    }

    fn take(&mut self, line: Line) -> Result<(), ImportError> {
        let of = match &line {
            Line::Message(message) => message.of.clone(),
            _ => None,
        };
        let record = line.into_record().map_err(|reason| self.lines.wrong(reason))?;
        let Some(record) = record else {
            return Err(self.lines.wrong("`store` comes first and once"));
        };
        match &record {
            Record::Destination(one) => {
                self.names.insert(one.id, one.name.clone());
                self.latest.place = self.latest.place.max(one.id);
            }
            Record::Subscription(one) => self.latest.place = self.latest.place.max(one.id),
            Record::Recent(_, one) => {
                self.latest.batch = self.latest.batch.max(one.batch);
                self.latest.sequence = self.latest.sequence.max(one.sequence);
                self.latest.place = self.latest.place.max(one.place);
            }
            Record::Delivered(one) if one.priority > 9 => {
                return Err(self.lines.wrong("a priority is 0 to 9"));
            }
            Record::Message(one)
                if of.is_some() && of.as_ref() != self.names.get(&one.destination) =>
            {
                let id = one.destination;
                return Err(self.lines.wrong(format!("`of` is not the name of destination {id}")));
            }
            Record::Message(one) => self.latest.sequence = self.latest.sequence.max(one.sequence),
            _ => {}
        }
        self.counts.count(&record);
        let at = (record.space(), record.key());
        if self.last.as_ref().is_some_and(|last| *last >= at) {
            return Err(self.lines.wrong("it is there twice, or not in the order of an export"));
        }
        self.last = Some(at);
        record.put(&mut self.batch);
        Ok(())
    }

    fn end(mut self, end: &EndLine) -> Result<(), ImportError> {
        if *end != self.counts {
            let (found, said) = (&self.counts.lines, &end.lines);
            return Err(self.lines.wrong(format!(
                "there should be {said:?} lines, and there are {found:?}; if that is as you want it, \
                 say so in this line"
            )));
        }
        if self.lines.next()?.is_some() {
            return Err(self.lines.wrong("something follows behind the end"));
        }
        if self.batch.number() > self.latest.batch {
            // The next batch of a broker comes after the latest one that is known.
            self.latest.batch = self.batch.number();
            let slot = u32::try_from(self.latest.batch % record::RECENT_SLOTS).unwrap_or(0);
            record::put_recent(&mut self.batch, slot, &self.latest);
        }
        record::put_format(&mut self.batch);
        self.commit(Durability::Synced)
    }

    fn commit(&mut self, durability: Durability) -> Result<(), ImportError> {
        self.store.commit(&self.batch, durability)?;
        self.batch.reset(self.batch.number() + 1);
        Ok(())
    }
}
