//! Messages whose bodies wait in the store, where several want them, where they are many, and where
//! the broker ends meanwhile.
#![cfg(all(feature = "broker", feature = "client", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod cold_support;
mod support;

use std::{thread, time::Duration};

use cold_support::{fill, start, watched::Watched};
use support::{
    asking::{
        asked, await_held, close, consumer, consumer_ahead, dead, held, in_ms, login_as,
        next_bodies, subscribed, with_properties,
    },
    raw::{QUEUE, Raw, TOPIC, acknowledge, bodies, body, counted},
    wait_until,
};
use tidegate::{
    broker::Broker,
    client::{
        AcknowledgeMode, Connection, ConnectionFactory, XaCommit, XaEnd, XaStart, XaVote, Xid,
    },
    internals::sync::{AtomicUsize, Ordering::SeqCst},
    message::{DeliveryMode, Destination, Message},
    wire::{Flags, Packet},
};

fn login(broker: &Broker) -> Raw {
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("q", QUEUE);
    raw
}

fn connect(broker: &Broker) -> Connection {
    let mut factory = ConnectionFactory::new();
    let address = broker.jms_address();
    factory.address_list(&format!("mqtcp://{address}/jms")).unwrap();
    let connection = factory.create_connection().unwrap();
    connection.start().unwrap();
    connection
}

fn queue(name: &str) -> Destination {
    Destination::queue(name).unwrap()
}

fn number(packet: &Packet) -> usize {
    body(packet)[1..].parse().unwrap()
}

/// Puts messages into queue `q`, each third one red.
fn send(raw: &mut Raw, numbers: std::ops::Range<usize>) {
    for n in numbers {
        let message = with_properties("q", QUEUE, &format!("m{n}"), |own| {
            own.set("colour", ["red", "green", "blue"][n % 3]);
        });
        asked(raw, message.flags(Flags::PERSISTENT));
    }
}

#[test]
fn consumers_that_choose_and_others_get_all_of_it_once() {
    const BEFORE: usize = 1500;
    const COUNT: usize = 2000;
    let store = Watched::new();
    let reading = store.reading();
    let broker = start(store, "");
    let mut raw = login(&broker);
    send(&mut raw, 0..BEFORE);
    let left = AtomicUsize::new(COUNT);
    let take = |selector: Option<&str>| {
        let mut raw = login(&broker);
        raw.start();
        let session = raw.create_session(2);
        let wish = consumer_ahead(session, "q", QUEUE, 20);
        let one = subscribed(
            &mut raw,
            match selector {
                Some(selector) => wish.string("JMQSelector", selector),
                None => wish,
            },
        );
        let mut got = Vec::new();
        let until = in_ms(30_000);
        while left.load(SeqCst) > 0 {
            assert!(in_ms(0) < until, "{} are missing", left.load(SeqCst));
            let Some(message) = raw.look(|packet| packet.header().packet_type.is_message()) else {
                continue;
            };
            asked(&mut raw, acknowledge(&[&message]));
            if message.header().flags.contains(Flags::CONSUMER_FLOW) {
                raw.resume_consumer(one, 20);
            }
            got.push(number(&message));
            left.fetch_sub(1, SeqCst);
        }
        got
    };
    let got: Vec<Vec<usize>> = thread::scope(|scope| {
        let wishes = [Some("colour = 'red'"), None, Some("colour = 'blue'"), None];
        let takers: Vec<_> =
            wishes.map(|selector| scope.spawn(move || take(selector))).into_iter().collect();
        send(&mut raw, BEFORE..COUNT);
        takers.into_iter().map(|taker| taker.join().unwrap()).collect()
    });
    for (own, colour) in got.iter().zip([Some(0), None, Some(2), None]) {
        assert!(own.is_sorted(), "each sees its own in order: {own:?}");
        assert!(own.iter().all(|n| colour.is_none_or(|colour| n % 3 == colour)), "{own:?}");
    }
    let mut all = got.concat();
    all.sort_unstable();
    assert_eq!(all, (0..COUNT).collect::<Vec<_>>());
    assert!(reading.keys() > 0, "{reading:?}");
    await_held(&broker, "q", 0);
}

#[test]
fn more_can_be_sent_than_fits_into_the_memory_of_the_broker() {
    const COUNT: usize = 6000;
    let store = Watched::new();
    let reading = store.reading();
    let broker = start(store, "memory_max = \"4m\"\n[queue]\nmessages_max = -1\n");
    let connection = connect(&broker);
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    // Twice, so that what is counted for the first ones is free again for the others.
    for round in 0..2 {
        let mut producer = session.create_producer(&queue("q")).unwrap();
        producer.set_delivery_mode(DeliveryMode::Persistent);
        for n in 0..COUNT {
            producer.send(Message::text(format!("{n:<1024}"))).unwrap();
        }
        await_held(&broker, "q", COUNT as u64);
        let before = reading.keys();
        let consumer = session.create_consumer(&queue("q")).unwrap();
        for n in 0..COUNT {
            let message = consumer.receive_timeout(Duration::from_secs(10)).unwrap().unwrap();
            let text = message.body_text().unwrap().unwrap().into_owned();
            assert_eq!((text.len(), text.trim_end()), (1024, n.to_string().as_str()), "{round}");
        }
        consumer.close().unwrap();
        await_held(&broker, "q", 0);
        assert!(reading.keys() - before >= 1000, "{reading:?}");
    }
    connection.close().unwrap();
}

