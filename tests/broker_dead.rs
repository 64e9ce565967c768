//! Messages that expire, that are due later, and that die in other ways, seen on the wire.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod support;

use support::{
    asking::{
        DEAD_MESSAGES, Way, asked, await_held, await_time, broker_with, browse, close, consumer,
        dead, destination, held, in_ms, login_as, property, refused, send_texts, subscribed, text,
        with_properties,
    },
    broker,
    raw::{QUEUE, Raw, TOPIC, acknowledge, bodies, body, counted, delivery_count, long, times},
};
use tidegate::{
    broker::Broker,
    wire::{Flags, Packet, PacketBuilder, PacketType, Properties, Value},
};

const REASON: &str = "JMS_SUN_DMQ_UNDELIVERED_REASON";
const COMMENT: &str = "JMS_SUN_DMQ_UNDELIVERED_COMMENT";

fn plain(name: &str, mask: i32, body: &str) -> PacketBuilder {
    text(name, mask, body, Way::default())
}

fn due(name: &str, mask: i32, body: &str, at: i64) -> PacketBuilder {
    text(name, mask, body, Way { due: Some(at), ..Way::default() })
}

fn value(packet: &Packet, name: &str) -> Option<Value> {
    packet.properties().unwrap().value(name)
}

/// A client that has started and made queue `q`.
fn client(broker: &Broker) -> Raw {
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("q", QUEUE);
    raw.start();
    raw
}

/// An acknowledgement that declares a delivery dead.
fn declare(packet: &Packet) -> PacketBuilder {
    acknowledge(&[packet]).int("JMQAckType", 2)
}

#[test]
fn what_expires_while_it_waits_goes_to_the_dead_messages_by_itself() {
    let broker = broker(2);
    let mut raw = client(&broker);
    let at = in_ms(50);
    asked(&mut raw, plain("q", QUEUE, "mortal").expiration(at));
    asked(&mut raw, plain("q", QUEUE, "lasting"));
    let gone = dead(&broker, 1);
    assert_eq!((bodies(&gone), held(&broker, "q")), (vec!["mortal".to_owned()], 1));
    assert_eq!(property(&gone[0], REASON).unwrap(), "EXPIRED");
    assert_eq!(gone[0].header().expiration, at, "it keeps its past expiration");
    assert_eq!(broker.snapshot().expired, 1);
}

#[test]
fn what_has_expired_is_not_delivered_even_if_nobody_has_looked_yet() {
    let broker = broker(1);
    let mut raw = client(&broker);
    let at = in_ms(5);
    asked(&mut raw, plain("q", QUEUE, "mortal").expiration(at));
    send_texts(&mut raw, "q", QUEUE, ["lasting"]);
    await_time(at);
    assert_eq!(bodies(&browse(&mut raw, "q", None)), ["lasting"], "nor shown");
    raw.consume(1, "q", 10);
    assert_eq!(bodies(&raw.messages_so_far()), ["lasting"]);
    assert_eq!(bodies(&dead(&broker, 1)), ["mortal"]);
}

#[test]
fn what_has_expired_on_arrival_is_accepted_and_goes_straight_to_the_dead() {
    let broker = broker(1);
    let mut raw = client(&broker);
    for name in ["q", "t"] {
        let mask = if name == "q" { QUEUE } else { TOPIC };
        raw.create_destination(name, mask);
        asked(&mut raw, plain(name, mask, name).expiration(1));
    }
    let gone = dead(&broker, 2);
    assert_eq!(bodies(&gone), ["q", "t"]);
    assert!(gone.iter().all(|one| property(one, REASON).unwrap() == "EXPIRED"));
    assert_eq!(held(&broker, "q"), 0);
}

