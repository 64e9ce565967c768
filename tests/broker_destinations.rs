//! Destinations: how they come and go, what they are called, and who may use them; on the wire.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, reason = "tests")]

mod support;

use std::{collections::BTreeSet, time::Duration};

use support::{
    asking::{
        DEAD_MESSAGES, Way, asked, await_held, broker_with, close, consumer, destination, held,
        login_as, look_at, property, refused, send_texts, subscribed, text, unsubscribe,
    },
    broker,
    raw::{
        QUEUE, Raw, TOPIC, acknowledge, bodies, body, counted, destroy, int, long, reason, status,
        times,
    },
    wait_until,
};
use tidegate::{
    broker::Broker,
    wire::{Flags, MessageId, Packet, PacketBuilder, PacketType},
};

const TEMPORARY: i32 = 0x10;

fn create(name: &str, mask: i32) -> PacketBuilder {
    destination(PacketType::CREATE_DESTINATION, name, mask)
}

fn verify(name: &str, mask: i32) -> PacketBuilder {
    destination(PacketType::VERIFY_DESTINATION, name, mask)
}

fn add_producer(name: &str, mask: i32) -> PacketBuilder {
    destination(PacketType::ADD_PRODUCER, name, mask)
}

fn plain(name: &str, mask: i32, body: &str) -> PacketBuilder {
    text(name, mask, body, Way::default())
}

fn client(broker: &Broker) -> Raw {
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.start();
    raw
}

/// Logs in as a client that may come back, in place of a connection it lost.
fn reconnectable(broker: &Broker, lost: Option<i64>, interval_ms: i64) -> (Raw, i64) {
    let mut raw = Raw::connect(broker.jms_address());
    let hello = PacketBuilder::new(PacketType::HELLO)
        .int("JMQProtocolLevel", 500)
        .boolean("JMQReconnectable", true)
        .long("JMQInterval", interval_ms);
    let hello = match lost {
        Some(id) => hello.long("JMQConnectionID", id),
        None => hello,
    };
    let id = long(&asked(&mut raw, hello), "JMQConnectionID");
    assert_eq!(status(&raw.authenticate("guest", "guest")), 200);
    raw.start();
    (raw, id)
}

fn can_create(packet: &Packet) -> Option<bool> {
    packet.properties().unwrap().boolean("JMQCanCreate").unwrap()
}

#[test]
fn nothing_is_made_where_auto_creation_is_switched_off() {
    let broker = broker_with("autocreate_queue = false\n[queues.there]\n");
    let mut raw = client(&broker);
    let session = raw.create_session(1);
    for packet in [create("q", QUEUE), add_producer("q", QUEUE), consumer(session, "q", QUEUE)] {
        assert_eq!(refused(&mut raw, packet), 404);
    }
    for packet in [verify("q", QUEUE), destination(PacketType::BROWSE, "q", QUEUE)] {
        let absent = raw.request(packet);
        assert_eq!((status(&absent), can_create(&absent)), (404, Some(false)));
    }
    asked(&mut raw, create("there", QUEUE));
    asked(&mut raw, create("a topic", TOPIC));
    asked(&mut raw, create("temporary_destination://queue/x/1/1", QUEUE | TEMPORARY));
    assert!(look_at(&broker, "q").is_none());

    let broker = broker_with("autocreate_topic = false\n");
    let mut raw = client(&broker);
    assert_eq!(refused(&mut raw, create("t", TOPIC)), 404);
    let absent = raw.request(verify("q", QUEUE));
    assert_eq!((status(&absent), can_create(&absent)), (404, Some(true)));
    asked(&mut raw, create("q", QUEUE));
}

