//! Messages to packets and back, their limits, and what broken packets leave readable.

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::{Strategy, any, prop_assert_eq, prop_oneof, proptest};

use super::{DeliveryMode, Message};
use crate::{
    message::{
        Body, BodyError, BodyKind, Destination, DestinationKind, MapBody, MessageError, Origin,
        ReadPropertyError, StreamItem,
    },
    wire::{
        Flags, MessageId, Packet, PacketBuilder, PacketType, Padding, PropertyError, Value,
        VariableHeader,
    },
};

fn queue() -> Destination {
    Destination::queue("orders").unwrap()
}

fn sent(message: &Message) -> Packet {
    message.encode(&Origin::default()).unwrap().finish()
}

fn received(message: &Message) -> Message {
    Message::from_packet(&sent(message)).unwrap()
}

fn raw_packet(properties: &[u8], body: &'static [u8]) -> Packet {
    PacketBuilder::new(PacketType::TEXT_MESSAGE)
        .variable(&VariableHeader { destination: Some(b"q"), ..Default::default() }, Padding::Java)
        .unwrap()
        .property_section(Bytes::copy_from_slice(properties))
        .body(body)
        .finish()
}

fn map() -> MapBody {
    [("i", StreamItem::Int(1)), ("s", StreamItem::from("x"))].into_iter().collect()
}

#[test]
fn every_kind_of_body_comes_back() {
    let items = vec![StreamItem::Null, StreamItem::Char(99), StreamItem::from(vec![1, 2])];
    for (message, wanted) in [
        (Message::text("héllo 😀"), Body::Text(Some("héllo 😀".into()))),
        (Message::text(""), Body::Text(None)),
        (Message::bytes(vec![0, 255]), Body::Bytes(Bytes::from_static(&[0, 255]))),
        (Message::map(map()), Body::Map(map())),
        (Message::stream(items.clone()), Body::Stream(items)),
        (Message::stream(Vec::new()), Body::Stream(Vec::new())),
        (Message::object(vec![0xAC]), Body::Object(Bytes::from_static(&[0xAC]))),
        (Message::plain(), Body::Plain),
    ] {
        let mut message = message;
        message.set_destination(queue());
        assert_eq!(received(&message).body().as_ref(), Ok(&wanted));
        assert_eq!(received(&message).kind(), wanted.kind());
        assert_eq!(message.body(), Ok(wanted));
    }
}

#[test]
fn headers_come_back() {
    let id = MessageId { timestamp: 1000, address: [0; 16], port: 7, sequence: 3 };
    let reply_to = Destination::temporary(DestinationKind::Topic, "me", 1, 2).unwrap();
    let mut message = Message::plain();
    message
        .set_destination(queue())
        .set_reply_to(Some(reply_to.clone()))
        .set_delivery_mode(DeliveryMode::NonPersistent)
        .set_expiration(9000)
        .set_delivery_time(Some(2000));
    message.set_correlation_id(Some("c\0😀")).unwrap();
    message.set_message_type(Some("order")).unwrap().set_priority(9).unwrap();
    assert_eq!((message.message_id(), message.timestamp()), (None, None));
    assert!(matches!(message.set_priority(10), Err(MessageError::Priority { priority: 10 })));
    let origin = Origin { producer_id: Some(5), transaction_id: Some(6) };
    let packet = message.encode(&origin).unwrap().id(id).finish();
    assert_eq!(packet.header().flags, Flags::QUEUE);
    let variable = packet.variable().unwrap();
    assert_eq!((variable.producer_id, variable.transaction_id), (Some(5), Some(6)));
    let read = Message::from_packet(&packet).unwrap();
    assert_eq!(read.destination(), Some(&queue()));
    assert_eq!(read.reply_to(), Some(&reply_to));
    assert!(read.reply_to().unwrap().is_temporary());
    assert_eq!(read.correlation_id().unwrap(), "c\0😀");
    assert_eq!(read.message_type().unwrap(), "order");
    assert_eq!((read.priority(), read.expiration()), (9, 9000));
    assert_eq!((read.timestamp(), read.delivery_time()), (Some(1000), Some(2000)));
    assert_eq!(read.delivery_mode(), DeliveryMode::NonPersistent);
    assert!(!read.is_redelivered());
    assert_eq!(read.message_id().unwrap(), format!("ID:{id}"));
}

