//! The broker beside a bare TCP relay with the same hops: what is lost to the messaging itself.
//!
//! *Round trip:* a requester and a responder, each a thread with a connection of its own. A frame
//! goes requester → middle → responder → middle → requester, four hops over loopback. The middle
//! is a relay of two threads that copy between two sockets with blocking reads, or an embedded
//! broker with two queues between two of our clients.
//!
//! *Throughput:* one sender and one receiver; the relay's sender batches 64 KiB a write, the
//! broker's sends messages one by one.
//!
//! Criterion measures each alone. The ratios at the end come from rounds in which relay and broker
//! take turns, so that both see the same machine; the median of the rounds counts. Bodies have
//! 1 KiB, frames of the relay as many bytes as our packets.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a benchmark reads clocks, prints, and ends where something fails"
)]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use criterion::Criterion;
use hdrhistogram::Histogram;
use tidegate::{
    broker::Broker,
    client::{AcknowledgeMode, Connection, ConnectionFactory, Consumer, Producer, Session},
    message::{Body, DeliveryMode, Destination, Message},
};

const BODY_BYTES: usize = 1024;
/// Header, variable header and body of a packet as our client sends it.
const FRAME_BYTES: usize = 72 + 60 + BODY_BYTES;

fn main() {
    let quick = std::env::args().any(|argument| argument == "--test");
    let (rounds, trips, messages) = if quick { (1, 20, 200) } else { (9, 4_000, 300_000) };

    let mut relay = RelayPair::new();
    let mut broker = BrokerPair::new();
    let mut criterion = Criterion::default()
        .sample_size(20)
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let mut group = criterion.benchmark_group("round_trip_1KiB");
    group.bench_function("relay", |bencher| bencher.iter(|| relay.round_trip()));
    group.bench_function("broker", |bencher| bencher.iter(|| broker.round_trip()));
    group.finish();

    let mut trip_rounds = Vec::new();
    for _ in 0..rounds {
        let bare = latencies(trips, || relay.round_trip());
        let ours = latencies(trips, || broker.round_trip());
        trip_rounds.push((bare, ours));
    }
    let mut rate_rounds = Vec::new();
    for _ in 0..rounds {
        rate_rounds.push((relay_rate(messages), broker_rate(messages)));
    }
    print_trips(&trip_rounds);
    print_rates(&rate_rounds);
    broker.end();
}

fn latencies(trips: u32, mut trip: impl FnMut()) -> Histogram<u64> {
    let mut histogram = Histogram::new(3).unwrap();
    for _ in 0..trips {
        let begun = Instant::now();
        trip();
        histogram.record(nanos(begun.elapsed())).unwrap();
    }
    histogram
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).max(1)
}

fn print_trips(rounds: &[(Histogram<u64>, Histogram<u64>)]) {
    println!("\nround trip, 1 KiB, four hops; median of {} rounds", rounds.len());
    println!("{:>8} {:>12} {:>12} {:>8}", "", "relay", "broker", "ratio");
    for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
        let of = |histogram: &Histogram<u64>| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        let bare = median(rounds.iter().map(|(bare, _)| of(bare)));
        let ours = median(rounds.iter().map(|(_, ours)| of(ours)));
        let ratio = median(rounds.iter().map(|(bare, ours)| of(ours) / of(bare)));
        println!("{name:>8} {bare:>9.1} µs {ours:>9.1} µs {ratio:>8.2}");
    }
}

fn print_rates(rounds: &[(f64, f64)]) {
    println!("\nthroughput, 1 KiB, one sender, one receiver; median of {} rounds", rounds.len());
    let bare = median(rounds.iter().map(|&(bare, _)| bare));
    let ours = median(rounds.iter().map(|&(_, ours)| ours));
    let ratio = median(rounds.iter().map(|&(bare, ours)| ours / bare));
    println!("{:>8} {:>12} {:>12} {:>8}", "", "relay", "broker", "ratio");
    println!("{:>8} {:>8.0} k/s {:>8.0} k/s {ratio:>8.2}", "rate", bare / 1000.0, ours / 1000.0);
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Two sockets with a relay between them.
fn relayed() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = |address: SocketAddr| {
        let near = TcpStream::connect(address).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        (near, far)
    };
    let ((left, left_far), (right, right_far)) = (connect(address), connect(address));
    for (from, to) in
        [(left_far.try_clone().unwrap(), right_far.try_clone().unwrap()), (right_far, left_far)]
    {
        thread::spawn(move || copy(from, to));
    }
    (left, right)
}

/// Copies until one side ends.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 256 * 1024];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(std::net::Shutdown::Write));
}

