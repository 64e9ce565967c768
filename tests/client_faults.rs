//! Clients over a network that fails at random, and what must be true when it has calmed down.
//!
//! Each run has a seed, which decides who sends and receives how, and when the network fails. A
//! run that fails tells its seed; `TIDEGATE_FAULT_SEED` runs that one alone, and
//! `TIDEGATE_FAULT_RUNS` another number of them. Threads race, so a seed leads to similar runs, not
//! to the same one each time: a number of runs of one seed is what both together are for.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test ends where it fails, and has deadlines"
)]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use support::{
    broker,
    proxy::{Plan, Proxy, Seed},
    wait_until,
};
use tidegate::{
    broker::Broker,
    client::{
        AcknowledgeError, AcknowledgeMode, ConnectError, Connection, ConnectionError,
        ConnectionFactory, Consumer, ConsumerOptions, ReceiveError, RequestError, SendCause,
        ServerSessions, Session, SessionError, XaCommit, XaEnd, XaError, XaStart, XaVote, Xid,
    },
    message::{DeliveryMode, Destination, Message},
    wire::Status,
};

/// Runs of one go of the test.
const RUNS: u64 = 240;
/// Runs that go on at the same time.
const LANES: u64 = 4;
/// How long one run may take.
const LONGEST: Duration = Duration::from_secs(40);
/// Messages of each producer.
const COUNT: usize = 24;
/// How long a receiver waits before it looks what else there is to do.
const SHORT: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sends {
    Persistent,
    /// Without an answer: some may be lost.
    Unanswered,
    Answered,
    Asynchronous,
    Transacted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receives {
    Auto,
    Client,
    DupsOk,
    /// What is on its way may be lost.
    NoAcknowledge,
    Transacted,
    Listener,
    Durable,
    ConnectionConsumer,
    Branches,
}

const SENDS: [Sends; 5] =
    [Sends::Persistent, Sends::Unanswered, Sends::Answered, Sends::Asynchronous, Sends::Transacted];
const RECEIVES: [Receives; 9] = [
    Receives::Auto,
    Receives::Client,
    Receives::DupsOk,
    Receives::NoAcknowledge,
    Receives::Transacted,
    Receives::Listener,
    Receives::Durable,
    Receives::ConnectionConsumer,
    Receives::Branches,
];

/// What must become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Arrives,
    MayArrive,
    Never,
}

/// What a receiver saw, in order.
#[derive(Debug, Clone)]
enum Seen {
    Message {
        text: String,
        redelivered: bool,
    },
    /// The broker has said that these are done.
    Settled(Vec<String>),
    /// The broker may hold these for done.
    Doubtful(Vec<String>),
}

#[derive(Debug, Default)]
struct Sent {
    fates: BTreeMap<String, Fate>,
    /// Sent when a link was lost: the broker may have had them before they were sent again.
    repeated: BTreeSet<String>,
    /// Messages of which all come or none.
    batches: Vec<Vec<String>>,
}

#[derive(Debug, Default)]
struct Log {
    seen: Mutex<Vec<Seen>>,
    stop: AtomicBool,
}

impl Log {
    fn message(&self, message: &Message) -> String {
        let text = message.body_text().unwrap().unwrap();
        let text = text.split(' ').next().unwrap().to_owned();
        let redelivered = message.is_redelivered();
        self.seen.lock().unwrap().push(Seen::Message { text: text.clone(), redelivered });
        text
    }

    fn settled(&self, texts: &mut Vec<String>) {
        self.seen.lock().unwrap().push(Seen::Settled(std::mem::take(texts)));
    }

