//! The client side of recorded conversations, played against this broker.
//!
//! What the reference's Java and C clients sent is sent again, with the ids learned from this
//! broker in place of the recorded ones and the login answered anew. What the reference broker
//! replied must come: the same types, statuses, property names and property types, and messages
//! with the same flags, counts and bytes. Times move with the clock: what expired so many
//! milliseconds after it was sent does so again.
#![cfg(all(feature = "cli", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, reason = "tests")]

mod support;

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{BufReader, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    panic::catch_unwind,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::BytesMut;
use support::{
    local,
    raw::{Raw, long, status},
    wait_until,
};
use tidegate::{
    broker::{Broker, BrokerConfig},
    internals::auth,
    store::MemoryStore,
    wire::{
        Flags, MessageId, Packet, PacketBuilder, PacketType, Padding, Value, VariableHeader,
        capture::{CaptureLine, Direction, read_capture},
    },
};

/// What the recording's administrator had set up.
const SETTINGS: &str = r#"
[queues."cap.flow"]
messages_max = 10
limit_behavior = "FLOW_CONTROL"

[queues."cap.reject"]
messages_max = 5
"#;

/// Conversations that depend on time passing: each packet is sent as late as it was.
const PACED: [&str; 3] = ["expiry", "expiry_in_client_buffer", "delivery_delay"];

/// A conversation in which messages of different priorities may overtake each other: how many are
/// waiting when one is delivered is chance.
const ANY_ORDER: &str = "selector_topic";

#[test]
fn every_recorded_client_is_served_as_the_reference_served_it() {
    let (mut played, mut failed) = (0, Vec::new());
    for path in files() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if name == "portmapper" {
            // The one conversation that is text; see below.
            continue;
        }
        for (loops, is_stored) in [(1, false), (2, false), (2, true)] {
            let play = || Replay::new(&name, start(loops, is_stored)).run(&lines(&path));
            if catch_unwind(play).is_err() {
                failed.push(format!("{name} on {loops} loops, with a store: {is_stored}"));
            }
        }
        played += 1;
    }
    assert!(failed.is_empty(), "not as recorded: {failed:#?}");
    println!("{played} conversations played");
    assert!(played >= 57, "only {played} conversations were played");
}

#[test]
fn the_port_mapper_names_the_services_a_recorded_client_looks_for() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/portmapper.jsonl");
    let broker = start(1, false);
    let mut stream = TcpStream::connect(broker.port_mapper_address()).unwrap();
    let mut recorded = String::new();
    for line in lines(&path).into_iter().filter(|line| line.event.is_none()) {
        match line.direction {
            Direction::ToBroker => stream.write_all(&line.bytes).unwrap(),
            Direction::ToClient => recorded.push_str(std::str::from_utf8(&line.bytes).unwrap()),
        }
    }
    let mut table = String::new();
    stream.read_to_string(&mut table).unwrap();
    // Name, protocol and kind; the reference's cluster is no service for clients.
    let services = |table: &str| -> Vec<String> {
        let lines = table.lines().skip(1).filter(|line| *line != ".");
        let mut lines: Vec<String> = lines
            .map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" "))
            .filter(|line| !line.starts_with("cluster"))
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(services(&recorded), services(&table));
    assert!(table.ends_with("\n.\n"), "{table}");
}

fn start(loops: usize, is_stored: bool) -> Broker {
    let mut config = BrokerConfig::from_toml_str(SETTINGS, "recorded").unwrap();
    config.loops = loops;
    let mut builder = Broker::builder();
    builder.config(config).listen(local()).jms(local()).admin(local());
    if is_stored { builder.start_with(MemoryStore::new()) } else { builder.start() }.unwrap()
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
    /// `None` once it has been shut down.
    broker: Option<Broker>,
    started: Instant,
    /// How much later than the recording this is, in milliseconds.
    later_ms: i64,
    connections: BTreeMap<u64, Raw>,
    /// Ids of the recording, and what they are here.
    ids: HashMap<i64, i64>,
    /// Consumers of the recording that share a subscription, each with its name; asked for by a
    /// connection and a reply id, then known by id.
    asked: HashMap<(u64, i64), String>,
    sharing: HashMap<i64, String>,
    /// Whom a shared subscription gave a message that the recording shows at another consumer.
    moved: HashMap<(i64, MessageId), (u64, i64)>,
    /// Requests that went to another connection for that.
    elsewhere: HashMap<(u64, i64), u64>,
    /// What a request was, by connection and reply id: for a reply's place in messages.
    place: String,
}

