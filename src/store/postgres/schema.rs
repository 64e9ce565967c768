//! The tables, and how they come to be what this program expects.
//!
//! What the lease needs is made by whoever comes first. Everything else is made and changed by the
//! holder of the lease alone, so a newer broker that waits changes nothing under an older one that
//! works. Every statement can be carried out again: one that did not get to its end, or databases
//! that do not do such things in transactions, leave nothing that is in the way.

use std::time::Duration;

use super::{
    database::Database,
    fault::{DUPLICATE_OBJECT, DUPLICATE_TABLE, Fault, Kind, UNDEFINED_TABLE, UNIQUE_VIOLATION},
};

/// How often the first tables are tried, if others make them at the same time.
const TRIES: usize = 20;

const FIRST: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS tidegate_schema (version BIGINT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS tidegate_lease (id BIGINT PRIMARY KEY, fence BIGINT NOT NULL, \
     holder TEXT NOT NULL, token TEXT NOT NULL, valid_until TIMESTAMPTZ NOT NULL, \
     last_batch BIGINT NOT NULL)",
    "INSERT INTO tidegate_lease (id, fence, holder, token, valid_until, last_batch) \
     VALUES (1, 0, '', '', '1970-01-01 00:00:00+00', 0) ON CONFLICT (id) DO NOTHING",
];

/// From each version to the next, in order. What was released is not changed any more.
const MIGRATIONS: &[&[&str]] = &[&[
    "CREATE TABLE IF NOT EXISTS tidegate_about (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tidegate_destinations (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tidegate_subscriptions (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tidegate_transactions (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tidegate_delivered (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tidegate_deliveries (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tidegate_messages (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tidegate_copies (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tidegate_recent (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)",
]];

/// The version of the tables this program works with.
pub(super) const VERSION: i64 = 1;

const _: () = assert!(MIGRATIONS.len() as u64 == VERSION.unsigned_abs());

/// Makes the tables of the version and the lease, if they are not there.
pub(super) fn bootstrap(database: &mut Database, within: Duration) -> Result<(), Fault> {
    let mut tries = 0;
    while !has_lease(database, within)? {
        for sql in FIRST {
            let made = database.run(within, async |client| client.batch_execute(sql).await);
            match made {
                // Somebody else makes it now.
                Err(fault) if is_race(&fault) && tries < TRIES => break,
                made => made?,
            }
        }
        tries += 1;
    }
    Ok(())
}

fn is_race(fault: &Fault) -> bool {
    // A table is an entry in several catalogues, and each of them may be the one that is met.
    let codes = [UNIQUE_VIOLATION, DUPLICATE_TABLE, DUPLICATE_OBJECT];
    fault.kind == Kind::Conflict || codes.iter().any(|code| fault.has_code(code))
}

fn has_lease(database: &mut Database, within: Duration) -> Result<bool, Fault> {
    let rows = database.run(within, async |client| {
        client.query("SELECT id FROM tidegate_lease WHERE id = 1", &[]).await
    });
    match rows {
        Ok(rows) => Ok(!rows.is_empty()),
        Err(fault) if fault.has_code(UNDEFINED_TABLE) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// The version the tables have; 0 if there is only what [`bootstrap`] makes.
pub(super) fn version(database: &mut Database, within: Duration) -> Result<i64, Fault> {
    database.run(within, async |client| {
        let sql = "SELECT coalesce(max(version), 0) FROM tidegate_schema";
        client.query_one(sql, &[]).await?.try_get(0)
    })
}

/// Brings the tables from `version` to [`VERSION`]. Only for who holds the lease.
pub(super) fn migrate(
    database: &mut Database,
    version: i64,
    within: Duration,
) -> Result<(), Fault> {
    let done = usize::try_from(version).unwrap_or(0);
    for (number, migration) in (1_i64..).zip(MIGRATIONS).skip(done) {
        for sql in *migration {
            database.run(within, async |client| client.batch_execute(sql).await)?;
        }
        database.run(within, async |client| {
            let sql = "INSERT INTO tidegate_schema (version) VALUES ($1) \
                       ON CONFLICT (version) DO NOTHING";
            client.execute(sql, &[&number]).await
        })?;
    }
    Ok(())
}
