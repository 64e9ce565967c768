//! Where messages survive the process: batches of changes in, a return after the sync out.
//!
//! A [`MessageStore`] is an ordered map in a few [`Space`]s that takes a [`Batch`] of changes whole or
//! not at all. What the entries mean is the business of [`record`]; a store does not look into them.
//! The broker has one thread that commits, so a store needs no lock of its own for that; bodies
//! are fetched through a [`StoreReader`] by another thread meanwhile.
//!
//! # Promises of a store
//! - When [`commit`](MessageStore::commit) has returned, the batch survives the end of the process,
//!   and with [`Durability::Synced`] that of the machine.
//! - A batch is found whole or not at all afterwards, and only if all batches before it are.
//! - What was altered or cut off meanwhile is noticed: it is an error, never another value.

mod batch;
mod error;
#[cfg(feature = "fjall")]
mod fjall;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
pub mod record;
pub mod tools;

use std::{fmt, time::Duration};

use bytes::Bytes;

#[cfg(feature = "fjall")]
pub use self::fjall::{FjallSettings, FjallStore};
#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresSettings, PostgresStore, Wait};
pub use self::{
    batch::{Batch, Change, Value},
    error::StoreError,
    memory::MemoryStore,
};

/// A part of a store with keys of its own, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Space {
    /// What the store is: its format.
    About = 0,
    /// Queues and topics.
    Destinations = 1,
    /// Durable subscriptions.
    Subscriptions = 2,
    /// Prepared transactions.
    Transactions = 3,
    /// How far deliveries have gone.
    Delivered = 4,
    /// How often single messages were delivered, where that is more than `Delivered` says.
    Deliveries = 5,
    /// Messages, by destination.
    Messages = 6,
    /// Which durable subscription still holds which message of a topic.
    Copies = 7,
    /// Ids of the latest messages and transactions, so that what is sent again is known.
    Recent = 8,
}

impl Space {
    /// All of them, in order.
    pub const ALL: [Self; 9] = [
        Self::About,
        Self::Destinations,
        Self::Subscriptions,
        Self::Transactions,
        Self::Delivered,
        Self::Deliveries,
        Self::Messages,
        Self::Copies,
        Self::Recent,
    ];

    /// Its name in lower case, as stores name their tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::About => "about",
            Self::Destinations => "destinations",
            Self::Subscriptions => "subscriptions",
            Self::Messages => "messages",
            Self::Copies => "copies",
            Self::Delivered => "delivered",
            Self::Deliveries => "deliveries",
            Self::Transactions => "transactions",
            Self::Recent => "recent",
        }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a commit is to survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The end of the machine: synced to the disk before it returns.
    Synced,
    /// The end of the process: handed to the system, which writes it when it likes.
    Written,
}

/// How a store was found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// There was nothing: a new one.
    Fresh,
    /// All that was ever committed.
    Loaded,
    /// All that was ever committed; behind it lay a batch that had not been written to its end and
    /// was never acknowledged. It is gone.
    TornTailDropped {
        /// What was dropped, for people.
        what: String,
    },
}

/// One entry of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "stores outside of this crate make them")]
pub struct Entry {
    /// Where.
    pub space: Space,
    /// Its key, unique in its space.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
}

/// What a store holds when it is opened.
#[allow(clippy::exhaustive_structs, reason = "stores outside of this crate make them")]
pub struct Recovery<'a> {
    /// How it was found.
    pub outcome: Outcome,
    /// About how many entries follow, if that is known, to show progress by.
    pub estimate: Option<u64>,
    /// Its entries, by space and key. After an error nothing more comes.
    pub entries: Box<dyn Iterator<Item = Result<Entry, StoreError>> + Send + 'a>,
}

impl fmt::Debug for Recovery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovery").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

/// What became of the batch whose commit failed, once its store is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revival {
    /// It is in the store.
    Applied,
    /// It is not, and may be committed again.
    NotApplied,
}

/// A store of messages.
///
/// Dropping it gives up what it holds, its lock included, and syncs nothing that a commit did not.
pub trait MessageStore: Send + fmt::Debug {
    /// What and where it is, for people: `fjall in /var/lib/tidegate`.
    fn describe(&self) -> String;

    /// Reads all of it. Called once, before anything else.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] and others, here or from the iterator.
    fn recover(&mut self) -> Result<Recovery<'_>, StoreError>;

    /// Carries out all changes of a batch, or none. Numbers of batches ascend. Blocks until that is
    /// as durable as asked.
    ///
    /// # Errors
    /// What went wrong. After [`StoreError::Lost`] it is not known whether the batch is in, and
    /// [`revive`](Self::revive) tells; after any other the store is not used any more.
    fn commit(&mut self, batch: &Batch, durability: Durability) -> Result<(), StoreError>;

    /// Makes everything that was only written survive the end of the machine.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    fn sync(&mut self) -> Result<(), StoreError>;

    /// A way to read entries from another thread. It sees what was committed before it is asked.
    ///
    /// # Errors
    /// If none can be opened.
    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError>;

    /// Tries to come back after [`StoreError::Lost`].
    ///
    /// # Errors
    /// The same as long as it is lost; [`StoreError::Failed`] where there is no way back without a
    /// new start.
    fn revive(&mut self) -> Result<Revival, StoreError> {
        Err(StoreError::failed("coming back", "this store comes back with a new start only"))
    }

    /// Does what must be done from time to time though nothing is committed, and says how long
    /// that can wait the next time. `None`: there is nothing of the kind.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    fn tend(&mut self) -> Result<Option<Duration>, StoreError> {
        Ok(None)
    }

    /// Ends in order: everything is synced, and whoever waits to take over need not wait longer.
    ///
    /// # Errors
    /// What went wrong; the store is closed all the same.
    fn close(&mut self) -> Result<(), StoreError>;
}

/// Reads entries of a store while another thread commits.
pub trait StoreReader: Send + fmt::Debug {
    /// The values of these keys, in their order; `None` for what is not there.
    ///
    /// # Errors
    /// What went wrong. It may be asked again.
    fn get_all(&mut self, space: Space, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, StoreError>;
}
