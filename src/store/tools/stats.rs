//! How much is in a store, and of what.

use std::collections::HashMap;

use super::{
    super::{
        MessageStore, Outcome, Space, StoreError,
        record::{FORMAT, MessageRecord, Record, SubscriptionRecord},
    },
    Progress, read_all,
};
use crate::message::DestinationKind;

/// What is in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// How the store was found.
    pub outcome: Outcome,
    /// Its format; `None` if it is empty.
    pub format: Option<u32>,
    /// The number of the last batch; 0 if none has left a trace.
    pub last_batch: u64,
    /// What each space holds, in their order.
    pub spaces: Vec<SpaceStats>,
    /// Queues and topics by id, and what is left of those that are no more.
    pub destinations: Vec<DestinationStats>,
    /// Durable subscriptions by id.
    pub subscriptions: Vec<SubscriptionStats>,
    /// Prepared transactions by id.
    pub transactions: Vec<TransactionStats>,
}

/// What a space holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceStats {
    /// Which one.
    pub space: Space,
    /// How many entries.
    pub entries: u64,
    /// Bytes of their keys and values, as the broker wrote them.
    pub bytes: u64,
}

/// The messages of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DestinationStats {
    /// Its id.
    pub id: u64,
    /// Its kind and name; `None` if messages are left of one that is no more.
    pub name: Option<(DestinationKind, String)>,
    /// How many messages.
    pub messages: u64,
    /// Bytes of their packets.
    pub bytes: u64,
    /// When the first of them was taken, in milliseconds since 1970.
    pub oldest_ms: Option<i64>,
    /// When the last of them was taken.
    pub newest_ms: Option<i64>,
}

/// What a durable subscription has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionStats {
    /// Its id.
    pub id: u64,
    /// Its client id, if it has one.
    pub client_id: Option<String>,
    /// Its name.
    pub name: String,
    /// Its topic, or pattern of topics.
    pub topic: String,
    /// Messages it has not acknowledged.
    pub messages: u64,
}

/// What a prepared transaction holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionStats {
    /// Its id.
    pub id: u64,
    /// When it was started, in milliseconds since 1970.
    pub created_ms: i64,
    /// Messages it sends.
    pub sends: u64,
    /// Messages it consumes.
    pub consumes: u64,
}

/// Reads all of a store and counts what is in it.
///
/// # Errors
/// The first thing that cannot be read; [`check`](super::check()) tells all of them.
pub fn stats(
    store: &mut dyn MessageStore,
    progress: Progress<'_>,
) -> Result<StoreStats, StoreError> {
    let recovery = store.recover()?;
    let mut counter = Counter {
        stats: StoreStats {
            outcome: recovery.outcome.clone(),
            format: None,
            last_batch: 0,
            spaces: Space::ALL.map(|space| SpaceStats { space, entries: 0, bytes: 0 }).into(),
            destinations: Vec::new(),
            subscriptions: Vec::new(),
            transactions: Vec::new(),
        },
        destinations: HashMap::new(),
        subscriptions: HashMap::new(),
    };
    read_all(recovery, progress, |entry| {
        let record = Record::decode(entry)?;
        let space = &mut counter.stats.spaces[entry.space as usize];
        space.entries += 1;
        space.bytes += (entry.key.len() + entry.value.len()) as u64;
        counter.take(record)
    })?;
    Ok(counter.stats)
}

struct Counter {
    stats: StoreStats,
    /// Where in the lists they are, by id.
    destinations: HashMap<u64, usize>,
    subscriptions: HashMap<u64, usize>,
}

impl Counter {
    fn take(&mut self, record: Record) -> Result<(), StoreError> {
        match record {
            Record::Format(FORMAT) => self.stats.format = Some(FORMAT),
            Record::Format(found) => return Err(StoreError::Format { found, known: FORMAT }),
            Record::Destination(record) => {
                self.destination(record.id).name = Some((record.kind, record.name));
            }
            Record::Subscription(record) => self.subscription(record),
            Record::Transaction(record) => self.stats.transactions.push(TransactionStats {
                id: record.id,
                created_ms: record.created_ms,
                sends: record.messages.len() as u64,
                consumes: record.consumed.len() as u64,
            }),
            Record::Message(record) => self.message(&record),
            Record::Copy(record) => {
                if let Some(&at) = self.subscriptions.get(&record.subscription) {
                    self.stats.subscriptions[at].messages += 1;
                }
            }
            Record::Recent(_, record) => {
                self.stats.last_batch = self.stats.last_batch.max(record.batch);
            }
            Record::Delivered(_) | Record::Deliveries(_) => {}
        }
        Ok(())
    }

    /// The destination with this id, counted from now on.
    fn destination(&mut self, id: u64) -> &mut DestinationStats {
        let all = &mut self.stats.destinations;
        let at = *self.destinations.entry(id).or_insert_with(|| {
            all.push(DestinationStats {
                id,
                name: None,
                messages: 0,
                bytes: 0,
                oldest_ms: None,
                newest_ms: None,
            });
            all.len() - 1
        });
        &mut all[at]
    }

    fn subscription(&mut self, record: SubscriptionRecord) {
        self.subscriptions.insert(record.id, self.stats.subscriptions.len());
        self.stats.subscriptions.push(SubscriptionStats {
            id: record.id,
            client_id: record.client_id,
            name: record.name,
            topic: record.topic,
            messages: 0,
        });
    }

    fn message(&mut self, record: &MessageRecord) {
        let received = record.head.received_ms;
        let of = self.destination(record.destination);
        of.messages += 1;
        of.bytes += u64::from(record.packet.header().size);
        of.oldest_ms = Some(of.oldest_ms.map_or(received, |oldest| oldest.min(received)));
        of.newest_ms = Some(of.newest_ms.map_or(received, |newest| newest.max(received)));
    }
}
