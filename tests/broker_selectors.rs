//! Selectors of consumers and browsers, seen on the wire.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, reason = "tests")]

#[path = "selector_support/samples.rs"]
mod samples;
mod support;

use std::time::{Duration, Instant};

use support::{
    asking::{
        Way, asked, await_held, broker_with, browse, close, consumer, consumer_ahead, destination,
        held, login_as, look_at, refused, subscribed, text, with_properties,
    },
    broker,
    raw::{
        QUEUE, Raw, TOPIC, acknowledge, bodies, body, counted, destroy, flags, redeliver, status,
        times,
    },
};
use tidegate::{
    message::Origin,
    wire::{PacketBuilder, PacketType, Properties},
};

/// Five messages in queue `q`, named after their bodies.
fn samples(raw: &mut Raw) {
    raw.create_destination("q", QUEUE);
    for (_, message) in samples::messages() {
        asked(raw, message.encode(&Origin::default()).unwrap());
    }
}

fn sorted(mut labels: Vec<String>) -> String {
    labels.sort();
    labels.join(" ")
}

fn with_selector(session: i64, name: &str, mask: i32, selector: &str) -> PacketBuilder {
    consumer(session, name, mask).string("JMQSelector", selector)
}

/// A text for queue `q` with one property.
fn coloured(colour: &str, body: &str) -> PacketBuilder {
    with_properties("q", QUEUE, body, |own| own.set("colour", colour))
}

#[test]
fn browsers_and_consumers_see_what_their_selectors_want() {
    for dialect in ["jms", "reference"] {
        let broker = broker_with(&format!("selectors = \"{dialect}\"\n"));
        let mut raw = Raw::login(broker.jms_address(), 0);
        samples(&mut raw);
        raw.start();
        for (selector, wanted) in samples::FOUND.into_iter().chain([("  ", "M0 M1 M2 M3 M4")]) {
            let seen = bodies(&browse(&mut raw, "q", Some(selector)));
            assert_eq!(sorted(seen), wanted, "{dialect} browses {selector}");
            let session = raw.create_session(2);
            subscribed(&mut raw, with_selector(session, "q", QUEUE, selector));
            let got = bodies(&raw.messages_so_far());
            assert_eq!(sorted(got), wanted, "{dialect} consumes {selector}");
            asked(&mut raw, destroy(session));
        }
        assert_eq!(browse(&mut raw, "q", Some("TRUE")).len(), 5, "nothing was lost on the way");
        assert_eq!(body(&browse(&mut raw, "q", Some("TRUE"))[0]), "M4", "higher priority first");
    }
}

#[test]
fn what_a_missing_property_does_is_a_setting_where_the_standard_and_the_reference_differ() {
    let firm = [
        ("key = 'aValue'", "F"),
        ("key NOT LIKE 'aV%'", "G"),
        ("key NOT IN ('aValue')", "G"),
        ("key IS NULL", "E"),
        ("key IS NOT NULL AND key <> 'aValue'", "G"),
        ("n > 0 OR n <= 0", ""),
        ("NOT n = 1", ""),
        ("n <> 1", ""),
        ("n = 1 OR key = 'other'", "G"),
        ("n = 1 AND key = 'other'", ""),
        ("FALSE AND n = 1 OR key = 'other'", "G"),
    ];
    let disputed = [
        ("key <> 'aValue'", "G", "E G"),
        ("NOT (key = 'aValue')", "G", "E G"),
        ("NOT (key LIKE 'aV%')", "G", "E G"),
        ("n NOT BETWEEN 0 AND 5", "", "E F G"),
        ("x1 = x2", "", "E F G"),
    ];
    for (settings, is_jms) in
        [("", true), ("selectors = \"jms\"\n", true), ("selectors = \"reference\"\n", false)]
    {
        let broker = broker_with(settings);
        let mut raw = Raw::login(broker.jms_address(), 0);
        raw.create_destination("q", QUEUE);
        asked(&mut raw, text("q", QUEUE, "E", Way::default()));
        for (label, key) in [("F", "aValue"), ("G", "other")] {
            asked(&mut raw, with_properties("q", QUEUE, label, |own| own.set("key", key)));
        }
        let own = disputed
            .map(|(selector, jms, reference)| (selector, if is_jms { jms } else { reference }));
        for (selector, wanted) in firm.into_iter().chain(own) {
            let seen = bodies(&browse(&mut raw, "q", Some(selector)));
            assert_eq!(sorted(seen), wanted, "{settings}: {selector}");
        }
    }
}

#[test]
fn a_selector_that_makes_no_sense_is_refused_wherever_it_is_given() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("q", QUEUE);
    let session = raw.create_session(1);
    for selector in ["n IN (42)", "name < 'b'", "name = NULL", "n == 1", "(a = 1", "'open"] {
        let with = |packet: PacketBuilder| packet.string("JMQSelector", selector);
        for packet in [
            consumer(session, "q", QUEUE),
            consumer(session, "t", TOPIC),
            consumer(session, "t", TOPIC).string("JMQDurableName", "d"),
            destination(PacketType::BROWSE, "q", QUEUE),
            destination(PacketType::VERIFY_DESTINATION, "q", QUEUE),
        ] {
            assert_eq!(refused(&mut raw, with(packet)), 400, "{selector}");
        }
    }
    assert!(look_at(&broker, "t").is_none(), "nothing was made for it");
}

