//! Plays recorded conversations to the client: the broker's side comes from the recording, and each
//! packet of ours is compared with the recorded one of the reference client.
//!
//! Include `support/scripted.rs` as `scripted` beside it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io::BufReader,
    path::Path,
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use bytes::BytesMut;
use tidegate::{
    client::{Connection, ConnectionFactory},
    wire::{
        Flags, Packet, PacketType, Value, VariableHeader,
        capture::{CaptureLine, Direction, read_capture},
    },
};

use super::scripted::{self, Door, Peer, Scripted};

/// Runs a scenario of one connection against a recording; what it returns is dropped after the
/// connection is closed.
pub fn scenario<R>(name: &str, attributes: &[(&str, &str)], run: impl FnOnce(&Connection) -> R) {
    scenario_lines(recording(name), attributes, run);
}

/// As [`scenario`], with these lines.
pub fn scenario_lines<R>(
    lines: Vec<CaptureLine>,
    attributes: &[(&str, &str)],
    run: impl FnOnce(&Connection) -> R,
) {
    replay_until(lines, |factory, closing| {
        let mut factory = factory.clone();
        factory.set_attributes(attributes.iter().copied()).unwrap();
        let connection = factory.create_connection().unwrap();
        let kept = run(&connection);
        // A listener tells the scenario of a message before it has acknowledged it.
        closing
            .recv_timeout(CLOSING_MAX)
            .expect("the client says what was recorded before the end");
        connection.close().unwrap();
        kept
    });
}

/// Plays a recording while `run` does what its application did. What `run` returns is dropped when
/// the recording is at its end.
pub fn replay<R>(name: &str, run: impl FnOnce(&ConnectionFactory) -> R) {
    replay_lines(recording(name), run);
}

/// As [`replay`], with these lines.
pub fn replay_lines<R>(lines: Vec<CaptureLine>, run: impl FnOnce(&ConnectionFactory) -> R) {
    replay_until(lines, |factory, _| run(factory));
}

/// As [`replay_lines`]; `run` is told when all that was recorded before the last stop has been said.
fn replay_until<R>(
    lines: Vec<CaptureLine>,
    run: impl FnOnce(&ConnectionFactory, &Receiver<()>) -> R,
) {
    let (closes, closing) = channel();
    let broker = Scripted::start_accepting(move |door| play(door, &lines, &closes));
    let mut factory = broker.factory();
    factory.set_attribute("imqConsumerFlowLimit", "1000").unwrap();
    let kept = run(&factory, &closing);
    broker.join();
    drop(kept);
}

pub fn recording(name: &str) -> Vec<CaptureLine> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    let file = BufReader::new(File::open(path).unwrap());
    read_capture(file).map(Result::unwrap).collect()
}

/// The recording without these requests and their replies.
pub fn recording_without(name: &str, requests: &[PacketType]) -> Vec<CaptureLine> {
    let mut lines = recording(name);
    lines.retain(|line| {
        let Some(packet) = line.packet() else { return true };
        let kind = packet.unwrap().header().packet_type;
        !requests.iter().any(|request| kind == *request || kind == request.reply())
    });
    lines
}

/// Longest wait for the client to come to the end of a recording.
const CLOSING_MAX: Duration = Duration::from_secs(20);

fn play(door: &Door, lines: &[CaptureLine], closes: &Sender<()>) {
    let mut peers: HashMap<u64, (Peer, HashMap<i64, i64>)> = HashMap::new();
    let stops = |line: &CaptureLine| {
        let stop = |packet: Packet| packet.header().packet_type == PacketType::STOP;
        line.packet().is_some_and(|packet| stop(packet.unwrap()))
    };
    let last_stop = lines.iter().rposition(stops).unwrap_or(0);
    for (at, line) in lines.iter().enumerate() {
        if at == last_stop {
            // Only `scenario` looks; the others close when they like.
            let _unheard = closes.send(());
        }
        if line.event.as_deref() == Some("open") {
            // Their reply ids, and ours.
            peers.insert(line.connection, (door.open(), HashMap::new()));
        }
        if line.event.as_deref() == Some("drop") {
            peers.values().for_each(|(peer, _)| peer.hang_up());
        }
        let Some(recorded) = line.packet() else { continue };
        let recorded = recorded.unwrap();
        let header = *recorded.header();
        let (peer, ids) = peers.get_mut(&line.connection).unwrap();
        if line.direction == Direction::ToBroker {
            let ours = next(peer);
            compare(line.number, &ours, &recorded);
            ids.insert(header.consumer_id, ours.header().consumer_id);
            continue;
        }
        let mut bytes = BytesMut::from(&recorded.raw()[..]);
        if header.packet_type.is_reply() {
            bytes[64..72].copy_from_slice(&ids[&header.consumer_id].to_be_bytes());
        }
        peer.write(&bytes);
    }
}