    fn doubtful(&self, texts: &mut Vec<String>) {
        self.seen.lock().unwrap().push(Seen::Doubtful(std::mem::take(texts)));
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// What is done, as far as the receiver knows.
    fn done(&self, receives: Receives) -> BTreeSet<String> {
        let mut done = BTreeSet::new();
        for seen in self.seen.lock().unwrap().iter() {
            match seen {
                Seen::Message { text, .. } if !receives.settles() => {
                    done.insert(text.clone());
                }
                Seen::Message { .. } => {}
                Seen::Settled(texts) | Seen::Doubtful(texts) => done.extend(texts.iter().cloned()),
            }
        }
        done
    }
}

struct Stop<'a>(&'a Log);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::SeqCst);
    }
}

impl Receives {
    /// Whether the receiver itself says when messages are done.
    fn settles(self) -> bool {
        matches!(self, Self::Client | Self::Transacted | Self::Branches)
    }

    fn mode(self) -> AcknowledgeMode {
        match self {
            Self::Client => AcknowledgeMode::Client,
            Self::DupsOk => AcknowledgeMode::DupsOk,
            Self::NoAcknowledge => AcknowledgeMode::NoAcknowledge,
            Self::Transacted => AcknowledgeMode::Transacted,
            _ => AcknowledgeMode::Auto,
        }
    }
}

