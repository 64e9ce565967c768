//! The shared store: a PostgreSQL database, or one that does as PostgreSQL does.
//!
//! Each [`Space`] is a table of keys and values; a batch is one transaction, sent whole before any
//! answer is read. Several brokers may stand before one database: one of them has the *lease* and
//! works, the others wait for it.
//!
//! | table | what |
//! | --- | --- |
//! | `tidegate_about` … `tidegate_recent` | the entries of a space: `key`, `value` |
//! | `tidegate_lease` | one row: the fence that counts, who put it up, until when, the last batch |
//! | `tidegate_schema` | versions of the tables so far |
//!
//! # Use
//! [`PostgresStore::connect`], then [`acquire`](PostgresStore::acquire), which takes the lease or
//! waits for it; from then on it is a [`MessageStore`] like any other. [`tend`](MessageStore::tend)
//! keeps the lease when nothing is committed; [`close`](MessageStore::close) and drop give it back at
//! once. What happens here blocks the thread, and must not be called from one that runs futures of tokio.
//!
//! ```no_run
//! use tidegate::{
//!     broker::Broker,
//!     store::{PostgresSettings, PostgresStore, Wait},
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let url = "postgresql://tidegate:secret@db.example:5432/messages";
//! let mut store = PostgresStore::connect(url, PostgresSettings::default())?;
//! // A standby: for as long as another broker has it.
//! store.acquire(Wait::Until(std::pin::pin!(std::future::pending())))?;
//! let broker = Broker::builder().start_with(store)?;
//! # broker.shutdown();
//! # Ok(())
//! # }
//! ```
//!
//! # Failure
//! A connection that is cut, or an answer that does not come while the lease counts for sure, is
//! [`StoreError::Lost`]. [`revive`](MessageStore::revive) then connects anew and puts up a new fence if
//! nobody else has, so that what was on its way under the old one changes nothing any more, and finds
//! out from the row of the lease whether the batch in doubt is in. A lost disk or a full one is lost in
//! the same way, as the database may get over it.
//!
//! # What is needed of the database
//! - Its transactions are atomic and durable when their commit is answered, on as many machines as are
//!   to survive; a commit that was answered is not lost with the machine that answered it. In PostgreSQL
//!   with standby servers that means `synchronous_standby_names`; with `synchronous_commit = on`,
//!   which every session sets, a server alone keeps its own disk in order. A replica that is promoted
//!   without the last commits loses them.
//! - Of two transactions that change the row of the lease, the second sees what the first left, or fails
//!   with a code of class 40 and is tried again: *read committed* is asked for, anything stronger does.
//! - `now()` is the time of a transaction, and never goes back by as much as a lease.
//! - Keys of type `BYTEA` sort by their bytes. `ON CONFLICT … DO UPDATE`, `RETURNING`, `unnest` of two
//!   arrays, `ANY` of an array, `SET LOCAL`; and the protocol takes several statements in one message.
//! - Where tables are spread by a hash of their keys unless told otherwise, it is told otherwise
//!   (YugabyteDB: `ALTER ROLE … SET yb_use_hash_splitting_by_default = off`): entries are read in order.
//! - The role may create tables in its first schema, or finds them there.
//!
//! - What stands between, if anything, gives each session a connection of its own for all of its time.
//!
//! Not used: locks that a session takes, notifications, procedures, triggers, types of its own.
//!
//! # Not here
//! The connection to the database is not encrypted: a URL with `sslmode=require` is refused. Where the
//! network between is not one's own, a tunnel or a proxy at each end encrypts.

mod changes;
mod clock;
mod database;
mod fault;
mod lease;
mod read;
mod schema;
mod sql;

use std::{collections::HashMap, fmt, time::Duration};

use tokio_postgres::{Config, config::Host, types::ToSql};

pub use self::lease::Wait;
use self::{
    changes::{Changes, collapse},
    database::{Database, Session},
    fault::{Fault, Kind},
    lease::{Claim, Held, Row},
    read::{Entries, Reader},
    sql::{Prepared, Step},
};
use super::{
    Batch, Durability, MessageStore, Outcome, Recovery, Revival, Space, StoreError, StoreReader,
};

