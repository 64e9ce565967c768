//! Messages whose bodies wait in the store and not in memory, seen on the wire: nobody can tell.
//!
//! The brokers here keep no body in memory that nobody is about to take.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod cold_support;
mod support;

use cold_support::{
    fill, start,
    watched::{Reading, Watched},
};
use support::{
    asking::{
        DEAD_MESSAGES, Way, asked, await_held, await_time, browse, close, consumer, consumer_ahead,
        dead, destination, held, in_ms, login_as, next_bodies, property, subscribed, text,
        unsubscribe, with_properties,
    },
    raw::{
        QUEUE, Raw, TOPIC, about, acknowledge, bodies, body, counted, delivery_count, destroy,
        status, times,
    },
    wait_until,
};
use tidegate::{
    broker::Broker,
    internals::sync::{Arc, Ordering::SeqCst},
    store::MessageStore,
    wire::{Flags, Packet, PacketBuilder, PacketType},
};

/// Most bodies of one request, as the broker has it.
const REQUEST_MAX: u64 = 256;

/// A broker, its store, and what is read from that.
struct Cold {
    broker: Broker,
    store: Watched,
    reading: Arc<Reading>,
}

impl Cold {
    fn new() -> Self {
        Self::with("")
    }

    fn with(settings: &str) -> Self {
        Self::on(Watched::new(), settings)
    }

    /// So many messages in queue `q`, `m1` and so on.
    fn filled(count: u64) -> Self {
        let mut store = Watched::new();
        fill(&mut store, "q", count);
        Self::on(store, "")
    }

    fn on(store: Watched, settings: &str) -> Self {
        let broker = start(store.reopened(), settings);
        let reading = store.reading();
        Self { broker, store, reading }
    }

    fn login(&self) -> Raw {
        let mut raw = Raw::login(self.broker.jms_address(), 0);
        raw.create_destination("q", QUEUE);
        raw
    }

    /// The broker is gone as if it was killed, and another one is there.
    fn kill(&mut self) {
        let next = start(self.store.reopened(), "");
        std::mem::replace(&mut self.broker, next).shutdown();
    }

    /// Messages in the store once the broker has ended in order.
    fn left(self) -> usize {
        self.broker.shutdown();
        let mut store = self.store.reopened();
        let entries = store.recover().unwrap().entries;
        entries.filter(|entry| entry.as_ref().unwrap().space.name() == "messages").count()
    }
}

fn stored(name: &str, mask: i32, body: &str) -> PacketBuilder {
    text(name, mask, body, Way::default()).flags(Flags::PERSISTENT)
}

/// Sends persistent texts to a destination.
fn put(raw: &mut Raw, name: &str, mask: i32, texts: impl IntoIterator<Item = impl ToString>) {
    for one in texts {
        asked(raw, stored(name, mask, &one.to_string()));
    }
}

fn coloured(n: usize, colour: &str) -> PacketBuilder {
    let message = with_properties("q", QUEUE, &format!("{colour} {n}"), |own| {
        own.set("colour", colour);
    });
    message.flags(Flags::PERSISTENT)
}

fn numbered(numbers: std::ops::RangeInclusive<u64>) -> Vec<String> {
    numbers.map(|n| format!("m{n}")).collect()
}

/// Compares texts; of many, the first that is wrong is enough to know.
fn are(packets: &[Packet], wanted: &[String]) {
    let wrong = packets.iter().zip(wanted).position(|(packet, wanted)| body(packet) != *wanted);
    if let Some(at) = wrong {
        panic!("number {at} is {:?} and not {:?}", body(&packets[at]), wanted[at]);
    }
    assert_eq!(packets.len(), wanted.len());
}

fn durable(session: i64, topic: &str, name: &str) -> PacketBuilder {
    consumer(session, topic, TOPIC).string("JMQDurableName", name)
}

/// Takes so many messages and acknowledges them, some at a time, with a window of 200.
fn take(raw: &mut Raw, consumer: i64, count: usize) -> Vec<Packet> {
    let mut all: Vec<Packet> = Vec::with_capacity(count);
    let mut settled = 0;
    while all.len() < count {
        let message = raw.message();
        let refill = message.header().flags.contains(Flags::CONSUMER_FLOW);
        all.push(message);
        if refill || all.len() == count {
            let some: Vec<&Packet> = all[settled..].iter().collect();
            asked(raw, acknowledge(&some));
            settled = all.len();
            if settled < count {
                raw.resume_consumer(consumer, 200);
            }
        }
    }
    all
}

