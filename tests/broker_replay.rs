//! The client side of recorded conversations, played against this broker.
//!
//! What the reference's Java and C clients sent is sent again, with the ids learned from this
//! broker in place of the recorded ones and the login answered anew. What the reference broker
//! replied must come: the same types, statuses, property names and property types, and messages
//! with the same flags, counts and bytes. Files whose conversation needs what this broker does not
//! serve are named below, each with its reason.
#![cfg(all(feature = "cli", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod support;

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::BufReader,
    net::Shutdown,
    path::{Path, PathBuf},
};

use bytes::BytesMut;
use support::{
    broker,
    raw::{Raw, status},
    wait_until,
};
use tidegate::{
    broker::Broker,
    internals::auth,
    wire::{
        Flags, MessageId, Packet, PacketBuilder, PacketType, Padding, Value, VariableHeader,
        capture::{CaptureLine, Direction, read_capture},
    },
};

/// What this broker does not serve, and the files that are about it.
const NOT_SERVED: [(&str, &[&str]); 9] = [
    ("text of the port mapper, tested by itself", &["portmapper"]),
    ("transactions", &["tx_", "cclient_tx", "xa_transactions", "session_close"]),
    ("selectors", &["selector_", "cclient_durable"]),
    ("durable and shared subscriptions", &["durable_", "shared_", "reconnect_"]),
    ("wildcards", &["topic_wildcard"]),
    ("browsing and the dead message queue", &["queue_browser", "expiry"]),
    ("delivery delay", &["delivery_delay"]),
    ("destinations of the administrator", &["producer_flow", "queue_full_reject"]),
    ("shutting down in the middle, tested by itself", &["broker_goodbye"]),
];

#[test]
fn every_recorded_client_is_served_as_the_reference_served_it() {
    let mut played = 0;
    for path in files() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let excluded = |(_, prefixes): &(&str, &[&str])| {
            prefixes.iter().any(|prefix| name.starts_with(prefix))
        };
        if NOT_SERVED.iter().any(excluded) {
            continue;
        }
        for loops in [1, 2] {
            Replay::new(&name, broker(loops)).run(&lines(&path));
        }
        played += 1;
    }
    println!("{played} conversations played");
    assert!(played >= 14, "only {played} conversations were played");
}

