//! Flow control between clients and the broker, in all directions, seen on the wire.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod support;

use support::{
    asking::{
        Way, asked, await_held, broker_with, browse, consumer_ahead, destination, held, refused,
        send_texts, subscribed, text,
    },
    broker,
    raw::{QUEUE, Raw, TOPIC, acknowledge, bodies, body, flags, int, long, status},
};
use tidegate::{
    broker::Broker,
    wire::{Flags, Packet, PacketBuilder, PacketType},
};

/// Ten messages at most, and room for three producers.
const TEN: &str = "[queues.q]\nmessages_max = 10\nproducers_max = 3\ntotal_bytes_max = \"10g\"\n\
                   limit_behavior = \"FLOW_CONTROL\"\n";
/// What a third of ten gibibytes is.
const THIRD: i64 = (10 << 30) / 3;

/// A client with a producer for queue `q`; its credit in messages and bytes.
fn producer(broker: &Broker) -> (Raw, i64, (i32, i64)) {
    let mut raw = Raw::login(broker.jms_address(), 0);
    let session = raw.create_session(1);
    let add = destination(PacketType::ADD_PRODUCER, "q", QUEUE).long("JMQSessionID", session);
    let added = asked(&mut raw, add);
    let credit = (int(&added, "JMQSize"), long(&added, "JMQBytes"));
    (raw, long(&added, "JMQProducerID"), credit)
}

/// A message of a producer; `last`: of its credit.
fn message(producer: i64, last: bool) -> PacketBuilder {
    let way = Way { producer: Some(producer), last_of_credit: last, ..Way::default() };
    text("q", QUEUE, "x", way)
}

/// Messages and bytes a RESUME gives a producer; `None` if it is another packet.
fn resumed(packet: &Packet, producer: i64) -> Option<(i32, i64)> {
    if packet.header().packet_type != PacketType::RESUME_FLOW {
        return None;
    }
    let table = packet.properties().unwrap();
    let is_its = table.long("JMQProducerID").unwrap() == Some(producer);
    is_its.then(|| (int(packet, "JMQSize"), long(packet, "JMQBytes")))
}

fn next_resume(raw: &mut Raw, producer: i64) -> (i32, i64) {
    let packet = raw.wait(|packet| resumed(packet, producer).is_some()).unwrap();
    resumed(&packet, producer).unwrap()
}

/// Everything that has come so far but messages.
fn so_far(raw: &mut Raw) -> Vec<Packet> {
    raw.messages_so_far();
    std::iter::from_fn(|| raw.look(|_| true)).collect()
}

fn reason(packet: &Packet) -> String {
    support::asking::property(packet, "Reason").unwrap()
}

/// A client that takes messages out of queue `q` when it is told to.
struct Taker(Raw);

impl Taker {
    fn new(broker: &Broker) -> Self {
        let mut raw = Raw::login(broker.jms_address(), 0);
        raw.consume(2, "q", 1000);
        Self(raw)
    }

    fn take(&mut self, count: usize) {
        for _ in 0..count {
            let one = self.0.message();
            asked(&mut self.0, acknowledge(&[&one]));
        }
    }
}

#[test]
fn a_producer_gets_its_third_of_the_room_again_and_again_until_the_queue_is_full() {
    let broker = broker_with(TEN);
    let mut taker = Taker::new(&broker);
    let (mut raw, id, credit) = producer(&broker);
    assert_eq!(credit, (3, THIRD));
    for number in 1..=9 {
        let last = number % 3 == 0;
        let sent = raw.ask(message(id, last));
        // In the order of the stream: the new credit comes before the reply.
        let first = raw.wait(|_| true).unwrap();
        if last {
            assert_eq!(resumed(&first, id), Some((3, THIRD)), "after {number}");
            assert_eq!(reason(&first), format!("Producer {id} has become active"));
            assert_eq!(support::asking::property(&first, "JMQDestinationID").unwrap(), "Q:q");
            assert_eq!(status(&raw.reply(sent)), 200);
        } else {
            assert_eq!((first.header().consumer_id, status(&first)), (sent, 200));
        }
    }
    asked(&mut raw, message(id, false));
    let full = raw.wait(|packet| resumed(packet, id).is_some()).unwrap();
    assert_eq!((resumed(&full, id).unwrap(), long(&full, "JMQMaxMsgBytes")), ((0, 0), 0));
    assert_eq!(reason(&full), "Destination Full");
    taker.take(1);
    assert_eq!(next_resume(&mut raw, id), (3, THIRD));
    assert!(so_far(&mut raw).is_empty(), "and nothing else was said");
}