#[test]
fn messages_come_by_priority_and_then_as_they_arrived() {
    let cold = Cold::new();
    let mut raw = cold.login();
    let mut wanted: Vec<(u8, usize)> = Vec::new();
    for n in 0..300_usize {
        let priority = [4, 9, 0, 4, 7][n % 5];
        wanted.push((9 - priority, n));
        let message = text("q", QUEUE, &n.to_string(), Way::default()).priority(priority);
        // Those that are not stored wait among the others, with their bodies.
        asked(&mut raw, if n % 7 == 0 { message } else { message.flags(Flags::PERSISTENT) });
    }
    wanted.sort_unstable();
    let (_, one) = raw.consume(2, "q", 200);
    let got = take(&mut raw, one, 300);
    let wanted: Vec<String> = wanted.iter().map(|(_, n)| n.to_string()).collect();
    are(&got, &wanted);
    assert!(got.iter().all(|message| delivery_count(message) == 1));
    assert!(cold.reading.keys() >= 200, "{:?}", cold.reading);
    await_held(&cold.broker, "q", 0);
    assert_eq!(cold.left(), 0);
}

#[test]
fn each_selector_gets_its_messages_in_order_and_the_others_stay() {
    let cold = Cold::new();
    let mut raw = cold.login();
    for n in 0..600 {
        asked(&mut raw, coloured(n, ["red", "green", "blue"][n % 3]));
    }
    raw.start();
    let session = raw.create_session(2);
    for colour in ["blue", "red"] {
        let wish = consumer_ahead(session, "q", QUEUE, 1000);
        let one = subscribed(&mut raw, wish.string("JMQSelector", &format!("colour = '{colour}'")));
        let got: Vec<Packet> = (0..200).map(|_| raw.message()).collect();
        let first = if colour == "red" { 0 } else { 2 };
        let wanted: Vec<String> = (0..200).map(|n| format!("{colour} {}", n * 3 + first)).collect();
        are(&got, &wanted);
        let all: Vec<&Packet> = got.iter().collect();
        asked(&mut raw, acknowledge(&all));
        // It waits for more of its kind, which comes while it does.
        asked(&mut raw, coloured(1000, colour));
        let last = raw.message();
        assert_eq!(body(&last), format!("{colour} 1000"));
        asked(&mut raw, acknowledge(&[&last]));
        asked(&mut raw, close(one, Some(&last)));
    }
    assert!(raw.messages_so_far().is_empty());
    await_held(&cold.broker, "q", 200);
    assert!(cold.reading.keys() >= 600, "{:?}", cold.reading);
    let rest = next_with(&mut raw, session, 200);
    assert!(rest.iter().all(|text| text.starts_with("green ")), "{rest:?}");
}

fn next_with(raw: &mut Raw, session: i64, count: usize) -> Vec<String> {
    subscribed(raw, consumer_ahead(session, "q", QUEUE, 1000));
    next_bodies(raw, count)
}

#[test]
fn a_browser_sees_everything_in_its_order_and_takes_nothing() {
    let cold = Cold::new();
    let mut raw = cold.login();
    for n in 0..300 {
        let message = coloured(n, ["red", "green"][n % 2]);
        asked(&mut raw, message.priority(if n < 100 { 3 } else { 6 }));
    }
    let order: Vec<usize> = (100..300).chain(0..100).collect();
    let text = |n: &usize| format!("{} {n}", ["red", "green"][n % 2]);
    let wanted: Vec<String> = order.iter().map(text).collect();
    are(&browse(&mut raw, "q", None), &wanted);
    let red: Vec<String> = order.iter().filter(|n| *n % 2 == 0).map(text).collect();
    are(&browse(&mut raw, "q", Some("colour = 'red'")), &red);
    assert!(browse(&mut raw, "q", Some("colour = 'black'")).is_empty());
    assert!(cold.reading.keys() >= 300, "{:?}", cold.reading);
    assert_eq!(held(&cold.broker, "q"), 300);
    let (_, one) = raw.consume(2, "q", 200);
    are(&take(&mut raw, one, 300), &wanted);
}