struct RelayPair {
    near: TcpStream,
    frame: Vec<u8>,
}

impl RelayPair {
    fn new() -> Self {
        let (near, mut far) = relayed();
        thread::spawn(move || {
            let mut frame = vec![0; FRAME_BYTES];
            while far.read_exact(&mut frame).is_ok() && far.write_all(&frame).is_ok() {}
        });
        Self { near, frame: vec![7; FRAME_BYTES] }
    }

    fn round_trip(&mut self) {
        self.near.write_all(&self.frame).unwrap();
        self.near.read_exact(&mut self.frame).unwrap();
    }
}

fn relay_rate(messages: u64) -> f64 {
    let (mut near, mut far) = relayed();
    let begun = Instant::now();
    let sender = thread::spawn(move || {
        let batch = vec![7; 64 * 1024];
        let mut left = usize::try_from(messages).unwrap() * FRAME_BYTES;
        while left > 0 {
            let now = left.min(batch.len());
            near.write_all(&batch[..now]).unwrap();
            left -= now;
        }
        near
    });
    let mut frame = vec![0; 256 * 1024];
    let mut left = usize::try_from(messages).unwrap() * FRAME_BYTES;
    while left > 0 {
        left -= far.read(&mut frame).unwrap();
    }
    let rate = messages as f64 / begun.elapsed().as_secs_f64();
    drop(sender.join().unwrap());
    rate
}

fn connect(broker: &Broker) -> Connection {
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mqtcp://{}/jms", broker.jms_address())).unwrap();
    // The window of today's client runtimes; that of version 3.5 holds 100.
    factory.consumer_flow_limit(1000).unwrap();
    let connection = factory.create_connection().unwrap();
    connection.start().unwrap();
    connection
}

/// What one side of a conversation holds on to.
struct Side {
    consumer: Consumer,
    producer: Producer,
    _session: Session,
    _connection: Connection,
}

impl Side {
    fn new(broker: &Broker, from: &str, to: &str) -> Self {
        let connection = connect(broker);
        let session = connection.create_session(AcknowledgeMode::DupsOk).unwrap();
        let consumer = session.create_consumer(&Destination::queue(from).unwrap()).unwrap();
        let mut producer = session.create_producer(&Destination::queue(to).unwrap()).unwrap();
        producer.set_delivery_mode(DeliveryMode::NonPersistent);
        Self { consumer, producer, _session: session, _connection: connection }
    }
}

struct BrokerPair {
    requester: Side,
    responder: thread::JoinHandle<()>,
    broker: Broker,
}

impl BrokerPair {
    fn new() -> Self {
        let broker = Broker::builder().listen(([127, 0, 0, 1], 0).into()).loops(1).start().unwrap();
        let requester = Side::new(&broker, "replies", "requests");
        let side = Side::new(&broker, "requests", "replies");
        let responder = thread::spawn(move || {
            while let Ok(Some(message)) = side.consumer.receive() {
                let Ok(Body::Bytes(body)) = message.body() else { return };
                if body.is_empty() || side.producer.send(Message::bytes(body)).is_err() {
                    return;
                }
            }
        });
        Self { requester, responder, broker }
    }

    fn round_trip(&mut self) {
        self.requester.producer.send(Message::bytes(vec![7; BODY_BYTES])).unwrap();
        let reply = self.requester.consumer.receive().unwrap().expect("the responder answers");
        std::hint::black_box(reply);
    }

    fn end(self) {
        self.requester.producer.send(Message::bytes(Vec::new())).unwrap();
        self.responder.join().unwrap();
        self.broker.shutdown();
    }
}

fn broker_rate(messages: u64) -> f64 {
    let broker = Broker::builder().listen(([127, 0, 0, 1], 0).into()).loops(1).start().unwrap();
    let receiver = connect(&broker);
    let session = receiver.create_session(AcknowledgeMode::DupsOk).unwrap();
    let queue = Destination::queue("rate").unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    let sending = connect(&broker);
    let begun = Instant::now();
    let sender = thread::spawn(move || {
        let session = sending.create_session(AcknowledgeMode::Auto).unwrap();
        let mut producer = session.create_producer(&queue).unwrap();
        producer.set_delivery_mode(DeliveryMode::NonPersistent);
        let body = bytes::Bytes::from(vec![7; BODY_BYTES]);
        for _ in 0..messages {
            producer.send(Message::bytes(body.clone())).unwrap();
        }
        (sending, session, producer)
    });
    for _ in 0..messages {
        consumer.receive().unwrap().expect("a message");
    }
    let rate = messages as f64 / begun.elapsed().as_secs_f64();
    drop(sender.join().unwrap());
    rate
}
