use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*};

use super::{
    codec::{PREFIX_LEN, put},
    *,
};
use crate::{
    store::{Batch, Change, Entry, Space, StoreError},
    wire::{Flags, HEADER_LEN, PacketBuilder, PacketType},
};

/// The entries a batch puts.
fn entries(batch: &Batch) -> Vec<Entry> {
    let put = |change| match change {
        Change::Put { space, key, value } => {
            let (key, value) = (Bytes::copy_from_slice(key), Bytes::from(value.to_vec()));
            Some(Entry { space, key, value })
        }
        Change::Remove { .. } | Change::RemoveAll { .. } => None,
    };
    batch.changes().filter_map(put).collect()
}

fn entry(record: &Record) -> Entry {
    let mut batch = Batch::new(1);
    // Something before it, so that nothing relies on standing first.
    put_format(&mut batch);
    record.put(&mut batch);
    entries(&batch).pop().unwrap()
}

fn packet(body: &'static [u8]) -> Packet {
    PacketBuilder::new(PacketType::TEXT_MESSAGE).flags(Flags::PERSISTENT).body(body).finish()
}

fn any_text() -> impl Strategy<Value = String> {
    "[a-zä\\x00\"]{0,12}"
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn any_id() -> impl Strategy<Value = MessageId> {
    any::<[u8; 32]>().prop_map(|bytes| MessageId::decode(&bytes))
}

fn any_packet() -> impl Strategy<Value = Packet> {
    (any::<u16>(), any_id(), any_id(), 0..10_u8, any::<i64>(), any_bytes()).prop_map(
        |(flags, id, other_id, priority, expiration, body)| {
            PacketBuilder::new(PacketType::BYTES_MESSAGE)
                .flags(Flags::from_bits(flags))
                .id(id)
                .priority(priority)
                .expiration(expiration)
                .int("n", 5)
                .body(body)
                .finish()
                .with_id(other_id)
                .without_flags(Flags::INDEMPOTENT)
        },
    )
}

fn any_destination() -> impl Strategy<Value = Record> {
    let attributes = vec((any_text(), any_text()), 0..4);
    (any::<u64>(), any::<[bool; 4]>(), any_text(), attributes).prop_map(
        |(id, [is_topic, administered, consumption, production], name, attributes)| {
            Record::Destination(DestinationRecord {
                id,
                kind: if is_topic { DestinationKind::Topic } else { DestinationKind::Queue },
                name,
                administered,
                consumption_paused: consumption,
                production_paused: production,
                attributes,
            })
        },
    )
}

fn any_subscription() -> impl Strategy<Value = Record> {
    let shared =
        prop_oneof![Just(SharedBy::Nobody), Just(SharedBy::ClientId), Just(SharedBy::Name)];
    let texts = (any_text(), any_text());
    let options = [(); 3].map(|()| option::of(any_text()));
    (any::<u64>(), texts, options, any::<[bool; 2]>(), shared).prop_map(
        |(id, (name, topic), [client_id, selector, no_local], [is_pattern, is_orphan], shared)| {
            Record::Subscription(SubscriptionRecord {
                id,
                client_id,
                name,
                topic,
                is_pattern,
                is_orphan,
                selector,
                no_local,
                shared,
            })
        },
    )
}

fn any_message() -> impl Strategy<Value = Record> {
    (any::<[u64; 2]>(), any::<i64>(), any::<bool>(), any_packet()).prop_map(
        |([destination, sequence], received_ms, delivered, packet)| {
            let head = MessageHead { received_ms, delivered };
            Record::Message(MessageRecord { destination, sequence, head, packet })
        },
    )
}

fn any_transaction() -> impl Strategy<Value = Record> {
    let name = (any::<u64>(), option::of(any_bytes()), option::of(any_text()));
    let settings = (any::<i64>(), any::<[bool; 2]>(), option::of(any::<u64>()), any::<i32>());
    let work = (vec((any::<u64>(), any_packet()), 0..3), vec(any::<(u64, u64)>(), 0..3));
    (name, settings, work).prop_map(
        |(
            (id, xid, user),
            (created_ms, [one_phase, session_less], lifetime_ms, auto_rollback),
            (messages, consumed),
        )| {
            Record::Transaction(TransactionRecord {
                id,
                xid,
                created_ms,
                user,
                one_phase,
                lifetime_ms,
                auto_rollback,
                session_less,
                messages,
                consumed,
            })
        },
    )
}

fn any_recent() -> impl Strategy<Value = Record> {
    let ended = (any::<u64>(), option::of(any_bytes()), any::<bool>())
        .prop_map(|(id, xid, committed)| EndedTransaction { id, xid, committed });
    let parts = (vec((any::<u64>(), any_id()), 0..4), vec(ended, 0..3));
    (any::<u32>(), any::<[u64; 3]>(), parts).prop_map(
        |(slot, [batch, sequence, place], (messages, transactions))| {
            let record = RecentRecord { batch, sequence, place, messages, transactions };
            Record::Recent(slot, record)
        },
    )
}

pub(in crate::store) fn any_record() -> impl Strategy<Value = Record> {
    let copy = (any::<[u64; 3]>(), any::<bool>()).prop_map(
        |([subscription, sequence, topic], delivered)| {
            Record::Copy(CopyRecord { subscription, sequence, topic, delivered })
        },
    );
    let delivered = (any::<[u64; 2]>(), 0..10_u8).prop_map(|([place, through], priority)| {
        Record::Delivered(DeliveredRecord { place, priority, through })
    });
    let deliveries = (any::<[u64; 2]>(), any::<u32>()).prop_map(|([place, sequence], count)| {
        Record::Deliveries(DeliveriesRecord { place, sequence, count })
    });
    prop_oneof![
        any::<u32>().prop_map(Record::Format),
        any_destination(),
        any_subscription(),
        any_message(),
        copy,
        delivered,
        deliveries,
        any_transaction(),
        any_recent(),
    ]
}

/// The record with its packets' headers in their bytes as they were decoded: a packet's own bytes
/// may have another id and other flags.
fn with_headers_written(record: Record) -> Record {
    let written = |packet: Packet| {
        let bytes = [&packet.header().encode(), &packet.raw()[HEADER_LEN..]].concat();
        Packet::decode(bytes.into()).unwrap()
    };
    match record {
        Record::Message(record) => {
            let packet = written(record.packet);
            Record::Message(MessageRecord { packet, ..record })
        }
        Record::Transaction(mut record) => {
            let messages = record.messages.into_iter();
            record.messages = messages.map(|(place, packet)| (place, written(packet))).collect();
            Record::Transaction(record)
        }
        other => other,
    }
}

proptest! {
    #[test]
    fn every_record_is_read_as_it_was_written(record in any_record()) {
        let written = entry(&record);
        prop_assert_eq!((record.space(), record.key()), (written.space, written.key.clone()));
        let read = Record::decode(&written).unwrap();
        prop_assert_eq!(entry(&read), written);
        prop_assert_eq!(format!("{:?}", read), format!("{:?}", with_headers_written(record)));
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed(record in any_record(), choice in any::<prop::sample::Index>()) {
        let Entry { space, key, value } = entry(&record);
        let mut bytes = [&key[..], &value].concat();
        let bit = choice.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let value = bytes.split_off(key.len());
        let altered = Entry { space, key: bytes.into(), value: value.into() };
        let read = Record::decode(&altered);
        prop_assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{:?}", read);
    }

    #[test]
    fn nothing_panics_on_any_bytes(space in 0..9_usize, key in any_bytes(), value in any_bytes()) {
        let space = Space::ALL[space];
        let plain = Entry { space, key: key.clone(), value: value.clone() };
        prop_assert!(Record::decode(&plain).is_err());
        // Even if the checksum is right.
        read_sealed(space, &key, &value)?;
    }

    /// Fields that were right once, so that what was altered is met behind the key and far inside.
    #[test]
    fn nothing_panics_on_altered_fields_under_a_right_checksum(
        record in any_record(),
        place in any::<prop::sample::Index>(),
        taken in 0..12_usize,
        given in vec(prop_oneof![Just(0), Just(1), Just(0xFF), any::<u8>()], 0..12),
    ) {
        let Entry { space, key, value } = entry(&record);
        let mut fields = value[PREFIX_LEN..].to_vec();
        let from = place.index(fields.len());
        let to = fields.len().min(from + taken);
        fields.splice(from..to, given);
        read_sealed(space, &key, &fields)?;
    }
}

/// Reads these fields under a right checksum. They may be refused as corrupt; what is read is a
/// record like any other and comes back when it is written again.
fn read_sealed(space: Space, key: &[u8], fields: &[u8]) -> Result<(), TestCaseError> {
    let mut batch = Batch::new(1);
    put(&mut batch, space, key, |out| out.extend_from_slice(fields));
    let read = Record::decode(&entries(&batch)[0]);
    match read {
        Ok(record) => {
            let again = entry(&record);
            let read_again = Record::decode(&again).map(|record| entry(&record));
            prop_assert!(matches!(&read_again, Ok(same) if *same == again), "{:?}", record);
        }
        Err(error) => {
            prop_assert!(matches!(error, StoreError::Corrupt { .. }), "{}", error);
        }
    }
    Ok(())
}

#[test]
fn a_message_comes_back_with_its_decoded_header_and_its_body() {
    let id = MessageId { timestamp: 5, address: [1; 16], port: 2, sequence: 3 };
    let sent = packet(b"three apples").with_id(id).without_flags(Flags::PERSISTENT);
    let head = MessageHead { received_ms: -4, delivered: true };
    let mut batch = Batch::new(1);
    put_message(&mut batch, 7, 9, head, &sent);
    let stored = entries(&batch).pop().unwrap();
    assert_eq!(stored.key[..], message_key(7, 9));
    let read = read_message(&stored.key, &stored.value).unwrap();
    assert_eq!((read.destination, read.sequence, read.head), (7, 9, head));
    assert_eq!(read.packet.header(), sent.header());
    assert_eq!(read.packet.body(), sent.body());
    // The packet lies in the value; nothing was copied.
    assert!(stored.value.as_ptr_range().contains(&read.packet.raw().as_ptr()));
}

#[test]
fn a_body_goes_into_a_batch_without_being_copied() {
    let sent = packet(b"three apples");
    let mut batch = Batch::new(1);
    put_message(&mut batch, 7, 9, MessageHead { received_ms: 0, delivered: false }, &sent);
    let Some(Change::Put { value, .. }) = batch.changes().next() else { panic!("a put") };
    assert_eq!(value.body.as_ptr(), sent.raw()[HEADER_LEN..].as_ptr());
}

#[test]
fn an_entry_in_anothers_place_is_refused() {
    let record =
        Record::Copy(CopyRecord { subscription: 1, sequence: 2, topic: 3, delivered: true });
    let good = entry(&record);
    assert!(Record::decode(&good).is_ok());
    let moved = Entry { key: Bytes::copy_from_slice(&message_key(1, 3)), ..good.clone() };
    assert!(Record::decode(&moved).is_err());
    for space in Space::ALL.into_iter().filter(|space| *space != Space::Copies) {
        assert!(Record::decode(&Entry { space, ..good.clone() }).is_err(), "{space}");
    }
}

#[test]
fn a_cut_or_longer_value_is_refused() {
    let message = Record::Message(MessageRecord {
        destination: 1,
        sequence: 2,
        head: MessageHead { received_ms: 0, delivered: false },
        packet: packet(b"body"),
    });
    let good = entry(&message);
    for len in 0..good.value.len() {
        let cut = Entry { value: good.value.slice(..len), ..good.clone() };
        assert!(Record::decode(&cut).is_err(), "{len} bytes");
    }
    let longer = Entry { value: [&good.value[..], b"x"].concat().into(), ..good };
    assert!(Record::decode(&longer).is_err());
}

/// Lengths and counts under a right checksum that promise more than there is.
#[test]
fn hostile_lengths_are_refused_and_not_believed() {
    for length in [u64::MAX, u64::MAX / 2, 1 << 40, u64::from(u32::MAX), 9] {
        let values: [(Space, &[u8], Vec<u8>); 3] = [
            (Space::Destinations, &[0; 8], [&[0][..], &length.to_be_bytes()].concat()),
            (Space::Recent, &[0; 4], [[0; 8], [0; 8], [0; 8], length.to_be_bytes()].concat()),
            (Space::Transactions, &[0; 8], [&[1][..], &length.to_be_bytes()].concat()),
        ];
        for (space, key, value) in values {
            let mut batch = Batch::new(1);
            put(&mut batch, space, key, |out| out.extend_from_slice(&value));
            let error = Record::decode(&entries(&batch)[0]).unwrap_err().to_string();
            assert!(error.contains("it ends inside a field"), "{error}");
        }
    }
}

#[test]
fn errors_say_where_and_what() {
    let mut batch = Batch::new(1);
    put_message(
        &mut batch,
        7,
        300,
        MessageHead { received_ms: 0, delivered: false },
        &packet(b"body"),
    );
    let mut stored = entries(&batch).pop().unwrap();
    stored.value = stored.value.slice(..stored.value.len() - 1);
    let error = Record::decode(&stored).unwrap_err().to_string();
    assert!(error.contains("messages 7/300: its checksum is"), "{error}");
    stored.key = Bytes::from_static(b"odd\n");
    let error = Record::decode(&stored).unwrap_err().to_string();
    assert!(error.contains(r#"messages "odd\n": its key is not one of this space"#), "{error}");
}

#[test]
fn removing_a_destination_or_subscription_takes_all_that_belongs_to_it() {
    let mut batch = Batch::new(1);
    remove_destination(&mut batch, DestinationKind::Queue, 1);
    remove_destination(&mut batch, DestinationKind::Topic, 3);
    remove_subscription(&mut batch, 2);
    let seen: Vec<String> = batch
        .changes()
        .map(|change| match change {
            Change::Remove { space, key } => format!("{space} {}", key[7]),
            Change::RemoveAll { space, prefix } => format!("{space} {} and more", prefix[7]),
            Change::Put { .. } => panic!("nothing is put"),
        })
        .collect();
    assert_eq!(
        seen,
        [
            "destinations 1",
            "messages 1 and more",
            "delivered 1 and more",
            "deliveries 1 and more",
            "destinations 3",
            "subscriptions 2",
            "copies 2 and more",
            "delivered 2 and more",
            "deliveries 2 and more"
        ]
    );
}