#[test]
fn producers_are_served_in_the_order_in_which_they_ran_out() {
    let broker = broker_with(TEN);
    let mut taker = Taker::new(&broker);
    let mut all: Vec<_> = (0..3).map(|_| producer(&broker)).collect();
    for (raw, id, _) in &mut all {
        for last in [false, false, true] {
            asked(raw, message(*id, last));
        }
    }
    // Two are stored, two others have three each outstanding: 8 are free, more than 6.
    let (first, id, _) = &mut all[0];
    assert_eq!(next_resume(first, *id), (3, THIRD));
    asked(first, message(*id, false));
    assert_eq!(next_resume(first, *id), (0, 0), "ten are stored");
    for (raw, _, _) in &mut all {
        assert!(so_far(raw).is_empty());
    }
    // One free place, and nobody who has credit: one may go on.
    taker.take(1);
    let (second, id, _) = &mut all[1];
    assert_eq!(next_resume(second, *id), (3, THIRD));
    // Three are promised to the second; more than three must be free for the third.
    taker.take(2);
    let (third, id, _) = &mut all[2];
    assert!(so_far(third).is_empty());
    taker.take(1);
    assert_eq!(next_resume(third, *id), (3, THIRD));
    taker.take(2);
    let (first, id, _) = &mut all[0];
    assert!(so_far(first).is_empty());
    taker.take(1);
    assert_eq!(next_resume(first, *id), (3, THIRD));
}

#[test]
fn a_producer_that_leaves_makes_room_for_one_that_waits() {
    let broker = broker_with(TEN);
    let (mut one, first, _) = producer(&broker);
    let (mut two, second, _) = producer(&broker);
    for _ in 0..8 {
        asked(&mut one, message(first, false));
    }
    asked(&mut two, message(second, true));
    assert!(so_far(&mut two).is_empty(), "one place is free, three are promised to the first");
    let gone = PacketBuilder::new(PacketType::DELETE_PRODUCER).long("JMQProducerID", first);
    asked(&mut one, gone);
    assert_eq!(next_resume(&mut two, second), (3, THIRD));
}

#[test]
fn a_producer_that_comes_to_a_full_queue_waits_for_its_credit() {
    let broker = broker_with(TEN);
    let mut taker = Taker::new(&broker);
    let (mut raw, id, _) = producer(&broker);
    for _ in 0..11 {
        asked(&mut raw, message(id, false));
    }
    await_held(&broker, "q", 11);
    let (mut late, second, credit) = producer(&broker);
    assert_eq!(credit, (0, 0));
    taker.take(1);
    assert!(so_far(&mut late).is_empty(), "what was late is still above the limit");
    taker.take(1);
    assert_eq!(next_resume(&mut raw, id), (0, 0));
    assert_eq!(next_resume(&mut raw, id), (3, THIRD), "who was held back first goes first");
    taker.take(3);
    assert_eq!(next_resume(&mut late, second), (3, THIRD));
}

#[test]
fn the_bytes_of_a_queue_hold_its_producers_back_as_well() {
    let broker = broker_with(
        "[queues.q]\ntotal_bytes_max = 1000\nproducers_max = 2\nlimit_behavior = \"FLOW_CONTROL\"\n",
    );
    let (mut raw, id, credit) = producer(&broker);
    assert_eq!(credit, (1000, 500));
    let way = Way { producer: Some(id), ..Way::default() };
    asked(&mut raw, text("q", QUEUE, &"x".repeat(1000), way));
    assert_eq!(next_resume(&mut raw, id), (0, 0));
    assert_eq!(held(&broker, "q"), 1, "it is stored all the same");
}

#[test]
fn where_nothing_is_held_back_a_producer_gets_a_thousand_messages_at_a_time() {
    for behavior in ["REJECT_NEWEST", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"] {
        let broker = broker_with(&format!(
            "[queues.q]\nmessages_max = 2\nlimit_behavior = \"{behavior}\"\n"
        ));
        let (mut raw, id, credit) = producer(&broker);
        assert_eq!(credit, (1000, -1), "{behavior}");
        for number in 0..4 {
            // Even if this one is refused.
            raw.send(message(id, true));
            assert_eq!(next_resume(&mut raw, id), (1000, -1), "{behavior}, {number}");
        }
        assert!(so_far(&mut raw).is_empty(), "never told to wait");
    }
}

