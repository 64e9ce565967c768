//! Bytes to packets at any split, and everything a packet can be asked.

use bytes::{Bytes, BytesMut};

#[cfg(feature = "broker")]
use crate::proto::transaction::{Xid, read};
use crate::{
    message::{Message, Origin, dump::describe},
    wire::{
        DecodeError, Decoder, Frame, HEADER_LEN, Packet, Padding, PropertyTable, VariableHeader,
        delivery::{Delivery, encode_head},
        java,
        portmapper::PortTable,
    },
};

/// Largest packet that is not skipped.
const LIMIT: u32 = 1 << 16;

/// Values of an object that are read.
const OBJECT_ITEMS: usize = 1 << 12;

/// Decodes `data` in one piece and in several, and takes every packet apart.
///
/// Shape of `data`: a byte that says how many cuts there are (its lowest three bits), two bytes
/// for the distance of each cut from the one before, then the stream.
///
/// # Panics
/// If a split changes what comes out, or something written does not read back.
pub fn decode_packet(data: &[u8]) {
    let Some((&cuts, rest)) = data.split_first() else { return };
    let (cuts, stream) = rest.split_at(rest.len().min(usize::from(cuts & 7) * 2));
    let stream = Bytes::copy_from_slice(stream);
    let (frames, end) = decode([stream.clone()]);
    let (split_frames, split_end) = decode(pieces(cuts, stream.clone()));
    assert_eq!(end, split_end, "a split changes how a stream ends");
    assert_eq!(frames.len(), split_frames.len(), "a split changes how many packets there are");
    for (frame, split) in frames.iter().zip(&split_frames) {
        match (frame, split) {
            (Frame::Packet(packet), Frame::Packet(split)) => {
                assert_eq!(packet.raw(), split.raw(), "a split changes a packet");
                take_apart(packet);
            }
            (Frame::Oversized(header), Frame::Oversized(split)) => assert_eq!(header, split),
            _ => panic!("a split changes the kind of a frame"),
        }
    }
    port_table(&stream);
    serialized(&stream);
}

fn pieces(cuts: &[u8], mut stream: Bytes) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    for cut in cuts.as_chunks::<2>().0 {
        let at = usize::from(u16::from_be_bytes(*cut)).min(stream.len());
        pieces.push(stream.split_to(at));
    }
    pieces.push(stream);
    pieces
}

fn decode(pieces: impl IntoIterator<Item = Bytes>) -> (Vec<Frame>, Result<bool, DecodeError>) {
    let mut decoder = Decoder::new(LIMIT);
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.feed(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, Ok(decoder.is_mid_packet()))
}

fn take_apart(packet: &Packet) {
    let head = packet.raw().get(..HEADER_LEN).unwrap_or_default();
    assert_eq!(packet.header().encode(), head, "a header does not read back");
    let text = describe(packet).to_string();
    assert!(!text.contains(char::is_control), "a description has more than one line: {text:?}");
    if let Ok(fields) = packet.variable() {
        variable(&fields);
    }
    if let Ok(table) = packet.properties() {
        properties(&table);
        #[cfg(feature = "broker")]
        transaction(packet, &table);
    }
    delivered(packet);
    serialized(&packet.body());
    message(packet);
}

fn variable(fields: &VariableHeader<'_>) {
    let mut wanted = *fields;
    // Zero means none.
    wanted.transaction_id = wanted.transaction_id.filter(|&id| id != 0);
    for padding in [Padding::Java, Padding::C] {
        let mut out = BytesMut::new();
        assert_eq!(fields.encode(padding, &mut out), Ok(()), "fields were this long on the wire");
        assert_eq!(out.len() % 4, 0);
        assert_eq!(VariableHeader::decode(&out), Ok(wanted));
    }
}

