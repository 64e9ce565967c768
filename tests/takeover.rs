//! Brokers that share a PostgreSQL database: the next one takes over from one that is gone, however
//! it went, and clients go on with it.
//!
//! `TIDEGATE_TAKEOVER_ROUNDS` says how often; by default once for each way to go.
#![cfg(all(feature = "postgres", feature = "cli"))]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail loudly")]
#![allow(clippy::disallowed_methods, reason = "a test's deadlines are real time")]
#![allow(clippy::disallowed_types, reason = "a test's own bookkeeping")]

mod cli_support;
mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use cli_support::{Running, run, tidegate, wait_for};
use support::{postgres, postgres::Server, proxy::Proxy};
use tidegate::{
    client::{AcknowledgeMode, Connection, ConnectionFactory},
    message::{Destination, Message},
};

/// How long a broker of these tests has the database to itself.
const LEASE: Duration = Duration::from_secs(2);

/// How much longer it may take here until the next one serves: brokers, database and clients share
/// a small machine.
const SLACK: Duration = Duration::from_secs(15);

/// Messages that are stored before something happens, and after it.
const MESSAGES: usize = 50;

/// A place for one broker: its files, its own way to the database, and the clients' way to it.
struct Place {
    folder: tempfile::TempDir,
    database: Proxy,
    service: Proxy,
}

impl Place {
    fn new(server: &Server, lease: Duration) -> Self {
        let database = Proxy::start(server.address());
        let url = postgres::url_at(database.address(), "shared");
        let folder = tempfile::tempdir().unwrap();
        let millis = lease.as_millis();
        let settings = format!("[store]\npostgres = \"{url}\"\nlease = \"{millis}ms\"\n");
        fs::write(folder.path().join("broker.toml"), settings).unwrap();
        // Nobody listens there before a broker says where it does.
        let service = Proxy::start(SocketAddr::from(([127, 0, 0, 1], 9)));
        Self { folder, database, service }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("broker.toml")
    }

    fn spawn(&self, more: &[&str]) -> Running {
        let file = self.file();
        let own = ["broker", "--config", file.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        Running::start(tidegate(own.into_iter().chain(more.iter().copied())))
    }

    /// A broker that waits.
    fn standby(&self) -> Running {
        let running = self.spawn(&["--standby"]);
        running.line("standby, waits for ");
        running
    }

    /// Waits until a broker serves, and shows clients the way to it.
    fn serves(&self, broker: &Running) {
        let service = broker.line("service jms ").parse().unwrap();
        broker.line("ready");
        self.service.retarget(service);
    }
}

fn database() -> Server {
    let server = Server::start();
    server.create("shared");
    server
}

fn connect(places: &[Place]) -> Connection {
    let addresses: Vec<String> =
        places.iter().map(|place| format!("mqtcp://{}/jms", place.service.address())).collect();
    let mut factory = ConnectionFactory::new();
    factory.address_list(&addresses.join(",")).unwrap();
    let attributes = [
        ("imqReconnectEnabled", "true"),
        // At each address, before the next one is tried.
        ("imqReconnectAttempts", "1"),
        ("imqReconnectInterval", "50"),
        ("imqAddressListIterations", "-1"),
        // A broker that says nothing is given up, and one that does not even let anybody log in.
        ("imqPingInterval", "1"),
        ("imqAbortOnPingAckTimeout", "true"),
        ("imqPingAckTimeout", "1000"),
        ("imqAckTimeout", "5000"),
    ];
    factory.set_attributes(attributes).unwrap();
    let connection = factory.create_connection().unwrap();
    connection.start().unwrap();
    connection
}

/// What applications know. Messages have numbers; each is sent once.
#[derive(Debug, Default)]
struct Known {
    /// The broker has said that it has them.
    sent: BTreeSet<usize>,
    /// Nobody knows whether it has them.
    in_doubt: BTreeSet<usize>,
    /// How often they came.
    came: BTreeMap<usize, usize>,
    /// The broker has said that it has forgotten them.
    settled: BTreeSet<usize>,
    /// What must not be.
    wrong: Vec<String>,
}

impl Known {
    fn take(&mut self, number: usize, is_redelivered: bool) {
        let times = self.came.entry(number).or_default();
        *times += 1;
        if *times > 1 && !is_redelivered {
            self.wrong.push(format!("{number} came again, and does not say so"));
        }
        if self.settled.contains(&number) {
            self.wrong.push(format!("{number} came again after it was acknowledged"));
        }
        if !self.sent.contains(&number) && !self.in_doubt.contains(&number) {
            self.wrong.push(format!("{number} was never sent"));
        }
    }

    fn missing(&self) -> Vec<usize> {
        self.sent.iter().filter(|number| !self.came.contains_key(number)).copied().collect()
    }
}

/// Applications that send and receive until they are told to end.
struct Applications {
    known: Mutex<Known>,
    sends: AtomicBool,
    receives: AtomicBool,
}

impl Applications {
    fn queue() -> Destination {
        Destination::queue("work").unwrap()
    }