#[test]
fn credit_is_from_one_message_to_a_thousand_at_a_time() {
    for (settings, wanted) in [
        ("messages_max = 50\nproducers_max = 100", 1),
        ("messages_max = 1000000\nproducers_max = 100", 1000),
        ("messages_max = 5000\nproducers_max = -1", 50),
        ("producers_max = 1", 1000),
    ] {
        let broker =
            broker_with(&format!("[queues.q]\n{settings}\nlimit_behavior = \"FLOW_CONTROL\"\n"));
        let (_, _, credit) = producer(&broker);
        assert_eq!(credit, (wanted, -1), "{settings}");
    }
}

#[test]
fn a_producer_to_a_pattern_is_not_metered() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    let added = asked(&mut raw, destination(PacketType::ADD_PRODUCER, "a.*", TOPIC));
    assert_eq!((int(&added, "JMQSize"), long(&added, "JMQBytes")), (-1, -1));
}

#[test]
fn what_meters_a_producer_is_not_delivered() {
    let broker = broker(1);
    let (mut raw, id, _) = producer(&broker);
    let marked = Flags::QUEUE.with(Flags::CONSUMER_FLOW).with(Flags::FLOW_PAUSED);
    raw.send(message(id, false).flags(marked));
    raw.consume(1, "q", 10);
    assert_eq!(flags(&raw.message()), "Q");
}

#[test]
fn the_destruction_of_its_destination_frees_a_producer_that_waits() {
    let broker = broker_with(TEN);
    let (mut raw, id, _) = producer(&broker);
    for number in 0..10 {
        asked(&mut raw, message(id, number == 9));
    }
    let said = so_far(&mut raw);
    assert_eq!(resumed(said.last().unwrap(), id), Some((0, 0)));
    let mut other = Raw::login(broker.jms_address(), 0);
    asked(&mut other, destination(PacketType::DESTROY_DESTINATION, "q", QUEUE));
    assert_eq!(next_resume(&mut raw, id), (3, THIRD));
    assert_eq!(refused(&mut raw, message(id, true)), 500);
    assert_eq!(next_resume(&mut raw, id).0, 3, "each time");
}

// A megabyte of memory, filled with messages of known size.

const MEMORY: &str = "memory_max = \"1m\"\n";

fn fill_memory(raw: &mut Raw, to_percent: usize, step: usize) {
    let bytes = (1 << 20) / 100 * step;
    for _ in 0..to_percent / step {
        asked(raw, text("q", QUEUE, &"x".repeat(bytes), Way::default()));
    }
}

/// The answer to a request for connection credit.
fn connection_credit(raw: &mut Raw) -> i32 {
    raw.send(PacketBuilder::new(PacketType::FLOW_PAUSED).long("JMQSize", 1));
    int(&raw.expect(PacketType::RESUME_FLOW), "JMQSize")
}

#[test]
fn a_connection_gets_less_credit_the_fuller_the_memory_is() {
    let broker = broker_with(MEMORY);
    let (mut raw, id, _) = producer(&broker);
    let mut taker = Taker::new(&broker);
    assert_eq!(connection_credit(&mut raw), 5000);
    fill_memory(&mut raw, 80, 10);
    assert_eq!(connection_credit(&mut raw), 500, "yellow, with one producer");
    let (_second, ..) = producer(&broker);
    let (_third, ..) = producer(&broker);
    assert_eq!(connection_credit(&mut raw), 500 / 3, "yellow, divided by the producers");
    fill_memory(&mut raw, 10, 10);
    assert_eq!(connection_credit(&mut raw), 50, "orange");
    let mut new = Raw::connect(broker.jms_address());
    assert_eq!(int(&new.hello(0), "JMQSize"), 50, "from the start");
    taker.take(2);
    assert_eq!(connection_credit(&mut raw), 5000);
    // A marked message asks as well.
    raw.send(message(id, false).flags(Flags::QUEUE.with(Flags::FLOW_PAUSED)));
    let resume = raw.expect(PacketType::RESUME_FLOW);
    assert_eq!(int(&resume, "JMQSize"), 5000);
    assert_eq!((long(&resume, "JMQBytes"), long(&resume, "JMQMaxMsgBytes")), (-1, 70 << 20));
}