/// How often a transaction is tried that others were in the way of.
const TRIES: usize = 5;

/// Longest rest between two looks at a lease that somebody else has.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(500);

/// Shortest lease: with a shorter one each delay of the machine would count as a lost network.
const LEASE_MIN: Duration = Duration::from_millis(100);

/// Longest lease.
const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Longest time the lease is given back in, when the store is dropped.
const GIVE_BACK_MAX: Duration = Duration::from_secs(1);

/// How a broker shares its database.
///
/// | Setting | Default | What |
/// | --- | --- | --- |
/// | `lease` | 10 s | for how long the broker has the database to itself without a word; 100 ms to a day |
/// | `holder` | `tidegate` | its name, for whoever finds the database in use |
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresSettings {
    /// How long a broker that says nothing still has the database to itself. It is also how long a
    /// broker that waits takes to notice, and how long a dead network goes unnoticed at most.
    pub lease: Duration,
    /// What others are told about who has it, such as the name of a machine.
    pub holder: String,
}

impl Default for PostgresSettings {
    fn default() -> Self {
        Self { lease: Duration::from_secs(10), holder: "tidegate".into() }
    }
}

/// A store in a PostgreSQL database.
///
/// Dropping it gives the lease back, if that can be done within a second.
pub struct PostgresStore {
    settings: PostgresSettings,
    /// What and where, without credentials.
    place: String,
    /// Nobody else has this.
    token: String,
    database: Database,
    prepared: Prepared,
    held: Option<Held>,
    /// The batch whose commit was sent and not answered.
    in_doubt: Option<i64>,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("place", &self.place).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects to the database a URL names, such as `postgresql://user:password@host:5432/name`,
    /// and makes the table of the lease if it is not there. Others may work in it meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Lost`] if it cannot be reached; [`StoreError::Format`] if a newer version of
    /// this program has been there; [`StoreError::Failed`] with what it says, or what is wrong with
    /// the URL or the settings.
    pub fn connect(url: &str, settings: PostgresSettings) -> Result<Self, StoreError> {
        const ACTION: &str = "connecting to the database";
        if !(LEASE_MIN..=LEASE_MAX).contains(&settings.lease) {
            let reason = format!(
                "a lease of {} ms; it may have {} ms to {} ms",
                settings.lease.as_millis(),
                LEASE_MIN.as_millis(),
                LEASE_MAX.as_millis()
            );
            return Err(StoreError::failed(ACTION, reason));
        }
        // What the parser says may have parts of a password in it.
        let mut config: Config = url.parse().map_err(|_| {
            let reason = "its URL is not understood; \
                          it looks like postgresql://user:password@host:5432/name";
            StoreError::failed(ACTION, reason)
        })?;
        let place = place_of(&config);
        let brief = settings.lease / 3;
        // Where several are named, there is time left for the others when one does not answer.
        let hosts = config.get_hosts().len().max(config.get_hostaddrs().len()).max(1);
        let each = brief / u32::try_from(hosts).unwrap_or(u32::MAX);
        let connect = config.get_connect_timeout().map_or(each, |own| each.min(*own));
        // The system counts these in seconds, and refuses none.
        let idle = brief.max(Duration::from_secs(1));
        config
            .keepalives_idle(idle)
            .keepalives_interval(idle)
            .keepalives_retries(2)
            .tcp_user_timeout(settings.lease)
            .connect_timeout(connect);
        if config.get_application_name().is_none() {
            config.application_name("tidegate");
        }
        let session =
            Session { statement: settings.lease, idle_in_transaction: settings.lease / 2 };
        let failed = |reason: &dyn fmt::Display| StoreError::failed(ACTION, reason);
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| failed(&error))?;
        let database = Database::new(config, session).map_err(|error| failed(&error))?;
        let mut store = Self {
            settings,
            place,
            token: format!("{:032x}", u128::from_ne_bytes(random)),
            database,
            prepared: Prepared::default(),
            held: None,
            in_doubt: None,
        };
        store.reconnect().map_err(|fault| fault.into_error(ACTION, &store.place))?;
        Ok(store)
    }

    /// Takes the lease; its fence, which is greater than any before. Makes and changes the tables if
    /// they are not as this version wants them. The old holder of a lease that was over changes nothing
    /// any more.
    ///
    /// A database that cannot be reached is waited for in the same way as a lease.
    ///
    /// # Errors
    /// [`StoreError::InUse`] with who has it and until when, by the clock of the database;
    /// [`StoreError::Format`], [`StoreError::Lost`], [`StoreError::Failed`] as
    /// [`connect`](Self::connect).
    pub fn acquire(&mut self, mut wait: Wait<'_>) -> Result<u64, StoreError> {
        let mut told = String::new();
        loop {
            let (why, error) = match self.try_acquire() {
                Ok(Ok(fence)) => return Ok(fence),
                Ok(Err(row)) => {
                    let place = format!("{} ({})", self.place, row.held_by());
                    (format!("{} has it", row.holder), StoreError::InUse { place })
                }
                Err(error @ StoreError::Lost { .. }) => (error.to_string(), error),
                Err(error) => return Err(error),
            };
            let Wait::Until(stop) = &mut wait else { return Err(error) };
            if why != told {
                tracing::info!(place = %self.place, "waiting for the lease: {why}");
                told = why;
            }
            let rest = self.rest();
            if self.database.wait(rest, stop.as_mut()).is_some() {
                return Err(error);
            }
        }
    }

    /// Takes the lease if it is free; otherwise what its row says.
    fn try_acquire(&mut self) -> Result<Result<u64, Row>, StoreError> {
        const ACTION: &str = "taking the lease";
        let within = self.brief();
        if !self.database.is_connected() {
            self.reconnect().map_err(|fault| fault.into_error(ACTION, &self.place))?;
        }
        loop {
            self.check_version(ACTION)?;
            let row = lease::read(&mut self.database, within);
            let row = row.map_err(|fault| fault.into_error(ACTION, &self.place))?;
            if !row.is_over && row.token != self.token {
                return Ok(Err(row));
            }
            let taken = self.take(Claim::IfOver);
            let taken = taken.map_err(|fault| fault.into_error(ACTION, &self.place))?;
            // Somebody else may have been faster; the row says who.
            let Some(held) = taken else { continue };
            self.held = Some(held);
            self.in_doubt = None;
            self.migrate().inspect_err(|_| self.give_back())?;
            return Ok(Ok(u64::try_from(held.fence).unwrap_or(0)));
        }
    }

    /// Makes the tables what this version wants them to be, if no newer one has been there.
    fn migrate(&mut self) -> Result<(), StoreError> {
        const ACTION: &str = "making the tables";
        let version = self.check_version(ACTION)?;
        let within = self.brief();
        schema::migrate(&mut self.database, version, within)
            .map_err(|fault| fault.into_error(ACTION, &self.place))
    }

    /// A quarter of the lease and less: two brokers that wait do not look at the same time.
    fn rest(&self) -> Duration {
        let longest = (self.settings.lease / 4).min(LOOK_EVERY_MAX);
        let mut random = [0; 1];
        // Without it they look at the same time now and then, and one of them looks again.
        let _none = getrandom::fill(&mut random);
        longest / 2 + longest / 2 * u32::from(random[0]) / 255
    }

    /// How long is waited for an answer where nothing else says it.
    fn brief(&self) -> Duration {
        self.settings.lease / 3
    }

    fn reconnect(&mut self) -> Result<(), Fault> {
        self.prepared.clear();
        let within = self.brief();
        self.database.connect(within)?;
        schema::bootstrap(&mut self.database, within)
    }

    fn check_version(&mut self, action: &str) -> Result<i64, StoreError> {
        let within = self.brief();
        let version = schema::version(&mut self.database, within);
        let version = version.map_err(|fault| fault.into_error(action, &self.place))?;
        if version > schema::VERSION {
            let number = |version| u32::try_from(version).unwrap_or(u32::MAX);
            return Err(StoreError::Format {
                found: number(version),
                known: number(schema::VERSION),
            });
        }
        Ok(version)
    }

    fn take(&mut self, claim: Claim) -> Result<Option<Held>, Fault> {
        let PostgresSettings { lease, holder } = &self.settings;
        let within = *lease / 3;
        let renewed = clock::now();
        let taken =
            tried(|| lease::take(&mut self.database, claim, holder, &self.token, *lease, within))?;
        Ok(taken.map(|(fence, last)| Held { fence, last, renewed }))
    }

    /// Gives the lease back; whether this fence still counted.
    fn release(&mut self, fence: i64) -> Result<bool, Fault> {
        let within = self.brief();
        tried(|| lease::release(&mut self.database, fence, within))
    }

    /// Gives the lease back if that can be done soon.
    fn give_back(&mut self) {
        let within = self.brief().min(GIVE_BACK_MAX);
        if let Some(held) = self.held.take()
            && let Err(fault) = lease::release(&mut self.database, held.fence, within)
        {
            tracing::warn!(?fault, "the lease could not be given back; it ends by itself");
        }
    }

    /// The lease, if it surely counts, and for how long.
    fn surely_held(&self, action: &str) -> Result<(Held, Duration), StoreError> {
        let held = self.held.ok_or_else(|| {
            StoreError::failed(action, "the lease of the database was not taken before")
        })?;
        let left = held.counts_for(self.settings.lease, clock::now());
        if left.is_zero() || !self.database.is_connected() {
            let reason = if left.is_zero() {
                "the lease could not be extended in time, and may be over"
            } else {
                "there is no connection"
            };
            return Err(StoreError::lost(action, reason));
        }
        Ok((held, left))
    }

    /// Somebody else has the lease: says who.
    fn fenced(&mut self, fence: i64) -> StoreError {
        let within = self.brief();
        let by = lease::read(&mut self.database, within);
        let by = by.map_or_else(|_| String::new(), |row| format!("; {}", row.held_by()));
        StoreError::Fenced { reason: format!("its fence {fence} does not count any more{by}") }
    }

    /// Extends the lease, which also makes all commits before it durable.
    fn renew(&mut self, action: &str) -> Result<(), StoreError> {
        let (held, left) = self.surely_held(action)?;
        let lease = self.settings.lease;
        let renewed = clock::now();
        let counts = tried(|| lease::renew(&mut self.database, held.fence, lease, left));
        if counts.map_err(|fault| self.error(action, fault))? {
            self.held = Some(Held { renewed, ..held });
            Ok(())
        } else {
            Err(self.fenced(held.fence))
        }
    }

    /// The error, with the connection given up if it leaves anything in doubt.
    fn error(&mut self, action: &str, fault: Fault) -> StoreError {
        if matches!(fault.kind, Kind::Lost | Kind::Conflict) {
            self.database.disconnect();
        }
        fault.into_error(action, &self.place)
    }

    /// Removes most of what is in ranges that hold very much, some of it at a time: a transaction
    /// that takes longer than a lease cannot be kept up. The rest goes with the batch.
    ///
    /// If the batch does not get to its end, part of what it was to remove is gone all the same.
    fn trim(&mut self, spaces: &[(Space, Changes<'_>)], action: &str) -> Result<(), StoreError> {
        for (space, changes) in spaces {
            for (from, to) in &changes.ranges {
                while self.trim_once(*space, from, to.as_deref(), action)? > 0 {}
            }
        }
        Ok(())
    }

    fn trim_once(
        &mut self,
        space: Space,
        from: &[u8],
        to: Option<&[u8]>,
        action: &str,
    ) -> Result<u64, StoreError> {
        let (held, _) = self.surely_held(action)?;
        let Held { fence, last, .. } = held;
        let (kind, mut parameters): (_, Vec<Parameter<'_>>) = match &to {
            Some(to) => (sql::Kind::TrimRange, vec![&from, to]),
            None => (sql::Kind::TrimTail, vec![&from]),
        };
        parameters.extend([&fence as Parameter<'_>, &last]);
        let step = Step { space, kind, parameters };
        Ok(self.transact(held, last, Durability::Written, &[step], action)?.iter().sum())
    }

    /// Carries out steps under the lease, which is extended by that, and notes `number` as the last
    /// batch. Rows that each step changed.
    fn transact(
        &mut self,
        held: Held,
        number: i64,
        durability: Durability,
        steps: &[Step<'_>],
        action: &str,
    ) -> Result<Vec<u64>, StoreError> {
        let lease = self.settings.lease;
        let is_synced = durability == Durability::Synced;
        let begin = lease::begin(held.fence, number, lease, is_synced);
        let renewed = clock::now();
        let Self { database, prepared, .. } = self;
        let done = tried(|| {
            let left = held.counts_for(lease, clock::now());
            database.run(left, async |client| prepared.transact(client, &begin, steps).await)
        });
        match done.map_err(|fault| self.error(action, fault))? {
            Some(rows) => {
                self.held = Some(Held { fence: held.fence, last: number, renewed });
                Ok(rows)
            }
            None => Err(self.fenced(held.fence)),
        }
    }

    /// A connection beside, whose statements may take this long.
    fn beside(&self, statement: Duration, action: &str) -> Result<Database, StoreError> {
        let session = Session { statement, idle_in_transaction: self.settings.lease };
        let database = self.database.another(session);
        let mut database = database.map_err(|error| StoreError::failed(action, error))?;
        let connected = database.connect(self.brief());
        connected.map_err(|fault| fault.into_error(action, &self.place))?;
        Ok(database)
    }

    /// About how many entries there are, as far as the database has counted.
    fn estimate(&mut self) -> Option<u64> {
        let within = self.brief();
        let counted = self.database.run(within, async |client| {
            let sql = "SELECT CAST(sum(reltuples) AS BIGINT) FROM pg_class \
                       WHERE relname LIKE 'tidegate\\_%' AND relkind = 'r' AND reltuples > 0 \
                       AND pg_table_is_visible(oid)";
            client.query_one(sql, &[]).await?.try_get::<_, Option<i64>>(0)
        });
        counted.ok().flatten().and_then(|count| u64::try_from(count).ok())
    }
}

type Parameter<'a> = &'a (dyn ToSql + Sync);

/// The statements that carry out a batch, under the fence and the number in `guard`.
fn steps<'a>(spaces: &'a [(Space, Changes<'_>)], guard: &'a [i64; 2]) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    let mut step = |space: Space, kind, own: &[Parameter<'a>]| {
        let mut parameters = own.to_vec();
        parameters.extend([&guard[0] as Parameter<'a>, &guard[1]]);
        steps.push(Step { space, kind, parameters });
    };
    for (space, changes) in spaces {
        for (from, to) in &changes.ranges {
            match to {
                Some(to) => step(*space, sql::Kind::RemoveRange, &[from, to]),
                None => step(*space, sql::Kind::RemoveTail, &[from]),
            }
        }
        if !changes.removed.is_empty() {
            step(*space, sql::Kind::Remove, &[&changes.removed]);
        }
        if !changes.put_keys.is_empty() {
            step(*space, sql::Kind::Put, &[&changes.put_keys, &changes.put_values]);
        }
    }
    steps
}

/// Tries again what others were in the way of, a few times.
fn tried<T>(mut attempt: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    let mut tries = 1;
    loop {
        match attempt() {
            Err(fault) if fault.kind == Kind::Conflict && tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

/// What and where a database is, without who logs in and how.
fn place_of(config: &Config) -> String {
    let name = config
        .get_dbname()
        .map_or_else(|| "the default database".into(), |name| format!("database {name}"));
    let ports = config.get_ports();
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(index, host)| {
            let port = ports.get(index).or_else(|| ports.first()).unwrap_or(&5432);
            match host {
                Host::Tcp(host) => format!("{host}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => format!("{} port {port}", path.display()),
            }
        })
        .collect();
    format!("PostgreSQL, {name} at {}", hosts.join(", "))
}

impl MessageStore for PostgresStore {
    fn describe(&self) -> String {
        self.place.clone()
    }

    fn recover(&mut self) -> Result<Recovery<'_>, StoreError> {
        const ACTION: &str = "reading the store";
        self.tend()?;
        let (held, _) = self.surely_held(ACTION)?;
        let estimate = self.estimate();
        // One statement reads a whole space, for as long as that takes.
        let database = self.beside(Duration::ZERO, ACTION)?;
        Ok(Recovery {
            outcome: if held.last == 0 { Outcome::Fresh } else { Outcome::Loaded },
            estimate,
            entries: Box::new(Entries::new(self, database)),
        })
    }

    fn commit(&mut self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        let action = format!("committing batch {}", batch.number());
        let (held, _) = self.surely_held(&action)?;
        let number = i64::try_from(batch.number())
            .map_err(|_| StoreError::failed(&action, "its number is too great"))?;
        if number <= held.last {
            let last = held.last;
            let reason = format!("its number is not greater than that of the last one, {last}");
            return Err(StoreError::failed(action, reason));
        }
        let spaces = collapse(batch);
        self.trim(&spaces, &action)?;
        let (held, _) = self.surely_held(&action)?;
        let guard = [held.fence, number];
        self.in_doubt = Some(number);
        self.transact(held, number, durability, &steps(&spaces, &guard), &action)?;
        self.in_doubt = None;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        // What follows in the log of the database is synced with everything before it.
        self.renew("a sync")
    }

    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError> {
        let within = self.settings.lease;
        let database = self.beside(within, "opening a reader")?;
        let place = self.place.clone();
        Ok(Box::new(Reader { database, place, within, prepared: HashMap::new() }))
    }

    fn revive(&mut self) -> Result<Revival, StoreError> {
        const ACTION: &str = "coming back";
        let Some(before) = self.held else {
            return Err(StoreError::failed(ACTION, "the lease was not taken before"));
        };
        if !self.database.is_connected() {
            self.reconnect().map_err(|fault| fault.into_error(ACTION, &self.place))?;
        }
        match self.take(Claim::IfOwn) {
            Ok(Some(held)) => {
                let doubt = self.in_doubt.take();
                if held.last < before.last {
                    let (last, known) = (held.last, before.last);
                    tracing::warn!(last, known, "the database lost batches that were only written");
                }
                self.held = Some(held);
                let is_in = doubt == Some(held.last);
                Ok(if is_in { Revival::Applied } else { Revival::NotApplied })
            }
            Ok(None) => Err(self.fenced(before.fence)),
            Err(fault) => Err(self.error(ACTION, fault)),
        }
    }

    fn tend(&mut self) -> Result<Option<Duration>, StoreError> {
        let Some(held) = self.held else { return Ok(None) };
        let lease = self.settings.lease;
        let wait = held.renew_in(lease, clock::now());
        if !wait.is_zero() {
            return Ok(Some(wait));
        }
        self.renew("keeping the lease")?;
        Ok(Some(lease / 3))
    }

    fn close(&mut self) -> Result<(), StoreError> {
        const ACTION: &str = "giving the lease back";
        let Some(Held { fence, .. }) = self.held.take() else { return Ok(()) };
        let mut released = self.release(fence);
        if released.as_ref().is_err_and(|fault| fault.kind == Kind::Lost) {
            // Once more, as whoever waits would wait for the end of the lease.
            released = self.reconnect().and_then(|()| self.release(fence));
        }
        let result = match released {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.fenced(fence)),
            Err(fault) => Err(fault.into_error(ACTION, &self.place)),
        };
        self.database.disconnect();
        result
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // Where futures run nothing may block; the lease ends by itself.
        if self.database.is_connected() && tokio::runtime::Handle::try_current().is_err() {
            self.give_back();
        }
    }
}
