//! Delivery, acknowledgement and redelivery, seen on the wire.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod support;

use support::{
    broker,
    raw::{
        QUEUE, Raw, TOPIC, acknowledge, blocks, bodies, body, delivery_count, flags, int, long,
        reason, status,
    },
    wait_until,
};
use tidegate::{
    broker::{Broker, DestinationSnapshot},
    wire::{Flags, PacketBuilder, PacketType},
};

fn send_texts(raw: &mut Raw, queue: &str, texts: impl IntoIterator<Item = impl ToString>) {
    assert_eq!(status(&raw.create_destination(queue, QUEUE)), 200);
    for text in texts {
        let reply = raw.request(Raw::text(queue, QUEUE, &text.to_string()));
        assert_eq!(status(&reply), 200, "{}", reason(&reply));
    }
}

/// The one destination the clients of a test made.
fn of_clients(broker: &Broker) -> DestinationSnapshot {
    let all = broker.snapshot().destinations;
    all.into_iter().find(|one| one.name != "mq.sys.dmq").unwrap()
}

fn waiting(broker: &Broker) -> u64 {
    of_clients(broker).messages
}

#[test]
fn messages_arrive_in_order_with_count_one_and_are_gone_once_acknowledged() {
    for loops in [1, 2] {
        let broker = broker(loops);
        let mut sender = Raw::login(broker.jms_address(), 0);
        send_texts(&mut sender, "q", 0..5);
        let mut receiver = Raw::login(broker.jms_address(), 0);
        let session = receiver.create_session(1);
        let consumer = receiver.add_consumer(session, "q", QUEUE, 1000);
        assert!(receiver.messages_so_far().is_empty(), "a new connection is stopped");
        receiver.start();
        for wanted in 0..5 {
            let message = receiver.message();
            assert_eq!(body(&message), wanted.to_string());
            assert_eq!((message.header().consumer_id, delivery_count(&message)), (consumer, 1));
            assert_eq!(flags(&message), "QA", "A stays as produced");
            let reply = receiver.request(acknowledge(&[&message]));
            assert_eq!(status(&reply), 200);
            let again = receiver.request(acknowledge(&[&message]));
            assert_eq!(status(&again), 409, "a settled message cannot be settled again");
        }
        assert_eq!(waiting(&broker), 0);
        broker.shutdown();
    }
}

#[test]
fn a_consumer_gets_its_window_the_last_one_marked_and_no_more_until_it_resumes() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    send_texts(&mut raw, "q", 0..10);
    let session = raw.create_session(2);
    let consumer = raw.add_consumer(session, "q", QUEUE, 4);
    raw.start();
    let first = raw.messages_so_far();
    assert_eq!(bodies(&first), ["0", "1", "2", "3"]);
    assert_eq!(first.iter().map(flags).collect::<Vec<_>>(), ["QA", "QA", "QA", "QAC"]);
    assert!(raw.messages_so_far().is_empty());
    let seen = &of_clients(&broker).consumers[0];
    assert_eq!((seen.credit, seen.unacknowledged, seen.window), (Some(0), 4, Some(4)));
    raw.resume_consumer(consumer, 2);
    let second = raw.messages_so_far();
    assert_eq!(bodies(&second), ["4", "5"]);
    assert_eq!(flags(&second[1]), "QAC");
    // Without a size the window has no limit any more but the destination's.
    raw.send(PacketBuilder::new(PacketType::RESUME_FLOW).long("JMQConsumerID", consumer));
    assert_eq!(bodies(&raw.messages_so_far()), ["6", "7", "8", "9"]);
}