#[test]
fn what_expires_goes_to_the_dead_messages_with_its_body() {
    let cold = Cold::new();
    let mut raw = cold.login();
    let at = in_ms(200);
    for n in 0..20 {
        let message = stored("q", QUEUE, &format!("m{n}"));
        asked(&mut raw, if n % 2 == 0 { message.expiration(at) } else { message });
    }
    let gone = dead(&cold.broker, 10);
    let wanted: Vec<String> = (0..10).map(|n| format!("m{}", n * 2)).collect();
    let mut texts = bodies(&gone);
    texts.sort_by_key(|text| text[1..].parse::<u32>().unwrap());
    assert_eq!(texts, wanted);
    let reason = |one| property(one, "JMS_SUN_DMQ_UNDELIVERED_REASON").unwrap();
    assert!(gone.iter().all(|one| reason(one) == "EXPIRED"));
    assert_eq!((held(&cold.broker, "q"), cold.broker.snapshot().expired), (10, 10));
    // And what has just expired is not delivered, whatever anybody has looked at.
    let at = in_ms(20);
    asked(&mut raw, stored("q", QUEUE, "late").priority(9).expiration(at));
    await_time(at);
    raw.consume(2, "q", 100);
    assert_eq!(body(&raw.message()), "m1");
    assert_eq!(dead(&cold.broker, 11).len(), 11);
}

#[test]
fn what_needs_no_body_reads_none() {
    let cold = Cold::with("[queues.careless]\nuse_dmq = false\n");
    let mut raw = cold.login();
    let at = in_ms(200);
    for n in 0..10 {
        asked(&mut raw, stored("careless", QUEUE, &n.to_string()).expiration(at));
    }
    put(&mut raw, "q", QUEUE, 0..10);
    let mut reader = login_as(&cold.broker, "reader");
    let session = reader.create_session(2);
    let one = subscribed(&mut reader, durable(session, "t", "d"));
    asked(&mut reader, close(one, None));
    put(&mut raw, "t", TOPIC, 0..10);
    asked(&mut raw, destination(PacketType::DESTROY_DESTINATION, "q", QUEUE));
    asked(&mut reader, unsubscribe("d"));
    await_held(&cold.broker, "t", 0);
    await_held(&cold.broker, "careless", 0);
    wait_until("they are counted", || cold.broker.snapshot().expired == 10);
    assert_eq!(held(&cold.broker, DEAD_MESSAGES), 0);
    assert_eq!(cold.reading.keys(), 0);
    assert_eq!(cold.left(), 0);
}

#[test]
fn what_is_due_later_comes_at_its_time() {
    let cold = Cold::new();
    let mut raw = cold.login();
    let at = in_ms(300);
    for n in 0..30 {
        let way = Way { due: (n % 3 == 0).then_some(at), ..Way::default() };
        let message = text("q", QUEUE, &format!("m{n}"), way).flags(Flags::PERSISTENT);
        asked(&mut raw, message);
    }
    let (_, one) = raw.consume(2, "q", 200);
    let first = take(&mut raw, one, 20);
    let wanted: Vec<String> = (0..30).filter(|n| n % 3 != 0).map(|n| format!("m{n}")).collect();
    assert_eq!(bodies(&first), wanted);
    raw.resume_consumer(one, 200);
    let later = take(&mut raw, one, 10);
    assert!(in_ms(0) >= at);
    let wanted: Vec<String> = (0..10).map(|n| format!("m{}", n * 3)).collect();
    assert_eq!(bodies(&later), wanted);
}

#[test]
fn the_oldest_give_way_and_are_buried_with_their_bodies() {
    let cold = Cold::with("[queues.small]\nmessages_max = 5\nlimit_behavior = \"REMOVE_OLDEST\"\n");
    let mut raw = cold.login();
    put(&mut raw, "small", QUEUE, numbered(1..=12));
    let gone = dead(&cold.broker, 7);
    assert_eq!(bodies(&gone), numbered(1..=7));
    assert_eq!(bodies(&browse(&mut raw, "small", None)), numbered(8..=12));
}