#[test]
fn when_memory_is_full_connections_are_answered_once_there_is_room() {
    let broker = broker_with(MEMORY);
    let (mut raw, id, _) = producer(&broker);
    let mut taker = Taker::new(&broker);
    fill_memory(&mut raw, 99, 33);
    for _ in 0..3 {
        raw.send(PacketBuilder::new(PacketType::FLOW_PAUSED).long("JMQSize", 1));
    }
    let marked = Flags::QUEUE.with(Flags::FLOW_PAUSED);
    asked(&mut raw, message(id, false).flags(marked));
    // One whose destination does not exist asks all the same.
    let mut other = Raw::login(broker.jms_address(), 0);
    let lost = text("nowhere", QUEUE, "x", Way::default()).flags(marked);
    assert_eq!(refused(&mut other, lost), 500);
    let mut new = Raw::connect(broker.jms_address());
    assert_eq!(int(&new.hello(0), "JMQSize"), 0);
    assert_eq!(status(&new.authenticate("guest", "guest")), 200);
    for one in [&mut raw, &mut other, &mut new] {
        assert!(so_far(one).is_empty(), "red");
    }
    taker.take(1);
    for one in [&mut raw, &mut other, &mut new] {
        assert_eq!(int(&one.expect(PacketType::RESUME_FLOW), "JMQSize"), 5000);
        assert!(so_far(one).is_empty(), "however often it asked");
    }
}

#[test]
fn a_consumers_window_is_the_smaller_of_what_it_and_its_destination_want() {
    let broker = broker_with(
        "[queues.five]\nconsumer_flow_limit = 5\n[queues.any]\nconsumer_flow_limit = -1\n",
    );
    let mut raw = Raw::login(broker.jms_address(), 0);
    let session = raw.create_session(1);
    for (queue, wanted, agreed) in [
        ("five", 3, 3),
        ("five", 5, 5),
        ("five", 9, 5),
        ("five", -1, -1),
        ("five", 0, 0),
        ("any", 3, 3),
        ("any", 5000, 5000),
        ("any", -1, -1),
    ] {
        let reply = asked(&mut raw, consumer_ahead(session, queue, QUEUE, wanted));
        assert_eq!(int(&reply, "JMQSize"), agreed, "{queue}, {wanted}");
    }
}

#[test]
fn a_window_of_no_size_has_no_end_and_no_mark() {
    for size in [0, -1] {
        let broker = broker(1);
        let mut raw = Raw::login(broker.jms_address(), 0);
        raw.create_destination("q", QUEUE);
        let count = 2500;
        for _ in 0..count {
            raw.send(text("q", QUEUE, "x", Way::default()));
        }
        raw.consume(3, "q", size);
        let got = raw.messages(count);
        assert!(got.iter().all(|one| flags(one) == "Q"), "{size}");
    }
}

#[test]
fn a_resume_replaces_the_window_whenever_it_comes() {
    let broker = broker_with("[queue]\nconsumer_flow_limit = 6\n");
    let mut raw = Raw::login(broker.jms_address(), 0);
    let (_, consumer) = raw.consume(2, "q", 4);
    let marks = |got: &[Packet]| got.iter().map(flags).collect::<Vec<_>>();
    send_texts(&mut raw, "q", QUEUE, 0..2);
    assert_eq!(marks(&raw.messages_so_far()), ["QA", "QA"]);
    // Two of four are used; now it is three, not five.
    raw.resume_consumer(consumer, 3);
    send_texts(&mut raw, "q", QUEUE, 2..6);
    assert_eq!(marks(&raw.messages_so_far()), ["QA", "QA", "QAC"]);
    // More than the destination allows.
    raw.resume_consumer(consumer, 100);
    send_texts(&mut raw, "q", QUEUE, 6..20);
    assert_eq!(marks(&raw.messages_so_far()), ["QA", "QA", "QA", "QA", "QA", "QAC"]);
}

#[test]
fn a_resume_of_no_size_ends_the_window_until_another_one_comes() {
    for size in [None, Some(0), Some(-1)] {
        let broker = broker(1);
        let mut raw = Raw::login(broker.jms_address(), 0);
        let (_, consumer) = raw.consume(2, "q", 1);
        send_texts(&mut raw, "q", QUEUE, 0..6);
        let marks = |got: &[Packet]| got.iter().map(flags).collect::<Vec<_>>();
        assert_eq!(marks(&raw.messages_so_far()), ["QAC"]);
        let resume = PacketBuilder::new(PacketType::RESUME_FLOW).long("JMQConsumerID", consumer);
        raw.send(match size {
            None => resume,
            Some(size) => resume.int("JMQSize", size),
        });
        assert_eq!(marks(&raw.messages_so_far()), ["QA"; 5], "{size:?}");
        raw.resume_consumer(consumer, 2);
        send_texts(&mut raw, "q", QUEUE, 6..10);
        assert_eq!(marks(&raw.messages_so_far()), ["QA", "QAC"], "{size:?}");
    }
}

