//! What a message costs in memory that waits with its body in the store, counted.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(unsafe_code, reason = "an allocator that counts is unsafe to implement")]
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "tests")]
#![allow(unreachable_pub, reason = "shared by test programs")]

mod cold_support;
#[path = "support/held.rs"]
mod memory;
mod support;

use cold_support::{made::Made, start};
use support::{
    asking::{asked, consumer_ahead, destination, held, subscribed},
    raw::{QUEUE, Raw, acknowledge, body},
    wait_until,
};
use tidegate::{
    internals::sync::{Arc, Ordering::SeqCst},
    wire::{Flags, Packet, PacketType},
};

const COUNT: u64 = 1_000_000;
const BODY: usize = 1024;

/// Bytes in memory that a waiting message may cost.
const BYTES_EACH: u64 = 60;

/// Messages that are taken.
const TAKEN: u64 = 20_000;

/// Bytes that all else may need meanwhile, whatever waits.
const BESIDE: u64 = 32 << 20;

/// A message that was sent as `m1` and so on, filled up to its size.
fn number(message: &Packet) -> u64 {
    let text = body(message);
    assert_eq!(text.len(), BODY);
    text.trim_end()[1..].parse().unwrap()
}

// The only test here: counts are of the whole process.
#[test]
fn a_million_messages_that_wait_in_the_store_need_little_memory_and_are_found_there() {
    let store = Made::new("q", COUNT, BODY);
    let (removed, read) = (Arc::clone(&store.removed), Arc::clone(&store.read));
    let before = memory::now();
    let broker = start(store, "");
    assert_eq!((held(&broker, "q"), read.load(SeqCst)), (COUNT, 0));
    let each = (memory::now() - before) / COUNT;
    println!("{each} bytes each");
    assert!(each <= BYTES_EACH, "{each} bytes each");

    // Taken in their order, with no more in memory than is on its way.
    let waiting = memory::now();
    memory::most();
    let mut raw = Raw::login(broker.jms_address(), 0);
    let (_, one) = raw.consume(2, "q", 200);
    let mut some: Vec<Packet> = Vec::new();
    for wanted in 1..=TAKEN {
        let message = raw.message();
        assert_eq!(number(&message), wanted);
        let refill = message.header().flags.contains(Flags::CONSUMER_FLOW);
        some.push(message);
        if refill {
            let all: Vec<&Packet> = some.iter().collect();
            asked(&mut raw, acknowledge(&all));
            some.clear();
            raw.resume_consumer(one, 200);
        }
    }
    let most = memory::most().saturating_sub(waiting);
    println!("{most} bytes while they were taken");
    assert!(most <= BESIDE, "{most} bytes while they were taken");
    drop(raw);

    // A search through all of it keeps nothing of what it has passed.
    let mut raw = Raw::login(broker.jms_address(), 0);
    let session = raw.create_session(2);
    raw.start();
    let from = read.load(SeqCst);
    let wish = consumer_ahead(session, "q", QUEUE, 10).string("JMQSelector", "never = 1");
    subscribed(&mut raw, wish);
    wait_until("it has looked at many", || read.load(SeqCst) - from >= TAKEN);
    let most = memory::most().saturating_sub(waiting);
    println!("{most} bytes while they were searched");
    assert!(most <= BESIDE, "{most} bytes while they were searched");

    let rest = held(&broker, "q");
    assert!(rest >= COUNT - TAKEN, "{rest} are left");
    wait_until("what was taken is removed", || removed.load(SeqCst) + rest >= COUNT);
    let kept = read.load(SeqCst);
    asked(&mut raw, destination(PacketType::DESTROY_DESTINATION, "q", QUEUE));
    println!("{kept} bodies read");
    wait_until("memory is free again", || memory::now() <= before + BESIDE);
}