#[test]
fn connection_metering_marks_every_nth_message_and_lets_control_packets_through() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 3);
    send_texts(&mut raw, "q", 0..8);
    let session = raw.create_session(1);
    raw.add_consumer(session, "q", QUEUE, -1);
    raw.start();
    let first = raw.messages_so_far();
    assert_eq!(bodies(&first), ["0", "1", "2"]);
    assert_eq!(flags(&first[2]), "QAF");
    let reply = raw.request(acknowledge(&[&first[0]]));
    assert_eq!(status(&reply), 200, "control packets do not wait for the meter");
    raw.send(PacketBuilder::new(PacketType::RESUME_FLOW));
    assert_eq!(bodies(&raw.messages_so_far()), ["3", "4", "5"]);
    raw.send(PacketBuilder::new(PacketType::RESUME_FLOW).int("JMQSize", 1));
    let last = raw.messages_so_far();
    assert_eq!((bodies(&last), flags(&last[0])), (vec!["6".to_owned()], "QAF".to_owned()));
}

#[test]
fn several_consumers_of_a_queue_share_it_and_a_stalled_one_keeps_only_its_window() {
    let broker = broker(2);
    let mut sender = Raw::login(broker.jms_address(), 0);
    let mut stalled = Raw::login(broker.jms_address(), 0);
    let mut busy = Raw::login(broker.jms_address(), 0);
    sender.create_destination("q", QUEUE);
    for raw in [&mut stalled, &mut busy] {
        let session = raw.create_session(1);
        raw.add_consumer(session, "q", QUEUE, 5);
        raw.start();
        assert!(raw.messages_so_far().is_empty());
    }
    send_texts(&mut sender, "q", 0..50);
    let mut got = Vec::new();
    while got.len() < 45 {
        let message = busy.message();
        if message.header().flags.contains(Flags::CONSUMER_FLOW) {
            busy.resume_consumer(message.header().consumer_id, 5);
        }
        busy.send(acknowledge(&[&message]));
        got.push(body(&message).parse::<u32>().unwrap());
    }
    assert!(got.is_sorted(), "the busy one sees its share in order: {got:?}");
    assert_eq!(stalled.messages_so_far().len(), 5);
    assert!(busy.messages_so_far().is_empty());
}

#[test]
fn what_a_lost_connection_had_comes_back_in_its_place_and_flagged() {
    // Prefetch 3: messages 1 to 3 were written; prefetch 1: only the first.
    for (prefetch, written) in [(3, 3), (1, 1), (1000, 5)] {
        for ack_mode in [1, 2, 3] {
            let broker = broker(2);
            let mut sender = Raw::login(broker.jms_address(), 0);
            send_texts(&mut sender, "q", 1..=5);
            let mut dying = Raw::login(broker.jms_address(), 0);
            let session = dying.create_session(ack_mode);
            dying.add_consumer(session, "q", QUEUE, prefetch);
            dying.start();
            assert_eq!(dying.messages_so_far().len(), written);
            // Reset, without a goodbye.
            let socket = socket2::SockRef::from(&dying.stream);
            socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
            drop(dying);
            wait_until("the loss is noticed", || broker.snapshot().connections == 1);
            let session = sender.create_session(1);
            sender.add_consumer(session, "q", QUEUE, 1000);
            sender.start();
            for number in 1..=5_usize {
                let message = sender.message();
                let counted = number <= written;
                assert_eq!(body(&message), number.to_string());
                assert_eq!(delivery_count(&message), if counted { 2 } else { 1 }, "{number}");
                assert_eq!(message.header().flags.contains(Flags::REDELIVERED), counted);
            }
        }
    }
}

#[test]
fn messages_that_metering_held_back_are_not_counted_as_delivered() {
    let broker = broker(1);
    let mut sender = Raw::login(broker.jms_address(), 0);
    send_texts(&mut sender, "q", 1..=5);
    let mut dying = Raw::login(broker.jms_address(), 2);
    let session = dying.create_session(2);
    dying.add_consumer(session, "q", QUEUE, 1000);
    dying.start();
    assert_eq!(dying.messages_so_far().len(), 2);
    drop(dying);
    wait_until("the loss is noticed", || broker.snapshot().connections == 1);
    let session = sender.create_session(1);
    sender.add_consumer(session, "q", QUEUE, 1000);
    sender.start();
    let counts: Vec<i32> = (0..5).map(|_| delivery_count(&sender.message())).collect();
    assert_eq!(counts, [2, 2, 1, 1, 1]);
}

