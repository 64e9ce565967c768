//! A store as lines of JSON.

use std::{collections::HashMap, io};

use super::{
    super::{
        MessageStore, StoreError,
        record::{FORMAT, Record},
    },
    Progress,
    line::{EndLine, Line, StoreLine},
    read_all,
};

/// Why a store was not written as lines.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// It cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The lines cannot be written.
    #[error("cannot write a line: {0}")]
    Write(#[source] io::Error),
}

/// Writes all of a store as lines of JSON, one object each, and returns how many records that were.
///
/// The first line says what it is, the last one how many lines of each kind stand between them;
/// without it the export is not complete. Between them is one for each record: destinations,
/// subscriptions, prepared transactions, how far deliveries have gone, messages, copies, and what came
/// lately.
///
/// # Errors
/// [`ExportError`]. What was written so far lacks its last line then.
pub fn export(
    store: &mut dyn MessageStore,
    out: &mut dyn io::Write,
    progress: Progress<'_>,
) -> Result<u64, ExportError> {
    let first = StoreLine {
        format: FORMAT,
        from: store.describe(),
        program: concat!("tidegate ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    put_line(out, &Line::Store(first)).map_err(ExportError::Write)?;
    let mut end = EndLine::default();
    let mut names = HashMap::new();
    let mut refused = None;
    let read = read_all(store.recover()?, progress, |entry| {
        let record = Record::decode(entry)?;
        match &record {
            Record::Format(FORMAT) => return Ok(()),
            Record::Format(found) => {
                return Err(StoreError::Format { found: *found, known: FORMAT });
            }
            Record::Destination(one) => drop(names.insert(one.id, one.name.clone())),
            _ => {}
        }
        end.count(&record);
        let Some(mut line) = Line::of(record) else { return Ok(()) };
        if let Line::Message(message) = &mut line {
            message.of = names.get(&message.destination).cloned();
        }
        put_line(out, &line).map_err(|error| {
            let stopped = StoreError::failed("writing a line", &error);
            refused = Some(error);
            stopped
        })
    });
    if let Some(error) = refused {
        return Err(ExportError::Write(error));
    }
    read?;
    let records = end.lines.values().sum();
    put_line(out, &Line::End(end)).and_then(|()| out.flush()).map_err(ExportError::Write)?;
    Ok(records)
}

fn put_line(out: &mut dyn io::Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}