fn properties(table: &PropertyTable<'_>) {
    let owned = table.to_owned();
    assert_eq!(owned.len(), table.len());
    for name in ["JMQStatus", "n", ""] {
        drop((table.value(name), table.int(name), table.long(name)));
        drop((table.boolean(name), table.string(name)));
    }
    let mut out = BytesMut::new();
    // Names that are no text grow when they are made text, and may no longer fit.
    if owned.encode(&mut out).is_ok() {
        let again = PropertyTable::new(&out).map(|table| table.to_owned());
        // Compared as text: a number that is none does not equal itself.
        assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, ()>(&owned)));
    }
}

#[cfg(feature = "broker")]
fn transaction(packet: &Packet, table: &PropertyTable<'_>) {
    if let Err((status, reason)) = read(packet, table) {
        assert!(!status.is_ok() && !reason.is_empty(), "refused without a reason");
    }
    if let Ok(xid) = Xid::decode(packet.body_bytes()) {
        assert_eq!(Xid::decode(&xid.encode()), Ok(xid), "an XID does not read back");
    }
}

fn delivered(packet: &Packet) {
    let delivery = Delivery {
        consumer_id: 7,
        count: Some(2),
        consumer_flow: true,
        flow_paused: false,
        last: true,
    };
    let mut out = BytesMut::new();
    if encode_head(packet, &delivery, &mut out).is_err() {
        assert!(out.is_empty(), "a failed delivery leaves bytes behind");
        return;
    }
    out.extend_from_slice(&packet.tail());
    let copy = Packet::decode(out.freeze()).expect("a delivery is a packet");
    assert_eq!(copy.tail(), packet.tail());
    assert_eq!(copy.header().consumer_id, 7);
    match (copy.variable(), packet.variable()) {
        (Ok(fields), Ok(original)) => {
            assert_eq!(fields, VariableHeader { delivery_count: Some(2), ..original });
        }
        (Err(_), Err(_)) => {}
        // A delivery count that could not be read is replaced.
        (Ok(_), Err(_)) => {}
        (Err(error), Ok(_)) => panic!("a delivery breaks the variable header: {error}"),
    }
}

fn serialized(bytes: &Bytes) {
    if let Ok(entries) = java::decode_map(bytes) {
        let again = java::encode_map(entries.iter().map(|(name, value)| (name.as_str(), value)));
        let again = java::decode_map(&again);
        assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, ()>(&entries)));
    }
    if let Ok(entries) = java::decode_hashtable(bytes) {
        let entries = entries.iter().map(|(name, value)| (name.as_str(), value));
        let again = java::encode_hashtable(entries);
        assert!(java::decode_hashtable(&again).is_ok());
    }
    if let Ok(document) = java::decode_object(bytes, OBJECT_ITEMS) {
        // What a reader leaves out may have been all there was of a class, so the second round
        // counts.
        let round = |document: &java::JavaDocument| {
            let bytes = java::encode_object(&document.classes, &document.root);
            java::decode_object(&bytes, usize::MAX).expect("what is written is read")
        };
        let again = round(&document);
        assert_eq!(format!("{:?}", round(&again)), format!("{again:?}"));
    }
    if let Ok(items) = java::decode_stream(bytes) {
        let again = java::decode_stream(&java::encode_stream(&items));
        assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, ()>(&items)));
    }
}

fn message(packet: &Packet) {
    let Ok(message) = Message::from_packet(packet) else { return };
    let body = message.body_bytes();
    drop((message.body(), message.body_text().is_ok(), message.message_id()));
    let Ok(again) = message.encode(&Origin::default()) else { return };
    let again = Message::from_packet(&again.finish()).expect("an encoded message is one");
    assert_eq!(again.body_bytes(), body, "a body changes when it is sent on");
    assert_eq!(again.destination(), message.destination());
    assert_eq!(again.reply_to(), message.reply_to());
    assert_eq!(again.correlation_id(), message.correlation_id());
    assert_eq!(again.message_type(), message.message_type());
    assert_eq!(again.priority(), message.priority());
}

fn port_table(bytes: &[u8]) {
    let Ok(table) = PortTable::decode(bytes) else { return };
    if let Ok(again) = table.encode() {
        assert_eq!(PortTable::decode(&again), Ok(table));
    }
}