#[test]
fn a_message_may_end_both_meters_and_each_needs_its_own_answer() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 2);
    let (_, consumer) = raw.consume(2, "q", 2);
    send_texts(&mut raw, "q", QUEUE, 0..6);
    let marks = |got: &[Packet]| got.iter().map(flags).collect::<Vec<_>>();
    assert_eq!(marks(&raw.messages_so_far()), ["QA", "QAFC"]);
    raw.resume_consumer(consumer, 2);
    assert!(raw.messages_so_far().is_empty(), "the connection is still paused");
    raw.send(PacketBuilder::new(PacketType::RESUME_FLOW));
    assert_eq!(marks(&raw.messages_so_far()), ["QA", "QAFC"]);
    raw.send(PacketBuilder::new(PacketType::RESUME_FLOW));
    assert!(raw.messages_so_far().is_empty(), "the consumer is still paused");
    raw.resume_consumer(consumer, 2);
    assert_eq!(marks(&raw.messages_so_far()), ["QA", "QAFC"]);
}

#[test]
fn a_resume_of_the_connection_may_change_its_meter_or_end_it() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 2);
    raw.consume(2, "q", -1);
    send_texts(&mut raw, "q", QUEUE, 0..12);
    let mut resume = |size: Option<i32>| {
        let packet = PacketBuilder::new(PacketType::RESUME_FLOW);
        raw.send(match size {
            Some(size) => packet.int("JMQSize", size),
            None => packet,
        });
        raw.messages_so_far().iter().map(flags).collect::<Vec<_>>()
    };
    assert_eq!(resume(None), ["QA", "QAF", "QA", "QAF"], "two came before");
    assert_eq!(resume(Some(1)), ["QAF"]);
    assert_eq!(resume(Some(-1)), ["QAF"], "as it was");
    assert_eq!(resume(Some(0)), ["QA"; 6], "without meter");
}

#[test]
fn what_a_browser_asks_for_comes_in_spite_of_every_pause() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 1);
    raw.create_destination("q", QUEUE);
    send_texts(&mut raw, "q", QUEUE, 0..4);
    assert_eq!(browse(&mut raw, "q", None).len(), 4, "never started");
    let (_, consumer) = raw.consume(2, "q", 1);
    assert_eq!(flags(&raw.message()), "QAFC");
    asked(&mut raw, PacketBuilder::new(PacketType::STOP));
    let seen = browse(&mut raw, "q", None);
    assert_eq!(bodies(&seen), ["0", "1", "2", "3"], "what is with a consumer is still there");
    assert_eq!(seen.iter().map(flags).collect::<Vec<_>>(), ["QA", "QA", "QA", "QAL"]);
    assert!(seen.iter().all(|one| one.variable().unwrap().delivery_count.is_none()));
    raw.resume_consumer(consumer, 1);
    raw.start();
    assert!(raw.messages_so_far().is_empty(), "nor does it count for the meter");
    raw.send(PacketBuilder::new(PacketType::RESUME_FLOW));
    assert_eq!(body(&raw.message()), "1");
}

#[test]
fn a_topic_under_flow_control_holds_its_publishers_back_for_its_slowest_subscription() {
    let broker = broker_with(
        "[topics.t]\nmessages_max = 2\nproducers_max = 1\nlimit_behavior = \"FLOW_CONTROL\"\n",
    );
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.start();
    let session = raw.create_session(1);
    let slow = subscribed(&mut raw, consumer_ahead(session, "t", TOPIC, 1));
    subscribed(&mut raw, consumer_ahead(session, "t", TOPIC, 10));
    let added = asked(&mut raw, destination(PacketType::ADD_PRODUCER, "t", TOPIC));
    let (id, size) = (long(&added, "JMQProducerID"), int(&added, "JMQSize"));
    assert_eq!(size, 2);
    for last in [false, true] {
        let way = Way { producer: Some(id), last_of_credit: last, ..Way::default() };
        asked(&mut raw, text("t", TOPIC, "x", way));
    }
    // The room for another batch is looked for without the message that asks.
    assert_eq!(next_resume(&mut raw, id).0, 2);
    assert_eq!(next_resume(&mut raw, id).0, 0, "full");
    let got = raw.messages(3);
    let (of_slow, others): (Vec<_>, Vec<_>) =
        got.iter().partition(|one| one.header().consumer_id == slow);
    asked(&mut raw, acknowledge(&others));
    assert!(raw.look(|packet| resumed(packet, id).is_some()).is_none(), "not the slowest");
    asked(&mut raw, acknowledge(&of_slow));
    assert_eq!(next_resume(&mut raw, id).0, 2);
}
