//! What a message costs the broker at full speed, counted and not timed: system calls and
//! allocations.
#![allow(unsafe_code, reason = "an allocator that counts is unsafe to implement")]
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "tests")]

use std::{cell::Cell, thread};

use tidegate::{
    broker::{Broker, BrokerConfig, Idle, LimitBehavior},
    internals::{
        sync::{AtomicU64, Ordering},
        system_calls,
    },
};

#[path = "support/allocator.rs"]
mod allocator;
#[path = "../benches/broker/lean.rs"]
#[allow(dead_code, unreachable_pub, reason = "the bench uses the rest")]
mod lean;
#[path = "../benches/broker/link.rs"]
#[allow(dead_code, unreachable_pub, reason = "the bench uses the rest")]
mod link;
#[path = "../benches/broker/stencil.rs"]
#[allow(dead_code, unreachable_pub, reason = "the bench uses the rest")]
mod stencil;
mod support;

use support::raw::{self, Raw};

/// Counts what threads ask for that are not clients.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    // A thread that is ending is nobody's any more.
    if IS_CLIENT.try_with(Cell::get) == Ok(false) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Messages before anything is counted, and messages over which it is.
const WARM: usize = 50_000;
const COUNTED: usize = 200_000;

// The only test here: counts are of the whole process.
#[test]
fn a_message_costs_few_system_calls_and_one_allocation() {
    let mut config = BrokerConfig::default();
    config.listen.set_port(0);
    config.loops = 1;
    // A loop that spins makes system calls instead of sleeping, and so many as there is time for.
    config.idle = Idle::Park;
    config.queue.messages_max = 10_000;
    config.queue.producers_max = 10;
    config.queue.limit_behavior = LimitBehavior::FlowControl;
    let broker = Broker::start(config).unwrap();
    let address = broker.jms_address();

    IS_CLIENT.set(true);
    let mut consumer = lean::Consumer::new(Raw::login(address, lean::METERING), 1);
    let producer = thread::spawn(move || {
        IS_CLIENT.set(true);
        let mut producer = lean::Producer::new(Raw::login(address, lean::METERING), 1, 1);
        while producer.send().is_some() {}
    });
    let mut receive = |most: usize| {
        let mut received = 0;
        while received < most {
            received += consumer.receive().expect("the broker is there");
        }
        received as f64
    };
    receive(WARM);
    let before = (system_calls(), ALLOCATIONS.load(Ordering::Relaxed));
    let received = receive(COUNTED);
    let after = (system_calls(), ALLOCATIONS.load(Ordering::Relaxed));
    drop(consumer);
    broker.shutdown();
    producer.join().unwrap();

    let calls = (after.0 - before.0) as f64 / received;
    let allocations = (after.1 - before.1) as f64 / received;
    println!("{calls:.4} system calls and {allocations:.4} allocations a message");
    assert!(calls <= 0.05, "{calls} system calls a message");
    assert!(allocations <= 1.0, "{allocations} allocations a message");
}
