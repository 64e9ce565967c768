//! What the entries of a store mean, and how they are written.
//!
//! All numbers are big-endian, so that keys sort by number. Every value begins with a CRC-32 of its
//! space, its key and what follows, then the version of its form; so an altered entry, or one in
//! another's place, is an error. Behind that stand the fields of the record in their order: texts
//! and lists behind their length in eight bytes, what may be missing behind a byte 0 or 1. There
//! is one way to write a record, so what was read is written again as it was.
//!
//! | space | key | value |
//! | --- | --- | --- |
//! | `about` | `format` | [`FORMAT`] |
//! | `destinations` | id | [`DestinationRecord`] |
//! | `subscriptions` | id | [`SubscriptionRecord`] |
//! | `messages` | id of the destination, sequence | [`MessageHead`], then the packet |
//! | `copies` | id of the subscription, sequence | [`CopyRecord`] |
//! | `delivered` | id of a queue or subscription, priority | sequence |
//! | `deliveries` | id of a queue or subscription, sequence | count |
//! | `transactions` | id | [`TransactionRecord`] |
//! | `recent` | a number that comes round again | [`RecentRecord`] |
//!
//! Destinations and subscriptions share one series of ids. Sequences ascend over the whole store in the
//! order of commits. A message of a queue is there as long as it is not consumed; one of a topic as
//! long as a copy is. A copy without its message is one that was consumed by everybody, and a
//! message, copy or count whose destination or subscription is not there belongs to nobody: both
//! may be removed.
#![allow(clippy::exhaustive_structs, reason = "the format of the store fixes their fields")]

mod codec;
mod read;
#[cfg(test)]
pub(super) mod tests;
mod write;

use bytes::Bytes;

pub(super) use self::codec::place;
#[cfg(all(feature = "store-json", any(test, feature = "unstable-internals")))]
pub(crate) use self::write::put_sealed;
pub use self::{
    read::read_message,
    write::{
        message_key, put_copy, put_delivered, put_deliveries, put_destination, put_format,
        put_message, put_recent, put_subscription, put_transaction, remove_copy, remove_deliveries,
        remove_destination, remove_message, remove_subscription, remove_transaction,
    },
};
use crate::{
    message::DestinationKind,
    wire::{MessageId, Packet},
};

/// The format of the whole store; another one is refused.
pub const FORMAT: u32 = 1;

/// How many slots `recent` has: that of a batch is its number modulo this.
pub const RECENT_SLOTS: u64 = 4096;

/// The only key of `about`.
const FORMAT_KEY: &[u8] = b"format";

/// A queue or a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "store-json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "store-json", serde(deny_unknown_fields))]
pub struct DestinationRecord {
    /// Its id.
    pub id: u64,
    /// Queue or topic.
    #[cfg_attr(feature = "store-json", serde(with = "super::tools::kind"))]
    pub kind: DestinationKind,
    /// Its name.
    pub name: String,
    /// Whether an administrator made it, and it stays when nobody uses it.
    pub administered: bool,
    /// Consumers get nothing until it is resumed.
    pub consumption_paused: bool,
    /// Producers are held until it is resumed.
    pub production_paused: bool,
    /// Its attributes by name, as the settings file has them.
    pub attributes: Vec<(String, String)>,
}

/// A durable subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "store-json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "store-json", serde(deny_unknown_fields))]
pub struct SubscriptionRecord {
    /// Its id.
    pub id: u64,
    /// The client id it belongs to, if it has one.
    pub client_id: Option<String>,
    /// Its name.
    pub name: String,
    /// The topic, or the pattern of topics.
    pub topic: String,
    /// Whether `topic` is a pattern.
    pub is_pattern: bool,
    /// Its one topic was destroyed.
    pub is_orphan: bool,
    /// Its selector, as it was given.
    pub selector: Option<String>,
    /// Messages of this client id do not come to it.
    pub no_local: Option<String>,
    /// Who shares it, see [`SharedBy`].
    pub shared: SharedBy,
}