#[test]
fn what_was_rolled_back_comes_again_in_its_place_and_dies_at_last() {
    let cold = Cold::new();
    let mut raw = cold.login();
    put(&mut raw, "q", QUEUE, numbered(1..=50));
    let (session, _) = raw.consume(0, "q", 1000);
    for count in 1..=3 {
        let got = raw.messages(50);
        let wanted: Vec<_> = numbered(1..=50).into_iter().map(|text| (text, count)).collect();
        assert_eq!(counted(&got), wanted);
        let transaction = raw.begin(session);
        let ten: Vec<&Packet> = got[..10].iter().collect();
        asked(&mut raw, support::raw::in_transaction(transaction, acknowledge(&ten)));
        let rest: Vec<&Packet> = got[10..].iter().collect();
        raw.stop_session(session);
        raw.send(support::raw::redeliver(true, &rest));
        let rollback = about(PacketType::ROLLBACK_TRANSACTION, transaction)
            .boolean("JMQRedeliver", true)
            .int("JMQMaxRollbacks", 2)
            .boolean("JMQDMQOnMaxRollbacks", count == 3);
        asked(&mut raw, rollback);
        raw.start_session(session);
    }
    assert_eq!(bodies(&dead(&cold.broker, 10)), numbered(1..=10));
    assert_eq!(held(&cold.broker, "q"), 40);
}

#[test]
fn what_a_consumer_leaves_goes_to_the_next_one_counted() {
    let cold = Cold::new();
    let mut raw = cold.login();
    put(&mut raw, "q", QUEUE, numbered(1..=100));
    let (session, _) = raw.consume(2, "q", 30);
    let got = raw.messages(30);
    asked(&mut raw, acknowledge(&[&got[0]]));
    asked(&mut raw, destroy(session));
    let (_, one) = raw.consume(2, "q", 200);
    let again = take(&mut raw, one, 99);
    assert_eq!(bodies(&again), numbered(2..=100));
    let counts: Vec<i32> = again.iter().map(delivery_count).collect();
    assert_eq!(counts[..29], [2; 29]);
    assert_eq!(counts[29..], [1; 70]);
}

#[test]
fn subscriptions_share_what_is_stored_of_a_topic() {
    let cold = Cold::new();
    let mut raw = cold.login();
    let mut sessions = Vec::new();
    let mut readers: Vec<Raw> = ["ann", "bob"]
        .into_iter()
        .map(|name| {
            let mut reader = login_as(&cold.broker, name);
            let session = reader.create_session(2);
            let one = subscribed(&mut reader, durable(session, "t", "d"));
            asked(&mut reader, close(one, None));
            sessions.push(session);
            reader
        })
        .collect();
    put(&mut raw, "t", TOPIC, numbered(1..=400));
    assert_eq!((held(&cold.broker, "t"), cold.reading.keys()), (400, 0));
    for (reader, session) in readers.iter_mut().zip(sessions) {
        assert_eq!(held(&cold.broker, "t"), 400);
        reader.start();
        let wish = consumer_ahead(session, "t", TOPIC, 200).string("JMQDurableName", "d");
        let one = subscribed(reader, wish);
        are(&take(reader, one, 400), &numbered(1..=400));
    }
    await_held(&cold.broker, "t", 0);
    assert!(cold.reading.keys() >= 800, "each reads its own: {:?}", cold.reading);
    assert_eq!(cold.left(), 0);
}

#[test]
fn a_hundred_thousand_are_drained_once_each_in_order_over_a_restart() {
    const COUNT: u64 = 100_000;
    let mut cold = Cold::filled(COUNT);
    let mut got: Vec<Packet> = Vec::new();
    for half in 0..2 {
        assert_eq!(held(&cold.broker, "q"), COUNT - got.len() as u64);
        let mut raw = cold.login();
        let (_, one) = raw.consume(2, "q", 200);
        let count = usize::try_from(COUNT).unwrap() / 2;
        got.extend(take(&mut raw, one, count));
        await_held(&cold.broker, "q", COUNT / 2 * (1 - half));
        if half == 0 {
            cold.kill();
        }
    }
    are(&got, &numbered(1..=COUNT));
    let again = got.iter().filter(|message| delivery_count(message) != 1).count();
    assert!(again <= 1024, "only what may have been on its way is flagged: {again}");
    assert!(cold.reading.keys() >= COUNT, "{:?}", cold.reading);
    assert!(cold.reading.most.load(SeqCst) <= REQUEST_MAX, "{:?}", cold.reading);
    assert_eq!(cold.left(), 0);
}