#[test]
fn what_a_topic_gives_up_is_buried_once_and_its_subscriptions_get_the_rest() {
    let store = Watched::new();
    let settings = "[topics.t]\nmessages_max = 5\nlimit_behavior = \"REMOVE_OLDEST\"\n";
    let broker = start(store, settings);
    let mut readers = Vec::new();
    for name in ["ann", "bob"] {
        let mut reader = login_as(&broker, name);
        let session = reader.create_session(2);
        let wish = consumer(session, "t", TOPIC).string("JMQDurableName", "d");
        let one = subscribed(&mut reader, wish);
        asked(&mut reader, close(one, None));
        readers.push((reader, session));
    }
    let mut raw = login(&broker);
    for n in 1..=12 {
        asked(&mut raw, Raw::text("t", TOPIC, &format!("m{n}")).flags(Flags::PERSISTENT));
    }
    let text = |numbers: std::ops::RangeInclusive<usize>| -> Vec<String> {
        numbers.map(|n| format!("m{n}")).collect()
    };
    assert_eq!(bodies(&dead(&broker, 7)), text(1..=7));
    for (reader, session) in &mut readers {
        reader.start();
        let wish = consumer(*session, "t", TOPIC).string("JMQDurableName", "d");
        subscribed(reader, wish);
        let got = reader.messages(5);
        assert_eq!(bodies(&got), text(8..=12));
        asked(reader, acknowledge(&got.iter().collect::<Vec<_>>()));
        assert!(reader.messages_so_far().is_empty());
    }
    await_held(&broker, "t", 0);
}

#[test]
fn what_was_delivered_before_the_broker_was_killed_comes_again_flagged() {
    let mut store = Watched::new();
    fill(&mut store, "q", 2000);
    let broker = start(store.reopened(), "");
    let mut raw = login(&broker);
    raw.consume(2, "q", 10);
    let before = raw.messages(10);
    assert!(before.iter().all(|one| !one.header().flags.contains(Flags::REDELIVERED)));
    asked(&mut raw, acknowledge(&[&before[0], &before[4]]));
    let next = start(store.reopened(), "");
    drop(broker);
    assert_eq!(held(&next, "q"), 1998);
    let mut raw = login(&next);
    raw.consume(2, "q", 1000);
    let again = counted(&raw.messages(1000));
    let wanted = (1..).filter(|n| ![1, 5].contains(n)).map(|n| format!("m{n}"));
    assert!(again.iter().map(|(text, _)| text.clone()).eq(wanted.take(1000)));
    assert!(again[..8].iter().all(|(_, count)| *count == 2), "{:?}", &again[..8]);
    assert!(again[500..].iter().all(|(_, count)| *count == 1), "nobody was near them");
}

#[test]
fn what_a_prepared_transaction_has_taken_comes_back_or_is_gone_after_a_new_start() {
    for commits in [false, true] {
        let mut store = Watched::new();
        fill(&mut store, "q", 100);
        let broker = start(store.reopened(), "");
        let connection = connect(&broker);
        let xid = Xid::new(7, b"cold", b"").unwrap();
        let session = connection.create_xa_session().unwrap();
        let resource = session.resource();
        resource.start(&xid, XaStart::New).unwrap();
        let taking = session.session().create_consumer(&queue("q")).unwrap();
        for _ in 0..10 {
            taking.receive_timeout(Duration::from_secs(10)).unwrap().unwrap();
        }
        resource.end(&xid, XaEnd::Success).unwrap();
        assert_eq!(resource.prepare(&xid).unwrap(), XaVote::Ready);
        let next = start(store.reopened(), "");
        drop(broker);
        let mut raw = login(&next);
        raw.consume(2, "q", 200);
        let first = raw.messages(90);
        assert_eq!(number(&first[0]), 11, "they are held");
        assert!(raw.messages_so_far().is_empty());
        let connection = connect(&next);
        let session = connection.create_xa_session().unwrap();
        if commits {
            session.resource().commit(&xid, XaCommit::Prepared).unwrap();
            wait_until("they are gone", || held(&next, "q") == 90);
            assert!(raw.messages_so_far().is_empty());
        } else {
            session.resource().rollback(&xid).unwrap();
            let back: Vec<String> = (1..=10).map(|n| format!("m{n}")).collect();
            assert_eq!(next_bodies(&mut raw, 10), back);
        }
    }
}