#[test]
fn a_dead_message_is_what_it_was_and_tells_what_happened_in_the_right_types() {
    let broker = broker_with("name = \"deadly\"\n");
    let mut raw = client(&broker);
    let before = in_ms(0);
    let message = with_properties("q", QUEUE, "body", |own| own.set("n", 7));
    let id = raw.stamp(message.priority(8).flags(Flags::PERSISTENT).expiration(1));
    raw.send_bytes(id.raw());
    let gone = dead(&broker, 1).remove(0);
    assert_eq!(gone.header().id, id.header().id);
    assert_eq!((gone.header().priority, gone.header().expiration), (8, 1));
    assert_eq!(gone.variable().unwrap().destination_text().unwrap(), "q");
    assert!(gone.header().flags.contains(Flags::PERSISTENT.with(Flags::QUEUE)));
    assert_eq!(value(&gone, "n"), Some(Value::Int(7)));
    assert_eq!(value(&gone, REASON), Some(Value::from("EXPIRED")));
    assert_eq!(value(&gone, "JMS_SUN_DMQ_DELIVERY_COUNT"), Some(Value::Int(0)));
    assert_eq!(value(&gone, "JMS_SUN_DMQ_BODY_TRUNCATED"), Some(Value::Boolean(false)));
    assert_eq!(value(&gone, "JMS_SUN_DMQ_PRODUCING_BROKER"), Some(Value::from("deadly")));
    assert_eq!(value(&gone, "JMS_SUN_DMQ_DEAD_BROKER"), Some(Value::from("deadly")));
    assert!(matches!(value(&gone, COMMENT), Some(Value::String(_))));
    let Some(Value::Long(at)) = value(&gone, "JMS_SUN_DMQ_UNDELIVERED_TIMESTAMP") else {
        panic!("the time of death is a long")
    };
    assert!((before..=in_ms(0)).contains(&at));
    assert_eq!(value(&gone, "JMS_SUN_DMQ_UNDELIVERED_EXCEPTION"), None);
}

#[test]
fn dead_messages_can_be_consumed_like_others_and_do_not_die_again() {
    let broker = broker(1);
    let mut raw = client(&broker);
    asked(&mut raw, plain("q", QUEUE, "x").expiration(1));
    await_held(&broker, DEAD_MESSAGES, 1);
    raw.consume(1, DEAD_MESSAGES, 10);
    let got = raw.message();
    assert_eq!((body(&got).as_str(), delivery_count(&got)), ("x", 1), "counted anew");
    asked(&mut raw, declare(&got));
    await_held(&broker, DEAD_MESSAGES, 0);
    assert!(raw.messages_so_far().is_empty());
    let destroy = destination(PacketType::DESTROY_DESTINATION, DEAD_MESSAGES, QUEUE);
    assert_eq!(refused(&mut raw, destroy), 403);
}

#[test]
fn a_message_may_say_itself_whether_it_is_kept_and_with_its_body() {
    let broker =
        broker_with("[queues.careless]\nuse_dmq = false\n[queues.careful]\nuse_dmq = true\n");
    let mut raw = client(&broker);
    for (queue, preserve, truncate) in [
        ("careless", None, None),
        ("careless", Some(true), None),
        ("careful", Some(false), None),
        ("careful", None, Some(true)),
        ("careful", Some(true), Some(false)),
    ] {
        let name = format!("{queue} {preserve:?} {truncate:?}");
        let message = with_properties(queue, QUEUE, &name, |own: &mut Properties| {
            let names = ["JMS_SUN_PRESERVE_UNDELIVERED", "JMS_SUN_TRUNCATE_MSG_BODY"];
            for (name, said) in names.into_iter().zip([preserve, truncate]) {
                if let Some(said) = said {
                    own.set(name, said);
                }
            }
        });
        asked(&mut raw, message.expiration(1));
    }
    let gone = dead(&broker, 3);
    assert_eq!(bodies(&gone), ["careless Some(true) None", "", "careful Some(true) Some(false)"]);
    let truncated = gone.iter().map(|one| value(one, "JMS_SUN_DMQ_BODY_TRUNCATED").unwrap());
    assert_eq!(truncated.collect::<Vec<_>>(), [false, true, false].map(Value::Boolean));
    assert_eq!(broker.snapshot().expired, 5);
}

#[test]
fn bodies_of_the_dead_may_be_cut_off_for_all() {
    let broker = broker_with("[dmq]\ntruncate_body = true\n");
    let mut raw = client(&broker);
    asked(&mut raw, plain("q", QUEUE, "x").expiration(1));
    assert_eq!(bodies(&dead(&broker, 1)), [""]);
}

