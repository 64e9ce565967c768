//! A broker process that is killed at random instants, again and again, with the same store; and an
//! independent record of what it had acknowledged.
//!
//! Each round starts the broker, lets clients of every kind work, and kills it with SIGKILL. At the
//! end everything that is left is received. Then:
//! - every send that was acknowledged has been received, or is in a transaction that was not committed;
//! - nothing whose consumption was acknowledged came again;
//! - what came again was flagged as redelivered;
//! - a committed transaction is there whole, one that was not is not there at all;
//! - what one producer sent to a queue with one consumer came in its order the first time.
//!
//! `TIDEGATE_CRASH_ROUNDS` and `TIDEGATE_CRASH_SEED` set how many rounds and with which seed;
//! `cargo xtask crash` does that. The seed decides how long each round lasts and what the clients
//! do; threads race all the same, so a seed leads to similar runs and not to the same.
#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test ends where it fails, and has deadlines"
)]

mod cli_support;
#[path = "support/proxy.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::disallowed_types,
    reason = "its numbers are used, and not its network"
)]
mod proxy;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    thread,
    time::Duration,
};

use cli_support::{Running, tidegate};
use proxy::Seed;
use tidegate::{
    client::{
        AcknowledgeMode, Connection, ConnectionFactory, Consumer, ConsumerOptions, XaCommit, XaEnd,
        XaStart, XaVote, Xid,
    },
    message::{Destination, Message},
};

const AUTO: AcknowledgeMode = AcknowledgeMode::Auto;

/// Rounds in the test command.
const ROUNDS: u64 = 20;
/// How long a round lasts at most once the broker is ready.
const ROUND_MS_MAX: u64 = 150;
/// How long is waited for a message that may not come.
const PATIENCE: Duration = Duration::from_millis(300);

/// A message: its text is its producer's name and a number.
type Id = String;

/// What is known for sure, and what is in doubt.
#[derive(Debug, Default)]
struct Record {
    /// Sends whose acknowledgement came.
    sent: BTreeSet<Id>,
    /// Sends that were begun: nothing else may ever be received.
    begun: BTreeSet<Id>,
    /// Deliveries, by place and message.
    seen: HashMap<(String, Id), u32>,
    /// Deliveries that were not flagged.
    fresh: BTreeSet<(String, Id)>,
    /// Consumption that was acknowledged, by place and message.
    consumed: BTreeSet<(String, Id)>,
    /// Committed transactions, and those of which it is not known: what went in, what came out.
    committed: Vec<Exchange>,
    doubtful: Vec<Exchange>,
    /// The last one of each producer that came for the first time, by place.
    last: BTreeMap<(String, String), u64>,
    problems: Vec<String>,
}

/// A transaction: messages it consumed, and messages it sent.
#[derive(Debug, Clone, Default)]
struct Exchange {
    taken: Vec<Id>,
    given: Vec<Id>,
}