/// The files checked in, and those of `TIDEGATE_CAPTURES` if it is set.
fn files() -> Vec<PathBuf> {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let more = std::env::var_os("TIDEGATE_CAPTURES").map(PathBuf::from);
    let mut files: Vec<PathBuf> = [Some(vectors), more]
        .into_iter()
        .flatten()
        .flat_map(|directory| fs::read_dir(directory).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    files.sort();
    files
}

fn lines(path: &Path) -> Vec<CaptureLine> {
    read_capture(BufReader::new(File::open(path).unwrap())).map(Result::unwrap).collect()
}

struct Replay {
    name: String,
    broker: Broker,
    connections: BTreeMap<u64, Raw>,
    /// Ids of the recording, and what they are here.
    ids: HashMap<i64, i64>,
    /// What a request was, by connection and reply id: for a reply's place in messages.
    place: String,
}

impl Replay {
    fn new(name: &str, broker: Broker) -> Self {
        Self {
            name: name.into(),
            broker,
            connections: BTreeMap::new(),
            ids: HashMap::new(),
            place: String::new(),
        }
    }

    fn run(mut self, lines: &[CaptureLine]) {
        for line in lines {
            self.place = format!("{} line {}", self.name, line.number);
            match (line.event.as_deref(), line.direction) {
                (Some("open"), _) => {
                    let raw = Raw::connect(self.broker.jms_address());
                    self.connections.insert(line.connection, raw);
                }
                (Some("eof"), Direction::ToBroker) => {
                    if let Some(raw) = self.connections.get(&line.connection) {
                        drop(raw.stream.shutdown(Shutdown::Write));
                    }
                }
                (Some("eof"), Direction::ToClient) => {
                    if let Some(mut raw) = self.connections.remove(&line.connection) {
                        let rest = raw.until_end();
                        assert!(
                            rest.is_empty(),
                            "{}: more than was recorded: {rest:?}",
                            self.place
                        );
                    }
                }
                (Some("drop"), _) => self.cut(),
                (Some(_), _) => {}
                (None, Direction::ToBroker) => self.send(line),
                (None, Direction::ToClient) => self.expect(line),
            }
        }
    }

    /// All connections are reset, as by the recording proxy.
    fn cut(&mut self) {
        for raw in std::mem::take(&mut self.connections).into_values() {
            let socket = socket2::SockRef::from(&raw.stream);
            socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
        }
        wait_until("the loss is noticed", || self.broker.snapshot().connections == 0);
    }

    fn send(&mut self, line: &CaptureLine) {
        let recorded = line.packet().unwrap().unwrap();
        let packet = self.translate(line.connection, &recorded);
        // A connection the recording shows as cut may still have had something in its buffers.
        if let Some(raw) = self.connections.get_mut(&line.connection) {
            raw.send_bytes(packet.raw());
        }
    }

    /// The packet with this broker's ids in place of the recorded ones.
    fn translate(&mut self, connection: u64, recorded: &Packet) -> Packet {
        let header = recorded.header();
        let mut builder = PacketBuilder::new(header.packet_type)
            .id(header.id)
            .flags(header.flags)
            .priority(header.priority)
            .expiration(header.expiration)
            .consumer_id(header.consumer_id);
        let variable = recorded.variable().unwrap();
        let producer_id = variable.producer_id.map(|id| self.here(id));
        let fields = VariableHeader { producer_id, ..variable };
        if !recorded.variable_bytes().is_empty() {
            // The C client writes an empty list where the Java client writes nothing.
            let padding =
                if recorded.variable_bytes().len() == 4 { Padding::C } else { Padding::Java };
            builder = builder.variable(&fields, padding).unwrap();
        }
        let mut properties = recorded.properties().unwrap().to_owned();
        if !header.packet_type.is_message() {
            let longs: Vec<(String, i64)> = properties
                .iter()
                .filter_map(|(name, value)| match value {
                    Value::Long(id) => Some((name.to_owned(), *id)),
                    _ => None,
                })
                .collect();
            for (name, id) in longs {
                let id = self.here(id);
                properties.set(name, id);
            }
        }
        let body = match header.packet_type {
            PacketType::AUTHENTICATE => self.answer(connection, recorded),
            PacketType::ACKNOWLEDGE | PacketType::REDELIVER => {
                let mut body = BytesMut::from(recorded.body_bytes());
                for block in body.chunks_exact_mut(40) {
                    let id = i64::from_be_bytes(*block.first_chunk().unwrap());
                    block[..8].copy_from_slice(&self.here(id).to_be_bytes());
                }
                body.freeze()
            }
            _ => recorded.body(),
        };
        builder.properties(&properties).unwrap().body(body).finish()
    }

    fn here(&self, id: i64) -> i64 {
        self.ids.get(&id).copied().unwrap_or(id)
    }

    /// The login the recorded client would have answered this broker's challenge with. A login
    /// that failed in the recording was one with a wrong password.
    fn answer(&mut self, connection: u64, recorded: &Packet) -> bytes::Bytes {
        let (user, _) = auth::read_authenticate_body(recorded.body_bytes()).unwrap();
        let password = if self.name.starts_with("auth_") { "wrong" } else { user.as_str() };
        let raw = self.connections.get_mut(&connection).unwrap();
        let nonce = std::mem::take(&mut raw.nonce);
        let response = auth::digest_response(&auth::stored_hash(&user, password), &nonce);
        auth::authenticate_body(&user, &response).unwrap()
    }

    fn expect(&mut self, line: &CaptureLine) {
        let recorded = line.packet().unwrap().unwrap();
        let kind = recorded.header().packet_type;
        let consumer = self.here(recorded.header().consumer_id);
        let is_message = kind.is_message();
        let wanted = |packet: &Packet| {
            let header = packet.header();
            // Replies are told by their id, messages by their consumer, the rest by its type.
            let same = if kind == PacketType::RESUME_FLOW
                || kind == PacketType::PING
                || kind == PacketType::GOODBYE
            {
                true
            } else {
                header.consumer_id
                    == if is_message { consumer } else { recorded.header().consumer_id }
            };
            header.packet_type == kind && same
        };
        let Some(raw) = self.connections.get_mut(&line.connection) else { return };
        let found = raw.wait(wanted).unwrap_or_else(|| panic!("{}: no {kind}", self.place));
        if kind == PacketType::AUTHENTICATE_REQUEST {
            raw.nonce = String::from_utf8(found.body().to_vec()).unwrap();
        }
        if is_message {
            self.compare_messages(&recorded, &found);
        } else {
            self.compare_replies(&recorded, &found);
        }
    }

    fn compare_replies(&mut self, recorded: &Packet, found: &Packet) {
        let place = format!("{} {}", self.place, recorded.header().packet_type);
        let shape = |packet: &Packet| -> BTreeMap<String, i16> {
            let table = packet.properties().unwrap();
            table
                .iter()
                .map(|one| (one.name_text().into_owned(), one.kind))
                // A reason is for people, and whether there is one is the broker's choice.
                .filter(|(name, _)| name != "JMQReason")
                .collect()
        };
        assert_eq!(shape(recorded), shape(found), "{place}");
        if recorded.header().packet_type.is_reply() {
            assert_eq!(status(recorded), status(found), "{place}");
        }
        let table = recorded.properties().unwrap();
        for one in table.iter() {
            let name = one.name_text().into_owned();
            let here = found.properties().unwrap().value(&name);
            match (one.value(), here) {
                (Value::Long(recorded), Some(Value::Long(here))) => {
                    self.ids.insert(recorded, here);
                }
                (Value::Int(recorded), Some(Value::Int(here))) if name != "JMQSequence" => {
                    assert_eq!(recorded, here, "{place}: {name}");
                }
                (Value::Boolean(recorded), Some(Value::Boolean(here))) => {
                    assert_eq!(recorded, here, "{place}: {name}");
                }
                _ => {}
            }
        }
    }

    fn compare_messages(&self, recorded: &Packet, found: &Packet) {
        let place = format!("{} message", self.place);
        let flags = |packet: &Packet| packet.header().flags;
        assert_eq!(flags(recorded), flags(found), "{place}");
        let (old, new) = (recorded.variable().unwrap(), found.variable().unwrap());
        let producer_id = old.producer_id.map(|id| self.here(id));
        assert_eq!(VariableHeader { producer_id, ..old }, new, "{place}");
        let id = |packet: &Packet| -> MessageId { packet.header().id };
        assert_eq!(id(recorded), id(found), "{place}");
        assert_eq!(recorded.tail(), found.tail(), "{place}");
        assert_eq!(recorded.header().priority, found.header().priority, "{place}");
        assert_eq!(flags(found).without(Flags::from_bits(0x1FFF)), Flags::empty(), "{place}");
    }
}
