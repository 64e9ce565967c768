//! Records as lines of JSON: one object each, with one field that says which record it is.
//!
//! Nothing stands there twice, so whoever changes a line changes the record. What is no text is
//! base64. A packet's sections follow each other without a gap, so lengths and offsets are not said.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::super::record::{
    CopyRecord, DeliveredRecord, DeliveriesRecord, DestinationRecord, EndedTransaction,
    MessageHead, MessageRecord, RecentRecord, Record, SubscriptionRecord, TransactionRecord,
};
use crate::wire::{Flags, HEADER_LEN, Header, MessageId, Packet, PacketType};

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// The first one.
    Store(StoreLine),
    Destination(DestinationRecord),
    Subscription(SubscriptionRecord),
    Transaction(TransactionLine),
    Delivered(DeliveredRecord),
    Deliveries(DeliveriesRecord),
    Message(MessageLine),
    Copy(CopyRecord),
    Recent(RecentLine),
    /// The last one.
    End(EndLine),
}

/// What this is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreLine {
    pub(super) format: u32,
    /// Where it comes from, for people.
    pub(super) from: String,
    /// What wrote it, for people.
    pub(super) program: String,
}

/// How many lines there were of each kind, so that a missing end or line is noticed.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndLine {
    pub(super) lines: BTreeMap<String, u64>,
}

