//! What a message costs the client at full speed, counted and not timed: allocations besides the
//! body's.
#![allow(unsafe_code, reason = "an allocator that counts is unsafe to implement")]
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "tests")]

use std::{
    cell::Cell,
    io::{Read, Write},
    thread,
};

use bytes::Bytes;
use tidegate::{
    client::{AcknowledgeMode, Connection, Session},
    message::{DeliveryMode, Message},
    wire::{Flags, MessageId, PacketBuilder, PacketType, Padding, VariableHeader},
};

#[path = "support/allocator.rs"]
mod allocator;
#[path = "support/scripted.rs"]
mod scripted;

use scripted::{Peer, Scripted, Style, queue};

/// Counts what all threads ask for but the peer's.
static ALLOCATIONS: Count = Count::new(0);

/// A counter that is there before anything else is, and that no model explores.
#[allow(clippy::disallowed_types, reason = "the allocator counts with it")]
type Count = std::sync::atomic::AtomicU64;

thread_local! {
    static IS_PEER: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    // A thread that is ending is nobody's any more.
    if IS_PEER.try_with(Cell::get) == Ok(false) {
        ALLOCATIONS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Messages before anything is counted, and messages over which it is.
const WARM: usize = 20_000;
const COUNTED: usize = 100_000;
/// The same where each message waits for its acknowledgement's reply.
const ANSWERED: usize = 2_000;

/// Deliveries of one write.
const BURST: usize = 100;

/// Allocations for each of so many runs of `act`, after some that are not counted.
fn each(warm: usize, counted: usize, mut act: impl FnMut()) -> f64 {
    let now = || ALLOCATIONS.load(std::sync::atomic::Ordering::Relaxed);
    (0..warm).for_each(|_| act());
    let before = now();
    (0..counted).for_each(|_| act());
    (now() - before) as f64 / counted as f64
}

/// A client with a session, of a peer that goes on with `script` once it has made so many consumers
/// and producers.
fn client(
    mode: AcknowledgeMode,
    handles: [usize; 2],
    script: impl FnOnce(&mut Peer) + Send + 'static,
) -> (Scripted, Connection, Session) {
    let style = Style { producer_credit: Some(-1), ..Style::default() };
    let scripted = Scripted::start_with(style, move |peer| {
        IS_PEER.set(true);
        peer.login();
        while [peer.consumers.len(), peer.producers.len()] != handles {
            let packet = peer.packet();
            peer.answer(&packet);
        }
        script(peer);
    });
    let connection = scripted.connect();
    connection.start().unwrap();
    let session = connection.create_session(mode).unwrap();
    (scripted, connection, session)
}

/// Reads to the end.
fn drain(peer: &Peer) {
    let (mut stream, mut buffer) = (peer.stream(), vec![0; 1 << 18]);
    stream.set_read_timeout(None).unwrap();
    while stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
}

/// Allocations for each message sent without waiting for the broker.
fn sending() -> f64 {
    let (scripted, connection, session) = client(AcknowledgeMode::Auto, [0, 1], |peer| {
        drain(peer);
    });
    let mut producer = session.create_producer(&queue("q")).unwrap();
    producer.set_delivery_mode(DeliveryMode::NonPersistent);
    static BODY: [u8; 1024] = [7; 1024];
    let allocations = each(WARM, COUNTED, || {
        producer.send(Message::bytes(Bytes::from_static(&BODY))).unwrap();
    });
    // The peer answers nothing any more.
    drop((producer, session, connection));
    scripted.join();
    allocations
}

/// Allocations for each message received, by a client that reads as much as there is.
fn receiving(mode: AcknowledgeMode) -> f64 {
    let (scripted, connection, session) = client(mode, [1, 0], |peer| {
        let burst = delivery(peer.consumers[0], 1024).repeat(BURST);
        let mut stream = peer.stream();
        thread::scope(|scope| {
            scope.spawn(|| {
                IS_PEER.set(true);
                drain(peer);
            });
            while stream.write_all(&burst).is_ok() {}
        });
    });
    let consumer = session.create_consumer(&queue("q")).unwrap();
    let allocations = each(WARM, COUNTED, || {
        assert_eq!(consumer.receive().unwrap().unwrap().body_bytes().unwrap().len(), 1024);
    });
    drop((consumer, session, connection));
    scripted.join();
    allocations
}

/// Allocations for each message whose acknowledgement is answered before the next.
fn receiving_one_by_one() -> f64 {
    let (scripted, connection, session) = client(AcknowledgeMode::Auto, [1, 0], |peer| {
        let delivery = delivery(peer.consumers[0], 1024);
        loop {
            peer.write(&delivery);
            let Some(packet) = peer.packet_within(scripted::DEADLINE) else { return };
            peer.answer(&packet);
        }
    });
    let consumer = session.create_consumer(&queue("q")).unwrap();
    let allocations = each(ANSWERED, ANSWERED, || {
        assert!(consumer.receive().unwrap().is_some());
    });
    drop((consumer, session, connection));
    scripted.join();
    allocations
}

fn delivery(consumer: i64, body_bytes: usize) -> Bytes {
    let fields = VariableHeader {
        delivery_count: Some(1),
        destination: Some(b"q"),
        destination_class: Some(b"com.sun.messaging.BasicQueue"),
        ..VariableHeader::default()
    };
    let packet = PacketBuilder::new(PacketType::BYTES_MESSAGE)
        .flags(Flags::QUEUE)
        .consumer_id(consumer)
        .id(MessageId { timestamp: 1, address: [7; 16], port: 1, sequence: 1 })
        .variable(&fields, Padding::Java)
        .unwrap()
        .body(vec![7; body_bytes]);
    packet.finish().raw().clone()
}

// The only test here: counts are of the whole process.
#[test]
fn a_message_costs_no_allocation_to_send_or_receive() {
    let lazily = receiving(AcknowledgeMode::DupsOk);
    let rows = [
        // What there is, is of the housekeeping thread's sleeps.
        ("sent", sending(), 0.01),
        // Packets wait in a queue that has a block for each 31 of them, and their bytes in read
        // buffers of 256 KiB: the bodies.
        ("received", receiving(AcknowledgeMode::NoAcknowledge), 0.06),
        // Acknowledgements wait in such a queue as well.
        ("received and acknowledged ten by ten", lazily, 0.1),
        ("received and acknowledged one by one", receiving_one_by_one(), 0.1),
    ];
    for (what, allocations, most) in rows {
        println!("{allocations:.4} allocations for each message {what}");
        assert!(allocations <= most, "{allocations} allocations for each message {what}");
    }
}
