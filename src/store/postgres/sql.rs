//! The statements that change entries, prepared when they are first needed, and the transaction
//! that carries them out in one round trip.

use std::{collections::HashMap, future::poll_fn, pin::Pin, task::Poll};

use tokio_postgres::{Client, Error, SimpleQueryMessage, Statement, types::ToSql};

use crate::store::Space;

/// Keys that are removed in one transaction, if there are many to remove.
pub(super) const REMOVED_AT_ONCE: usize = 10_000;

/// What a statement does to a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Keys, values.
    Put,
    /// Keys.
    Remove,
    /// First key, first key behind.
    RemoveRange,
    /// First key; what follows goes to the end.
    RemoveTail,
    /// As `RemoveRange`, and leaves the first [`REMOVED_AT_ONCE`] and what follows as many more.
    TrimRange,
    /// The same of `RemoveTail`.
    TrimTail,
}

/// Name of the table of a space.
pub(super) fn table(space: Space) -> String {
    format!("tidegate_{}", space.name())
}

impl Kind {
    /// Its text. Behind its own parameters come the fence and the batch: a statement does nothing
    /// unless the lease says so, be it because another broker has it or because the transaction was
    /// never begun.
    fn sql(self, space: Space) -> String {
        let table = table(space);
        let guard = |fence: u8| {
            format!(
                "EXISTS (SELECT 1 FROM tidegate_lease \
                 WHERE id = 1 AND fence = ${fence} AND last_batch = ${})",
                fence + 1
            )
        };
        let trim = |range: &str| {
            format!(
                "key IN (SELECT key FROM {table} WHERE {range} ORDER BY key \
                 LIMIT {REMOVED_AT_ONCE} OFFSET {REMOVED_AT_ONCE})"
            )
        };
        let (from, to) = ("key >= $1", "key >= $1 AND key < $2");
        let (which, own) = match self {
            Self::Put => {
                return format!(
                    "INSERT INTO {table} (key, value) \
                     SELECT u.k, u.v FROM unnest($1::bytea[], $2::bytea[]) AS u (k, v) WHERE {} \
                     ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    guard(3)
                );
            }
            Self::Remove => ("key = ANY($1)".to_owned(), 1),
            Self::RemoveRange => (to.to_owned(), 2),
            Self::RemoveTail => (from.to_owned(), 1),
            Self::TrimRange => (trim(to), 2),
            Self::TrimTail => (trim(from), 1),
        };
        format!("DELETE FROM {table} WHERE {which} AND {}", guard(own + 1))
    }
}

/// A statement and its parameters.
pub(super) struct Step<'a> {
    pub(super) space: Space,
    pub(super) kind: Kind,
    pub(super) parameters: Vec<&'a (dyn ToSql + Sync)>,
}

/// Statements of one connection.
#[derive(Default)]
pub(super) struct Prepared(HashMap<(Space, Kind), Statement>);

impl Prepared {
    /// Forgets them; their connection is gone.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Prepares what these steps need and is not prepared yet, in one round trip.
    async fn prepare(&mut self, client: &Client, steps: &[Step<'_>]) -> Result<(), Error> {
        let mut missing = Vec::new();
        for step in steps {
            let wanted = (step.space, step.kind);
            if !self.0.contains_key(&wanted) && !missing.contains(&wanted) {
                missing.push(wanted);
            }
        }
        let texts: Vec<_> = missing.iter().map(|(space, kind)| kind.sql(*space)).collect();
        let statements = in_order(texts.iter().map(|text| client.prepare(text))).await;
        for (wanted, statement) in missing.into_iter().zip(statements) {
            self.0.insert(wanted, statement?);
        }
        Ok(())
    }

    /// Carries out `begin`, which begins a transaction and ends with a change of the lease, then the
    /// steps, then the commit. Rows that each step changed; `None` if the change of the lease found
    /// nothing to change, in which case the steps did not either.
    ///
    /// All of it is sent before any answer is read.
    pub(super) async fn transact(
        &mut self,
        client: &Client,
        begin: &str,
        steps: &[Step<'_>],
    ) -> Result<Option<Vec<u64>>, Error> {
        type Part<'a> = Pin<Box<dyn Future<Output = Result<u64, Error>> + 'a>>;
        self.prepare(client, steps).await?;
        let mut parts: Vec<Part<'_>> = Vec::with_capacity(steps.len() + 2);
        parts.push(Box::pin(rows_of_last(client, begin)));
        for step in steps {
            let statement = &self.0[&(step.space, step.kind)];
            parts.push(Box::pin(client.execute(statement, &step.parameters)));
        }
        parts.push(Box::pin(async { client.batch_execute("COMMIT").await.map(|()| 0) }));
        // The first error is the cause of those behind it, and of a commit that was a rollback.
        let rows: Vec<u64> = in_order(parts).await.into_iter().collect::<Result<_, _>>()?;
        let (lease, rows) = (rows[0], &rows[1..rows.len() - 1]);
        Ok((lease > 0).then(|| rows.to_vec()))
    }
}

/// Carries out some statements, and says how many rows the last of them changed.
pub(super) async fn rows_of_last(client: &Client, sql: &str) -> Result<u64, Error> {
    let mut rows = 0;
    for message in client.simple_query(sql).await? {
        if let SimpleQueryMessage::CommandComplete(count) = message {
            rows = count;
        }
    }
    Ok(rows)
}

/// Starts futures in their order, then waits for all of them.
async fn in_order<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut done = true;
        for (future, result) in &mut waiting {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *result = Some(value),
                    Poll::Pending => done = false,
                }
            }
        }
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, result)| result).collect()
}