/// Who shares a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "store-json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "store-json", serde(rename_all = "snake_case"))]
#[non_exhaustive]
#[repr(u8)]
pub enum SharedBy {
    /// One consumer at a time.
    Nobody = 0,
    /// Connections with its client id.
    ClientId = 1,
    /// Whoever names it.
    Name = 2,
}

/// What stands before the packet of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHead {
    /// When it was taken, in milliseconds since 1970.
    pub received_ms: i64,
    /// It was to be delivered as soon as it was stored, so it may have been.
    pub delivered: bool,
}

/// A message.
#[derive(Debug, Clone)]
pub struct MessageRecord {
    /// Its destination.
    pub destination: u64,
    /// Its place in the order of all.
    pub sequence: u64,
    /// What is known of it besides the packet.
    pub head: MessageHead,
    /// The packet as it was produced.
    pub packet: Packet,
}

/// A message of a topic as one durable subscription has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "store-json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "store-json", serde(deny_unknown_fields))]
pub struct CopyRecord {
    /// The subscription.
    pub subscription: u64,
    /// The message.
    pub sequence: u64,
    /// The topic whose message it is.
    pub topic: u64,
    /// As in [`MessageHead::delivered`].
    pub delivered: bool,
}

/// How far deliveries of one priority have gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "store-json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "store-json", serde(deny_unknown_fields))]
pub struct DeliveredRecord {
    /// The queue or subscription.
    pub place: u64,
    /// The priority, 0 to 9.
    pub priority: u8,
    /// Everything up to this sequence may have been delivered.
    pub through: u64,
}

/// How often one message was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "store-json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "store-json", serde(deny_unknown_fields))]
pub struct DeliveriesRecord {
    /// The queue or subscription.
    pub place: u64,
    /// The message.
    pub sequence: u64,
    /// How often.
    pub count: u32,
}

/// A prepared transaction.
#[derive(Debug, Clone)]
pub struct TransactionRecord {
    /// The broker's id of it.
    pub id: u64,
    /// The transaction manager's name for it, as on the wire; a local one has none.
    pub xid: Option<Bytes>,
    /// When it was started, in milliseconds since 1970.
    pub created_ms: i64,
    /// Who was logged in.
    pub user: Option<String>,
    /// It was prepared as the first half of a one-phase commit.
    pub one_phase: bool,
    /// Milliseconds it was allowed before it was prepared.
    pub lifetime_ms: Option<u64>,
    /// When it is rolled back by itself, as on the wire.
    pub auto_rollback: i32,
    /// It does not end with its session.
    pub session_less: bool,
    /// What it sends: destination and packet.
    pub messages: Vec<(u64, Packet)>,
    /// What it consumes: queue or subscription, and sequence.
    pub consumed: Vec<(u64, u64)>,
}

/// A transaction that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTransaction {
    /// Its id.
    pub id: u64,
    /// Its name, as on the wire.
    pub xid: Option<Bytes>,
    /// Whether it was committed; rolled back otherwise.
    pub committed: bool,
}

/// What came lately: the messages of one batch, by which one that is sent again is known although
/// it has been consumed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecentRecord {
    /// The number of its batch; the greatest is that of the last one.
    pub batch: u64,
    /// The greatest sequence that was given so far.
    pub sequence: u64,
    /// The greatest id of a destination or subscription that was given so far.
    pub place: u64,
    /// For each message that may be sent again: its destination and id.
    pub messages: Vec<(u64, MessageId)>,
    /// Transactions that ended in it.
    pub transactions: Vec<EndedTransaction>,
}

/// Any of them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Record {
    /// The format of the store.
    Format(u32),
    /// A queue or topic.
    Destination(DestinationRecord),
    /// A durable subscription.
    Subscription(SubscriptionRecord),
    /// A message.
    Message(MessageRecord),
    /// A durable subscription's part in one.
    Copy(CopyRecord),
    /// How far deliveries have gone.
    Delivered(DeliveredRecord),
    /// How often one message was delivered.
    Deliveries(DeliveriesRecord),
    /// A prepared transaction.
    Transaction(TransactionRecord),
    /// What came lately.
    Recent(u32, RecentRecord),
}
