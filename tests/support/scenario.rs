//! A stage for scenarios: a broker of this crate, or the one that `TIDEGATE_TEST_BROKER` names.
//!
//! The variable holds host and port of the message service of a broker that makes destinations on
//! first use, with the user `guest`, and two queues made by its administrator: `cap.flow` (at most
//! 10 messages, flow control) and `cap.reject` (at most 5, the newest are refused).
//!
//! `scenarios_in_process.rs` plays the same scenarios over pipes, without sockets;
//! `scenarios_stored.rs` with a broker that stores what is persistent.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "each test uses its part, and may fail by panic"
)]

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use tidegate::{
    broker::{Broker, BrokerConfig},
    client::{
        AcknowledgeMode, ConnectError, Connection, ConnectionFactory, Consumer, InProcess, Session,
    },
    message::{DeliveryMode, Destination, Message},
    store::MemoryStore,
};

/// How long anything may take.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// How long is waited for what must not come.
pub const SHORT: Duration = Duration::from_millis(100);

/// Whether this test plays in process.
const IN_PROCESS: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"scenarios_in_process");

/// Whether the broker of this test keeps its persistent messages in a store.
const STORED: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"scenarios_stored");

/// Where a scenario plays.
pub struct Stage {
    broker: Option<Broker>,
    service: String,
    /// The way there, if it is not by socket.
    in_process: Option<InProcess>,
}

impl Stage {
    pub fn new() -> Self {
        let is_own = IN_PROCESS || STORED;
        if let (false, Ok(service)) = (is_own, std::env::var("TIDEGATE_TEST_BROKER")) {
            return Self { broker: None, service, in_process: None };
        }
        let config = r#"
            listen = "127.0.0.1:0"
            jms = "127.0.0.1:0"
            loops = 2
            [queues."cap.flow"]
            messages_max = 10
            limit_behavior = "FLOW_CONTROL"
            [queues."cap.reject"]
            messages_max = 5
            limit_behavior = "REJECT_NEWEST"
        "#;
        let config = BrokerConfig::from_toml_str(config, "scenario").unwrap();
        let broker = if STORED {
            Broker::builder().config(config).start_with(MemoryStore::new()).unwrap()
        } else {
            Broker::start(config).unwrap()
        };
        let service = broker.jms_address().to_string();
        let in_process = IN_PROCESS.then(|| broker.in_process());
        Self { broker: Some(broker), service, in_process }
    }

    /// The broker, if it is of this crate.
    pub const fn embedded(&self) -> Option<&Broker> {
        self.broker.as_ref()
    }

    /// Host and port of the broker's service for messages.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Shuts the broker down.
    pub fn end(&mut self) {
        self.broker.take().unwrap().shutdown();
    }

    /// A factory with the settings of the reference client.
    pub fn factory(&self) -> ConnectionFactory {
        self.factory_for(&self.service)
    }

    /// A factory for another way to the broker.
    pub fn factory_for(&self, service: &str) -> ConnectionFactory {
        let mut factory = ConnectionFactory::new();
        factory.address_list(&format!("mqtcp://{service}/jms")).unwrap();
        factory.address_list_iterations(Some(1)).consumer_flow_limit(1000).unwrap();
        factory
    }

    pub fn connect(&self) -> Connection {
        self.connect_with(&[])
    }

    pub fn connect_with(&self, attributes: &[(&str, &str)]) -> Connection {
        let mut factory = self.factory();
        factory.set_attributes(attributes.iter().copied()).unwrap();
        self.open(&factory).unwrap()
    }

    /// A connection of this factory's, the way this stage is reached.
    pub fn open(&self, factory: &ConnectionFactory) -> Result<Connection, ConnectError> {
        match &self.in_process {
            Some(broker) => factory.create_connection_in_process(broker),
            None => factory.create_connection(),
        }
    }

    /// A connection that can be cut, by socket always.
    pub fn connect_through_relay(&self) -> (Connection, Relay) {
        let relay = Relay::start(&self.service);
        let connection = self.factory_for(&relay.address.to_string()).create_connection().unwrap();
        (connection, relay)
    }
}

/// Stands between one client and its broker, and can cut them apart as if the client's machine had
/// gone: without a word.
pub struct Relay {
    address: SocketAddr,
    cut: std::sync::mpsc::Sender<()>,
}

impl Relay {
    fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let target = target.to_owned();
        let (cut, cuts) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let broker = TcpStream::connect(target).unwrap();
            for (from, to) in [(&client, &broker), (&broker, &client)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || {
                    let mut buffer = [0; 16 * 1024];
                    while let Ok(len @ 1..) = from.read(&mut buffer) {
                        if to.write_all(&buffer[..len]).is_err() {
                            break;
                        }
                    }
                    let _ended = to.shutdown(Shutdown::Write);
                });
            }
            // Cut, or nobody is there any more to do so.
            if cuts.recv().is_ok() {
                for stream in [client, broker] {
                    let stream = socket2::SockRef::from(&stream);
                    stream.set_linger(Some(Duration::ZERO)).unwrap();
                    let _ended = stream.shutdown(Shutdown::Both);
                }
            }
        });
        Self { address, cut }
    }

    pub fn cut(&self) {
        self.cut.send(()).unwrap();
    }
}

pub fn queue(name: &str) -> Destination {
    Destination::queue(name).unwrap()
}

pub fn topic(name: &str) -> Destination {
    Destination::topic(name).unwrap()
}

pub fn session(connection: &Connection, mode: AcknowledgeMode) -> Session {
    connection.create_session(mode).unwrap()
}

pub fn text(message: &Message) -> String {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

/// The next message, which must come in time.
pub fn next(consumer: &Consumer) -> Message {
    consumer.receive_timeout(DEADLINE).unwrap().expect("a message comes in time")
}

/// The texts of the next messages.
pub fn texts(consumer: &Consumer, count: usize) -> Vec<String> {
    (0..count).map(|_| text(&next(consumer))).collect()
}

/// `m0`, `m1` and so on.
pub fn numbered(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|n| format!("m{n}")).collect()
}

/// Nothing comes for a short time.
#[track_caller]
pub fn nothing(consumer: &Consumer) {
    let message = consumer.receive_timeout(SHORT).unwrap();
    assert!(message.is_none(), "unexpected {message:?}");
}

/// Sends `m0`, `m1` and so on with a producer of its own.
pub fn send(
    session: &Session,
    to: &Destination,
    numbers: std::ops::Range<usize>,
    mode: DeliveryMode,
) {
    let mut producer = session.create_producer(to).unwrap();
    producer.set_delivery_mode(mode);
    for text in numbered(numbers) {
        producer.send(Message::text(text)).unwrap();
    }
    producer.close().unwrap();
}

/// Lets time pass that the scenario itself is about: an expiration, a slow application.
pub fn pass_time(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) =
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        std::thread::park_timeout(left);
    }
}

/// Waits until something outside becomes true.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
