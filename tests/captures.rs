//! What the reference broker and its clients really sent is decoded, and written again byte for
//! byte.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::{
    collections::HashMap,
    fs::{self, File},
    io::BufReader,
    path::{Path, PathBuf},
};

use bytes::{Bytes, BytesMut};
use tidegate::{
    message::{Body, Message, Origin, dump::describe},
    wire::{
        Decoder, Flags, Frame, MessageId, Packet, PacketBuilder, PacketType, Padding,
        VariableHeader,
        capture::{CaptureLine, Direction, read_capture},
        delivery::{Delivery, encode_head},
        portmapper::{self, PortTable},
    },
};

/// The files checked in, and those of `TIDEGATE_CAPTURES` if it is set.
fn files() -> Vec<PathBuf> {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let more = std::env::var_os("TIDEGATE_CAPTURES").map(PathBuf::from);
    let mut found = Vec::new();
    for directory in [Some(vectors), more].into_iter().flatten() {
        let entries = fs::read_dir(&directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        let before = found.len();
        found.extend(
            entries
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")),
        );
        assert!(found.len() > before, "{} has no captures", directory.display());
    }
    found.sort();
    found
}

fn lines(path: &Path) -> Vec<CaptureLine> {
    let file = BufReader::new(File::open(path).unwrap());
    read_capture(file)
        .map(|line| line.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .collect()
}

/// One packet and where it stands.
struct Seen {
    place: String,
    line: CaptureLine,
    packet: Packet,
    /// How whoever wrote it pads its variable header.
    padding: Padding,
}

fn packets() -> Vec<Seen> {
    let mut seen = Vec::new();
    for path in files() {
        let c_client = path.file_name().unwrap().to_string_lossy().starts_with("cclient_");
        for line in lines(&path) {
            let place = format!("{}, line {}", path.display(), line.number);
            let Some(packet) = line.packet() else { continue };
            let packet = packet.unwrap_or_else(|error| panic!("{place}: {error}"));
            let from_c = c_client && line.direction == Direction::ToBroker;
            let padding = if from_c { Padding::C } else { Padding::Java };
            seen.push(Seen { place, line, packet, padding });
        }
    }
    assert!(seen.len() > 1000, "only {} packets", seen.len());
    seen
}

#[test]
fn every_packet_is_written_again_from_its_decoded_fields() {
    let mut by_padding = [0, 0];
    for Seen { place, line, packet, padding } in packets() {
        let header = packet.header();
        assert_eq!(Some(header.packet_type.to_string()), line.packet_type, "{place}");
        let fields = packet.variable().unwrap_or_else(|error| panic!("{place}: {error}"));
        let table = packet.properties().unwrap_or_else(|error| panic!("{place}: {error}"));
        let again = PacketBuilder::new(header.packet_type)
            .flags(header.flags)
            .consumer_id(header.consumer_id)
            .id(header.id)
            .priority(header.priority)
            .expiration(header.expiration)
            .variable(&fields, padding)
            .unwrap()
            .properties(&table.to_owned())
            .unwrap()
            .body(packet.body())
            .finish();
        assert_eq!(again.header(), header, "{place}");
        assert_eq!(again.raw(), packet.raw(), "{place}");
        by_padding[usize::from(padding == Padding::C)] += 1;
    }
    assert!(by_padding.iter().all(|&count| count > 50), "both paddings occur: {by_padding:?}");
}

#[test]
fn every_body_is_written_again_from_its_decoded_value() {
    let mut kinds: HashMap<_, usize> = HashMap::new();
    for Seen { place, packet, .. } in packets() {
        if !packet.header().packet_type.is_message() {
            continue;
        }
        let message = Message::from_packet(&packet).unwrap();
        let body = message.body().unwrap_or_else(|error| panic!("{place}: {error}"));
        *kinds.entry(body.kind()).or_default() += 1;
        match &body {
            Body::Map(map) => assert_eq!(map.len(), 10, "{place}"),
            Body::Stream(items) => assert_eq!(items.len(), 10, "{place}"),
            _ => {}
        }
        let again = Message::new(body).body_bytes().unwrap();
        assert_eq!(again, message.body_bytes().unwrap(), "{place}");
    }
    assert_eq!(kinds.len(), 6, "every kind of body occurs: {kinds:?}");
}

#[test]
fn messages_of_the_java_client_are_encoded_as_it_does() {
    let mut seen = 0;
    for Seen { place, line, packet, padding } in packets() {
        let header = packet.header();
        let produced = line.direction == Direction::ToBroker && header.packet_type.is_message();
        if !produced || padding == Padding::C {
            continue;
        }
        seen += 1;
        let fields = packet.variable().unwrap();
        let origin =
            Origin { producer_id: fields.producer_id, transaction_id: fields.transaction_id };
        // Flags of the connection, not of the message.
        let connection = [Flags::ACKNOWLEDGE, Flags::CONSUMER_FLOW, Flags::FLOW_PAUSED];
        let flags = connection
            .into_iter()
            .filter(|&flag| header.flags.contains(flag))
            .fold(Flags::empty(), Flags::with);
        let again = Message::from_packet(&packet)
            .unwrap()
            .encode(&origin)
            .unwrap_or_else(|error| panic!("{place}: {error}"))
            .flags(flags)
            .id(header.id)
            .consumer_id(header.consumer_id)
            .finish();
        assert_eq!(describe(&again).to_string(), describe(&packet).to_string(), "{place}");
        assert_eq!(again.raw(), packet.raw(), "{place}");
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn deliveries_are_rewritten_from_what_was_produced() {
    let (mut pairs, mut dead) = (0, 0);
    let mut produced: HashMap<MessageId, Packet> = HashMap::new();
    for Seen { place, line, packet, .. } in packets() {
        let header = packet.header();
        if !header.packet_type.is_message() {
            continue;
        }
        if line.direction == Direction::ToBroker {
            // A message that is sent again after a reconnect has a flag more; the first one counts.
            produced.entry(header.id).or_insert(packet);
            continue;
        }
        let original = &produced[&header.id];
        if packet.properties().unwrap().value("JMS_SUN_DMQ_UNDELIVERED_REASON").is_some() {
            // A dead message has properties that its producer did not set.
            dead += 1;
            continue;
        }
        let delivery = Delivery {
            consumer_id: header.consumer_id,
            count: packet.variable().unwrap().delivery_count,
            consumer_flow: header.flags.contains(Flags::CONSUMER_FLOW),
            flow_paused: header.flags.contains(Flags::FLOW_PAUSED),
            last: header.flags.contains(Flags::LAST),
        };
        let mut out = BytesMut::new();
        encode_head(original, &delivery, &mut out).unwrap();
        out.extend_from_slice(&original.tail());
        let rewritten = Packet::decode(out.freeze()).unwrap();
        assert_eq!(describe(&rewritten).to_string(), describe(&packet).to_string(), "{place}");
        assert_eq!(rewritten.raw(), packet.raw(), "{place}");
        pairs += 1;
    }
    assert!(pairs > 100 && dead > 0, "{pairs} pairs, {dead} dead messages");
}

#[test]
fn each_direction_of_each_connection_decodes_as_a_stream_at_any_split() {
    let mut streams: HashMap<_, (Vec<Bytes>, usize)> = HashMap::new();
    for path in files() {
        for line in lines(&path).into_iter().filter(|line| line.packet_type.is_some()) {
            let to_broker = line.direction == Direction::ToBroker;
            let stream = streams.entry((path.clone(), line.connection, to_broker)).or_default();
            stream.1 += line.bytes.len();
            stream.0.push(line.bytes);
        }
    }
    for ((path, connection, _), (wanted, len)) in streams {
        let stream = Bytes::from(wanted.concat());
        assert_eq!(stream.len(), len);
        for size in [1, 71, 4_096, 8_192, 65_536, len] {
            let mut decoder = Decoder::new(1 << 20);
            let mut found = Vec::with_capacity(wanted.len());
            for chunk in stream.chunks(size) {
                decoder.feed(Bytes::copy_from_slice(chunk));
                while let Some(Frame::Packet(packet)) = decoder.next_frame().unwrap() {
                    found.push(packet.raw().clone());
                }
            }
            let place = format!("{}, connection {connection}, by {size}", path.display());
            assert!(!decoder.is_mid_packet(), "{place}");
            assert!(found == wanted, "{place}");
        }
    }
}

#[test]
fn the_port_mapper_of_the_reference_broker_is_understood() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/portmapper.jsonl");
    let sent = |direction| -> Vec<u8> {
        let chunks = lines(&path).into_iter().filter(|line| line.direction == direction);
        chunks.flat_map(|line| line.bytes).collect()
    };
    assert_eq!(sent(Direction::ToBroker), portmapper::REQUEST);
    let answer = sent(Direction::ToClient);
    assert!(PortTable::is_complete(&answer));
    let table = PortTable::decode(&answer).unwrap();
    assert_eq!(table.find("tcp", "NORMAL", Some("jms")).unwrap().port, 7677);
    assert_eq!(table.encode().unwrap(), answer);
}

#[test]
fn the_empty_list_of_the_c_client_reads_as_no_fields() {
    let hello = packets()
        .into_iter()
        .find(|seen| {
            seen.padding == Padding::C && seen.packet.header().packet_type == PacketType::HELLO
        })
        .unwrap();
    assert_eq!(hello.packet.variable_bytes(), [0; 4]);
    assert_eq!(hello.packet.variable(), Ok(VariableHeader::default()));
}