impl EndLine {
    /// Counts a record.
    pub(super) fn count(&mut self, record: &Record) {
        *self.lines.entry(record.space().name().to_owned()).or_default() += 1;
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageLine {
    pub(super) destination: u64,
    /// The name of the destination, if it is there. It must be the one that has this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<String>,
    sequence: u64,
    received_ms: i64,
    delivered: bool,
    packet: PacketLine,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PacketLine {
    /// Its name, or its number if it has none.
    #[serde(rename = "type")]
    packet_type: String,
    id: IdLine,
    priority: u8,
    expiration: i64,
    flags: u16,
    consumer_id: i64,
    encryption: u8,
    #[serde(with = "base64_bytes")]
    fields: Bytes,
    #[serde(with = "base64_bytes")]
    properties: Bytes,
    body: Body,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdLine {
    timestamp: i64,
    #[serde(with = "base64_bytes")]
    address: Bytes,
    port: i32,
    sequence: i32,
}

/// Bytes, as text if that is what they are.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Body {
    Text(String),
    #[serde(with = "base64_bytes")]
    Base64(Bytes),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransactionLine {
    id: u64,
    #[serde(with = "base64_option")]
    xid: Option<Bytes>,
    created_ms: i64,
    user: Option<String>,
    one_phase: bool,
    lifetime_ms: Option<u64>,
    auto_rollback: i32,
    session_less: bool,
    sends: Vec<SendLine>,
    consumes: Vec<HeldLine>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SendLine {
    destination: u64,
    packet: PacketLine,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeldLine {
    place: u64,
    sequence: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecentLine {
    slot: u32,
    batch: u64,
    sequence: u64,
    place: u64,
    messages: Vec<RecentMessageLine>,
    transactions: Vec<EndedLine>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecentMessageLine {
    destination: u64,
    id: IdLine,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndedLine {
    id: u64,
    #[serde(with = "base64_option")]
    xid: Option<Bytes>,
    committed: bool,
}

impl Line {
    /// The line of a record; the format has none, as the first line says it.
    pub(super) fn of(record: Record) -> Option<Self> {
        Some(match record {
            Record::Format(_) => return None,
            Record::Destination(record) => Self::Destination(record),
            Record::Subscription(record) => Self::Subscription(record),
            Record::Transaction(record) => Self::Transaction(record.into()),
            Record::Delivered(record) => Self::Delivered(record),
            Record::Deliveries(record) => Self::Deliveries(record),
            Record::Message(record) => Self::Message(MessageLine {
                destination: record.destination,
                of: None,
                sequence: record.sequence,
                received_ms: record.head.received_ms,
                delivered: record.head.delivered,
                packet: (&record.packet).into(),
            }),
            Record::Copy(record) => Self::Copy(record),
            Record::Recent(slot, record) => Self::Recent(RecentLine {
                slot,
                batch: record.batch,
                sequence: record.sequence,
                place: record.place,
                messages: record
                    .messages
                    .iter()
                    .map(|(destination, id)| RecentMessageLine {
                        destination: *destination,
                        id: id.into(),
                    })
                    .collect(),
                transactions: record
                    .transactions
                    .into_iter()
                    .map(|EndedTransaction { id, xid, committed }| EndedLine { id, xid, committed })
                    .collect(),
            }),
        })
    }

    /// The record of a line; the first and the last have none.
    pub(super) fn into_record(self) -> Result<Option<Record>, String> {
        Ok(Some(match self {
            Self::Store(_) | Self::End(_) => return Ok(None),
            Self::Destination(record) => Record::Destination(record),
            Self::Subscription(record) => Record::Subscription(record),
            Self::Transaction(line) => Record::Transaction(line.try_into()?),
            Self::Delivered(record) => Record::Delivered(record),
            Self::Deliveries(record) => Record::Deliveries(record),
            Self::Message(line) => Record::Message(MessageRecord {
                destination: line.destination,
                sequence: line.sequence,
                head: MessageHead { received_ms: line.received_ms, delivered: line.delivered },
                packet: line.packet.try_into()?,
            }),
            Self::Copy(record) => Record::Copy(record),
            Self::Recent(line) => {
                let slot = line.slot;
                Record::Recent(slot, line.try_into()?)
            }
        }))
    }
}

impl From<&Packet> for PacketLine {
    fn from(packet: &Packet) -> Self {
        let header = packet.header();
        let body = packet.body();
        let is_plain =
            |text: &&str| !text.contains(|c: char| c.is_control() && !"\n\r\t".contains(c));
        Self {
            packet_type: header
                .packet_type
                .name()
                .map_or_else(|| header.packet_type.0.to_string(), str::to_owned),
            id: (&header.id).into(),
            priority: header.priority,
            expiration: header.expiration,
            flags: header.flags.bits(),
            consumer_id: header.consumer_id,
            encryption: header.encryption,
            fields: Bytes::copy_from_slice(packet.variable_bytes()),
            properties: Bytes::copy_from_slice(packet.property_bytes()),
            body: match str::from_utf8(&body).ok().filter(is_plain) {
                Some(text) => Body::Text(text.to_owned()),
                None => Body::Base64(body),
            },
        }
    }
}

impl TryFrom<PacketLine> for Packet {
    type Error = String;

    fn try_from(line: PacketLine) -> Result<Self, String> {
        let PacketLine { packet_type, fields, properties, body, .. } = line;
        let named = PacketType::all().find(|one| one.name() == Some(&packet_type));
        let numbered = || packet_type.parse().map(PacketType).ok();
        let packet_type = named.or_else(numbered);
        let packet_type = packet_type.ok_or("the type is no name and no number of a packet")?;
        let body = match body {
            Body::Text(text) => text.into(),
            Body::Base64(bytes) => bytes,
        };
        let offset = HEADER_LEN + fields.len();
        let size = offset + properties.len() + body.len();
        // The wire has signed numbers there.
        let number = |len: usize| i32::try_from(len).map(i32::cast_unsigned);
        let too_long = |_| "it is longer than a packet can be";
        let header = Header {
            packet_type,
            size: number(size).map_err(too_long)?,
            expiration: line.expiration,
            id: line.id.try_into()?,
            property_offset: number(offset).map_err(too_long)?,
            property_size: number(properties.len()).map_err(too_long)?,
            priority: line.priority,
            encryption: line.encryption,
            flags: Flags::from_bits(line.flags),
            consumer_id: line.consumer_id,
        };
        let bytes = [&header.encode()[..], &fields, &properties, &body].concat();
        Self::decode(bytes.into()).map_err(|error| error.to_string())
    }
}

impl From<&MessageId> for IdLine {
    fn from(id: &MessageId) -> Self {
        let MessageId { timestamp, address, port, sequence } = *id;
        Self { timestamp, address: Bytes::copy_from_slice(&address), port, sequence }
    }
}

impl TryFrom<IdLine> for MessageId {
    type Error = String;

    fn try_from(line: IdLine) -> Result<Self, String> {
        let address = line.address[..].try_into().map_err(|_| "an address is not 16 bytes")?;
        Ok(Self { timestamp: line.timestamp, address, port: line.port, sequence: line.sequence })
    }
}

impl From<TransactionRecord> for TransactionLine {
    fn from(record: TransactionRecord) -> Self {
        let send = |(destination, packet): &(u64, Packet)| SendLine {
            destination: *destination,
            packet: packet.into(),
        };
        Self {
            id: record.id,
            xid: record.xid,
            created_ms: record.created_ms,
            user: record.user,
            one_phase: record.one_phase,
            lifetime_ms: record.lifetime_ms,
            auto_rollback: record.auto_rollback,
            session_less: record.session_less,
            sends: record.messages.iter().map(send).collect(),
            consumes: record
                .consumed
                .into_iter()
                .map(|(place, sequence)| HeldLine { place, sequence })
                .collect(),
        }
    }
}

impl TryFrom<TransactionLine> for TransactionRecord {
    type Error = String;

    fn try_from(line: TransactionLine) -> Result<Self, String> {
        let send = |send: SendLine| Ok((send.destination, send.packet.try_into()?));
        Ok(Self {
            id: line.id,
            xid: line.xid,
            created_ms: line.created_ms,
            user: line.user,
            one_phase: line.one_phase,
            lifetime_ms: line.lifetime_ms,
            auto_rollback: line.auto_rollback,
            session_less: line.session_less,
            messages: line.sends.into_iter().map(send).collect::<Result<_, String>>()?,
            consumed: line.consumes.into_iter().map(|held| (held.place, held.sequence)).collect(),
        })
    }
}

impl TryFrom<RecentLine> for RecentRecord {
    type Error = String;

    fn try_from(line: RecentLine) -> Result<Self, String> {
        let message = |one: RecentMessageLine| Ok((one.destination, one.id.try_into()?));
        let ended =
            |EndedLine { id, xid, committed }: EndedLine| EndedTransaction { id, xid, committed };
        Ok(Self {
            batch: line.batch,
            sequence: line.sequence,
            place: line.place,
            messages: line.messages.into_iter().map(message).collect::<Result<_, String>>()?,
            transactions: line.transactions.into_iter().map(ended).collect(),
        })
    }
}

/// Queue or topic by name.
pub(in crate::store) mod kind {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use crate::message::DestinationKind;

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it like this")]
    pub(in crate::store) fn serialize<S: Serializer>(
        kind: &DestinationKind,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(kind)
    }

    pub(in crate::store) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<DestinationKind, D::Error> {
        match String::deserialize(from)?.as_str() {
            "queue" => Ok(DestinationKind::Queue),
            "topic" => Ok(DestinationKind::Topic),
            other => Err(D::Error::custom(format!("{other:?} is neither queue nor topic"))),
        }
    }
}

/// Bytes as base64.
mod base64_bytes {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use super::Bytes;

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map(Bytes::from).map_err(D::Error::custom)
    }
}

/// Bytes that may be missing as base64 or null.
mod base64_option {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    use super::Bytes;

    #[allow(clippy::ref_option, reason = "serde passes it like this")]
    pub(super) fn serialize<S: Serializer>(
        bytes: &Option<Bytes>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| STANDARD.encode(bytes)).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Bytes>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        let bytes = text.map(|text| STANDARD.decode(text).map(Bytes::from));
        bytes.transpose().map_err(D::Error::custom)
    }
}