#[test]
fn huge_selectors_are_refused_or_work_while_others_are_served() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    let mut other = Raw::login(broker.jms_address(), 0);
    let session = raw.create_session(1);
    let nested = |depth: usize| format!("{}TRUE{}", "(".repeat(depth), ")".repeat(depth));
    let cases = [
        (nested(10), Some(200)),
        (nested(100), Some(200)),
        (nested(1000), Some(400)),
        (nested(20_000), Some(400)),
        (format!("{}TRUE{}", "NOT (".repeat(10_000), ")".repeat(10_000)), Some(400)),
        (format!("{}1{}=1", "-(".repeat(20_000), ")".repeat(20_000)), Some(400)),
        ("(".repeat(60_000), Some(400)),
        (vec!["a=1"; 8000].join(" OR "), None),
        (format!("{}=3", vec!["1"; 20_000].join("+")), None),
        (format!("a = '{}'", "x".repeat(60_000)), Some(200)),
    ];
    for (selector, wanted) in cases {
        let begin: String = selector.chars().take(20).collect();
        let mut wish = Properties::new();
        wish.set("JMQDestination", "q");
        wish.set("JMQDestType", QUEUE);
        wish.set("JMQSessionID", session);
        wish.set("JMQSelector", selector);
        let packet = PacketBuilder::new(PacketType::ADD_CONSUMER).properties(&wish).unwrap();
        let started = Instant::now();
        let asked = raw.ask(packet);
        other.request(PacketBuilder::new(PacketType::PING));
        let answered = status(&raw.reply(asked));
        // Milliseconds, with much room for a machine that is busy.
        assert!(started.elapsed() < Duration::from_secs(2), "{begin}: {:?}", started.elapsed());
        assert!(wanted.is_none_or(|wanted| wanted == answered), "{begin}: {answered}");
        assert!([200, 400].contains(&answered), "{begin}: {answered}");
    }
}

#[test]
fn consumers_with_selectors_share_one_queue_and_leave_each_other_the_rest() {
    let broker = broker(2);
    let mut sender = Raw::login(broker.jms_address(), 0);
    sender.create_destination("q", QUEUE);
    let mut red = Raw::login(broker.jms_address(), 0);
    let mut blue = Raw::login(broker.jms_address(), 0);
    for (raw, colour) in [(&mut red, "red"), (&mut blue, "blue")] {
        raw.start();
        let session = raw.create_session(1);
        let selector = format!("colour = '{colour}'");
        subscribed(raw, with_selector(session, "q", QUEUE, &selector));
    }
    for (number, colour) in
        ["red", "blue", "green", "red", "green", "blue", "red"].iter().enumerate()
    {
        asked(&mut sender, coloured(colour, &number.to_string()));
    }
    assert_eq!(bodies(&red.messages(3)), ["0", "3", "6"]);
    assert_eq!(bodies(&blue.messages(2)), ["1", "5"]);
    assert!(red.messages_so_far().is_empty() && blue.messages_so_far().is_empty());
    // Who takes anything gets the rest, in order.
    sender.consume(1, "q", 10);
    assert_eq!(bodies(&sender.messages(2)), ["2", "4"]);
}

#[test]
fn a_consumers_credit_is_for_what_its_selector_takes() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.start();
    let session = raw.create_session(1);
    let two = consumer_ahead(session, "q", QUEUE, 2).string("JMQSelector", "colour = 'red'");
    let id = subscribed(&mut raw, two);
    for (number, colour) in ["blue", "red", "blue", "red", "red", "blue"].iter().enumerate() {
        asked(&mut raw, coloured(colour, &number.to_string()));
    }
    let first = raw.messages_so_far();
    assert_eq!((bodies(&first), flags(&first[1])), (vec!["1".into(), "3".into()], "QAC".into()));
    raw.resume_consumer(id, 2);
    let second = raw.messages_so_far();
    assert_eq!((bodies(&second), flags(&second[0])), (vec!["4".to_owned()], "QA".to_owned()));
}

#[test]
fn a_selector_looks_at_each_waiting_message_once_however_many_wait() {
    let broker = broker(1);
    let waiting = 20_000;
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("q", QUEUE);
    for _ in 0..waiting {
        raw.send(coloured("blue", "x"));
    }
    await_held(&broker, "q", waiting);
    raw.start();
    let session = raw.create_session(1);
    subscribed(&mut raw, with_selector(session, "q", QUEUE, "colour = 'red'"));
    let searched = || look_at(&broker, "q").unwrap().searched;
    support::wait_until("all were looked at", || searched() == waiting);
    let later = 500;
    for number in 0..later {
        asked(&mut raw, coloured(if number % 2 == 0 { "red" } else { "blue" }, "later"));
    }
    let got = raw.messages(250);
    assert!(got.iter().all(|one| body(one) == "later"));
    support::wait_until("the later ones", || searched() == waiting + later);
    // What comes back is looked at again, and nothing else.
    raw.send(redeliver(true, &[&got[3]]));
    assert_eq!(counted(&raw.messages(1)), times(&[("later", 2)]));
    support::wait_until("one more look", || searched() == waiting + later + 1);
    assert_eq!(held(&broker, "q"), waiting + later);
}