struct World {
    broker: Broker,
    proxy: Proxy,
    destination: Destination,
    sends: [Sends; 2],
    receives: Receives,
    dice: Mutex<Seed>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Seed(seed);
        let broker = broker(1);
        let rate = dice.pick(&[30, 60, 90]);
        let reach = dice.pick(&[2_000, 6_000, 20_000]);
        let proxy = Proxy::start_with(broker.jms_address(), move |number| {
            let mut dice = Seed(seed ^ ((number as u64 + 1) << 32));
            let mut script = || {
                if dice.chance(rate) {
                    dice.script(reach)
                } else {
                    support::proxy::Script::default()
                }
            };
            Plan { to_broker: script(), to_client: script() }
        });
        let receives = dice.pick(&RECEIVES);
        let destination = match receives {
            Receives::Durable => Destination::topic("faults"),
            _ => Destination::queue("faults"),
        };
        Self {
            broker,
            proxy,
            destination: destination.unwrap(),
            sends: [dice.pick(&SENDS), dice.pick(&SENDS)],
            receives,
            dice: Mutex::new(dice),
        }
    }

    fn dice(&self) -> Seed {
        Seed(self.dice.lock().unwrap().next())
    }

    fn connect(&self, more: &[(&str, &str)]) -> Connection {
        let mut dice = self.dice();
        let mut factory = ConnectionFactory::new();
        factory.address_list(&format!("mqtcp://{}/jms", self.proxy.address())).unwrap();
        let attributes = [
            ("imqReconnectEnabled", "true"),
            ("imqReconnectAttempts", "-1"),
            ("imqReconnectInterval", dice.pick(&["1", "3"])),
            ("imqAddressListIterations", "-1"),
            ("imqConsumerFlowLimit", dice.pick(&["1000", "10", "3"])),
            ("imqConsumerFlowLimitPrefetch", dice.pick(&["true", "true", "true", "false"])),
            ("imqConnectionFlowCount", dice.pick(&["100", "5"])),
        ];
        factory.set_attributes(attributes).unwrap();
        factory.set_attributes(more.iter().copied()).unwrap();
        loop {
            match factory.create_connection() {
                Ok(connection) => return connection,
                // The broker has not noticed yet that an attempt before is gone.
                Err(ConnectError::Refused { cause, .. }) if is_conflict_of_login(&cause) => {
                    thread::yield_now();
                }
                Err(error) => panic!("no connection: {error:?}"),
            }
        }
    }

    // ---- senders ----

    fn send(&self, name: usize, sends: Sends) -> Sent {
        let answered = [("imqAckOnProduce", "true")];
        let connection = self.connect(if sends == Sends::Answered { &answered } else { &[] });
        let mode = match sends {
            Sends::Transacted => AcknowledgeMode::Transacted,
            _ => AcknowledgeMode::Auto,
        };
        let session = connection.create_session(mode).unwrap();
        let mut producer = session.create_producer(&self.destination).unwrap();
        if matches!(sends, Sends::Unanswered | Sends::Answered) {
            producer.set_delivery_mode(DeliveryMode::NonPersistent);
        }
        let mut dice = self.dice();
        let (mut sent, mut batch) = (Sent::default(), Vec::new());
        let (done, outcomes) = channel();
        for number in 0..COUNT {
            let text = format!("p{name}-{number:03}");
            let padding = "x".repeat(usize::try_from(dice.below(400)).unwrap());
            let message = Message::text(format!("{text} {padding}"));
            let link = connection.id();
            match sends {
                Sends::Persistent | Sends::Answered | Sends::Unanswered => {
                    producer.send(message).unwrap();
                    let sure = sends != Sends::Unanswered;
                    let fate = if sure { Fate::Arrives } else { Fate::MayArrive };
                    sent.fates.insert(text.clone(), fate);
                    if connection.id() != link || !sure {
                        sent.repeated.insert(text);
                    }
                }
                Sends::Asynchronous => {
                    let done = done.clone();
                    let told = move |outcome: Result<Message, _>| {
                        done.send(outcome.map(drop)).unwrap();
                    };
                    producer.send_async(message, told).unwrap();
                    sent.fates.insert(text.clone(), Fate::Arrives);
                    sent.repeated.insert(text);
                }
                Sends::Transacted => {
                    batch.push(text);
                    let outcome = producer.send(message);
                    let rolled_back = outcome.as_ref().is_err_and(|error| {
                        let lost = SendCause::Request(RequestError::RolledBack);
                        assert_eq!(format!("{:?}", error.cause()), format!("{lost:?}"));
                        true
                    });
                    if rolled_back {
                        session.rollback().unwrap();
                        sent.finish_batch(&mut batch, Fate::Never);
                    } else if batch.len() == 4 || number + 1 == COUNT {
                        let fate = if dice.chance(20) {
                            session.rollback().unwrap();
                            Fate::Never
                        } else {
                            match session.commit() {
                                Ok(()) => Fate::Arrives,
                                Err(SessionError::Request(RequestError::RolledBack)) => Fate::Never,
                                Err(SessionError::Request(RequestError::Interrupted {
                                    ..
                                })) => Fate::MayArrive,
                                Err(error) => panic!("commit: {error:?}"),
                            }
                        };
                        sent.finish_batch(&mut batch, fate);
                    }
                }
            }
        }
        if sends == Sends::Asynchronous {
            for _ in 0..COUNT {
                outcomes.recv_timeout(LONGEST).unwrap().unwrap();
            }
        }
        match dice.below(3) {
            0 => connection.close().unwrap(),
            1 => session.close().unwrap(),
            _ => {}
        }
        sent
    }

    // ---- receivers ----

    fn receive(&self, log: &Log, ready: impl FnOnce()) {
        let durable = self.receives == Receives::Durable;
        let named = [("imqConfiguredClientID", "faulty")];
        let connection = self.connect(if durable { &named } else { &[] });
        let mut dice = self.dice();
        if self.receives == Receives::ConnectionConsumer {
            return thread::scope(|scope| self.receive_in_pool(scope, &connection, log, ready));
        }
        if self.receives == Receives::Branches {
            return self.receive_in_branches(&connection, log, ready);
        }
        let session = connection.create_session(self.receives.mode()).unwrap();
        let mut options = ConsumerOptions::new();
        if durable {
            options.durable("subscribed");
        }
        let consumer = insist(|| session.create_consumer_with(&self.destination, &options));
        connection.start().unwrap();
        ready();
        match self.receives {
            Receives::Listener => {
                thread::scope(|scope| {
                    let (heard, ears) = channel();
                    consumer.set_listener(move |message| heard.send(message).unwrap()).unwrap();
                    scope
                        .spawn(move || ears.iter().for_each(|message| drop(log.message(&message))));
                    while !log.stops() {
                        thread::park_timeout(SHORT);
                    }
                    session.close().unwrap();
                });
            }
            Receives::Client => receive_by_acknowledging(&session, &consumer, log, &mut dice),
            Receives::Transacted => receive_by_committing(&session, &consumer, log, &mut dice),
            _ => {
                while !log.stops() {
                    if let Some(message) = consumer.receive_timeout(SHORT).unwrap() {
                        log.message(&message);
                    }
                }
            }
        }
        match dice.below(4) {
            0 => connection.close().unwrap(),
            1 => session.close().unwrap(),
            2 => consumer.close().unwrap(),
            _ => {}
        }
    }

    fn receive_in_pool<'scope>(
        &self,
        scope: &'scope thread::Scope<'scope, '_>,
        connection: &Connection,
        log: &'scope Log,
        ready: impl FnOnce(),
    ) {
        let (heard, ears) = channel();
        scope.spawn(move || ears.iter().for_each(|message| drop(log.message(&message))));
        let pool = ServerSessions::start(connection, AcknowledgeMode::Auto, 2, |_session| {
            let heard = heard.clone();
            Ok(move |message: Message| heard.send(message).unwrap())
        });
        drop(heard);
        let options = ConsumerOptions::new();
        let consumer =
            connection.create_connection_consumer(&self.destination, &options, pool.unwrap(), 3);
        let consumer = consumer.unwrap();
        connection.start().unwrap();
        ready();
        while !log.stops() {
            thread::park_timeout(SHORT);
        }
        consumer.close().unwrap();
        connection.close().unwrap();
    }

    fn receive_in_branches(&self, connection: &Connection, log: &Log, ready: impl FnOnce()) {
        let xa = connection.create_xa_session().unwrap();
        let consumer = xa.session().create_consumer(&self.destination).unwrap();
        connection.start().unwrap();
        ready();
        let resource = xa.resource();
        let mut number = 0_u32;
        while !log.stops() {
            number += 1;
            let branch = Xid::new(7, &number.to_be_bytes(), b"faults").unwrap();
            let mut texts = Vec::new();
            let mut work = || -> Result<(), XaError> {
                resource.start(&branch, XaStart::New)?;
                for _ in 0..3 {
                    match consumer.receive_timeout(SHORT) {
                        Ok(Some(message)) => texts.push(log.message(&message)),
                        Ok(None) => {}
                        Err(ReceiveError::Acknowledge(AcknowledgeError::Request(
                            error @ (RequestError::RolledBack | RequestError::Refused { .. }),
                        ))) => {
                            drop(resource.end(&branch, XaEnd::Fail));
                            return Err(error.into());
                        }
                        Err(error) => panic!("in a branch: {error:?}"),
                    }
                }
                resource.end(&branch, XaEnd::Success)?;
                match resource.prepare(&branch)? {
                    XaVote::Ready => resource.commit(&branch, XaCommit::Prepared),
                    _ => Ok(()),
                }
            };
            match work() {
                Ok(()) => log.settled(&mut texts),
                Err(_error) => {
                    log.doubtful(&mut texts);
                    drop(resource.end(&branch, XaEnd::Fail));
                    // As a transaction manager that finds what is still prepared.
                    while resource.recover().unwrap().contains(&branch) {
                        drop(resource.commit(&branch, XaCommit::Prepared));
                    }
                    drop(resource.rollback(&branch));
                }
            }
        }
        connection.close().unwrap();
    }

    // ---- one run ----

    fn run(&self) {
        let log = Log::default();
        let patience = Duration::from_millis(self.dice().below(150));
        let sent = thread::scope(|scope| {
            let (is_ready, ready) = channel();
            // Also where a check fails, or the receiver would go on.
            let stop = Stop(&log);
            let log = &log;
            let receiver = scope.spawn(move || self.receive(log, || is_ready.send(()).unwrap()));
            // The network calms down after a while in any case: one that stays silent is no fault
            // of the client's.
            let calm = scope.spawn(move || {
                thread::park_timeout(patience);
                self.proxy.calm();
            });
            if self.receives == Receives::Durable {
                ready.recv_timeout(LONGEST).unwrap();
            }
            let senders: Vec<_> = (0..)
                .zip(self.sends)
                .map(|(name, sends)| scope.spawn(move || self.send(name, sends)))
                .collect();
            let mut sent = Sent::default();
            for sender in senders {
                sent.add(sender.join().unwrap());
            }
            calm.join().unwrap();
            // What needs no answer is on its way until its connection has ended.
            wait_until("the senders have gone", || self.broker.snapshot().connections <= 1);
            self.await_arrival(log, &sent);
            drop(stop);
            receiver.join().unwrap();
            sent
        });
        sent.check(&log.seen.lock().unwrap(), self.receives);
        wait_until("the broker has nobody left", || {
            let now = self.broker.snapshot();
            now.connections == 0 && now.destinations.iter().all(|d| d.consumers.is_empty())
        });
        let left = self.left();
        assert_eq!(left, 0, "messages stay in the broker: {:?}", self.broker.snapshot());
    }

    /// Messages in the broker.
    fn left(&self) -> u64 {
        let now = self.broker.snapshot();
        let ours = now.destinations.iter().filter(|one| one.name == self.destination.name());
        ours.map(|one| one.messages).sum()
    }

    fn await_arrival(&self, log: &Log, sent: &Sent) {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let done = log.done(self.receives);
            let surely = sent.fates.iter().filter(|(_, fate)| **fate == Fate::Arrives);
            let missing: Vec<_> =
                surely.map(|(text, _)| text).filter(|text| !done.contains(*text)).collect();
            let complete = missing.is_empty() || self.receives == Receives::NoAcknowledge;
            if complete && self.left() == 0 {
                return;
            }
            assert!(
                Instant::now() < until,
                "missing {missing:?}, broker {:#?}, seen {:?}",
                self.broker.snapshot(),
                log.seen.lock().unwrap()
            );
            thread::park_timeout(Duration::from_millis(2));
        }
    }
}