impl Replay {
    fn new(name: &str, broker: Broker) -> Self {
        Self {
            name: name.into(),
            broker: Some(broker),
            started: Instant::now(),
            later_ms: 0,
            connections: BTreeMap::new(),
            ids: HashMap::new(),
            asked: HashMap::new(),
            sharing: HashMap::new(),
            moved: HashMap::new(),
            elsewhere: HashMap::new(),
            place: String::new(),
        }
    }

    fn run(mut self, lines: &[CaptureLine]) {
        let first = lines.iter().find_map(|line| line.packet().and_then(Result::ok));
        self.later_ms = wall_ms() - first.unwrap().header().id.timestamp;
        for line in lines {
            self.place = format!("{} line {}", self.name, line.number);
            match (line.event.as_deref(), line.direction) {
                (Some("open"), _) => {
                    let raw = Raw::connect(self.broker.as_ref().unwrap().jms_address());
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
            socket.set_linger(Some(Duration::ZERO)).unwrap();
        }
        let broker = self.broker.as_ref().unwrap();
        wait_until("the loss is noticed", || broker.snapshot().connections == 0);
    }

    fn send(&mut self, line: &CaptureLine) {
        let recorded = line.packet().unwrap().unwrap();
        if PACED.contains(&&*self.name) {
            let due = self.started + Duration::from_millis(line.millis);
            // What is to be seen here is the time that passes.
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let packet = self.translate(line.connection, &recorded);
        let at = self.follow(line.connection, &recorded);
        // A connection the recording shows as cut may still have had something in its buffers.
        if let Some(raw) = self.connections.get_mut(&at) {
            raw.send_bytes(packet.raw());
        }
    }

    /// The connection a recorded request goes to: an acknowledgement follows its message.
    fn follow(&mut self, connection: u64, recorded: &Packet) -> u64 {
        let request = (connection, recorded.header().consumer_id);
        if recorded.header().packet_type == PacketType::ADD_CONSUMER {
            let table = recorded.properties().unwrap().to_owned();
            let names = ["JMQDurableName", "JMQSharedSubscriptionName"];
            let name = names.iter().find_map(|name| table.value(name));
            if table.value("JMQJMSShare") == Some(&Value::Boolean(true)) {
                self.asked.insert(request, format!("{name:?}"));
            }
        }
        if recorded.header().packet_type != PacketType::ACKNOWLEDGE {
            return connection;
        }
        let Some(&(at, _)) = self.moved.get(&first_block(recorded)) else { return connection };
        self.elsewhere.insert(request, at);
        at
    }

    /// The packet with this broker's ids in place of the recorded ones.
    fn translate(&mut self, connection: u64, recorded: &Packet) -> Packet {
        let header = recorded.header();
        let mut builder = PacketBuilder::new(header.packet_type)
            .id(header.id)
            .flags(header.flags)
            .priority(header.priority)
            .expiration(self.now(header.expiration))
            .consumer_id(header.consumer_id);
        let variable = recorded.variable().unwrap();
        let fields = self.fields(variable);
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
                    let moved = self.moved.get(&first_block(recorded)).map(|&(_, id)| id);
                    let here = moved.unwrap_or_else(|| self.here(id));
                    block[..8].copy_from_slice(&here.to_be_bytes());
                }
                body.freeze()
            }
            _ => recorded.body(),
        };
        builder.properties(&properties).unwrap().body(body).finish()
    }