#[test]
fn a_client_declares_a_message_dead_and_says_why() {
    let broker = broker(2);
    let mut raw = client(&broker);
    raw.consume(2, "q", 10);
    send_texts(&mut raw, "q", QUEUE, 0..3);
    let got = raw.messages(3);
    let said = acknowledge(&[&got[0]])
        .int("JMQAckType", 2)
        .int("JMQDeadReason", 0)
        .string("JMQComment", "it is broken")
        .int("JMSXDeliveryCount", 7);
    asked(&mut raw, said);
    asked(&mut raw, declare(&got[1]).int("JMQDeadReason", 1));
    raw.send(declare(&got[2]));
    let gone = dead(&broker, 3);
    let reasons: Vec<_> = gone.iter().map(|one| property(one, REASON).unwrap()).collect();
    assert_eq!(reasons, ["UNDELIVERABLE", "EXPIRED", "UNDELIVERABLE"]);
    assert_eq!(property(&gone[0], COMMENT).unwrap(), "it is broken");
    assert_eq!(value(&gone[0], "JMS_SUN_DMQ_DELIVERY_COUNT"), Some(Value::Int(8)));
    assert_eq!(held(&broker, "q"), 0);
    assert_eq!(refused(&mut raw, declare(&got[0])), 409, "it is gone");
    assert_eq!(refused(&mut raw, acknowledge(&[&got[1], &got[2]]).int("JMQAckType", 2)), 500);
}

#[test]
fn the_exception_a_client_gives_is_kept_as_it_is() {
    let broker = broker(1);
    let mut raw = client(&broker);
    raw.consume(2, "q", 10);
    send_texts(&mut raw, "q", QUEUE, ["x"]);
    let got = raw.message();
    let mut said = Properties::new();
    said.set("JMQAckType", 2);
    said.set("JMQException", Value::Object(vec![0xAC, 0xED, 0, 5, 0x70].into()));
    asked(&mut raw, acknowledge(&[&got]).properties(&said).unwrap());
    let gone = dead(&broker, 1);
    let kept = value(&gone[0], "JMS_SUN_DMQ_UNDELIVERED_EXCEPTION");
    assert_eq!(kept, Some(Value::Object(vec![0xAC, 0xED, 0, 5, 0x70].into())));
}

#[test]
fn what_one_consumer_cannot_take_goes_back_to_a_queue_and_is_dropped_by_a_plain_topic() {
    let broker = broker(1);
    let mut raw = client(&broker);
    raw.consume(2, "q", 10);
    send_texts(&mut raw, "q", QUEUE, ["1", "2"]);
    let got = raw.messages(2);
    let back = |one: &Packet| acknowledge(&[one]).int("JMQAckType", 1);
    asked(&mut raw, back(&got[0]));
    let again = raw.messages(1);
    assert_eq!(counted(&again), times(&[("1", 2)]));
    assert_eq!(dead(&broker, 0).len(), 0);

    let session = raw.create_session(2);
    raw.create_destination("t", TOPIC);
    subscribed(&mut raw, consumer(session, "t", TOPIC));
    send_texts(&mut raw, "t", TOPIC, ["for one"]);
    let got = raw.message();
    asked(&mut raw, back(&got));
    assert!(raw.messages_so_far().is_empty());
    await_held(&broker, "t", 0);
    assert_eq!(dead(&broker, 0).len(), 0);
}

#[test]
fn what_a_consumer_of_a_durable_subscription_cannot_take_goes_back_to_it() {
    let broker = broker(1);
    let mut raw = login_as(&broker, "c");
    raw.start();
    let session = raw.create_session(2);
    subscribed(&mut raw, consumer(session, "t", TOPIC).string("JMQDurableName", "d"));
    send_texts(&mut raw, "t", TOPIC, ["x"]);
    let got = raw.message();
    asked(&mut raw, acknowledge(&[&got]).int("JMQAckType", 1));
    assert_eq!(counted(&raw.messages(1)), times(&[("x", 2)]));
}

#[test]
fn a_consumer_that_never_acknowledges_leaves_nothing_behind() {
    let broker = broker(2);
    let mut raw = client(&broker);
    let mut other = Raw::login(broker.jms_address(), 0);
    other.consume(32768, "q", 10);
    send_texts(&mut raw, "q", QUEUE, 0..3);
    assert_eq!(other.messages(3).len(), 3);
    await_held(&broker, "q", 0);
    other.reset();
    raw.consume(1, "q", 10);
    assert!(raw.messages_so_far().is_empty());
    assert_eq!(dead(&broker, 0).len(), 0);
}