    fn send(&self, connection: &Connection) {
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let producer = session.create_producer(&Self::queue()).unwrap();
        let mut number = 0;
        while self.sends.load(Ordering::SeqCst) {
            number += 1;
            // It may come before its sender is told.
            self.known.lock().unwrap().in_doubt.insert(number);
            match producer.send(Message::text(number.to_string())) {
                Ok(_) => {
                    let mut known = self.known.lock().unwrap();
                    known.in_doubt.remove(&number);
                    known.sent.insert(number);
                }
                // A broker that has lost the database says so at once, over and over again.
                Err(_) => thread::park_timeout(Duration::from_millis(20)),
            }
        }
    }

    fn receive(&self, connection: &Connection) {
        let session = connection.create_session(AcknowledgeMode::Client).unwrap();
        let consumer = session.create_consumer(&Self::queue()).unwrap();
        while self.receives.load(Ordering::SeqCst) {
            let done = match consumer.receive_timeout(Duration::from_millis(100)) {
                Ok(None) => true,
                Ok(Some(message)) => {
                    let number = message.body_text().unwrap().unwrap().parse().unwrap();
                    self.known.lock().unwrap().take(number, message.is_redelivered());
                    let settled = session.acknowledge().is_ok();
                    if settled {
                        self.known.lock().unwrap().settled.insert(number);
                    }
                    settled
                }
                Err(_) => false,
            };
            if !done && session.recover().is_err() {
                thread::park_timeout(Duration::from_millis(20));
            }
        }
    }

    /// Waits until so many more messages are stored and received.
    fn go_on(&self) {
        let count = |known: &Known| (known.sent.len(), known.settled.len());
        let (sent, settled) = count(&self.known.lock().unwrap());
        wait_for("more messages", || {
            let now = count(&self.known.lock().unwrap());
            (now.0 >= sent + MESSAGES && now.1 >= settled + MESSAGES).then_some(())
        });
    }
}

/// How a broker goes.
#[derive(Debug, Clone, Copy)]
enum Way {
    StandsStill,
    IsKilled,
    IsCutOff,
    EndsInOrder,
}

const WAYS: [Way; 4] = [Way::StandsStill, Way::IsKilled, Way::IsCutOff, Way::EndsInOrder];

impl Way {
    /// Has it go this way.
    fn go(self, broker: &Running, place: &Place) {
        match self {
            Self::StandsStill => broker.signal("STOP"),
            Self::IsKilled => broker.signal("KILL"),
            Self::IsCutOff => {
                place.database.refuse(true);
                place.database.cut();
            }
            Self::EndsInOrder => broker.signal("TERM"),
        }
    }

    /// Has it come back, if it can; it finds out that it was taken over, and ends.
    fn come_back(self, broker: Running, place: &Place) {
        match self {
            Self::IsKilled => {
                let _killed = broker.finish();
            }
            Self::EndsInOrder => {
                broker.finish().expect_code(0);
            }
            Self::StandsStill | Self::IsCutOff => {
                place.database.refuse(false);
                broker.signal("CONT");
                let ended = broker.finish().expect_code(5);
                let said = "another broker has taken over the store";
                assert!(ended.err.contains(said), "{}", ended.err);
            }
        }
    }
}

#[test]
fn the_next_broker_takes_over_and_nothing_acknowledged_is_lost() {
    let rounds = std::env::var("TIDEGATE_TAKEOVER_ROUNDS");
    let rounds = rounds.map_or(WAYS.len(), |rounds| rounds.parse().unwrap());
    let server = database();
    let places = [Place::new(&server, LEASE), Place::new(&server, LEASE)];
    let mut works = places[0].spawn(&["--standby"]);
    places[0].serves(&works);
    let connection = connect(&places);
    let applications = Applications {
        known: Mutex::default(),
        sends: AtomicBool::new(true),
        receives: AtomicBool::new(true),
    };
    thread::scope(|scope| {
        let end = EndAtDrop(&applications);
        let sender = scope.spawn(|| applications.send(&connection));
        scope.spawn(|| applications.receive(&connection));
        for round in 0..rounds {
            let (now, next) = (&places[round % 2], &places[(round + 1) % 2]);
            let standby = next.standby();
            applications.go_on();
            let way = WAYS[round % WAYS.len()];
            let began = Instant::now();
            way.go(&works, now);
            next.serves(&standby);
            let took = began.elapsed();
            println!("round {round}, {way:?}: the next one serves after {took:?}");
            assert!(took < LEASE + SLACK, "{took:?}");
            let went = std::mem::replace(&mut works, standby);
            if matches!(way, Way::StandsStill) {
                // Its clients have gone to the other one meanwhile.
                applications.go_on();
            }
            way.come_back(went, now);
            applications.go_on();
        }
        applications.sends.store(false, Ordering::SeqCst);
        sender.join().unwrap();
        wait_for("all that was acknowledged", || {
            applications.known.lock().unwrap().missing().is_empty().then_some(())
        });
        drop(end);
    });
    let known = applications.known.lock().unwrap();
    println!(
        "{} sent, {} in doubt, {} of them came, {} settled",
        known.sent.len(),
        known.in_doubt.len(),
        known.in_doubt.iter().filter(|number| known.came.contains_key(number)).count(),
        known.settled.len()
    );
    assert!(known.wrong.is_empty(), "{:?}", known.wrong);
    drop(connection);
    works.signal("TERM");
    works.finish().expect_code(0);
}

/// Ends the applications, also when the test fails in between.
struct EndAtDrop<'a>(&'a Applications);