/// The client's next packet, but for pings, which it sends to wake one of its threads.
fn next(peer: &mut Peer) -> Packet {
    loop {
        let packet = peer.packet();
        if packet.header().packet_type != PacketType::PING {
            return packet;
        }
        peer.answer(&packet);
    }
}

fn compare(line: u64, ours: &Packet, recorded: &Packet) {
    let (a, b) = (ours.header(), recorded.header());
    assert_eq!(a.packet_type, b.packet_type, "line {line}");
    assert_eq!((a.flags, a.priority), (b.flags, b.priority), "line {line}");
    assert_eq!(a.expiration == 0, b.expiration == 0, "line {line}: expiration");
    let wants_reply = a.flags.contains(Flags::ACKNOWLEDGE);
    assert_eq!(a.consumer_id != 0, wants_reply, "line {line}: reply id");
    compare_variable(line, &ours.variable().unwrap(), &recorded.variable().unwrap());
    match a.packet_type {
        // We say "all that were not seen" where nothing seen is unacknowledged; same effect.
        PacketType::DELETE_CONSUMER if scripted::int(ours, "JMQBodyType") == Some(0) => {}
        // We have the broker redeliver what other connections received in a branch; here is none.
        PacketType::ROLLBACK_TRANSACTION => {
            let mut ours = values(ours);
            ours.remove("JMQRedeliver 1 true");
            assert_eq!(ours, values(recorded), "line {line}");
        }
        // Who we are, and how we prove it, differs; and we say how long we rest between attempts.
        PacketType::HELLO | PacketType::AUTHENTICATE => {
            let mut ours = names(ours);
            ours.retain(|(name, _)| name != "JMQInterval");
            assert_eq!(ours, names(recorded), "line {line}");
        }
        _ => {
            assert_eq!(values(ours), values(recorded), "line {line}");
            assert_eq!(ours.body_bytes(), recorded.body_bytes(), "line {line}");
        }
    }
}

/// Times differ, and ports in the names of temporary destinations.
fn compare_variable(line: u64, ours: &VariableHeader<'_>, recorded: &VariableHeader<'_>) {
    let name = |bytes: Option<&[u8]>| {
        bytes.map(|bytes| without_port(std::str::from_utf8(bytes).unwrap().to_owned()))
    };
    for (a, b) in [(ours.destination, recorded.destination), (ours.reply_to, recorded.reply_to)] {
        assert_eq!(name(a), name(b), "line {line}");
    }
    let rest = |fields: &VariableHeader<'_>| {
        let delivery_time = fields.delivery_time.map(|_| 0);
        format!(
            "{:?}",
            VariableHeader { destination: None, reply_to: None, delivery_time, ..*fields }
        )
    };
    assert_eq!(rest(ours), rest(recorded), "line {line}");
}

fn names(packet: &Packet) -> BTreeSet<(String, i16)> {
    let table = packet.properties().unwrap();
    table.iter().map(|property| (property.name_text().into_owned(), property.kind)).collect()
}

fn values(packet: &Packet) -> BTreeSet<String> {
    let table = packet.properties().unwrap().to_owned();
    let text = |value: &Value| match value {
        Value::String(text) => without_port(text.clone()),
        other => other.to_string(),
    };
    table.iter().map(|(name, value)| format!("{name} {} {}", value.kind(), text(value))).collect()
}

/// The name of a temporary destination without the port, which differs from run to run.
fn without_port(name: String) -> String {
    let Some(rest) = name.strip_prefix("temporary_destination://") else { return name };
    let parts: Vec<_> = rest.split('/').collect();
    let [kind, owner, _port, number] = parts[..] else { return name };
    format!("temporary {kind} {number} of {owner}")
}
