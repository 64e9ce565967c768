//! Entries into records.

use bytes::Bytes;

use super::{
    super::{Entry, Space, StoreError},
    CopyRecord, DeliveredRecord, DeliveriesRecord, DestinationRecord, EndedTransaction, FORMAT_KEY,
    MessageHead, MessageRecord, RecentRecord, Record, SharedBy, SubscriptionRecord,
    TransactionRecord,
    codec::{Fault, Reader, corrupt},
};
use crate::{message::DestinationKind, wire::MessageId};

/// Priorities there are.
const PRIORITIES: u8 = 10;

impl Record {
    /// Reads any entry of a store.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if it is not exactly what was written under this key in this space.
    pub fn decode(entry: &Entry) -> Result<Self, StoreError> {
        let Entry { space, key, value } = entry;
        decode(*space, key, value).map_err(|fault| corrupt(*space, key, &fault))
    }
}

/// Reads a message where it lies; the packet shares the bytes.
///
/// # Errors
/// As [`Record::decode`].
pub fn read_message(key: &[u8], value: &Bytes) -> Result<MessageRecord, StoreError> {
    message(key, value).map_err(|fault| corrupt(Space::Messages, key, &fault))
}

fn decode(space: Space, key: &[u8], value: &Bytes) -> Result<Record, Fault> {
    match space {
        Space::About => format(key, value),
        Space::Destinations => destination(key, value).map(Record::Destination),
        Space::Subscriptions => subscription(key, value).map(Record::Subscription),
        Space::Messages => message(key, value).map(Record::Message),
        Space::Copies => copy(key, value).map(Record::Copy),
        Space::Delivered => delivered(key, value).map(Record::Delivered),
        Space::Deliveries => deliveries(key, value).map(Record::Deliveries),
        Space::Transactions => transaction(key, value).map(Record::Transaction),
        Space::Recent => recent(key, value),
    }
}

fn format(key: &[u8], value: &Bytes) -> Result<Record, Fault> {
    if key != FORMAT_KEY {
        return Err(Fault::Key);
    }
    let mut fields = Reader::of_value(Space::About, key, value)?;
    let format = fields.u32()?;
    fields.end()?;
    Ok(Record::Format(format))
}

fn destination(key: &[u8], value: &Bytes) -> Result<DestinationRecord, Fault> {
    let id = one(key)?;
    let mut fields = Reader::of_value(Space::Destinations, key, value)?;
    let record = DestinationRecord {
        id,
        kind: if fields.truth()? { DestinationKind::Topic } else { DestinationKind::Queue },
        name: fields.text()?,
        administered: fields.truth()?,
        consumption_paused: fields.truth()?,
        production_paused: fields.truth()?,
        attributes: fields.list(|fields| Ok((fields.text()?, fields.text()?)))?,
    };
    fields.end()?;
    Ok(record)
}

fn subscription(key: &[u8], value: &Bytes) -> Result<SubscriptionRecord, Fault> {
    let id = one(key)?;
    let mut fields = Reader::of_value(Space::Subscriptions, key, value)?;
    let record = SubscriptionRecord {
        id,
        client_id: fields.option(Reader::text)?,
        name: fields.text()?,
        topic: fields.text()?,
        is_pattern: fields.truth()?,
        is_orphan: fields.truth()?,
        selector: fields.option(Reader::text)?,
        no_local: fields.option(Reader::text)?,
        shared: match fields.choice(3)? {
            0 => SharedBy::Nobody,
            1 => SharedBy::ClientId,
            _ => SharedBy::Name,
        },
    };
    fields.end()?;
    Ok(record)
}

fn message(key: &[u8], value: &Bytes) -> Result<MessageRecord, Fault> {
    let (destination, sequence) = pair(key)?;
    let mut fields = Reader::of_value(Space::Messages, key, value)?;
    let head = MessageHead { received_ms: fields.i64()?, delivered: fields.truth()? };
    Ok(MessageRecord { destination, sequence, head, packet: fields.last_packet()? })
}

fn copy(key: &[u8], value: &Bytes) -> Result<CopyRecord, Fault> {
    let (subscription, sequence) = pair(key)?;
    let mut fields = Reader::of_value(Space::Copies, key, value)?;
    let (topic, delivered) = (fields.u64()?, fields.truth()?);
    fields.end()?;
    Ok(CopyRecord { subscription, sequence, topic, delivered })
}

fn delivered(key: &[u8], value: &Bytes) -> Result<DeliveredRecord, Fault> {
    let (place, rest) = key.split_first_chunk().ok_or(Fault::Key)?;
    let &[priority @ 0..PRIORITIES] = rest else { return Err(Fault::Key) };
    let mut fields = Reader::of_value(Space::Delivered, key, value)?;
    let through = fields.u64()?;
    fields.end()?;
    Ok(DeliveredRecord { place: u64::from_be_bytes(*place), priority, through })
}

fn deliveries(key: &[u8], value: &Bytes) -> Result<DeliveriesRecord, Fault> {
    let (place, sequence) = pair(key)?;
    let mut fields = Reader::of_value(Space::Deliveries, key, value)?;
    let count = fields.u32()?;
    fields.end()?;
    Ok(DeliveriesRecord { place, sequence, count })
}

fn transaction(key: &[u8], value: &Bytes) -> Result<TransactionRecord, Fault> {
    let id = one(key)?;
    let mut fields = Reader::of_value(Space::Transactions, key, value)?;
    let record = TransactionRecord {
        id,
        xid: fields.option(Reader::bytes)?,
        created_ms: fields.i64()?,
        user: fields.option(Reader::text)?,
        one_phase: fields.truth()?,
        lifetime_ms: fields.option(Reader::u64)?,
        auto_rollback: fields.i32()?,
        session_less: fields.truth()?,
        messages: fields.list(|fields| Ok((fields.u64()?, fields.packet()?)))?,
        consumed: fields.list(|fields| Ok((fields.u64()?, fields.u64()?)))?,
    };
    fields.end()?;
    Ok(record)
}

fn recent(key: &[u8], value: &Bytes) -> Result<Record, Fault> {
    let slot = key.try_into().map(u32::from_be_bytes).map_err(|_| Fault::Key)?;
    let mut fields = Reader::of_value(Space::Recent, key, value)?;
    let record = RecentRecord {
        batch: fields.u64()?,
        sequence: fields.u64()?,
        place: fields.u64()?,
        messages: fields.list(|fields| Ok((fields.u64()?, MessageId::decode(&fields.array()?))))?,
        transactions: fields.list(|fields| {
            Ok(EndedTransaction {
                id: fields.u64()?,
                xid: fields.option(Reader::bytes)?,
                committed: fields.truth()?,
            })
        })?,
    };
    fields.end()?;
    Ok(Record::Recent(slot, record))
}

/// The number that is a whole key.
fn one(key: &[u8]) -> Result<u64, Fault> {
    key.try_into().map(u64::from_be_bytes).map_err(|_| Fault::Key)
}

/// The two numbers that are a whole key.
fn pair(key: &[u8]) -> Result<(u64, u64), Fault> {
    let (first, second) = key.split_first_chunk().ok_or(Fault::Key)?;
    Ok((u64::from_be_bytes(*first), one(second)?))
}