#[test]
fn the_dead_message_queue_has_limits_of_its_own() {
    let broker = broker_with("[dmq]\nmessages_max = 2\n");
    let mut raw = client(&broker);
    for label in ["1", "2", "3"] {
        asked(&mut raw, plain("q", QUEUE, label).expiration(1));
    }
    raw.messages_so_far();
    assert_eq!(bodies(&dead(&broker, 2)), ["2", "3"], "the oldest goes");

    let broker = broker_with("[dmq]\nmessages_max = 2\nlimit_behavior = \"REJECT_NEWEST\"\n");
    let mut raw = client(&broker);
    for label in ["1", "2", "3"] {
        asked(&mut raw, plain("q", QUEUE, label).expiration(1));
    }
    raw.messages_so_far();
    assert_eq!(bodies(&dead(&broker, 2)), ["1", "2"]);
}

#[test]
fn a_message_that_dies_in_several_subscriptions_is_buried_once() {
    let broker = broker(2);
    let mut raw = login_as(&broker, "c");
    let session = raw.create_session(1);
    for name in ["d", "e"] {
        let wish = consumer(session, "t", TOPIC).string("JMQDurableName", name);
        let one = subscribed(&mut raw, wish);
        asked(&mut raw, close(one, None));
    }
    // One that is stopped.
    subscribed(&mut raw, consumer(session, "t", TOPIC));
    asked(&mut raw, plain("t", TOPIC, "x").expiration(in_ms(30)));
    await_held(&broker, "t", 1);
    await_held(&broker, "t", 0);
    raw.messages_so_far();
    assert_eq!(bodies(&dead(&broker, 1)), ["x"]);
}

#[test]
fn what_is_due_later_is_neither_delivered_nor_shown_before_its_time() {
    let broker = broker(2);
    let mut raw = client(&broker);
    raw.consume(1, "q", 10);
    let at = in_ms(300);
    asked(&mut raw, due("q", QUEUE, "late", at));
    send_texts(&mut raw, "q", QUEUE, ["at once"]);
    assert_eq!(bodies(&raw.messages(1)), ["at once"]);
    let shown = bodies(&browse(&mut raw, "q", None));
    assert!(!shown.contains(&"late".to_owned()) || in_ms(0) >= at, "{shown:?}");
    let late = raw.message();
    assert!(in_ms(0) >= at);
    assert_eq!((body(&late).as_str(), delivery_count(&late)), ("late", 1));
    assert_eq!(late.variable().unwrap().delivery_time, Some(at), "as it was produced");
}

#[test]
fn what_is_due_comes_in_the_order_of_its_times_behind_what_came_meanwhile() {
    let broker = broker(1);
    let mut raw = client(&broker);
    let now = in_ms(0);
    for (label, at, priority) in
        [("third", 150, 4), ("first", 50, 4), ("urgent", 150, 9), ("second", 100, 4)]
    {
        asked(&mut raw, due("q", QUEUE, label, now + at).priority(priority));
    }
    send_texts(&mut raw, "q", QUEUE, ["meanwhile"]);
    await_held(&broker, "q", 5);
    support::wait_until("all are due", || browse(&mut raw, "q", None).len() == 5);
    raw.consume(1, "q", 10);
    let got = bodies(&raw.messages(5));
    assert_eq!(got, ["urgent", "meanwhile", "first", "second", "third"]);
}

#[test]
fn times_that_are_asked_for_in_descending_order_are_all_kept() {
    let broker = broker(1);
    let mut raw = client(&broker);
    raw.consume(1, "q", 1000);
    let now = in_ms(200);
    for at in (0..100).rev() {
        asked(&mut raw, due("q", QUEUE, &at.to_string(), now + at));
    }
    let got = raw.messages(100);
    let wanted: Vec<_> = (0..100).map(|at| at.to_string()).collect();
    assert_eq!(bodies(&got), wanted);
}

