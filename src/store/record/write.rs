//! Records into batches.

use bytes::Bytes;

use super::{
    super::{Batch, Space},
    CopyRecord, DeliveredRecord, DeliveriesRecord, DestinationRecord, FORMAT, FORMAT_KEY,
    MessageHead, RecentRecord, Record, SubscriptionRecord, TransactionRecord,
    codec::{Write as _, packet_parts, put, put_with_body},
};
use crate::{
    message::DestinationKind,
    wire::{HEADER_LEN, Packet},
};

/// Says which format the store has.
pub fn put_format(batch: &mut Batch) {
    put_format_number(batch, FORMAT);
}

fn put_format_number(batch: &mut Batch, format: u32) {
    put(batch, Space::About, FORMAT_KEY, |out| out.number(format.to_be_bytes()));
}

/// Adds or replaces a destination.
pub fn put_destination(batch: &mut Batch, record: &DestinationRecord) {
    put(batch, Space::Destinations, &record.id.to_be_bytes(), |out| {
        out.push(u8::from(record.kind == DestinationKind::Topic));
        out.bytes(record.name.as_bytes());
        out.push(u8::from(record.administered));
        out.push(u8::from(record.consumption_paused));
        out.push(u8::from(record.production_paused));
        out.list(&record.attributes, |out, (name, value)| {
            out.bytes(name.as_bytes());
            out.bytes(value.as_bytes());
        });
    });
}

/// Removes a destination with what belongs to it alone. The messages of a topic stay, as durable
/// subscriptions may have copies of them.
pub fn remove_destination(batch: &mut Batch, kind: DestinationKind, id: u64) {
    batch.remove(Space::Destinations, &id.to_be_bytes());
    if kind == DestinationKind::Queue {
        for space in [Space::Messages, Space::Delivered, Space::Deliveries] {
            batch.remove_all(space, &id.to_be_bytes());
        }
    }
}

/// Adds or replaces a durable subscription.
pub fn put_subscription(batch: &mut Batch, record: &SubscriptionRecord) {
    put(batch, Space::Subscriptions, &record.id.to_be_bytes(), |out| {
        out.option(record.client_id.as_ref(), |out, id| out.bytes(id.as_bytes()));
        out.bytes(record.name.as_bytes());
        out.bytes(record.topic.as_bytes());
        out.push(u8::from(record.is_pattern));
        out.push(u8::from(record.is_orphan));
        out.option(record.selector.as_ref(), |out, text| out.bytes(text.as_bytes()));
        out.option(record.no_local.as_ref(), |out, id| out.bytes(id.as_bytes()));
        out.push(record.shared as u8);
    });
}

/// Removes a durable subscription with its copies and what is known of their deliveries.
pub fn remove_subscription(batch: &mut Batch, id: u64) {
    batch.remove(Space::Subscriptions, &id.to_be_bytes());
    for space in [Space::Copies, Space::Delivered, Space::Deliveries] {
        batch.remove_all(space, &id.to_be_bytes());
    }
}

/// The key of a message: its destination, then its sequence.
#[must_use]
pub fn message_key(destination: u64, sequence: u64) -> [u8; 16] {
    pair(destination, sequence)
}

/// Adds a message. Its packet is written with the header as decoded, so flags and id may be others
/// than those of the bytes it came in; what lies behind the header is shared.
pub fn put_message(
    batch: &mut Batch,
    destination: u64,
    sequence: u64,
    head: MessageHead,
    packet: &Packet,
) {
    let (header, behind) = packet_parts(packet);
    let write = |out: &mut Vec<u8>| {
        out.number(head.received_ms.to_be_bytes());
        out.push(u8::from(head.delivered));
        out.extend_from_slice(&header);
    };
    let body = packet.raw().slice(HEADER_LEN.min(packet.raw().len())..);
    put_with_body(batch, Space::Messages, &pair(destination, sequence), write, behind, body);
}

/// Removes a message.
pub fn remove_message(batch: &mut Batch, destination: u64, sequence: u64) {
    batch.remove(Space::Messages, &pair(destination, sequence));
}

/// Adds or replaces a subscription's part in a message.
pub fn put_copy(batch: &mut Batch, record: &CopyRecord) {
    put(batch, Space::Copies, &pair(record.subscription, record.sequence), |out| {
        out.number(record.topic.to_be_bytes());
        out.push(u8::from(record.delivered));
    });
}

/// Removes a subscription's part in a message.
pub fn remove_copy(batch: &mut Batch, subscription: u64, sequence: u64) {
    batch.remove(Space::Copies, &pair(subscription, sequence));
}

/// Says how far deliveries may have gone.
pub fn put_delivered(batch: &mut Batch, record: &DeliveredRecord) {
    let key = delivered_key(record.place, record.priority);
    put(batch, Space::Delivered, &key, |out| out.number(record.through.to_be_bytes()));
}

/// Says how often one message was delivered.
pub fn put_deliveries(batch: &mut Batch, record: &DeliveriesRecord) {
    put(batch, Space::Deliveries, &pair(record.place, record.sequence), |out| {
        out.number(record.count.to_be_bytes());
    });
}

