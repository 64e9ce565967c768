//! Broker, producer, consumers and the round trips beside them.

#![allow(
    clippy::disallowed_types,
    reason = "counts for show; the facade is the library's, and nothing depends on their order"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidegate::broker::{Broker, BrokerConfig};
use tidegate::client::{AcknowledgeMode, Connection, Consumer, Producer};
use tidegate::message::{DeliveryMode, Message};

use super::report::{Look, Seen, Totals};
use crate::cli::arguments::DemoArguments;
use crate::cli::connect::{connect, impatient, queue};
use crate::cli::failure::{Failure, with_causes};
use crate::cli::round_trip::{RoundTrips, Times};

const QUEUE: &str = "tidegate.demo";

/// Bytes in each message; the first eight are the time it was sent.
const BODY_BYTES: usize = 64;

/// How long a consumer waits before it looks whether the demo is over.
const PATIENCE: Duration = Duration::from_millis(50);

/// Limit for connecting and for answers; all of it is on this machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Pause between round trips: enough of them for percentiles, not enough to get in the way.
const ROUND_TRIP_INTERVAL: Duration = Duration::from_millis(2);

/// Everything that runs.
pub(super) struct Scene {
    broker: Broker,
    slow_id: i64,
    counts: Arc<Counts>,
    /// Dropped to end the threads.
    stop: Vec<Sender<()>>,
    /// A thread that fails says so here.
    failures: Receiver<String>,
    producer: Actor,
    consumers: [Actor; 2],
    round_trips: JoinHandle<()>,
}

/// A thread and its connection.
struct Actor {
    connection: Connection,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    fast: AtomicU64,
    slow: AtomicU64,
    slow_buffered: AtomicU64,
    round_trips: Mutex<Option<Times>>,
    deliveries: Mutex<Option<Times>>,
}

impl Scene {
    pub(super) fn start(arguments: &DemoArguments) -> Result<Self, Failure> {
        let failed = |error: &dyn std::error::Error| Failure::new("the demo did not start", error);
        let mut config = BrokerConfig::default();
        for name in ["listen", "jms"] {
            config.set(name, "127.0.0.1:0").map_err(|error| failed(&error))?;
        }
        let broker = Broker::start(config).map_err(|error| failed(&error))?;
        let mut factory = impatient(ANSWER_LIMIT);
        let address = format!("mqtcp://{}/jms", broker.jms_address());
        factory
            .address_list(&address)
            .and_then(|factory| factory.consumer_flow_limit(arguments.window))
            .map_err(|error| failed(&error))?;
        let open = || connect(&factory);
        let round_trips = RoundTrips::new(open, BODY_BYTES, ANSWER_LIMIT)?;

        let (slow_connection, slow) = consumer(open()?)?;
        let slow_id = slow.id();
        let (fast_connection, fast) = consumer(open()?)?;
        let (producer_connection, producer) = producer(open()?)?;

        let counts = Arc::new(Counts::default());
        let (report, failures) = mpsc::channel();
        let mut stop = Vec::new();
        let mut start = |name: &str, work: Work| {
            let (sender, receiver) = mpsc::channel();
            stop.push(sender);
            let counts = Arc::clone(&counts);
            let report = report.clone();
            let act = move || {
                if let Err(problem) = work(&counts, &receiver) {
                    let _nobody_listens_any_more = report.send(problem);
                }
            };
            let thread = thread::Builder::new().name(name.to_owned()).spawn(act);
            thread.map_err(|error| failed(&error))
        };
        let began = Instant::now();
        let (rate, pause) = (arguments.rate, arguments.slow);
        let slow = start("slow", Box::new(move |c, stop| work_slowly(&slow, pause, c, stop)))?;
        let fast = start("fast", Box::new(move |c, stop| work_fast(&fast, began, c, stop)))?;
        let producer =
            start("producer", Box::new(move |c, stop| produce(&producer, rate, began, c, stop)))?;
        let round_trips =
            start("round trips", Box::new(move |c, stop| measure(round_trips, c, stop)))?;
        Ok(Self {
            broker,
            slow_id,
            counts,
            stop,
            failures,
            producer: Actor { connection: producer_connection, thread: producer },
            consumers: [
                Actor { connection: slow_connection, thread: slow },
                Actor { connection: fast_connection, thread: fast },
            ],
            round_trips,
        })
    }