#[test]
fn a_destination_says_what_it_is() {
    let broker = broker_with(
        "[queues.kept]\n[topics.kept]\nvalidate_xml_schema = true\n\
         xml_schema_uri_list = \"http://a http://b\"\nreload_xml_schema = true\n",
    );
    let mut raw = client(&broker);
    let temporary = "temporary_destination://topic/x/1/1";
    asked(&mut raw, create("q", QUEUE));
    asked(&mut raw, create("t", TOPIC));
    asked(&mut raw, create(temporary, TOPIC | TEMPORARY));
    for (name, mask, wanted) in [
        ("q", QUEUE, 0x21),
        ("t", TOPIC, 0x22),
        ("kept", QUEUE, 1),
        ("kept", TOPIC, 2),
        (temporary, TOPIC, 0x12),
        (DEAD_MESSAGES, QUEUE, 0x1001),
    ] {
        assert_eq!(int(&asked(&mut raw, verify(name, mask)), "JMQDestType"), wanted, "{name}");
    }
    let flag = |packet: &Packet, name| packet.properties().unwrap().boolean(name).unwrap().unwrap();
    let of_queue = asked(&mut raw, create("kept", QUEUE));
    assert_eq!(property(&of_queue, "JMQDestUID").unwrap(), "kept");
    assert!(!flag(&of_queue, "JMQValidateXMLSchema"));
    assert!(!flag(&of_queue, "JMQReloadXMLSchemaOnFailure"));
    assert_eq!(property(&of_queue, "JMQXMLSchemaURIList"), None);
    let of_topic = asked(&mut raw, create("kept", TOPIC));
    assert!(flag(&of_topic, "JMQValidateXMLSchema"));
    assert!(flag(&of_topic, "JMQReloadXMLSchemaOnFailure"));
    assert_eq!(property(&of_topic, "JMQXMLSchemaURIList").unwrap(), "http://a http://b");
}

#[test]
fn a_queue_and_a_topic_of_one_name_are_two_and_the_flag_of_a_message_decides() {
    let broker = broker(1);
    let mut raw = client(&broker);
    let session = raw.create_session(1);
    let of_queue = subscribed(&mut raw, consumer(session, "a b", QUEUE));
    let of_topic = subscribed(&mut raw, consumer(session, "a b", TOPIC));
    asked(&mut raw, plain("a b", QUEUE, "queue"));
    asked(&mut raw, plain("a b", TOPIC, "topic"));
    let got = raw.messages(2);
    let to: Vec<_> = got.iter().map(|one| (body(one), one.header().consumer_id)).collect();
    assert_eq!(to, [("queue".to_owned(), of_queue), ("topic".to_owned(), of_topic)]);
}

#[test]
fn names_that_cannot_be_are_refused() {
    let broker = broker(1);
    let mut raw = client(&broker);
    let long = "x".repeat(4097);
    for (name, mask, wanted) in [
        ("mq.x", QUEUE, 500),
        ("mq.x", TOPIC, 400),
        ("", QUEUE, 500),
        ("  ", TOPIC, 500),
        (&long, QUEUE, 400),
        ("q", 0, 500),
        ("q", QUEUE | TOPIC, 500),
    ] {
        assert_eq!(refused(&mut raw, create(name, mask)), wanted, "{name:.9} {mask}");
    }
    asked(&mut raw, create(DEAD_MESSAGES, QUEUE));
    asked(&mut raw, add_producer(DEAD_MESSAGES, QUEUE));
    asked(&mut raw, create(&long[1..], QUEUE));
}

#[test]
fn sending_makes_nothing() {
    let broker = broker(1);
    let mut raw = client(&broker);
    for mask in [QUEUE, TOPIC] {
        let reply = raw.request(plain("nowhere", mask, "x"));
        assert_eq!((status(&reply), reason(&reply).as_str()), (500, "Unknown Destination:nowhere"));
    }
    let without = PacketBuilder::new(PacketType::TEXT_MESSAGE).flags(Flags::QUEUE);
    assert_eq!(refused(&mut raw, without), 500);
    asked(&mut raw, create("there", QUEUE));
    asked(&mut raw, plain("there", QUEUE, "without a producer"));
}