/// Forgets how often one message was delivered.
pub fn remove_deliveries(batch: &mut Batch, place: u64, sequence: u64) {
    batch.remove(Space::Deliveries, &pair(place, sequence));
}

/// Adds or replaces a prepared transaction. Its packets are copied.
pub fn put_transaction(batch: &mut Batch, record: &TransactionRecord) {
    put(batch, Space::Transactions, &record.id.to_be_bytes(), |out| {
        out.option(record.xid.as_ref(), |out, xid| out.bytes(xid));
        out.number(record.created_ms.to_be_bytes());
        out.option(record.user.as_ref(), |out, user| out.bytes(user.as_bytes()));
        out.push(u8::from(record.one_phase));
        out.option(record.lifetime_ms, |out, time| out.number(time.to_be_bytes()));
        out.number(record.auto_rollback.to_be_bytes());
        out.push(u8::from(record.session_less));
        out.list(&record.messages, |out, (destination, packet)| {
            out.number(destination.to_be_bytes());
            out.packet(packet);
        });
        out.list(&record.consumed, |out, (place, sequence)| {
            out.number(place.to_be_bytes());
            out.number(sequence.to_be_bytes());
        });
    });
}

/// Removes a prepared transaction.
pub fn remove_transaction(batch: &mut Batch, id: u64) {
    batch.remove(Space::Transactions, &id.to_be_bytes());
}

/// Says what a batch brought, in place of what stood in this slot.
pub fn put_recent(batch: &mut Batch, slot: u32, record: &RecentRecord) {
    put(batch, Space::Recent, &slot.to_be_bytes(), |out| {
        for number in [record.batch, record.sequence, record.place] {
            out.number(number.to_be_bytes());
        }
        out.list(&record.messages, |out, (destination, id)| {
            out.number(destination.to_be_bytes());
            out.number(id.encode());
        });
        out.list(&record.transactions, |out, ended| {
            out.number(ended.id.to_be_bytes());
            out.option(ended.xid.as_ref(), |out, xid| out.bytes(xid));
            out.push(u8::from(ended.committed));
        });
    });
}

/// Adds an entry with any fields under a right checksum.
#[cfg(all(feature = "store-json", any(test, feature = "unstable-internals")))]
pub(crate) fn put_sealed(batch: &mut Batch, space: Space, key: &[u8], fields: &[u8]) {
    put(batch, space, key, |out| out.extend_from_slice(fields));
}

impl Record {
    /// The space it belongs to.
    #[must_use]
    pub const fn space(&self) -> Space {
        match self {
            Self::Format(_) => Space::About,
            Self::Destination(_) => Space::Destinations,
            Self::Subscription(_) => Space::Subscriptions,
            Self::Message(_) => Space::Messages,
            Self::Copy(_) => Space::Copies,
            Self::Delivered(_) => Space::Delivered,
            Self::Deliveries(_) => Space::Deliveries,
            Self::Transaction(_) => Space::Transactions,
            Self::Recent(..) => Space::Recent,
        }
    }

    /// Its key there.
    #[must_use]
    pub fn key(&self) -> Bytes {
        match self {
            Self::Format(_) => Bytes::from_static(FORMAT_KEY),
            Self::Destination(DestinationRecord { id, .. })
            | Self::Subscription(SubscriptionRecord { id, .. })
            | Self::Transaction(TransactionRecord { id, .. }) => {
                Bytes::copy_from_slice(&id.to_be_bytes())
            }
            Self::Message(one) => Bytes::copy_from_slice(&pair(one.destination, one.sequence)),
            Self::Copy(one) => Bytes::copy_from_slice(&pair(one.subscription, one.sequence)),
            Self::Delivered(one) => Bytes::copy_from_slice(&delivered_key(one.place, one.priority)),
            Self::Deliveries(one) => Bytes::copy_from_slice(&pair(one.place, one.sequence)),
            Self::Recent(slot, _) => Bytes::copy_from_slice(&slot.to_be_bytes()),
        }
    }

    /// Adds it, whatever it is.
    pub fn put(&self, batch: &mut Batch) {
        match self {
            Self::Format(format) => put_format_number(batch, *format),
            Self::Destination(record) => put_destination(batch, record),
            Self::Subscription(record) => put_subscription(batch, record),
            Self::Message(record) => {
                put_message(
                    batch,
                    record.destination,
                    record.sequence,
                    record.head,
                    &record.packet,
                );
            }
            Self::Copy(record) => put_copy(batch, record),
            Self::Delivered(record) => put_delivered(batch, record),
            Self::Deliveries(record) => put_deliveries(batch, record),
            Self::Transaction(record) => put_transaction(batch, record),
            Self::Recent(slot, record) => put_recent(batch, *slot, record),
        }
    }
}

fn delivered_key(place: u64, priority: u8) -> [u8; 9] {
    let mut key = [priority; 9];
    key[..8].copy_from_slice(&place.to_be_bytes());
    key
}

fn pair(first: u64, second: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..].copy_from_slice(&second.to_be_bytes());
    key
}