    /// Waits, unless something fails before.
    pub(super) fn wait_until(&self, time: Instant) -> Result<(), Failure> {
        match self.failures.recv_timeout(time.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(()),
            Ok(problem) => Err(Failure::Failed(problem)),
        }
    }

    /// How things stand: the broker's word for credit, the clients' for what they did.
    pub(super) fn look(&self) -> Result<Look, Failure> {
        let snapshot = self.broker.snapshot();
        let queue = snapshot.destinations.iter().find(|destination| destination.name == QUEUE);
        let gone = || Failure::Failed("the broker lost the demo's queue".into());
        let queue = queue.ok_or_else(gone)?;
        let seen = |slow: bool| {
            let consumer = queue.consumers.iter().find(|c| (c.id == self.slow_id) == slow);
            let consumer = consumer.ok_or_else(gone)?;
            Ok(Seen { credit: consumer.credit, unacknowledged: consumer.unacknowledged })
        };
        Ok(Look {
            at: Instant::now(),
            waiting: queue.messages,
            fast: seen(false)?,
            slow: seen(true)?,
            sent: self.counts.sent.load(Ordering::Relaxed),
            fast_received: self.counts.fast.load(Ordering::Relaxed),
            slow_received: self.counts.slow.load(Ordering::Relaxed),
            slow_buffered: self.counts.slow_buffered.load(Ordering::Relaxed),
            round_trips: in_short(&self.counts.round_trips),
        })
    }

    /// Ends everything in order and says what came of it.
    pub(super) fn end(mut self) -> Result<Totals, Failure> {
        self.stop.clear();
        let failed = |error| Failure::new("cannot close in order", &error);
        for actor in std::iter::once(self.producer).chain(self.consumers) {
            let _ended = actor.thread.join();
            // After this what was received is acknowledged and the rest is back in the queue.
            actor.connection.close().map_err(failed)?;
        }
        let _ended = self.round_trips.join();
        if let Ok(problem) = self.failures.try_recv() {
            return Err(Failure::Failed(problem));
        }
        let snapshot = self.broker.snapshot();
        let queue = snapshot.destinations.iter().find(|destination| destination.name == QUEUE);
        let left = queue.map_or(0, |queue| queue.messages);
        self.broker.shutdown();
        let take = |times: &Mutex<Option<Times>>| {
            times.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_else(Times::new)
        };
        Ok(Totals {
            sent: self.counts.sent.load(Ordering::Relaxed),
            fast_received: self.counts.fast.load(Ordering::Relaxed),
            slow_received: self.counts.slow.load(Ordering::Relaxed),
            left,
            round_trips: take(&self.counts.round_trips),
            deliveries: take(&self.counts.deliveries),
        })
    }
}

type Work = Box<dyn FnOnce(&Counts, &Receiver<()>) -> Result<(), String> + Send>;

fn consumer(connection: Connection) -> Result<(Connection, Consumer), Failure> {
    let failed = |error: &dyn std::error::Error| Failure::new("cannot receive", error);
    let session = connection.create_session(AcknowledgeMode::Auto).map_err(|e| failed(&e))?;
    let consumer = session.create_consumer(&queue(QUEUE)?).map_err(|e| failed(&e))?;
    connection.start().map_err(|e| failed(&e))?;
    Ok((connection, consumer))
}

fn producer(connection: Connection) -> Result<(Connection, Producer), Failure> {
    let failed = |error: &dyn std::error::Error| Failure::new("cannot send", error);
    let session = connection.create_session(AcknowledgeMode::Auto).map_err(|e| failed(&e))?;
    let mut producer = session.create_producer(&queue(QUEUE)?).map_err(|e| failed(&e))?;
    producer.set_delivery_mode(DeliveryMode::NonPersistent);
    Ok((connection, producer))
}