#[test]
fn a_destroyed_destination_takes_everything_with_it() {
    let broker = broker(2);
    let mut raw = client(&broker);
    let mut other = client(&broker);
    asked(&mut other, destination(PacketType::DESTROY_DESTINATION, "unknown", QUEUE));
    let (session, gone) = raw.consume(2, "q", 1);
    send_texts(&mut raw, "q", QUEUE, 0..3);
    let got = raw.message();
    asked(&mut other, destination(PacketType::DESTROY_DESTINATION, "q", QUEUE));
    assert_eq!(refused(&mut raw, acknowledge(&[&got])), 409);
    assert_eq!(refused(&mut raw, plain("q", QUEUE, "x")), 500);
    raw.resume_consumer(gone, 5);
    asked(&mut raw, create("q", QUEUE));
    asked(&mut raw, plain("q", QUEUE, "for others"));
    assert!(raw.messages_so_far().is_empty(), "its consumer was the old one's");
    asked(&mut raw, close(gone, None));
    subscribed(&mut raw, consumer(session, "q", QUEUE));
    assert_eq!(counted(&raw.messages(1)), times(&[("for others", 1)]));
}

#[test]
fn a_temporary_destination_goes_with_the_connection_that_made_it() {
    let broker = broker(2);
    let name = "temporary_destination://queue/x/1/1";
    for orderly in [true, false] {
        let mut owner = client(&broker);
        let mut other = client(&broker);
        asked(&mut owner, create(name, QUEUE | TEMPORARY));
        asked(&mut other, create(name, QUEUE | TEMPORARY));
        asked(&mut other, plain(name, QUEUE, "answer"));
        drop(other);
        let mut third = client(&broker);
        asked(&mut third, verify(name, QUEUE));
        if orderly {
            asked(&mut owner, PacketBuilder::new(PacketType::GOODBYE));
        } else {
            owner.reset();
        }
        wait_until("it goes", || status(&third.request(verify(name, QUEUE))) == 404);
        assert_eq!(refused(&mut third, plain(name, QUEUE, "late")), 500);
    }
}

#[test]
fn a_client_that_comes_back_finds_its_temporary_destinations_with_what_is_in_them() {
    let broker = broker_with("reconnect_grace = 5\n");
    let name = "temporary_destination://queue/x/1/1";
    let (mut owner, id) = reconnectable(&broker, None, 60_000);
    asked(&mut owner, create(name, QUEUE | TEMPORARY));
    let mut other = client(&broker);
    asked(&mut other, plain(name, QUEUE, "before"));
    owner.reset();
    let (mut owner, _) = reconnectable(&broker, Some(id), 60_000);
    asked(&mut other, plain(name, QUEUE, "after"));
    asked(&mut owner, create(name, QUEUE | TEMPORARY));
    owner.consume(1, name, 10);
    assert_eq!(counted(&owner.messages(2)), times(&[("before", 1), ("after", 1)]));
    // It is the new connection's now.
    asked(&mut owner, PacketBuilder::new(PacketType::GOODBYE));
    wait_until("it goes", || status(&other.request(verify(name, QUEUE))) == 404);
}

#[test]
fn a_temporary_destination_waits_no_longer_than_its_client_may_take() {
    let broker = broker_with("reconnect_grace = 2\n");
    let name = "temporary_destination://queue/x/1/1";
    let (mut owner, _) = reconnectable(&broker, None, 100);
    asked(&mut owner, create(name, QUEUE | TEMPORARY));
    owner.reset();
    let mut other = client(&broker);
    let begin = std::time::Instant::now();
    wait_until("the loss is noticed", || broker.snapshot().connections == 1);
    let first = status(&other.request(verify(name, QUEUE)));
    assert!(first == 200 || begin.elapsed() > Duration::from_millis(200));
    wait_until("its time is over", || status(&other.request(verify(name, QUEUE))) == 404);
    assert!(begin.elapsed() > Duration::from_millis(150), "{:?}", begin.elapsed());
}