impl Drop for EndAtDrop<'_> {
    fn drop(&mut self) {
        self.0.sends.store(false, Ordering::SeqCst);
        self.0.receives.store(false, Ordering::SeqCst);
    }
}

#[test]
fn who_ends_in_order_is_followed_at_once_and_who_does_not_wait_is_told_who_is_there() {
    let server = database();
    // Longer than any patience here.
    let lease = Duration::from_secs(600);
    let places = [Place::new(&server, lease), Place::new(&server, lease)];
    let first = places[0].spawn(&["--set", "name=first"]);
    places[0].serves(&first);

    let file = places[1].file();
    let own = ["broker", "--config", file.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let refused = run(tidegate(own), b"").expect_code(5);
    assert!(refused.err.contains("in use by another process"), "{}", refused.err);
    assert!(refused.err.contains("(first at "), "{}", refused.err);
    assert!(!refused.err.contains("secret"), "{}", refused.err);

    let second = places[1].spawn(&["--standby"]);
    let waits_for = second.line("standby, waits for ");
    assert!(waits_for.contains("(first at "), "{waits_for}");
    assert!(!waits_for.contains("secret"), "{waits_for}");
    first.signal("TERM");
    first.finish().expect_code(0);
    places[1].serves(&second);
    second.signal("TERM");
    second.finish().expect_code(0);
}

#[test]
fn a_standby_that_is_told_to_end_has_nothing_left_to_do() {
    let server = database();
    let places = [Place::new(&server, LEASE), Place::new(&server, LEASE)];
    let first = places[0].spawn(&[]);
    places[0].serves(&first);
    for signal in ["TERM", "INT"] {
        let second = places[1].standby();
        second.signal(signal);
        let ended = second.finish().expect_code(0);
        assert!(ended.text().ends_with("stopped"), "{}", ended.text());
        assert_eq!(ended.err, "");
    }
    first.signal("TERM");
    first.finish().expect_code(0);
}

#[test]
fn a_standby_without_a_database_and_one_whose_address_is_wrong_do_not_start() {
    let refused = run(tidegate(["broker", "--standby"]), b"").expect_code(2);
    assert!(refused.err.contains("store.postgres"), "{}", refused.err);
    for wrong in ["mysql://user:secret@host/name", "secret"] {
        let setting = format!("store.postgres={wrong}");
        let refused = run(tidegate(["broker", "--set", &setting]), b"").expect_code(2);
        assert!(refused.err.contains("postgresql://"), "{}", refused.err);
        assert!(!refused.err.contains("secret"), "{}", refused.err);
    }
    // A file that is not understood, at the place where the password is.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    for end in ["", "\"\npostgres = \"postgres://user:secret@host/name\"", "\" \"secret"] {
        let text = format!("[store]\npostgres = \"postgres://user:secret@host/name{end}\n");
        fs::write(&file, &text).unwrap();
        let refused = run(tidegate(["broker", "--config", file.to_str().unwrap()]), b"");
        let refused = refused.expect_code(2);
        assert!(refused.err.contains("broker.toml, line "), "{}", refused.err);
        assert!(!refused.err.contains("secret"), "{text}: {}", refused.err);
    }
}

#[test]
fn a_directory_with_messages_is_not_left_behind_unseen() {
    let server = database();
    let place = Place::new(&server, LEASE);
    let data = place.folder.path().join("data");
    let data = data.to_str().unwrap();
    let own = Running::start(tidegate(["broker", "--listen", "127.0.0.1:0", "--data", data]));
    own.line("ready");
    own.signal("TERM");
    own.finish().expect_code(0);
    let file = place.file();
    let both = ["broker", "--config", file.to_str().unwrap(), "--data", data];
    let refused = run(tidegate(both), b"").expect_code(1);
    assert!(refused.err.contains("it holds messages"), "{}", refused.err);
    assert!(refused.err.contains(data), "{}", refused.err);
}