#[test]
fn foreign_message_ids_stand_in_for_the_text_of_the_own_one() {
    let fields = VariableHeader {
        message_id: Some(b"ID:other"),
        delivery_count: Some(3),
        ..Default::default()
    };
    let packet = PacketBuilder::new(PacketType::MESSAGE)
        .variable(&fields, Padding::Java)
        .unwrap()
        .flags(Flags::REDELIVERED)
        .consumer_id(8)
        .finish();
    let mut read = Message::from_packet(&packet).unwrap();
    assert_eq!(read.message_id().unwrap(), "ID:other");
    assert_eq!((read.id(), read.consumer_id()), (Some(packet.header().id), 8));
    assert_eq!((read.delivery_count(), read.is_redelivered()), (Some(3), true));
    assert_eq!(read.property_as::<i64>("JMSXDeliveryCount"), Ok(Some(3)));
    assert_eq!(read.property("JMSXGroupID"), Ok(None));
    read.set_id(MessageId::default());
    assert_eq!(read.message_id().unwrap(), format!("ID:{}", MessageId::default()));
}

#[test]
fn received_bodies_share_their_packet() {
    let mut message = Message::bytes(vec![7; 1000]);
    message.set_destination(queue());
    let packet = sent(&message);
    let read = Message::from_packet(&packet).unwrap();
    let range = packet.raw().as_ptr_range();
    assert!(range.contains(&read.body_bytes().unwrap().as_ptr()));
    let Ok(Body::Bytes(bytes)) = read.body() else { panic!("a bytes body") };
    assert!(range.contains(&bytes.as_ptr()));
}

#[test]
fn strings_at_their_limit_are_sent_and_longer_ones_refused_at_the_call() {
    let mut message = Message::plain();
    message.set_destination(queue());
    message.set_property("v", "x".repeat(65_535)).unwrap();
    message.set_property("n".repeat(60_000), 1_i32).unwrap();
    message.set_correlation_id(Some(&"c".repeat(32_767))).unwrap();
    let refused = message.set_property("v", "x".repeat(65_536)).map(|_| ());
    assert!(
        matches!(&refused, Err(MessageError::Properties(PropertyError::TooLong { .. }))),
        "{refused:?}"
    );
    // 32,768 characters take twice as many bytes.
    assert!(message.set_property("v", "ä".repeat(32_768)).is_err());
    assert!(message.set_property("n".repeat(65_536), 1_i32).is_err());
    let refused = message.set_correlation_id(Some(&"c".repeat(32_768))).map(|_| ());
    assert!(matches!(refused, Err(MessageError::TooLong { len: 32_768, .. })), "{refused:?}");
    assert!(message.set_message_type(Some(&"t".repeat(32_768))).is_err());
    let read = received(&message);
    assert_eq!(read.property_as::<String>("v").unwrap().unwrap().len(), 65_535);
    assert_eq!(read.property_as::<i32>(&"n".repeat(60_000)), Ok(Some(1)));
    assert_eq!(read.correlation_id().unwrap().len(), 32_767);
    assert_eq!(read.message_type(), None);
}

#[test]
fn property_names_must_be_identifiers_and_no_selector_words() {
    let mut message = Message::plain();
    for bad in ["", "1a", "a b", "a.b", "not", "BETWEEN"] {
        let refused = message.set_property(bad, 1_i32).map(|_| ());
        assert!(matches!(refused, Err(MessageError::PropertyName { .. })), "{bad}");
    }
    let object = Value::Object(Bytes::new());
    assert!(matches!(message.set_property("o", object), Err(MessageError::PropertyType { .. })));
    message.set_property("JMS_SUN_PRESERVE_UNDELIVERED", true).unwrap();
    assert_eq!(message.properties().unwrap().len(), 1);
}

#[test]
fn values_that_are_no_text_leave_the_other_properties_and_the_body_readable() {
    let mut table = BytesMut::new();
    table.put_i32(1);
    table.put_i32(3);
    table.put_slice(&[0, 1, b'a', 0, 8, 0, 2, 0xC3, 0x28]);
    table.put_slice(&[0, 2, 0xC3, 0x28, 0, 8, 0, 1, b'v']);
    table.put_slice(&[0, 1, b'n', 0, 4, 0, 0, 0, 7]);
    let packet = raw_packet(&table, b"body");
    let read = Message::from_packet(&packet).unwrap();
    assert_eq!(read.property_as::<i32>("n"), Ok(Some(7)));
    assert!(matches!(
        read.property_as::<String>("a"),
        Err(ReadPropertyError::Conversion { wanted: "string", .. })
    ));
    assert_eq!(read.properties().unwrap().len(), 3);
    assert_eq!(read.body_text().unwrap().as_deref(), Some("body"));
    // Sent on as it came.
    assert_eq!(sent(&read).property_bytes(), packet.property_bytes());
}