#[test]
fn patterns_find_the_topics_the_reference_found() {
    let broker = broker(2);
    let mut raw = client(&broker);
    let session = raw.create_session(1);
    let patterns = ["a>", "**", ">", "a.**", "a.*>", "a.**.b", "x.*.y"];
    let of: Vec<(i64, &str)> = patterns
        .into_iter()
        .map(|text| (subscribed(&mut raw, consumer(session, text, TOPIC)), text))
        .collect();
    for (topic, wanted) in [
        ("a", &["a>", "**", ">"][..]),
        ("a.b", &["a>", "**", ">", "a.**"]),
        ("a.b.c", &["a>", "**", ">", "a.**", "a.*>"]),
        ("a.b.b", &["a>", "**", ">", "a.**", "a.*>", "a.**.b"]),
        ("ab", &["**", ">"]),
        ("x.1.y", &["**", ">", "x.*.y"]),
        ("x.a-b.y", &["**", ">"]),
    ] {
        // Made after its consumers came.
        asked(&mut raw, create(topic, TOPIC));
        asked(&mut raw, plain(topic, TOPIC, topic));
        let got = raw.messages(wanted.len());
        let name = |one: &Packet| {
            assert_eq!(body(one), topic);
            of.iter().find(|(id, _)| *id == one.header().consumer_id).unwrap().1
        };
        let got: BTreeSet<&str> = got.iter().map(name).collect();
        assert_eq!(got, wanted.iter().copied().collect(), "{topic}");
    }
    assert!(raw.messages_so_far().is_empty());
}

#[test]
fn a_pattern_is_refused_where_it_is_malformed_or_for_a_queue() {
    let broker = broker(1);
    let mut raw = client(&broker);
    let session = raw.create_session(1);
    for (name, mask, wanted) in [
        ("a.>", TOPIC, 406),
        ("a*", TOPIC, 406),
        ("a..*", TOPIC, 406),
        ("*.", TOPIC, 406),
        ("a.*", QUEUE, 415),
        ("a>", QUEUE, 415),
        ("a*", QUEUE, 415),
    ] {
        for packet in [create(name, mask), add_producer(name, mask), consumer(session, name, mask)]
        {
            assert_eq!(refused(&mut raw, packet), wanted, "{name} {mask}");
        }
    }
    let made = asked(&mut raw, create("a.*", TOPIC));
    assert!(made.header().flags.contains(Flags::WILDCARD));
    assert!(look_at(&broker, "a.*").is_none(), "nothing is made for a pattern");
}

#[test]
fn a_send_to_a_pattern_reaches_all_topics_there_are_but_temporary_ones() {
    let broker = broker(2);
    let mut raw = client(&broker);
    asked(&mut raw, plain("n.*", TOPIC, "nobody's"));
    let session = raw.create_session(1);
    let temporary = "n.t";
    asked(&mut raw, create(temporary, TOPIC | TEMPORARY));
    let topics = ["n.a", "n.b", "n.c.d", temporary];
    let of: Vec<(i64, &str)> = topics
        .into_iter()
        .map(|name| (subscribed(&mut raw, consumer(session, name, TOPIC)), name))
        .collect();
    let sent = raw.stamp(plain("n.*", TOPIC, "x"));
    raw.send_bytes(sent.raw());
    let got = raw.messages(2);
    let name = |one: &Packet| of.iter().find(|(id, _)| *id == one.header().consumer_id).unwrap().1;
    let mut names: Vec<_> = got.iter().map(name).collect();
    names.sort_unstable();
    assert_eq!((bodies(&got), names), (vec!["x".into(), "x".into()], vec!["n.a", "n.b"]));
    assert_ne!(got[0].header().id, got[1].header().id, "each copy has an id of its own");
    assert!(got.iter().any(|one| one.header().id == sent.header().id));
    asked(&mut raw, acknowledge(&[&got[0], &got[1]]));
    assert_eq!(refused(&mut raw, plain("n.>", TOPIC, "x")), 406);
    assert!(raw.messages_so_far().is_empty());
}