#[test]
fn recover_brings_seen_messages_back_counted_and_buffered_ones_uncounted() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    send_texts(&mut raw, "q", 1..=8);
    let session = raw.create_session(2);
    let consumer = raw.add_consumer(session, "q", QUEUE, 4);
    raw.start();
    let got = raw.messages_so_far();
    assert_eq!(got.len(), 4);
    let stop = raw.request(PacketBuilder::new(PacketType::STOP).long("JMQSessionID", session));
    assert_eq!((stop.header().packet_type, status(&stop)), (PacketType::STOP_REPLY, 200));
    let redeliver = |seen: bool, some: &[&tidegate::wire::Packet]| {
        PacketBuilder::new(PacketType::REDELIVER)
            .boolean("JMQSetRedelivered", seen)
            .body(blocks(some))
    };
    raw.send(redeliver(false, &[&got[2], &got[3]]));
    raw.send(redeliver(true, &[&got[0], &got[1]]));
    raw.send(PacketBuilder::new(PacketType::START).long("JMQSessionID", session));
    raw.resume_consumer(consumer, 4);
    let again = raw.messages_so_far();
    assert_eq!(bodies(&again), ["1", "2", "3", "4"]);
    assert_eq!(again.iter().map(delivery_count).collect::<Vec<_>>(), [2, 2, 1, 1]);
    assert_eq!(again.iter().map(flags).collect::<Vec<_>>(), ["QRA", "QRA", "QA", "QAC"]);
}

#[test]
fn nothing_comes_after_stop_reply_and_start_goes_on_where_it_was() {
    for loops in [1, 2] {
        let broker = broker(loops);
        let mut sender = Raw::login(broker.jms_address(), 0);
        let mut receiver = Raw::login(broker.jms_address(), 2);
        sender.create_destination("q", QUEUE);
        let session = receiver.create_session(1);
        receiver.add_consumer(session, "q", QUEUE, 1000);
        receiver.start();
        send_texts(&mut sender, "q", 0..20);
        let mut got = vec![receiver.message(), receiver.message()];
        let stop = receiver.ask(PacketBuilder::new(PacketType::STOP));
        receiver.send(PacketBuilder::new(PacketType::RESUME_FLOW).int("JMQSize", 0));
        assert_eq!(receiver.reply(stop).header().packet_type, PacketType::STOP_REPLY);
        assert!(receiver.messages_so_far().is_empty(), "stopped, though the meter is open");
        receiver.start();
        while got.len() < 20 {
            got.push(receiver.message());
        }
        assert_eq!(bodies(&got), (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
        assert!(got.iter().all(|message| delivery_count(message) == 1));
    }
}

#[test]
fn closing_a_consumer_gives_back_what_came_after_the_last_message_seen() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    send_texts(&mut raw, "q", 1..=5);
    let session = raw.create_session(2);
    let consumer = raw.add_consumer(session, "q", QUEUE, 1000);
    raw.start();
    let got = raw.messages_so_far();
    let delete = PacketBuilder::new(PacketType::DELETE_CONSUMER)
        .long("JMQConsumerID", consumer)
        .int("JMQBodyType", 3)
        .body(got[1].header().id.encode().to_vec());
    assert_eq!(status(&raw.request(delete)), 200);
    let other = raw.add_consumer(session, "q", QUEUE, 1000);
    let rest = raw.messages_so_far();
    assert_eq!(bodies(&rest), ["3", "4", "5"]);
    assert!(rest.iter().all(|message| delivery_count(message) == 1));
    assert!(rest.iter().all(|message| message.header().consumer_id == other));
    // The first two are still with the session: one is settled under the old id, one comes back.
    assert_eq!(status(&raw.request(acknowledge(&[&got[0]]))), 200);
    let destroy = PacketBuilder::new(PacketType::DESTROY_SESSION).long("JMQSessionID", session);
    assert_eq!(status(&raw.request(destroy)), 200);
    let session = raw.create_session(1);
    raw.add_consumer(session, "q", QUEUE, 1000);
    let back = raw.messages_so_far();
    assert_eq!(bodies(&back), ["2", "3", "4", "5"]);
    assert!(back.iter().all(|message| delivery_count(message) == 2));
}

#[test]
fn a_session_that_never_acknowledges_has_its_messages_forgotten_once_sent() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    send_texts(&mut raw, "q", 0..3);
    let session = raw.create_session(32768);
    raw.add_consumer(session, "q", QUEUE, 1000);
    raw.start();
    assert_eq!(raw.messages_so_far().len(), 3);
    raw.messages_so_far();
    assert_eq!(waiting(&broker), 0);
}