fn receive_by_acknowledging(session: &Session, consumer: &Consumer, log: &Log, dice: &mut Seed) {
    let mut texts = Vec::new();
    while !log.stops() {
        let outcome = match consumer.receive_timeout(SHORT) {
            Ok(Some(message)) => {
                texts.push(log.message(&message));
                if dice.chance(60) {
                    continue;
                }
                session.acknowledge()
            }
            Ok(None) => session.acknowledge(),
            Err(ReceiveError::Acknowledge(error)) => Err(error),
            Err(error) => panic!("receive: {error:?}"),
        };
        match outcome {
            Ok(()) => log.settled(&mut texts),
            Err(AcknowledgeError::Request(RequestError::Unacknowledged)) => {
                log.doubtful(&mut texts);
                session.recover().unwrap();
            }
            Err(error) => panic!("acknowledge: {error:?}"),
        }
    }
}

fn receive_by_committing(session: &Session, consumer: &Consumer, log: &Log, dice: &mut Seed) {
    let mut texts = Vec::new();
    while !log.stops() {
        let outcome = match consumer.receive_timeout(SHORT) {
            Ok(Some(message)) => {
                texts.push(log.message(&message));
                if dice.chance(60) {
                    continue;
                }
                if dice.chance(10) {
                    session.rollback().unwrap();
                    texts.clear();
                    continue;
                }
                session.commit()
            }
            Ok(None) => session.commit(),
            Err(ReceiveError::Acknowledge(AcknowledgeError::Request(error))) => Err(error.into()),
            Err(error) => panic!("receive: {error:?}"),
        };
        match outcome {
            Ok(()) => log.settled(&mut texts),
            Err(SessionError::Request(RequestError::RolledBack)) => {
                texts.clear();
                session.rollback().unwrap();
            }
            Err(SessionError::Request(RequestError::Interrupted { .. })) => {
                log.doubtful(&mut texts);
            }
            Err(error) => panic!("commit: {error:?}"),
        }
    }
}