#[test]
fn a_pattern_does_not_find_temporary_topics() {
    let broker = broker(1);
    let mut raw = client(&broker);
    let session = raw.create_session(1);
    let name = "temporary_destination://topic/x/1/1";
    subscribed(&mut raw, consumer(session, ">", TOPIC));
    asked(&mut raw, create(name, TOPIC | TEMPORARY));
    asked(&mut raw, plain(name, TOPIC, "private"));
    assert!(raw.messages_so_far().is_empty());
}

#[test]
fn a_destination_takes_a_limited_number_of_producers() {
    let broker = broker_with("[queues.q]\nproducers_max = 2\n");
    let mut one = client(&broker);
    let mut two = client(&broker);
    let session = one.create_session(1);
    let first = asked(&mut one, add_producer("q", QUEUE).long("JMQSessionID", session));
    asked(&mut two, add_producer("q", QUEUE));
    assert_eq!(refused(&mut one, add_producer("q", QUEUE)), 405);
    asked(&mut one, plain("q", QUEUE, "without a producer"));
    let id = long(&first, "JMQProducerID");
    let delete = || PacketBuilder::new(PacketType::DELETE_PRODUCER).long("JMQProducerID", id);
    asked(&mut one, delete());
    assert_eq!(refused(&mut one, delete()), 500);
    asked(&mut one, add_producer("q", QUEUE).long("JMQSessionID", session));
    assert_eq!(refused(&mut two, add_producer("q", QUEUE)), 405);
    // A session, and a connection, take theirs with them.
    asked(&mut one, destroy(session));
    asked(&mut one, add_producer("q", QUEUE));
    two.reset();
    wait_until("there is room", || status(&one.request(add_producer("q", QUEUE))) == 200);
    assert_eq!(refused(&mut one, add_producer("q", QUEUE)), 405);
}

#[test]
fn a_backup_consumer_gets_nothing_before_it_takes_the_place_of_an_active_one() {
    let broker = broker_with("[queues.q]\nactive_consumers_max = 1\nbackup_consumers_max = 2\n");
    let mut all: Vec<Raw> = (0..4).map(|_| client(&broker)).collect();
    let mut ids = Vec::new();
    for raw in &mut all[..3] {
        let session = raw.create_session(1);
        ids.push(subscribed(raw, consumer(session, "q", QUEUE)));
    }
    let session = all[3].create_session(1);
    assert_eq!(refused(&mut all[3], consumer(session, "q", QUEUE)), 409);
    send_texts(&mut all[3], "q", QUEUE, ["1"]);
    let first = all[0].message();
    asked(&mut all[0], acknowledge(&[&first]));
    asked(&mut all[0], close(ids[0], Some(&first)));
    send_texts(&mut all[3], "q", QUEUE, ["2"]);
    assert_eq!(bodies(&all[1].messages(1)), ["2"], "the next one, in the order they came");
    // Its place as a backup is free.
    subscribed(&mut all[3], consumer(session, "q", QUEUE));
    let second = all.remove(1);
    second.reset();
    assert_eq!(counted(&all[1].messages(1)), times(&[("2", 2)]), "and what it had");
    assert!(all[2].messages_so_far().is_empty());
}

#[test]
fn who_comes_while_an_active_consumer_leaves_is_not_one_too_many() {
    let broker = broker_with("[queues.q]\nactive_consumers_max = 1\nbackup_consumers_max = -1\n");
    let mut raw = client(&broker);
    let mut backup = client(&broker);
    let session = raw.create_session(1);
    let first = subscribed(&mut raw, consumer(session, "q", QUEUE));
    let other = backup.create_session(1);
    subscribed(&mut backup, consumer(other, "q", QUEUE));
    // In one write: the new one comes before the old one has left the queue.
    let [closed, added] = raw.ask_at_once([close(first, None), consumer(session, "q", QUEUE)]);
    assert_eq!(status(&raw.reply(closed)), 200);
    assert_eq!(status(&raw.reply(added)), 200);
    send_texts(&mut raw, "q", QUEUE, 0..4);
    let (one, two) = (raw.messages_so_far().len(), backup.messages_so_far().len());
    assert!((one, two) == (4, 0) || (one, two) == (0, 4), "one is active: {one}, {two}");
}