/// Sends at a steady rate, by the clock and not by pauses, so that being held up is caught up.
fn produce(
    producer: &Producer,
    rate: u64,
    began: Instant,
    counts: &Counts,
    stop: &Receiver<()>,
) -> Result<(), String> {
    let interval = Duration::from_secs(1) / u32::try_from(rate).unwrap_or(u32::MAX);
    let mut due = Instant::now();
    loop {
        if is_over(stop, due.saturating_duration_since(Instant::now())) {
            return Ok(());
        }
        // What has become due meanwhile goes out as one burst.
        while due <= Instant::now() {
            let mut body = [b'.'; BODY_BYTES];
            let now = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            if let Some(start) = body.first_chunk_mut() {
                *start = now.to_be_bytes();
            }
            producer
                .send(Message::bytes(body.to_vec()))
                .map_err(|error| format!("producer: {}", with_causes(&error)))?;
            counts.sent.fetch_add(1, Ordering::Relaxed);
            due += interval;
            if is_over(stop, Duration::ZERO) {
                return Ok(());
            }
        }
    }
}

fn work_fast(
    consumer: &Consumer,
    began: Instant,
    counts: &Counts,
    stop: &Receiver<()>,
) -> Result<(), String> {
    let failed = |error: &dyn std::error::Error| format!("fast consumer: {}", with_causes(error));
    while !is_over(stop, Duration::ZERO) {
        let message = consumer.receive_timeout(PATIENCE).map_err(|error| failed(&error))?;
        let Some(message) = message else { continue };
        let body = message.body_bytes().map_err(|error| failed(&error))?;
        counts.fast.fetch_add(1, Ordering::Relaxed);
        // At the end the slow one gives back what it held, and its age says nothing of this one.
        let is_own = !message.is_redelivered() && !is_over(stop, Duration::ZERO);
        if let Some(sent) = body.first_chunk().filter(|_| is_own) {
            let sent = Duration::from_nanos(u64::from_be_bytes(*sent));
            record(&counts.deliveries, began.elapsed().saturating_sub(sent));
        }
    }
    Ok(())
}

fn work_slowly(
    consumer: &Consumer,
    pause: Duration,
    counts: &Counts,
    stop: &Receiver<()>,
) -> Result<(), String> {
    while !is_over(stop, Duration::ZERO) {
        let message = consumer.receive_timeout(PATIENCE);
        let message = message.map_err(|error| format!("slow consumer: {}", with_causes(&error)))?;
        let buffered = u64::try_from(consumer.buffered()).unwrap_or(u64::MAX);
        counts.slow_buffered.store(buffered, Ordering::Relaxed);
        if message.is_some() {
            counts.slow.fetch_add(1, Ordering::Relaxed);
            // Its work: nothing but time.
            if is_over(stop, pause) {
                break;
            }
        }
    }
    Ok(())
}

fn measure(
    mut round_trips: RoundTrips,
    counts: &Counts,
    stop: &Receiver<()>,
) -> Result<(), String> {
    while !is_over(stop, ROUND_TRIP_INTERVAL) {
        let time = round_trips.once().map_err(|failure| failure.to_string())?;
        record(&counts.round_trips, time);
    }
    round_trips.close().map_err(|failure| failure.to_string())
}

/// Waits for the end of the demo, at most this long.
fn is_over(stop: &Receiver<()>, wait: Duration) -> bool {
    if wait.is_zero() {
        return stop.try_recv() == Err(TryRecvError::Disconnected);
    }
    stop.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected)
}

fn record(times: &Mutex<Option<Times>>, time: Duration) {
    let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
    times.get_or_insert_with(Times::new).record(time);
}

fn in_short(times: &Mutex<Option<Times>>) -> String {
    let times = times.lock().unwrap_or_else(PoisonError::into_inner);
    times.as_ref().map_or_else(|| "none yet".to_owned(), Times::in_short)
}
