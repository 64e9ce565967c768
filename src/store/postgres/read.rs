//! Reading: everything in order at the start, single entries later, each on a connection of its
//! own.

use std::{collections::HashMap, pin::Pin, task::Poll, time::Duration, vec};

use bytes::Bytes;
use futures_core::Stream as _;
use tokio_postgres::{Error, Row, RowStream, Statement};

use super::{PostgresStore, database::Database, fault::Fault, sql::table};
use crate::store::{Entry, MessageStore as _, Space, StoreError, StoreReader};

/// What is taken at one time of the entries that have come already.
const TAKEN_ROWS: usize = 256;
const TAKEN_BYTES: usize = 1 << 20;

/// All entries. Nothing more is read than is taken: what has not been sent waits in the database.
pub(super) struct Entries<'a> {
    /// Its lease is kept up meanwhile.
    store: &'a mut PostgresStore,
    database: Database,
    spaces: vec::IntoIter<Space>,
    current: Option<(Space, Pin<Box<RowStream>>)>,
    taken: vec::IntoIter<Entry>,
    is_over: bool,
}

impl<'a> Entries<'a> {
    pub(super) fn new(store: &'a mut PostgresStore, database: Database) -> Self {
        let spaces = Space::ALL.to_vec().into_iter();
        Self { store, database, spaces, current: None, taken: vec![].into_iter(), is_over: false }
    }

    /// Takes entries that follow, at least one; `None` at the end.
    fn take(&mut self) -> Result<Option<Entry>, StoreError> {
        loop {
            if let Some(entry) = self.taken.next() {
                return Ok(Some(entry));
            }
            let _next = self.store.tend()?;
            let Some((space, rows)) = &mut self.current else {
                let Some(space) = self.spaces.next() else { return Ok(None) };
                let rows = self.begin(space).map_err(|fault| self.error(space, fault))?;
                self.current = Some((space, rows));
                continue;
            };
            let space = *space;
            let within = self.store.settings.lease;
            let some = self.database.run(within, async |_| some_of(rows, space).await);
            let (taken, is_end) = some.map_err(|fault| self.error(space, fault))?;
            if is_end {
                self.current = None;
            }
            self.taken = taken.into_iter();
        }
    }

    fn begin(&mut self, space: Space) -> Result<Pin<Box<RowStream>>, Fault> {
        let sql = format!("SELECT key, value FROM {} ORDER BY key", table(space));
        let none: [&str; 0] = [];
        let within = self.store.settings.lease;
        let rows = self.database.run(within, async |client| client.query_raw(&sql, none).await)?;
        Ok(Box::pin(rows))
    }

    fn error(&self, space: Space, fault: Fault) -> StoreError {
        let place = format!("{} of {}", table(space), self.store.place);
        fault.into_error(format!("reading {}", table(space)), &place)
    }
}

/// What has come of these rows, once something has, and whether that is their end.
async fn some_of(
    rows: &mut Pin<Box<RowStream>>,
    space: Space,
) -> Result<(Vec<Entry>, bool), Error> {
    let (mut taken, mut bytes, mut is_end) = (Vec::new(), 0, false);
    std::future::poll_fn(|context| {
        while taken.len() < TAKEN_ROWS && bytes < TAKEN_BYTES {
            match rows.as_mut().poll_next(context) {
                Poll::Pending if taken.is_empty() => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(None) => {
                    is_end = true;
                    break;
                }
                Poll::Ready(Some(row)) => {
                    let (key, value) = key_and_value(&row?)?;
                    bytes += key.len() + value.len();
                    taken.push(Entry { space, key, value });
                }
            }
        }
        Poll::Ready(Ok((std::mem::take(&mut taken), is_end)))
    })
    .await
}

fn key_and_value(row: &Row) -> Result<(Bytes, Bytes), Error> {
    let (key, value): (&[u8], &[u8]) = (row.try_get(0)?, row.try_get(1)?);
    Ok((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)))
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.take().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Reads single entries.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) database: Database,
    pub(super) place: String,
    /// How long it waits for an answer.
    pub(super) within: Duration,
    pub(super) prepared: HashMap<Space, Statement>,
}

impl Reader {
    fn ask(&mut self, space: Space, keys: &[Bytes]) -> Result<HashMap<Bytes, Bytes>, Fault> {
        if !self.database.is_connected() {
            self.prepared.clear();
            self.database.connect(self.within)?;
        }
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let prepared = &mut self.prepared;
        self.database.run(self.within, async |client| {
            let statement = match prepared.get(&space) {
                Some(statement) => statement.clone(),
                None => {
                    let sql =
                        format!("SELECT key, value FROM {} WHERE key = ANY($1)", table(space));
                    let statement = client.prepare(&sql).await?;
                    prepared.insert(space, statement.clone());
                    statement
                }
            };
            client.query(&statement, &[&keys]).await?.iter().map(key_and_value).collect()
        })
    }
}

impl StoreReader for Reader {
    fn get_all(&mut self, space: Space, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let was_connected = self.database.is_connected();
        let mut found = self.ask(space, keys);
        if found.is_err() && was_connected && !self.database.is_connected() {
            // It may have been cut since it was last used; nothing was changed by asking.
            found = self.ask(space, keys);
        }
        let found = found.map_err(|fault| {
            fault.into_error(format!("reading from {}", table(space)), &self.place)
        })?;
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }
}