#[test]
fn a_message_that_comes_back_is_offered_again_to_whoever_wants_it() {
    let broker = broker(2);
    let mut one = Raw::login(broker.jms_address(), 0);
    let mut two = Raw::login(broker.jms_address(), 0);
    one.start();
    let session = one.create_session(2);
    subscribed(&mut one, with_selector(session, "q", QUEUE, "colour = 'red'"));
    asked(&mut one, coloured("blue", "0"));
    for number in 1..=3 {
        asked(&mut one, coloured("red", &number.to_string()));
    }
    assert_eq!(one.messages(3).len(), 3);
    two.start();
    let other = two.create_session(2);
    subscribed(&mut two, with_selector(other, "q", QUEUE, "colour = 'red'"));
    subscribed(&mut two, with_selector(other, "q", QUEUE, "colour = 'green'"));
    assert!(two.messages_so_far().is_empty());
    one.reset();
    assert_eq!(counted(&two.messages(3)), times(&[("1", 2), ("2", 2), ("3", 2)]));
    assert!(two.messages_so_far().is_empty());
    two.consume(1, "q", 10);
    assert_eq!(bodies(&two.messages(1)), ["0"]);
}

#[test]
fn a_selector_finds_higher_priorities_first_wherever_they_stand() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("q", QUEUE);
    for (label, priority, colour) in
        [("1", 2, "red"), ("2", 9, "blue"), ("3", 7, "red"), ("4", 2, "red"), ("5", 7, "red")]
    {
        asked(&mut raw, coloured(colour, label).priority(priority));
    }
    raw.start();
    let session = raw.create_session(1);
    subscribed(&mut raw, with_selector(session, "q", QUEUE, "colour = 'red'"));
    assert_eq!(bodies(&raw.messages(4)), ["3", "5", "1", "4"]);
}

#[test]
fn what_a_selector_cannot_be_computed_for_is_no_match_and_no_failure_of_the_send() {
    let broker = broker(1);
    let mut raw = login_as(&broker, "c");
    raw.start();
    let session = raw.create_session(1);
    subscribed(&mut raw, with_selector(session, "t", TOPIC, "colour + 1 > 0"));
    let all = subscribed(&mut raw, consumer(session, "t", TOPIC));
    let of_durable = with_selector(session, "t", TOPIC, "size / nothing = 1");
    subscribed(&mut raw, of_durable.string("JMQDurableName", "d"));
    let message = with_properties("t", TOPIC, "x", |own| {
        own.set("colour", "red");
        own.set("size", 1);
        own.set("nothing", 0);
    });
    asked(&mut raw, message);
    let got = raw.messages_so_far();
    assert_eq!(got.iter().map(|one| one.header().consumer_id).collect::<Vec<_>>(), [all]);
    asked(&mut raw, acknowledge(&[&got[0]]));
    await_held(&broker, "t", 0);
}

#[test]
fn a_message_whose_properties_cannot_be_read_matches_nothing_and_is_kept() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("q", QUEUE);
    raw.start();
    // A property that is no UTF-8, and a table that ends too early.
    let no_text =
        [0, 0, 0, 1, 0, 0, 0, 1, 0, 6, 99, 111, 108, 111, 117, 114, 0, 8, 0, 2, 0xC3, 0x28];
    let cut_off = [0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 118, 0, 8];
    for table in [&no_text[..], &cut_off] {
        let message = text("q", QUEUE, "x", Way::default()).property_section(table.to_vec());
        asked(&mut raw, message);
    }
    let session = raw.create_session(1);
    let selector = "colour = 'red' OR colour <> 'red' OR v = 'x'";
    subscribed(&mut raw, with_selector(session, "q", QUEUE, selector));
    assert!(raw.messages_so_far().is_empty());
    assert!(browse(&mut raw, "q", Some("colour = 'red'")).is_empty());
    let other = raw.create_session(1);
    subscribed(&mut raw, consumer(other, "q", QUEUE));
    assert_eq!(raw.messages(2).len(), 2);
}

#[test]
fn a_subscription_keeps_only_what_its_selector_takes() {
    let broker = broker(2);
    let mut raw = login_as(&broker, "c");
    raw.start();
    let session = raw.create_session(1);
    let wish = || with_selector(session, "t", TOPIC, "n > 1").string("JMQDurableName", "d");
    let one = subscribed(&mut raw, wish());
    asked(&mut raw, close(one, None));
    for n in 0..4 {
        asked(&mut raw, with_properties("t", TOPIC, &n.to_string(), |own| own.set("n", n)));
    }
    await_held(&broker, "t", 2);
    subscribed(&mut raw, wish());
    assert_eq!(bodies(&raw.messages(2)), ["2", "3"]);
    // The same text is the same selector, and nothing else is.
    assert_eq!(refused(&mut raw, wish()), 409);
}