    /// A variable header with this broker's ids and times of now.
    fn fields<'a>(&self, recorded: VariableHeader<'a>) -> VariableHeader<'a> {
        VariableHeader {
            producer_id: recorded.producer_id.map(|id| self.here(id)),
            transaction_id: recorded.transaction_id.map(|id| self.here(id)),
            delivery_time: recorded.delivery_time.map(|time| self.now(time)),
            ..recorded
        }
    }

    /// A recorded time, as much later as the recording is played; 0 is no time.
    const fn now(&self, time: i64) -> i64 {
        if time == 0 { 0 } else { time + self.later_ms }
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
        let any_order = self.name == ANY_ORDER;
        let wanted = |packet: &Packet| {
            let header = packet.header();
            if is_message && any_order && header.id != recorded.header().id {
                return false;
            }
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
        if kind == PacketType::GOODBYE && self.name == "broker_goodbye" {
            // Somebody shut it down. The reference says so twice, which tells nobody more.
            match self.broker.take() {
                Some(broker) => broker.shutdown(),
                None => return,
            }
        }
        if is_message && self.sharing.contains_key(&recorded.header().consumer_id) {
            return self.expect_shared(&recorded);
        }
        let request = (line.connection, recorded.header().consumer_id);
        if let Some(name) = self.asked.remove(&request).filter(|_| kind.is_reply()) {
            self.sharing.insert(long(&recorded, "JMQConsumerID"), name);
        }
        let at = self.elsewhere.remove(&request).unwrap_or(line.connection);
        let Some(raw) = self.connections.get_mut(&at) else { return };
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

    /// A message of a shared subscription, which may go to any of its consumers.
    fn expect_shared(&mut self, recorded: &Packet) {
        let (id, consumer) = (recorded.header().id, recorded.header().consumer_id);
        let name = &self.sharing[&consumer];
        let group = self.sharing.iter().filter(|(_, other)| *other == name);
        let group: Vec<i64> = group.map(|(&consumer, _)| self.here(consumer)).collect();
        let mut found = None;
        wait_until("a shared message", || {
            found = self.connections.iter_mut().find_map(|(&connection, raw)| {
                let wanted = |packet: &Packet| {
                    let header = packet.header();
                    header.id == id && group.contains(&header.consumer_id)
                };
                raw.look(wanted).map(|packet| (connection, packet))
            });
            found.is_some()
        });
        let (connection, packet) = found.unwrap();
        self.compare_messages(recorded, &packet);
        self.moved.insert((consumer, id), (connection, packet.header().consumer_id));
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
        assert_eq!(self.fields(old), new, "{place}");
        let id = |packet: &Packet| -> MessageId { packet.header().id };
        assert_eq!(id(recorded), id(found), "{place}");
        assert_eq!(recorded.header().priority, found.header().priority, "{place}");
        assert_eq!(flags(found).without(Flags::from_bits(0x1FFF)), Flags::empty(), "{place}");
        let died = |packet: &Packet| {
            let table = packet.properties().unwrap().to_owned();
            table.value("JMS_SUN_DMQ_UNDELIVERED_REASON").cloned()
        };
        if died(recorded).is_none() {
            assert_eq!(recorded.tail(), found.tail(), "{place}");
            return;
        }
        // What a broker says of a dead message differs in times and names.
        assert_eq!(died(recorded), died(found), "{place}");
        assert_eq!(recorded.body(), found.body(), "{place}");
        let shape = |packet: &Packet| -> BTreeMap<String, i16> {
            let table = packet.properties().unwrap();
            table.iter().map(|one| (one.name_text().into_owned(), one.kind)).collect()
        };
        assert_eq!(shape(recorded), shape(found), "{place}");
    }
}

/// Consumer and message of an acknowledgement's first block.
fn first_block(packet: &Packet) -> (i64, MessageId) {
    let (consumer, id) = packet.body_bytes().split_first_chunk().unwrap();
    (i64::from_be_bytes(*consumer), MessageId::decode(id.first_chunk().unwrap()))
}

fn wall_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}