#[test]
fn one_acknowledgement_may_settle_messages_of_several_destinations() {
    let broker = broker(2);
    let mut raw = Raw::login(broker.jms_address(), 0);
    send_texts(&mut raw, "a", ["1"]);
    send_texts(&mut raw, "b", ["2"]);
    let session = raw.create_session(2);
    raw.add_consumer(session, "a", QUEUE, 10);
    raw.add_consumer(session, "b", QUEUE, 10);
    raw.start();
    let (one, two) = (raw.message(), raw.message());
    assert_eq!(status(&raw.request(acknowledge(&[&one, &two]))), 200);
    let worse = raw.request(acknowledge(&[&one, &two]));
    assert_eq!(status(&worse), 409);
    let left: u64 = broker.snapshot().destinations.iter().map(|one| one.messages).sum();
    assert_eq!(left, 0);
}

#[test]
fn a_topic_message_goes_to_every_consumer_there_is_and_not_back_to_its_own_if_unwanted() {
    let broker = broker(2);
    let mut publisher = Raw::login(broker.jms_address(), 0);
    let mut other = Raw::login(broker.jms_address(), 0);
    publisher.create_destination("t", TOPIC);
    publisher.request(Raw::text("t", TOPIC, "nobody is here"));
    let session = publisher.create_session(1);
    publisher.request(
        PacketBuilder::new(PacketType::ADD_CONSUMER)
            .string("JMQDestination", "t")
            .int("JMQDestType", TOPIC)
            .long("JMQSessionID", session)
            .boolean("JMQNoLocal", true),
    );
    publisher.add_consumer(session, "t", TOPIC, 10);
    publisher.start();
    let session = other.create_session(1);
    other.add_consumer(session, "t", TOPIC, 10);
    other.start();
    assert!(other.messages_so_far().is_empty());
    publisher.request(Raw::text("t", TOPIC, "x"));
    other.request(Raw::text("t", TOPIC, "y"));
    assert_eq!(bodies(&[other.message(), other.message()]), ["x", "y"]);
    let mut got = bodies(&[publisher.message(), publisher.message(), publisher.message()]);
    got.sort();
    assert_eq!(got, ["x", "y", "y"], "one consumer does not want what comes from here");
    assert!(publisher.messages_so_far().is_empty());
}

#[test]
fn a_full_queue_refuses_and_says_so() {
    let mut builder = Broker::builder();
    let mut config = tidegate::broker::BrokerConfig::default();
    config.set("destination.messages_max", "5").unwrap();
    config.set("destination.message_bytes_max", "1000").unwrap();
    config.set("listen", "127.0.0.1:0").unwrap();
    builder.config(config);
    let broker = builder.start().unwrap();
    let mut raw = Raw::login(broker.jms_address(), 0);
    send_texts(&mut raw, "q", 0..5);
    let refused = raw.request(Raw::text("q", QUEUE, "one too many"));
    assert_eq!(status(&refused), 414);
    assert!(reason(&refused).contains("q is full with 5 messages"), "{}", reason(&refused));
    let large = raw.request(Raw::text("other", QUEUE, ""));
    assert_eq!(status(&large), 500, "sending creates nothing");
    raw.create_destination("other", QUEUE);
    assert_eq!(status(&raw.request(Raw::text("other", QUEUE, &"x".repeat(1000)))), 423);
    assert_eq!(status(&raw.request(Raw::text("other", QUEUE, &"x".repeat(800)))), 200);
}