#[test]
fn what_expires_before_it_is_due_is_never_delivered() {
    let broker = broker(1);
    let mut raw = client(&broker);
    raw.consume(1, "q", 10);
    let at = in_ms(100);
    asked(&mut raw, due("q", QUEUE, "dead", at).expiration(at - 50));
    asked(&mut raw, due("q", QUEUE, "alive", at).expiration(at + 60_000));
    assert_eq!(bodies(&raw.messages(1)), ["alive"]);
    assert_eq!(bodies(&dead(&broker, 1)), ["dead"]);
    assert!(raw.messages_so_far().is_empty());
}

#[test]
fn a_delayed_message_goes_to_those_who_subscribed_when_it_was_sent() {
    let broker = broker(2);
    let mut raw = login_as(&broker, "c");
    raw.start();
    let session = raw.create_session(1);
    let durable = || consumer(session, "t", TOPIC).string("JMQDurableName", "d");
    let of_durable = subscribed(&mut raw, durable());
    let plain = subscribed(&mut raw, consumer(session, "t", TOPIC));
    let leaving = subscribed(&mut raw, consumer(session, "t", TOPIC));
    let at = in_ms(200);
    asked(&mut raw, due("t", TOPIC, "late", at));
    asked(&mut raw, close(leaving, None));
    asked(&mut raw, close(of_durable, None));
    let too_late = subscribed(&mut raw, consumer(session, "t", TOPIC));
    let of_durable = subscribed(&mut raw, durable());
    let got = raw.messages(2);
    assert!(in_ms(0) >= at);
    let mut to: Vec<i64> = got.iter().map(|one| one.header().consumer_id).collect();
    let mut wanted = vec![plain, of_durable];
    to.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(to, wanted, "and not {too_late}");
    asked(&mut raw, acknowledge(&[&got[0], &got[1]]));
    await_held(&broker, "t", 0);
    assert!(raw.messages_so_far().is_empty());
}

#[test]
fn what_a_dead_message_was_to_be_counted_as_is_the_clients_word() {
    let broker = broker(1);
    let mut raw = client(&broker);
    let (session, _) = raw.consume(2, "q", 10);
    send_texts(&mut raw, "q", QUEUE, ["x"]);
    let got = raw.message();
    for count in [i32::MIN, -1, 0, 4] {
        let only = acknowledge(&[&got])
            .boolean("JMSXDeliveryCountUpdateOnly", true)
            .int("JMSXDeliveryCount", count);
        asked(&mut raw, only);
    }
    asked(&mut raw, support::raw::destroy(session));
    raw.consume(2, "q", 10);
    let again = raw.messages(1);
    assert_eq!(counted(&again), times(&[("x", 5)]), "four were seen");
    // The largest number there is does no harm either.
    let most = acknowledge(&again.iter().collect::<Vec<_>>())
        .boolean("JMSXDeliveryCountUpdateOnly", true)
        .int("JMSXDeliveryCount", i32::MAX);
    asked(&mut raw, most);
    raw.send(support::raw::redeliver(true, &[&again[0]]));
    assert_eq!(delivery_count(&raw.message()), i32::MAX);
}

#[test]
fn an_acknowledgement_can_be_tried_without_effect() {
    let broker = broker(1);
    let mut raw = client(&broker);
    raw.consume(2, "q", 10);
    send_texts(&mut raw, "q", QUEUE, ["x"]);
    let got = raw.message();
    let check = || acknowledge(&[&got]).boolean("JMQValidate", true);
    asked(&mut raw, check());
    assert_eq!(held(&broker, "q"), 1);
    asked(&mut raw, acknowledge(&[&got]));
    let after = raw.request(check());
    assert_eq!(support::raw::status(&after), 409);
}

#[test]
fn a_browser_looks_at_the_dead_without_counting_them_as_delivered() {
    let broker = broker(1);
    let mut raw = client(&broker);
    asked(&mut raw, plain("q", QUEUE, "x").expiration(1));
    let seen = dead(&broker, 1);
    assert_eq!(seen[0].variable().unwrap().delivery_count, None);
    let found = asked(&mut raw, destination(PacketType::BROWSE, DEAD_MESSAGES, QUEUE));
    assert_ne!(long(&found, "JMQConsumerID"), 0);
    raw.consume(1, DEAD_MESSAGES, 10);
    assert_eq!(delivery_count(&raw.message()), 1);
}