impl Sent {
    fn finish_batch(&mut self, batch: &mut Vec<String>, fate: Fate) {
        self.fates.extend(batch.iter().map(|text| (text.clone(), fate)));
        self.batches.push(std::mem::take(batch));
    }

    fn add(&mut self, other: Self) {
        self.fates.extend(other.fates);
        self.repeated.extend(other.repeated);
        self.batches.extend(other.batches);
    }

    fn check(&self, all: &[Seen], receives: Receives) {
        let mut delivered = BTreeSet::new();
        let (mut settled, mut last) = (BTreeSet::new(), BTreeMap::new());
        for seen in all {
            match seen {
                Seen::Message { text, redelivered } => {
                    let fate = self.fates.get(text);
                    assert!(fate.is_some_and(|fate| *fate != Fate::Never), "{text} {fate:?}");
                    let repeated = self.repeated.contains(text);
                    let first = delivered.insert(text);
                    assert!(first || *redelivered || repeated, "{text} came again unflagged");
                    assert!(!settled.contains(text) || repeated, "{text} was settled, and came");
                    let producer = text.split('-').next();
                    let in_order = match receives {
                        Receives::ConnectionConsumer => false,
                        // The one before may have been lost on its way, and been sent again.
                        Receives::NoAcknowledge => !repeated,
                        _ => true,
                    };
                    if first && !redelivered && in_order {
                        let before = last.insert(producer, text);
                        assert!(before < Some(text), "{text} after {before:?}");
                    }
                }
                Seen::Settled(texts) => settled.extend(texts),
                Seen::Doubtful(_) => {}
            }
        }
        if receives == Receives::NoAcknowledge {
            return;
        }
        for batch in &self.batches {
            let came = batch.iter().filter(|text| delivered.contains(text)).count();
            assert!(came == 0 || came == batch.len(), "a part of {batch:?}");
        }
    }
}