#[test]
fn a_message_that_is_there_already_is_not_stored_twice() {
    let broker = broker(1);
    let mut raw = login_as(&broker, "c");
    raw.start();
    raw.create_destination("q", QUEUE);
    let again = |raw: &mut Raw, name: &str, mask: i32, ask: i64, flags: Flags| {
        let id = MessageId { sequence: 7, port: 9, ..MessageId::default() };
        let flags = flags.with(Flags::ACKNOWLEDGE);
        let packet = plain(name, mask, "once").id(id).consumer_id(ask).flags(flags).finish();
        raw.send_bytes(packet.raw());
        status(&raw.reply(ask))
    };
    assert_eq!(again(&mut raw, "q", QUEUE, 1001, Flags::empty()), 200);
    assert_eq!(again(&mut raw, "q", QUEUE, 1002, Flags::empty()), 304);
    assert_eq!(again(&mut raw, "q", QUEUE, 1003, Flags::INDEMPOTENT), 304);
    await_held(&broker, "q", 1);
    raw.consume(1, "q", 10);
    let got = raw.message();
    assert_eq!(again(&mut raw, "q", QUEUE, 1004, Flags::INDEMPOTENT), 304, "with its consumer");
    asked(&mut raw, acknowledge(&[&got]));
    assert!(raw.messages_so_far().is_empty());
    // The same in a topic, as long as anybody has it.
    let session = raw.create_session(1);
    let durable = consumer(session, "t", TOPIC).string("JMQDurableName", "d");
    let one = subscribed(&mut raw, durable);
    asked(&mut raw, close(one, None));
    assert_eq!(again(&mut raw, "t", TOPIC, 1005, Flags::empty()), 200);
    assert_eq!(again(&mut raw, "t", TOPIC, 1006, Flags::INDEMPOTENT), 304);
    asked(&mut raw, unsubscribe("d"));
    await_held(&broker, "t", 0);
}

#[test]
fn what_was_made_on_first_use_goes_when_nobody_has_used_it_for_a_while() {
    let broker = broker_with("autocreate_reap_time = 1\n[queues.administered]\n");
    let mut raw = login_as(&broker, "c");
    raw.start();
    let session = raw.create_session(1);
    for name in ["never used", "used", "filled", "produced", "promised"] {
        asked(&mut raw, create(name, QUEUE));
    }
    asked(&mut raw, plain("filled", QUEUE, "x"));
    asked(&mut raw, add_producer("produced", QUEUE));
    let used = subscribed(&mut raw, consumer(session, "used", QUEUE));
    let durable = consumer(session, "subscribed", TOPIC).string("JMQDurableName", "d");
    let one = subscribed(&mut raw, durable);
    asked(&mut raw, close(one, None));
    let transaction = {
        let transacted = raw.create_session(0);
        let transaction = raw.begin(transacted);
        raw.fill_in(transaction, "promised", &["x"]);
        transaction
    };
    wait_until("it goes", || look_at(&broker, "never used").is_none());
    asked(&mut raw, close(used, None));
    wait_until("it goes", || look_at(&broker, "used").is_none());
    for name in ["filled", "produced", "subscribed", "promised", "administered", DEAD_MESSAGES] {
        assert!(look_at(&broker, name).is_some(), "{name} is used, or meant to stay");
    }
    assert_eq!(status(&raw.commit(transaction)), 200);
    await_held(&broker, "promised", 1);
    asked(&mut raw, unsubscribe("d"));
    wait_until("it goes", || look_at(&broker, "subscribed").is_none());
    assert_eq!(held(&broker, "filled"), 1);
}