#[test]
fn no_more_is_fetched_than_is_about_to_be_taken() {
    let cold = Cold::filled(5000);
    let mut raw = cold.login();
    let (_, one) = raw.consume(2, "q", 10);
    assert_eq!(bodies(&raw.messages(10)), numbered(1..=10));
    assert!(raw.messages_so_far().is_empty());
    assert!(cold.reading.keys() <= REQUEST_MAX, "{:?}", cold.reading);
    raw.resume_consumer(one, 10);
    assert_eq!(bodies(&raw.messages(10)), numbered(11..=20));
}

#[test]
fn a_body_of_any_size_is_fetched() {
    let cold = Cold::new();
    let mut raw = cold.login();
    let sizes = [0, 1, 70_000, 3 << 20, 1024, 2 << 20, 5];
    let large = |n: usize, size: usize| format!("{n}{}", "-".repeat(size));
    for (n, size) in sizes.into_iter().enumerate() {
        put(&mut raw, "q", QUEUE, [large(n, size)]);
    }
    let (_, one) = raw.consume(2, "q", 200);
    let got = take(&mut raw, one, sizes.len());
    for (n, size) in sizes.into_iter().enumerate() {
        assert!(body(&got[n]) == large(n, size), "{n} of {size} bytes");
    }
}

#[test]
fn a_body_that_is_not_there_costs_that_message_alone() {
    let cold = Cold::filled(500);
    cold.reading.missing.store(7, SeqCst);
    cold.reading.altered.store(9, SeqCst);
    cold.reading.corrupt.store(300, SeqCst);
    let mut raw = cold.login();
    let (_, one) = raw.consume(2, "q", 200);
    let got = take(&mut raw, one, 497);
    let wanted: Vec<String> =
        (1..=500).filter(|n| ![7, 9, 300].contains(n)).map(|n| format!("m{n}")).collect();
    are(&got, &wanted);
    await_held(&cold.broker, "q", 0);
    put(&mut raw, "q", QUEUE, ["more"]);
    assert_eq!(bodies(&take(&mut raw, one, 1)), ["more"]);
}

#[test]
fn what_cannot_be_read_for_a_while_waits_and_comes_then() {
    let cold = Cold::filled(300);
    let mut raw = cold.login();
    cold.reading.fails.store(true, SeqCst);
    let (_, one) = raw.consume(2, "q", 200);
    wait_until("it is asked for", || cold.reading.requests.load(SeqCst) > 0);
    assert!(raw.messages_so_far().is_empty());
    // What has its body goes on, in another queue.
    raw.create_destination("other", QUEUE);
    let mut other = cold.login();
    other.consume(2, "other", 10);
    put(&mut raw, "other", QUEUE, ["x"]);
    let x = other.message();
    assert_eq!(body(&x), "x");
    asked(&mut other, acknowledge(&[&x]));
    wait_until("it is asked for again", || cold.reading.requests.load(SeqCst) > 1);
    cold.reading.fails.store(false, SeqCst);
    are(&take(&mut raw, one, 300), &numbered(1..=300));
    await_held(&cold.broker, "q", 0);
    assert_eq!(cold.left(), 0);
}

#[test]
fn what_is_on_its_way_to_be_fetched_may_be_consumed_or_destroyed_meanwhile() {
    let cold = Cold::filled(300);
    let mut raw = cold.login();
    cold.reading.fails.store(true, SeqCst);
    let (session, _) = raw.consume(2, "q", 200);
    wait_until("it is asked for", || cold.reading.requests.load(SeqCst) > 0);
    asked(&mut raw, destroy(session));
    asked(&mut raw, destination(PacketType::DESTROY_DESTINATION, "q", QUEUE));
    cold.reading.fails.store(false, SeqCst);
    // Another one of the same name has nothing of it.
    let mut raw = cold.login();
    put(&mut raw, "q", QUEUE, ["new"]);
    let (_, one) = raw.consume(2, "q", 200);
    let got = take(&mut raw, one, 1);
    assert_eq!(counted(&got), times(&[("new", 1)]));
    assert!(raw.messages_so_far().is_empty());
    assert_eq!(status(&raw.create_destination("q", QUEUE)), 200);
    assert_eq!(cold.left(), 0);
}