#[test]
fn a_cut_off_property_table_is_an_error_for_the_properties_alone() {
    let packet = raw_packet(&[0, 0, 0, 1, 0, 0, 0, 1, 0, 1, b'v', 0, 8], b"c");
    let mut read = Message::from_packet(&packet).unwrap();
    let cut = PropertyError::Truncated { entry: 0 };
    assert_eq!(read.properties().unwrap_err(), cut);
    assert_eq!(read.property("v").unwrap_err(), cut);
    assert_eq!(read.property_as::<i32>("v").unwrap_err(), ReadPropertyError::Table(cut.clone()));
    assert_eq!(read.body_text().unwrap().as_deref(), Some("c"));
    assert_eq!(read.destination().unwrap().name(), "q");
    assert!(format!("{read:?}").contains("Truncated"));
    let refused = read.encode(&Origin::default()).map(|_| ()).unwrap_err();
    assert_eq!(refused, MessageError::Properties(cut));
    assert!(read.set_property("n", 1_i32).is_err());
    read.clear_properties().set_property("n", 1_i32).unwrap();
    assert_eq!(received(&read).property_as::<i32>("n"), Ok(Some(1)));
}

#[test]
fn bodies_that_cannot_be_decoded_leave_the_rest_readable() {
    for kind in [PacketType::MAP_MESSAGE, PacketType::STREAM_MESSAGE] {
        let packet = PacketBuilder::new(kind).int("n", 1).body(&b"not java"[..]).finish();
        let read = Message::from_packet(&packet).unwrap();
        assert!(matches!(read.body(), Err(BodyError::Java { .. })));
        assert_eq!(read.property_as::<i32>("n"), Ok(Some(1)));
        assert_eq!(read.body_bytes().unwrap(), &b"not java"[..]);
    }
    let packet = PacketBuilder::new(PacketType::TEXT_MESSAGE).body(&[0xC3, 0x28][..]).finish();
    assert_eq!(Message::from_packet(&packet).unwrap().body_text(), Err(BodyError::Text));
    let wrong = Message::plain().body_text().unwrap_err();
    assert_eq!(wrong, BodyError::Kind { found: BodyKind::Plain, wanted: BodyKind::Text });
}

#[test]
fn packets_that_are_no_messages_and_messages_without_destination_are_refused() {
    let ping = PacketBuilder::new(PacketType::PING).finish();
    assert!(matches!(Message::from_packet(&ping), Err(MessageError::NotAMessage { .. })));
    let refused = Message::plain().encode(&Origin::default()).map(|_| ());
    assert_eq!(refused, Err(MessageError::NoDestination));
}

#[test]
fn compression_is_asked_for_by_property_and_undone_on_reading() {
    let text = "x".repeat(2400);
    let mut message = Message::text(text.clone());
    message.set_destination(queue()).set_property("JMS_SUN_COMPRESS", true).unwrap();
    let packet = sent(&message);
    assert!(packet.header().flags.contains(Flags::COMPRESSED));
    assert!(packet.body_bytes().len() < 100);
    let read = Message::from_packet(&packet).unwrap();
    assert_eq!(read.body_text().unwrap().as_deref(), Some(text.as_str()));
    assert_eq!(read.property_as::<i32>("JMS_SUN_UNCOMPRESSED_SIZE"), Ok(Some(2400)));
    // Sent on without being packed twice.
    assert_eq!(sent(&read).body_bytes(), packet.body_bytes());
    let mut empty = Message::text("");
    empty.set_destination(queue()).set_property("JMS_SUN_COMPRESS", true).unwrap();
    let packet = sent(&empty);
    assert!(!packet.header().flags.contains(Flags::COMPRESSED));
    assert_eq!(packet.properties().unwrap().int("JMS_SUN_COMPRESSED_SIZE"), Ok(Some(0)));
}

fn property_values() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Boolean),
        any::<i8>().prop_map(Value::Byte),
        any::<i16>().prop_map(Value::Short),
        any::<i32>().prop_map(Value::Int),
        any::<i64>().prop_map(Value::Long),
        any::<f32>().prop_map(Value::Float),
        any::<f64>().prop_map(Value::Double),
        any::<String>().prop_map(Value::String),
    ]
}

proptest! {
    #[test]
    fn any_text_headers_and_properties_survive_the_round_trip(
        text: String,
        correlation_id: Option<String>,
        entries in proptest::collection::vec(("x[a-zA-Z0-9_]{0,9}", property_values()), 0..8),
    ) {
        let mut message = Message::text(text.clone());
        message.set_destination(queue());
        message.set_correlation_id(correlation_id.as_deref()).unwrap();
        for (name, value) in entries {
            message.set_property(name, value).unwrap();
        }
        let read = received(&message);
        prop_assert_eq!(read.body_text().unwrap().unwrap_or_default(), text);
        prop_assert_eq!(read.correlation_id().map(|id| id.into_owned()), correlation_id);
        // Compared as text, as a number that is none does not equal itself.
        let (got, wanted) = (read.properties().unwrap(), message.properties().unwrap());
        prop_assert_eq!(format!("{got:?}"), format!("{wanted:?}"));
        let (again, first) = (sent(&read), sent(&message));
        prop_assert_eq!(again.raw(), first.raw());
    }
}