/// Does what may be refused because the broker has not noticed a loss yet.
fn insist<R>(mut attempt: impl FnMut() -> Result<R, SessionError>) -> R {
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(SessionError::Request(error)) if error.status() == Some(Status::CONFLICT) => {
                thread::yield_now();
            }
            Err(error) => panic!("refused: {error:?}"),
        }
    }
}

fn is_conflict_of_login(cause: &ConnectionError) -> bool {
    matches!(cause, ConnectionError::Refused { status: Status::CONFLICT, .. })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[test]
fn nothing_is_lost_repeated_or_mixed_up_whatever_the_network_does() {
    let runs = number("TIDEGATE_FAULT_RUNS").unwrap_or(RUNS);
    let one = number("TIDEGATE_FAULT_SEED");
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| {
            thread::spawn(move || {
                for at in (lane..runs).step_by(usize::try_from(LANES).unwrap()) {
                    run(one.unwrap_or(at));
                }
            })
        })
        .collect();
    for lane in lanes {
        assert!(lane.join().is_ok(), "a run failed, see above");
    }
}

fn run(seed: u64) {
    let (done, ended) = channel();
    let runner = thread::Builder::new().name(format!("seed {seed}")).spawn(move || {
        let world = World::new(seed);
        let roles = format!("{:?} {:?}", world.sends, world.receives);
        done.send(roles).unwrap();
        world.run();
        drop(done);
    });
    let runner = runner.unwrap();
    let roles = ended.recv().unwrap_or_default();
    if ended.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
        panic!("seed {seed} ({roles}) hangs");
    }
    assert!(runner.join().is_ok(), "seed {seed} ({roles}) failed");
}