#[test]
fn a_producer_that_uses_its_credit_up_is_given_more() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    let session = raw.create_session(1);
    raw.create_destination("q", QUEUE);
    let added = raw.request(
        PacketBuilder::new(PacketType::ADD_PRODUCER)
            .string("JMQDestination", "q")
            .int("JMQDestType", QUEUE)
            .long("JMQSessionID", session),
    );
    let producer = long(&added, "JMQProducerID");
    assert_eq!((int(&added, "JMQSize"), long(&added, "JMQBytes")), (1000, -1));
    let fields = tidegate::wire::VariableHeader {
        destination: Some(b"q"),
        producer_id: Some(producer),
        ..Default::default()
    };
    let message = PacketBuilder::new(PacketType::TEXT_MESSAGE)
        .variable(&fields, tidegate::wire::Padding::Java)
        .unwrap()
        .flags(Flags::QUEUE.with(Flags::CONSUMER_FLOW).with(Flags::FLOW_PAUSED));
    raw.send(message);
    let by_id = |packet: &tidegate::wire::Packet| {
        packet.header().packet_type == PacketType::RESUME_FLOW
            && packet.properties().unwrap().long("JMQProducerID").unwrap() == Some(producer)
    };
    let resume = raw.wait(by_id).unwrap();
    assert_eq!(int(&resume, "JMQSize"), 1000);
    let connection = raw.expect(PacketType::RESUME_FLOW);
    assert_eq!(int(&connection, "JMQSize"), 5000);
    let consumer_session = raw.create_session(1);
    raw.add_consumer(consumer_session, "q", QUEUE, 10);
    raw.start();
    assert_eq!(flags(&raw.message()), "Q", "F and C were meant for the broker");
}

#[test]
fn temporary_destinations_live_as_long_as_their_connection() {
    let broker = broker(1);
    let mut owner = Raw::login(broker.jms_address(), 0);
    let mut other = Raw::login(broker.jms_address(), 0);
    let name = "temporary_destination://queue/127.0.0.1/1/1";
    assert_eq!(status(&owner.create_destination(name, QUEUE | 0x10)), 200);
    assert_eq!(status(&other.create_destination(name, QUEUE | 0x10)), 200);
    assert_eq!(status(&other.request(Raw::text(name, QUEUE, "answer"))), 200);
    let verify = || {
        PacketBuilder::new(PacketType::VERIFY_DESTINATION)
            .string("JMQDestination", name)
            .int("JMQDestType", QUEUE)
    };
    assert_eq!(int(&other.request(verify()), "JMQDestType"), 0x11);
    owner.request(PacketBuilder::new(PacketType::GOODBYE));
    let gone = other.request(verify());
    assert_eq!(status(&gone), 404);
    assert_eq!(status(&other.request(Raw::text(name, QUEUE, "late"))), 500);
}

#[test]
fn expired_messages_are_not_delivered() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("q", QUEUE);
    raw.request(Raw::text("q", QUEUE, "old").expiration(1));
    raw.request(Raw::text("q", QUEUE, "new").expiration(i64::MAX));
    let session = raw.create_session(1);
    raw.add_consumer(session, "q", QUEUE, 10);
    raw.start();
    assert_eq!(bodies(&raw.messages_so_far()), ["new"]);
    assert_eq!(broker.snapshot().expired, 1);
}
