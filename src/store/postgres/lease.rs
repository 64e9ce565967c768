//! Who may write: one row that says which fence counts, who put it up and until when.
//!
//! Every change of entries looks at the fence in its own transaction, so it does not matter what a
//! broker believes: one that stood still, or whose words were on their way for long, changes
//! nothing once there is a newer fence. Times are the database's alone. A broker measures with a
//! clock of its own, from before it asked, how long its lease counts at least.

use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use super::{database::Database, fault::Fault, sql::rows_of_last};

/// Whether to wait for a lease that somebody else has.
#[non_exhaustive]
pub enum Wait<'a> {
    /// No: that is [`StoreError::InUse`](super::StoreError::InUse).
    No,
    /// Until it is free, or until this future is done, which is
    /// [`StoreError::InUse`](super::StoreError::InUse) then.
    Until(Pin<&'a mut (dyn Future<Output = ()> + 'a)>),
}

impl std::fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::No => "No",
            Self::Until(_) => "Until(..)",
        })
    }
}

/// A lease that this store has, or had.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) fence: i64,
    /// The last batch that is in the database.
    pub(super) last: i64,
    /// When it was asked for the last time with success, before the words were sent.
    pub(super) renewed: Instant,
}

impl Held {
    /// How long the lease counts for sure: a tenth less than it was given for, as clocks need not
    /// run equally fast.
    pub(super) fn counts_for(&self, lease: Duration, now: Instant) -> Duration {
        (lease - lease / 10).saturating_sub(now.saturating_duration_since(self.renewed))
    }

    /// How long until it should be renewed.
    pub(super) fn renew_in(&self, lease: Duration, now: Instant) -> Duration {
        (lease / 3).saturating_sub(now.saturating_duration_since(self.renewed))
    }
}

/// What the row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) holder: String,
    pub(super) token: String,
    /// By the database's clock, in UTC.
    pub(super) until: String,
    pub(super) is_over: bool,
}

impl Row {
    /// For people: who has it, and until when.
    pub(super) fn held_by(&self) -> String {
        format!("{} has it until {}", self.holder, self.until)
    }
}

/// Reads the row.
pub(super) fn read(database: &mut Database, within: Duration) -> Result<Row, Fault> {
    database.run(within, async |client| {
        let sql = "SELECT holder, token, CAST(valid_until AS TEXT), valid_until <= now() \
                   FROM tidegate_lease WHERE id = 1";
        let row = client.query_one(sql, &[]).await?;
        Ok(Row {
            holder: row.try_get(0)?,
            token: row.try_get(1)?,
            until: row.try_get(2)?,
            is_over: row.try_get(3)?,
        })
    })
}

/// Who may have the lease anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Whoever comes when it is over.
    IfOver,
    /// Only who has it, over or not.
    IfOwn,
}

/// Puts up a new fence: that and the last batch; `None` if the claim does not hold.
///
/// A fence of its own each time, also for who has the lease already: what it sent under the old
/// one, and is perhaps still on its way, changes nothing any more.
pub(super) fn take(
    database: &mut Database,
    claim: Claim,
    holder: &str,
    token: &str,
    lease: Duration,
    within: Duration,
) -> Result<Option<(i64, i64)>, Fault> {
    let who = match claim {
        Claim::IfOver => "(token = $2 OR valid_until <= now())",
        Claim::IfOwn => "token = $2",
    };
    let sql = format!(
        "UPDATE tidegate_lease SET fence = fence + 1, holder = $1, token = $2, valid_until = {} \
         WHERE id = 1 AND {who} RETURNING fence, last_batch",
        end_of(lease)
    );
    database.run(within, async |client| {
        let row = client.query_opt(&sql, &[&holder, &token]).await?;
        row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
    })
}

/// Extends the lease; whether this fence still counts.
pub(super) fn renew(
    database: &mut Database,
    fence: i64,
    lease: Duration,
    within: Duration,
) -> Result<bool, Fault> {
    let sql = format!(
        "UPDATE tidegate_lease SET valid_until = {} WHERE id = 1 AND fence = {fence}",
        end_of(lease)
    );
    database.run(within, async |client| Ok(rows_of_last(client, &sql).await? > 0))
}

/// Ends the lease now; whether this fence still counted.
pub(super) fn release(
    database: &mut Database,
    fence: i64,
    within: Duration,
) -> Result<bool, Fault> {
    let sql = format!(
        "UPDATE tidegate_lease SET token = '', valid_until = '1970-01-01 00:00:00+00' \
         WHERE id = 1 AND fence = {fence}"
    );
    database.run(within, async |client| Ok(rows_of_last(client, &sql).await? > 0))
}

/// Begins a transaction that extends the lease, notes `batch` as the last, and changes something
/// only if this fence still counts.
pub(super) fn begin(fence: i64, batch: i64, lease: Duration, is_synced: bool) -> String {
    let durability = if is_synced { "" } else { "SET LOCAL synchronous_commit = off; " };
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; {durability}\
         UPDATE tidegate_lease SET last_batch = {batch}, valid_until = {} \
         WHERE id = 1 AND fence = {fence}",
        end_of(lease)
    )
}

fn end_of(lease: Duration) -> String {
    format!("now() + interval '{} milliseconds'", lease.as_millis())
}