/// One thing that a client saw, in its order.
#[derive(Debug)]
enum Event {
    Begun(Id),
    Sent(Id),
    Received { place: &'static str, id: Id, redelivered: bool },
    Consumed { place: &'static str, id: Id },
    Committed(Exchange),
    Doubtful(Exchange),
}

impl Record {
    fn take(&mut self, event: Event, ordered: bool) {
        match event {
            Event::Begun(id) => {
                self.begun.insert(id);
            }
            Event::Sent(id) => {
                self.sent.insert(id);
            }
            Event::Received { place, id, redelivered } => {
                self.received(place, id, redelivered, ordered);
            }
            Event::Consumed { place, id } => {
                self.consumed.insert((place.to_owned(), id));
            }
            Event::Committed(exchange) => self.committed.push(exchange),
            Event::Doubtful(exchange) => self.doubtful.push(exchange),
        }
    }

    fn received(&mut self, place: &str, id: Id, redelivered: bool, ordered: bool) {
        let key = (place.to_owned(), id.clone());
        let mut problem = |what: &str| self.problems.push(format!("{id} at {place}: {what}"));
        if !self.begun.contains(&id) {
            problem("was never sent");
        }
        if self.consumed.contains(&key) {
            problem("came again though its consumption was acknowledged");
        }
        // Of two consumers of one place it is not known who was first.
        if !redelivered && !self.fresh.insert(key.clone()) {
            problem("came again without a flag");
        }
        let count = self.seen.entry(key).or_default();
        *count += 1;
        let (producer, number) = id.rsplit_once('-').unwrap();
        let number: u64 = number.parse().unwrap();
        if *count == 1 && ordered {
            let last = self.last.entry((place.to_owned(), producer.to_owned())).or_default();
            if number < *last {
                problem(&format!("came for the first time behind number {last}"));
            }
            *last = number.max(*last);
        }
    }

    /// What must be true when everything that was left has been received.
    fn judge(mut self, rounds: u64) -> Vec<String> {
        let of = |place: &str| -> BTreeSet<Id> {
            let here = self.seen.keys().filter(|(at, _)| at == place);
            here.map(|(_, id)| id.clone()).collect()
        };
        let mut problems = Vec::new();
        let lost_at = |prefix: &str, place: &str| -> Vec<&Id> {
            let seen = of(place);
            let sent = self.sent.iter().filter(|id| id.starts_with(prefix));
            sent.filter(|id| !seen.contains(*id)).collect()
        };
        for (prefix, place) in [("client", "client"), ("dups", "dups"), ("news", "durable")] {
            let lost = lost_at(prefix, place).into_iter();
            problems.extend(lost.map(|id| format!("{id} was acknowledged and is lost at {place}")));
        }
        // An automatic session acknowledges a message before it hands it out. The broker may be
        // killed between the two, with the acknowledgement stored: once in a round at the most.
        let between = lost_at("auto", "auto");
        if between.len() as u64 > rounds {
            problems.push(format!("more than one a round is lost at auto: {between:?}"));
        }
        let (taken, given) = (of("in, drained"), of("out"));
        for id in self.sent.iter().filter(|id| id.starts_with("work")) {
            let whose = |all: &[Exchange]| all.iter().filter(|one| one.taken.contains(id)).count();
            let (sure, may_be) = (whose(&self.committed), whose(&self.doubtful));
            let is_left = taken.contains(id);
            if sure > 1 || sure == 1 && is_left {
                problems.push(format!("{id} was consumed by a commit and is there again"));
            }
            if sure == 0 && may_be == 0 && !is_left {
                problems.push(format!("{id} was acknowledged and is lost"));
            }
        }
        for one in &self.committed {
            let missing = one.given.iter().filter(|id| !given.contains(*id));
            problems.extend(missing.map(|id| format!("{id} was committed and is lost")));
        }
        for one in &self.doubtful {
            let there = one.given.iter().filter(|id| given.contains(*id)).count();
            let left = one.taken.iter().filter(|id| taken.contains(*id)).count();
            // What it consumed may have been consumed by a later one if it was not committed.
            let is_whole = there == one.given.len() && left == 0;
            let twice = |id: &&Id| self.committed.iter().any(|other| other.taken.contains(*id));
            if there > 0 {
                let twice = one.taken.iter().filter(twice);
                problems.extend(twice.map(|id| format!("{id} was consumed by two transactions")));
            }
            if there > 0 && !is_whole {
                problems.push(format!(
                    "of {one:?} {there} came out and {left} are left: half a transaction"
                ));
            }
        }
        problems.append(&mut self.problems);
        problems
    }
}

/// A broker process on a directory.
struct Process {
    running: Running,
    service: String,
    /// What it found in its store.
    found: String,
}

impl Process {
    fn start(data: &Path) -> Self {
        let data = data.to_str().unwrap();
        let free = "127.0.0.1:0";
        let running = Running::start(tidegate([
            "broker", "--listen", free, "--jms", free, "--admin", free, "--data", data, "--log",
            "error",
        ]));
        let service = running.line("service jms ");
        let found = running.line("store ");
        running.line("ready");
        Self { running, service, found }
    }

    fn connect(&self, client_id: Option<&str>) -> Option<Connection> {
        connect(&self.service, client_id)
    }

    fn kill(self) {
        self.running.signal("KILL");
        drop(self.running);
    }
}

fn connect(service: &str, client_id: Option<&str>) -> Option<Connection> {
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mqtcp://{service}/jms")).unwrap();
    factory.address_list_iterations(Some(1));
    let connection = factory.create_connection().ok()?;
    if let Some(id) = client_id {
        connection.set_client_id(id).ok()?;
    }
    connection.start().ok()?;
    Some(connection)
}

fn queue(name: &str) -> Destination {
    Destination::queue(name).unwrap()
}

fn news() -> Destination {
    Destination::topic("crash.news").unwrap()
}

fn received(place: &'static str, message: &Message) -> Event {
    let id = message.body_text().unwrap().unwrap_or_default().into_owned();
    Event::Received { place, id, redelivered: message.is_redelivered() }
}

fn id_of(message: &Message) -> Id {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

/// Whatever a client does until its broker is gone.
type Client = Box<dyn FnOnce(&Connection, &mut Vec<Event>) -> Option<()> + Send>;

/// Sends until the broker is gone, one at a time.
fn producer(prefix: &'static str, round: u64, to: Destination) -> Client {
    Box::new(move |connection, events| {
        let session = connection.create_session(AUTO).ok()?;
        let producer = session.create_producer(&to).ok()?;
        for number in 0.. {
            let id = format!("{prefix}-{round}-{number}");
            events.push(Event::Begun(id.clone()));
            producer.send(Message::text(id.clone())).ok()?;
            events.push(Event::Sent(id));
        }
        Some(())
    })
}

/// Receives with automatic acknowledgement.
fn automatic(mode: AcknowledgeMode, place: &'static str, name: &'static str) -> Client {
    Box::new(move |connection, events| {
        let session = connection.create_session(mode).ok()?;
        let consumer = session.create_consumer(&queue(name)).ok()?;
        loop {
            let message = consumer.receive().ok()??;
            events.push(received(place, &message));
            if mode == AUTO {
                // It is handed out when the broker has confirmed the acknowledgement.
                events.push(Event::Consumed { place, id: id_of(&message) });
            }
        }
    })
}

/// Receives some and acknowledges them, from a queue or a durable subscription.
fn acknowledging(place: &'static str, durable: bool, batch: u64) -> Client {
    Box::new(move |connection, events| {
        let session = connection.create_session(AcknowledgeMode::Client).ok()?;
        let consumer = if durable {
            session.create_consumer_with(&news(), &options()).ok()?
        } else {
            session.create_consumer(&queue("crash.client")).ok()?
        };
        loop {
            let mut taken = Vec::new();
            for _ in 0..batch {
                let message = consumer.receive().ok()??;
                events.push(received(place, &message));
                taken.push(id_of(&message));
            }
            session.acknowledge().ok()?;
            events.extend(taken.into_iter().map(|id| Event::Consumed { place, id }));
        }
    })
}

fn options() -> ConsumerOptions {
    let mut options = ConsumerOptions::new();
    options.durable("reader");
    options
}

/// Moves messages from one queue to another in transactions.
fn transacted(round: u64, mut seed: Seed) -> Client {
    Box::new(move |connection, events| {
        let session = connection.create_session(AcknowledgeMode::Transacted).ok()?;
        let consumer = session.create_consumer(&queue("crash.in")).ok()?;
        let producer = session.create_producer(&queue("crash.out")).ok()?;
        for number in 0.. {
            let exchange = exchange(
                &consumer,
                &producer,
                events,
                &format!("done-{round}-{number}"),
                &mut seed,
            )?;
            if seed.below(5) == 0 {
                session.rollback().ok()?;
                continue;
            }
            match session.commit() {
                Ok(()) => events.push(Event::Committed(exchange)),
                Err(_) => {
                    events.push(Event::Doubtful(exchange));
                    return None;
                }
            }
        }
        Some(())
    })
}

/// Takes some messages and gives some.
fn exchange(
    consumer: &Consumer,
    producer: &tidegate::client::Producer,
    events: &mut Vec<Event>,
    name: &str,
    seed: &mut Seed,
) -> Option<Exchange> {
    let mut exchange = Exchange::default();
    for _ in 0..=seed.below(3) {
        let message = consumer.receive().ok()??;
        events.push(received("in", &message));
        exchange.taken.push(id_of(&message));
    }
    for part in 0..=seed.below(3) {
        let id = format!("{name}.{part}-0");
        events.push(Event::Begun(id.clone()));
        producer.send(Message::text(id.clone())).ok()?;
        exchange.given.push(id);
    }
    Some(exchange)
}

/// Moves messages in branches of distributed transactions; what is left prepared is committed in the
/// next round.
fn distributed(round: u64, mut seed: Seed) -> Client {
    Box::new(move |connection, events| {
        let xa = connection.create_xa_session().ok()?;
        let (session, resource) = (xa.session(), xa.resource());
        for xid in resource.recover().ok()? {
            resource.commit(&xid, XaCommit::Prepared).ok()?;
        }
        let consumer = session.create_consumer(&queue("crash.in")).ok()?;
        let producer = session.create_producer(&queue("crash.out")).ok()?;
        for number in 0.. {
            let xid = Xid::new(7, &round.to_be_bytes(), &u64::to_be_bytes(number)).unwrap();
            resource.start(&xid, XaStart::New).ok()?;
            let exchange = exchange(
                &consumer,
                &producer,
                events,
                &format!("branch-{round}-{number}"),
                &mut seed,
            )?;
            resource.end(&xid, XaEnd::Success).ok()?;
            match resource.prepare(&xid) {
                Ok(vote) => assert_eq!(vote, XaVote::Ready),
                Err(_) => {
                    events.push(Event::Doubtful(exchange));
                    return None;
                }
            }
            // From here on it is committed, in this round or in the next.
            events.push(Event::Committed(exchange));
            resource.commit(&xid, XaCommit::Prepared).ok()?;
        }
        Some(())
    })
}

/// One round's clients: whether their place has one producer and one consumer, so that its order
/// is known; their client id.
fn clients(round: u64, seed: &mut Seed) -> Vec<(bool, Option<&'static str>, Client)> {
    let fork = |seed: &mut Seed| Seed(seed.next());
    vec![
        (false, None, producer("auto", round, queue("crash.auto"))),
        (true, None, automatic(AUTO, "auto", "crash.auto")),
        (false, None, producer("client", round, queue("crash.client"))),
        (true, None, acknowledging("client", false, 1 + seed.below(4))),
        (false, None, producer("dups", round, queue("crash.dups"))),
        (true, None, automatic(AcknowledgeMode::DupsOk, "dups", "crash.dups")),
        (false, None, producer("news", round, news())),
        (true, Some("crash"), acknowledging("durable", true, 1 + seed.below(4))),
        (false, None, producer("work", round, queue("crash.in"))),
        (false, None, transacted(round, fork(seed))),
        (false, None, distributed(round, fork(seed))),
    ]
}

fn round(number: u64, data: &Path, seed: &mut Seed, record: &mut Record) {
    let process = Process::start(data);
    let service = &process.service;
    let lasts = Duration::from_millis(seed.below(ROUND_MS_MAX));
    let clients = clients(number, seed);
    let mut logs: Vec<(bool, Vec<Event>)> = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .map(|(ordered, client_id, client)| {
                let work = move || {
                    let mut events = Vec::new();
                    // A client whose broker is killed while it connects has done nothing.
                    if let Some(connection) = connect(service, client_id) {
                        let _broker_is_gone = client(&connection, &mut events);
                    }
                    (ordered, events)
                };
                scope.spawn(work)
            })
            .collect();
        // Nothing is waited for: this is how long they work.
        thread::sleep(lasts);
        process.running.signal("KILL");
        logs.extend(threads.into_iter().map(|one| one.join().unwrap()));
    });
    // A consumer may have been given what its producer had only begun.
    let (begun, rest): (Vec<_>, Vec<_>) = logs
        .into_iter()
        .flat_map(|(ordered, events)| events.into_iter().map(move |event| (ordered, event)))
        .partition(|(_, event)| matches!(event, Event::Begun(_)));
    for (ordered, event) in begun.into_iter().chain(rest) {
        record.take(event, ordered);
    }
    drop(process);
}

/// Receives everything that is left, and settles what is prepared.
fn drain(data: &Path, record: &mut Record) {
    let process = Process::start(data);
    let connection = process.connect(Some("crash")).unwrap();
    let xa = connection.create_xa_session().unwrap();
    for xid in xa.resource().recover().unwrap() {
        xa.resource().commit(&xid, XaCommit::Prepared).unwrap();
    }
    let session = connection.create_session(AUTO).unwrap();
    for (place, name) in [
        ("auto", "crash.auto"),
        ("client", "crash.client"),
        ("dups", "crash.dups"),
        ("in, drained", "crash.in"),
        ("out", "crash.out"),
    ] {
        let consumer = session.create_consumer(&queue(name)).unwrap();
        take_all(&consumer, place, record);
        consumer.close().unwrap();
    }
    let consumer = session.create_consumer_with(&news(), &options()).unwrap();
    take_all(&consumer, "durable", record);
    connection.close().unwrap();
    process.kill();
    // Nothing may be left behind what was received and acknowledged.
    let process = Process::start(data);
    assert!(process.found.ends_with(": 0 messages"), "{}", process.found);
    process.kill();
}

fn take_all(consumer: &Consumer, place: &'static str, record: &mut Record) {
    while let Some(message) = consumer.receive_timeout(PATIENCE).unwrap() {
        record.take(received(place, &message), true);
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn nothing_acknowledged_is_lost_or_repeated_however_often_the_broker_is_killed() {
    let rounds = number("TIDEGATE_CRASH_ROUNDS", ROUNDS);
    let seed_number = number("TIDEGATE_CRASH_SEED", 1);
    let mut seed = Seed(seed_number);
    let directory = tempfile::tempdir().unwrap();
    let mut record = Record::default();
    // The durable subscription is there before anything is published.
    let process = Process::start(directory.path());
    let connection = process.connect(Some("crash")).unwrap();
    let session = connection.create_session(AUTO).unwrap();
    session.create_consumer_with(&news(), &options()).unwrap();
    process.kill();
    for at in 1..=rounds {
        round(at, directory.path(), &mut seed, &mut record);
        if at % 50 == 0 {
            println!("{at} of {rounds} rounds, {} sends acknowledged", record.sent.len());
        }
        assert!(
            record.problems.is_empty(),
            "seed {seed_number}, round {at}: {:#?}",
            record.problems
        );
    }
    drain(directory.path(), &mut record);
    let (sent, consumed, committed) =
        (record.sent.len(), record.consumed.len(), record.committed.len());
    let again = record.seen.values().filter(|count| **count > 1).count();
    println!(
        "{rounds} rounds, seed {seed_number}: {sent} sends and {consumed} consumptions acknowledged, {committed} transactions committed, {again} messages delivered more than once"
    );
    let problems = record.judge(rounds);
    assert!(problems.is_empty(), "seed {seed_number}: {problems:#?}");
}
