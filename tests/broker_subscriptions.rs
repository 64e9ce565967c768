//! Subscriptions to topics, seen on the wire: durable ones, shared ones, and who may have them.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod support;

use support::{
    asking::{
        Way, asked, await_held, broker_with, client_id, close, consumer, consumer_ahead,
        destination, held, login_as, next_bodies, refused, send_texts, subscribed, text,
        unsubscribe,
    },
    broker,
    raw::{QUEUE, Raw, TOPIC, acknowledge, bodies, body, delivery_count, flags, int, long, status},
    wait_until,
};
use tidegate::{
    broker::Broker,
    wire::{Flags, PacketBuilder, PacketType},
};

fn durable(session: i64, topic: &str, name: &str) -> PacketBuilder {
    consumer(session, topic, TOPIC).string("JMQDurableName", name)
}

fn durable_by_client_id(session: i64, topic: &str, name: &str) -> PacketBuilder {
    durable(session, topic, name).boolean("JMQShare", true)
}

fn shared_durable(session: i64, topic: &str, name: &str) -> PacketBuilder {
    consumer(session, topic, TOPIC).string("JMQDurableName", name).boolean("JMQJMSShare", true)
}

fn shared(session: i64, topic: &str, name: &str) -> PacketBuilder {
    consumer(session, topic, TOPIC)
        .string("JMQSharedSubscriptionName", name)
        .boolean("JMQJMSShare", true)
}

/// A connection without client id that has started, and a session of it.
fn started(broker: &Broker, ack_mode: i32) -> (Raw, i64) {
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.start();
    let session = raw.create_session(ack_mode);
    (raw, session)
}

/// The same with a client id.
fn started_as(broker: &Broker, id: &str, ack_mode: i32) -> (Raw, i64) {
    let mut raw = login_as(broker, id);
    raw.start();
    let session = raw.create_session(ack_mode);
    (raw, session)
}

fn publish(raw: &mut Raw, texts: impl IntoIterator<Item = impl ToString>) {
    send_texts(raw, "t", TOPIC, texts);
}

#[test]
fn a_durable_subscription_keeps_what_is_published_while_nobody_listens() {
    let broker = broker(2);
    let (mut publisher, _) = started(&broker, 1);
    let (mut raw, session) = started_as(&broker, "c", 1);
    publisher.create_destination("t", TOPIC);
    publish(&mut publisher, ["before there was one"]);
    let one = subscribed(&mut raw, durable(session, "t", "d"));
    publish(&mut publisher, ["1"]);
    let first = raw.message();
    assert_eq!((body(&first).as_str(), first.header().consumer_id), ("1", one));
    asked(&mut raw, acknowledge(&[&first]));
    asked(&mut raw, close(one, Some(&first)));
    publish(&mut publisher, ["2", "3"]);
    drop(raw);
    wait_until("its client id is free", || broker.snapshot().connections == 1);
    publish(&mut publisher, ["4"]);
    let (mut raw, session) = started_as(&broker, "c", 1);
    subscribed(&mut raw, durable(session, "t", "d"));
    let rest = [raw.message(), raw.message(), raw.message()];
    assert_eq!(bodies(&rest), ["2", "3", "4"]);
    assert!(rest.iter().all(|message| delivery_count(message) == 1));
}

#[test]
fn subscriptions_of_the_same_name_and_other_client_ids_are_others() {
    let broker = broker(1);
    let (mut ann, session_of_ann) = started_as(&broker, "ann", 1);
    let (mut bob, session_of_bob) = started_as(&broker, "bob", 1);
    subscribed(&mut ann, durable(session_of_ann, "t", "d"));
    subscribed(&mut bob, durable(session_of_bob, "t", "d"));
    publish(&mut ann, ["x"]);
    assert_eq!(next_bodies(&mut ann, 1), ["x"]);
    assert_eq!(next_bodies(&mut bob, 1), ["x"]);
}

#[test]
fn a_durable_subscription_has_one_consumer_at_a_time() {
    let broker = broker(1);
    let (mut raw, session) = started_as(&broker, "c", 1);
    let one = subscribed(&mut raw, durable(session, "t", "d"));
    assert_eq!(refused(&mut raw, durable(session, "t", "d")), 409);
    asked(&mut raw, close(one, None));
    subscribed(&mut raw, durable(session, "t", "d"));
}

#[test]
fn a_shared_durable_subscription_spreads_its_messages_and_outlives_its_consumers() {
    let broker = broker(2);
    let (mut publisher, _) = started(&broker, 1);
    let (mut one, session_one) = started(&broker, 1);
    let (mut two, session_two) = started(&broker, 1);
    let of_one = subscribed(&mut one, shared_durable(session_one, "t", "d"));
    let of_two = subscribed(&mut two, shared_durable(session_two, "t", "d"));
    publish(&mut publisher, 0..10);
    let (first, second) = (one.messages_so_far(), two.messages_so_far());
    assert_eq!((first.len(), second.len()), (5, 5), "five each, and no more without credit");
    let mut all = bodies(&first);
    all.extend(bodies(&second));
    all.sort();
    assert_eq!(all, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    for (raw, id, got) in [(&mut one, of_one, &first), (&mut two, of_two, &second)] {
        asked(raw, acknowledge(&got.iter().collect::<Vec<_>>()));
        asked(raw, close(id, got.last()));
    }
    publish(&mut publisher, ["kept"]);
    subscribed(&mut two, shared_durable(session_two, "t", "d"));
    assert_eq!(next_bodies(&mut two, 1), ["kept"]);
}

#[test]
fn a_shared_subscription_that_is_not_durable_ends_with_its_last_consumer() {
    let broker = broker(1);
    let (mut raw, session) = started(&broker, 1);
    let one = subscribed(&mut raw, shared(session, "t", "s"));
    let two = subscribed(&mut raw, shared(session, "t", "s"));
    publish(&mut raw, ["1", "2"]);
    let got = [raw.message(), raw.message()];
    assert_ne!(got[0].header().consumer_id, got[1].header().consumer_id, "one each");
    asked(&mut raw, acknowledge(&[&got[0], &got[1]]));
    asked(&mut raw, close(one, None));
    publish(&mut raw, ["3"]);
    let third = raw.message();
    assert_eq!(third.header().consumer_id, two);
    asked(&mut raw, acknowledge(&[&third]));
    asked(&mut raw, close(two, Some(&third)));
    publish(&mut raw, ["nobody's"]);
    await_held(&broker, "t", 0);
    subscribed(&mut raw, shared(session, "t", "s"));
    assert!(raw.messages_so_far().is_empty());
}

#[test]
fn shared_subscriptions_belong_to_a_client_id_or_to_all_that_have_none() {
    let broker = broker(1);
    let (mut nobody, session_of_nobody) = started(&broker, 1);
    let (mut ann, session_of_ann) = started_as(&broker, "ann", 1);
    subscribed(&mut nobody, shared(session_of_nobody, "t", "s"));
    subscribed(&mut ann, shared(session_of_ann, "t", "s"));
    // A durable one of that name is a third.
    subscribed(&mut ann, shared_durable(session_of_ann, "t", "s"));
    publish(&mut nobody, ["x"]);
    assert_eq!(next_bodies(&mut nobody, 1), ["x"]);
    assert_eq!(next_bodies(&mut ann, 2), ["x", "x"]);
    assert!(ann.messages_so_far().is_empty() && nobody.messages_so_far().is_empty());
}

#[test]
fn connections_that_share_a_client_id_share_its_durable_subscriptions() {
    let broker = broker(2);
    let shared_id = || client_id("both").boolean("JMQShare", true);
    let (mut one, session_one) = started(&broker, 1);
    let (mut two, session_two) = started(&broker, 1);
    for raw in [&mut one, &mut two] {
        asked(raw, shared_id());
    }
    subscribed(&mut one, durable_by_client_id(session_one, "t", "d"));
    subscribed(&mut two, durable_by_client_id(session_two, "t", "d"));
    assert_eq!(refused(&mut two, durable(session_two, "t", "d")), 409, "it is shared");
    publish(&mut one, 0..4);
    let (first, second) = (one.messages_so_far(), two.messages_so_far());
    assert_eq!((first.len(), second.len()), (2, 2));
}

#[test]
fn an_unnamed_subscription_is_shared_by_client_id_topic_and_selector() {
    let broker = broker(1);
    let wish = |session| consumer(session, "t", TOPIC).boolean("JMQShare", true);
    let (mut raw, session) = started(&broker, 1);
    assert_eq!(refused(&mut raw, wish(session)), 412, "there is no client id");
    asked(&mut raw, client_id("both").boolean("JMQShare", true));
    subscribed(&mut raw, wish(session));
    let (mut other, other_session) = started(&broker, 1);
    asked(&mut other, client_id("both").boolean("JMQShare", true));
    subscribed(&mut other, wish(other_session));
    let with_selector =
        subscribed(&mut other, wish(other_session).string("JMQSelector", "JMSPriority >= 0"));
    publish(&mut raw, 0..2);
    let own = raw.messages_so_far();
    let others = other.messages_so_far();
    let selected = others.iter().filter(|one| one.header().consumer_id == with_selector).count();
    assert_eq!((own.len(), others.len() - selected, selected), (1, 1, 2));
}

#[test]
fn a_subscription_with_a_client_id_gets_nothing_of_what_that_id_sends_if_it_wants_so() {
    let broker = broker(2);
    let (mut own, session) = started(&broker, 1);
    asked(&mut own, client_id("c").boolean("JMQShare", true));
    let (mut same, same_session) = started(&broker, 1);
    asked(&mut same, client_id("c").boolean("JMQShare", true));
    let (mut other, _) = started_as(&broker, "other", 1);
    let kinds = [
        ("plain", consumer(session, "t", TOPIC)),
        ("durable", durable(session, "t", "d")),
        ("shared", shared(session, "t", "s")),
        ("shared durable", shared_durable(session, "t", "sd")),
        ("by client id", consumer(session, "t", TOPIC).boolean("JMQShare", true)),
    ];
    let kinds =
        kinds.map(|(kind, wish)| (subscribed(&mut own, wish.boolean("JMQNoLocal", true)), kind));
    // One consumer at the publisher shows that it is published at all.
    subscribed(&mut same, consumer(same_session, "t", TOPIC));
    let expect = |own: &mut Raw, from: &mut Raw, text: &str, wanted: &[&str]| {
        publish(from, [text]);
        let got = own.messages_so_far();
        let name = |id| kinds.iter().find(|(consumer, _)| *consumer == id).unwrap().1;
        let mut got: Vec<_> = got.iter().map(|one| name(one.header().consumer_id)).collect();
        got.sort_unstable();
        assert_eq!(got, wanted, "sent by {text}");
    };
    expect(&mut own, &mut same, "the same client id", &["plain"]);
    let all = ["by client id", "durable", "plain", "shared", "shared durable"];
    expect(&mut own, &mut other, "another client id", &all);
    assert_eq!(next_bodies(&mut same, 2), ["the same client id", "another client id"]);
    publish(&mut own, ["from here"]);
    assert!(own.messages_so_far().is_empty());
}

#[test]
fn no_local_of_a_shared_subscription_needs_a_client_id() {
    let broker = broker(1);
    let (mut raw, session) = started(&broker, 1);
    for wish in [shared(session, "t", "s"), shared_durable(session, "t", "d")] {
        assert_eq!(refused(&mut raw, wish.boolean("JMQNoLocal", true)), 412);
    }
}

#[test]
fn an_inactive_durable_subscription_is_made_anew_with_another_topic_selector_or_no_local() {
    let broker = broker(1);
    let (mut raw, session) = started_as(&broker, "c", 1);
    let (mut publisher, _) = started(&broker, 1);
    publisher.create_destination("u", TOPIC);
    let wish = || durable(session, "t", "d");
    let one = subscribed(&mut raw, wish());
    asked(&mut raw, close(one, None));
    publish(&mut publisher, ["lost with the old one"]);
    await_held(&broker, "t", 1);
    let changes = [
        wish().string("JMQSelector", "TRUE"),
        wish().string("JMQSelector", "TRUE").boolean("JMQNoLocal", true),
        durable(session, "u", "d"),
    ];
    for change in changes {
        let two = subscribed(&mut raw, change);
        assert!(raw.messages_so_far().is_empty());
        await_held(&broker, "t", 0);
        asked(&mut raw, close(two, None));
        publish(&mut publisher, ["lost as well"]);
    }
    await_held(&broker, "t", 0);
    send_texts(&mut publisher, "u", TOPIC, ["x"]);
    subscribed(&mut raw, durable(session, "u", "d"));
    assert_eq!(next_bodies(&mut raw, 1), ["x"]);
}

#[test]
fn an_active_subscription_cannot_be_changed() {
    let broker = broker(1);
    let (mut raw, session) = started_as(&broker, "c", 1);
    subscribed(&mut raw, durable(session, "t", "d"));
    subscribed(&mut raw, shared_durable(session, "t", "sd"));
    subscribed(&mut raw, shared(session, "t", "s"));
    for (what, wish) in [
        ("topic", durable(session, "u", "d")),
        ("topic", shared_durable(session, "u", "sd")),
        ("selector", shared_durable(session, "t", "sd").string("JMQSelector", "TRUE")),
        ("no-local", shared_durable(session, "t", "sd").boolean("JMQNoLocal", true)),
        ("topic", shared(session, "u", "s")),
        ("selector", shared(session, "t", "s").string("JMQSelector", "TRUE")),
        ("no-local", shared(session, "t", "s").boolean("JMQNoLocal", true)),
        ("sharing", durable(session, "t", "sd")),
        ("sharing", shared_durable(session, "t", "d")),
    ] {
        assert_eq!(refused(&mut raw, wish), 409, "another {what}");
    }
    subscribed(&mut raw, shared_durable(session, "t", "sd"));
    subscribed(&mut raw, shared(session, "t", "s"));
}

#[test]
fn a_durable_subscription_is_never_shared_in_another_way_than_it_was_made() {
    let broker = broker(1);
    let (mut raw, session) = started_as(&broker, "c", 1);
    let kinds =
        || [durable, shared_durable, durable_by_client_id].map(|kind| kind(session, "t", "d"));
    for (at, wish) in kinds().into_iter().enumerate() {
        let one = subscribed(&mut raw, wish);
        asked(&mut raw, close(one, None));
        for (other, wish) in kinds().into_iter().enumerate().filter(|(other, _)| *other != at) {
            assert_eq!(refused(&mut raw, wish), 409, "{other} after {at}, inactive");
        }
        asked(&mut raw, unsubscribe("d"));
    }
}

#[test]
fn unsubscribing_frees_what_waits_and_tells_what_is_wrong() {
    let broker = broker(2);
    let (mut raw, session) = started_as(&broker, "c", 1);
    assert_eq!(refused(&mut raw, unsubscribe("d")), 404);
    let one = subscribed(&mut raw, durable(session, "t", "d"));
    assert_eq!(refused(&mut raw, unsubscribe("d")), 409, "it is in use");
    asked(&mut raw, close(one, None));
    publish(&mut raw, 0..3);
    await_held(&broker, "t", 3);
    asked(&mut raw, unsubscribe("d"));
    await_held(&broker, "t", 0);
    assert_eq!(refused(&mut raw, unsubscribe("d")), 404);
    // Its topic is destroyed meanwhile.
    let two = subscribed(&mut raw, durable(session, "t", "d"));
    asked(&mut raw, close(two, None));
    asked(&mut raw, destination(PacketType::DESTROY_DESTINATION, "t", TOPIC));
    assert_eq!(refused(&mut raw, unsubscribe("d")), 412);
    assert_eq!(refused(&mut raw, unsubscribe("d")), 404, "it has ended all the same");
}

#[test]
fn a_client_without_id_may_name_one_with_its_request() {
    let broker = broker(1);
    let (mut raw, session) = started(&broker, 1);
    assert_eq!(refused(&mut raw, durable(session, "t", "d")), 412);
    let one = subscribed(&mut raw, durable(session, "t", "d").string("JMQClientID", "c"));
    asked(&mut raw, close(one, None));
    assert_eq!(refused(&mut raw, unsubscribe("d")), 404, "nobody's has this name");
    asked(&mut raw, unsubscribe("d").string("JMQClientID", "c"));
}

#[test]
fn what_a_subscription_needs_is_said_with_412() {
    let broker = broker(1);
    let (mut raw, session) = started(&broker, 1);
    let temporary = "temporary_destination://topic/127.0.0.1/1/1";
    asked(&mut raw, destination(PacketType::CREATE_DESTINATION, temporary, TOPIC | 0x10));
    for (why, wish) in [
        ("no client id", durable(session, "t", "d")),
        ("no client id", durable_by_client_id(session, "t", "d")),
        ("no client id", consumer(session, "t", TOPIC).boolean("JMQShare", true)),
        ("blank client id", durable(session, "t", "d").string("JMQClientID", "  ")),
        ("blank name", shared(session, "t", " ")),
        ("blank name", shared_durable(session, "t", "")),
        ("no name", consumer(session, "t", TOPIC).boolean("JMQJMSShare", true)),
        ("temporary", shared(session, temporary, "s")),
        ("temporary", shared_durable(session, temporary, "d")),
    ] {
        assert_eq!(refused(&mut raw, wish), 412, "{why}");
    }
    asked(&mut raw, client_id("c"));
    for (why, wish) in [
        ("blank name", durable(session, "t", "\t")),
        ("temporary", durable(session, temporary, "d")),
        ("temporary", consumer(session, temporary, TOPIC).boolean("JMQShare", true)),
    ] {
        assert_eq!(refused(&mut raw, wish), 412, "{why}");
    }
    subscribed(&mut raw, consumer(session, temporary, TOPIC));
}

#[test]
fn a_wish_that_contradicts_itself_is_refused_with_500() {
    let broker = broker(1);
    let (mut raw, session) = started_as(&broker, "c", 1);
    let both = durable_by_client_id(session, "t", "d").boolean("JMQJMSShare", true);
    for (why, wish) in [
        ("two ways to share", both),
        (
            "a queue has no subscription",
            consumer(session, "q", QUEUE).string("JMQDurableName", "d"),
        ),
        ("a queue has no local", consumer(session, "q", QUEUE).boolean("JMQNoLocal", true)),
        ("no such session", consumer(session + 1, "t", TOPIC)),
    ] {
        assert_eq!(refused(&mut raw, wish), 500, "{why}");
    }
}

#[test]
fn a_client_id_belongs_to_one_connection_unless_all_are_willing_to_share() {
    let broker = broker(2);
    let mut one = Raw::login(broker.jms_address(), 0);
    let mut two = Raw::login(broker.jms_address(), 0);
    let shared_id = || client_id("s").boolean("JMQShare", true);
    asked(&mut one, client_id("c"));
    assert_eq!(refused(&mut two, client_id("c")), 409);
    assert_eq!(refused(&mut two, client_id("c").boolean("JMQShare", true)), 409);
    asked(&mut one, shared_id());
    asked(&mut two, client_id("c"));
    asked(&mut two, shared_id());
    let mut three = Raw::login(broker.jms_address(), 0);
    assert_eq!(refused(&mut three, client_id("s")), 409);
    // Absent: cleared.
    asked(&mut one, PacketBuilder::new(PacketType::SET_CLIENTID));
    assert_eq!(refused(&mut three, client_id("s")), 409, "another one still has it");
    drop(two);
    wait_until("it has left", || broker.snapshot().connections == 2);
    asked(&mut three, client_id("s"));
}

#[test]
fn a_name_space_shares_the_client_id_with_others_and_not_with_its_own() {
    let broker = broker(1);
    let within = |space: &str| client_id("c").string("JMQNamespace", space);
    let mut one = Raw::login(broker.jms_address(), 0);
    let mut two = Raw::login(broker.jms_address(), 0);
    asked(&mut one, within("a"));
    assert_eq!(refused(&mut two, within("a")), 409);
    asked(&mut two, within("b"));
    let mut three = Raw::login(broker.jms_address(), 0);
    assert_eq!(refused(&mut three, client_id("c")), 409);
}

#[test]
fn the_users_name_takes_its_place_in_the_client_id() {
    let broker = broker(1);
    let (mut raw, session) = started_as(&broker, "${u}-app", 1);
    let one = subscribed(&mut raw, durable(session, "t", "d"));
    asked(&mut raw, close(one, None));
    let mut other = Raw::login(broker.jms_address(), 0);
    asked(&mut other, unsubscribe("d").string("JMQClientID", "${u:guest}-app"));
    for bad in ["${u:guest}-app", "${u:", "", "  ", "a${%%}b"] {
        assert_eq!(refused(&mut other, client_id(bad)), 400, "{bad:?}");
    }
}

#[test]
fn a_lost_connection_gives_its_client_id_back() {
    let broker = broker(2);
    let raw = login_as(&broker, "c");
    let mut other = Raw::login(broker.jms_address(), 0);
    assert_eq!(refused(&mut other, client_id("c")), 409);
    raw.reset();
    wait_until("the loss is noticed", || broker.snapshot().connections == 1);
    asked(&mut other, client_id("c"));
}

#[test]
fn consumers_of_a_shared_subscription_are_sent_five_ahead() {
    let broker = broker(1);
    let (mut raw, session) = started_as(&broker, "c", 1);
    for (wish, size) in [
        (shared(session, "t", "s"), 5),
        (shared_durable(session, "t", "sd"), 5),
        (consumer(session, "t", TOPIC).boolean("JMQShare", true), 5),
        (
            consumer_ahead(session, "t", TOPIC, 3)
                .string("JMQSharedSubscriptionName", "s")
                .boolean("JMQJMSShare", true),
            3,
        ),
        (durable(session, "t", "d"), 1000),
        (consumer(session, "t", TOPIC), 1000),
    ] {
        assert_eq!(int(&asked(&mut raw, wish), "JMQSize"), size);
    }
    let broker = broker_with("[topic]\nshared_consumer_flow_limit = 2\n");
    let (mut raw, session) = started(&broker, 1);
    let one = subscribed(&mut raw, shared(session, "t", "s"));
    publish(&mut raw, 0..6);
    let first = raw.messages_so_far();
    assert_eq!(first.iter().map(flags).collect::<Vec<_>>(), ["A", "AC"]);
    raw.resume_consumer(one, 1000);
    assert_eq!(bodies(&raw.messages_so_far()), ["2", "3"], "the limit holds for what it asks for");
}

#[test]
fn a_shared_subscription_may_have_a_limited_number_of_consumers() {
    let broker = broker_with("[topic]\nshared_consumers_max = 2\n");
    let (mut raw, session) = started(&broker, 1);
    let one = subscribed(&mut raw, shared(session, "t", "s"));
    subscribed(&mut raw, shared(session, "t", "s"));
    assert_eq!(refused(&mut raw, shared(session, "t", "s")), 409);
    subscribed(&mut raw, shared(session, "t", "other"));
    asked(&mut raw, close(one, None));
    subscribed(&mut raw, shared(session, "t", "s"));
}

#[test]
fn what_a_dead_connection_had_of_a_durable_subscription_comes_back_in_its_place_and_flagged() {
    let broker = broker(2);
    let (mut publisher, _) = started(&broker, 1);
    let (mut raw, session) = started_as(&broker, "c", 2);
    let three = consumer_ahead(session, "t", TOPIC, 3).string("JMQDurableName", "d");
    subscribed(&mut raw, three);
    publish(&mut publisher, 1..=5);
    let got = [raw.message(), raw.message(), raw.message()];
    asked(&mut raw, acknowledge(&[&got[1]]));
    raw.reset();
    wait_until("the loss is noticed", || broker.snapshot().connections == 1);
    let (mut raw, session) = started_as(&broker, "c", 1);
    subscribed(&mut raw, durable(session, "t", "d"));
    let again = [raw.message(), raw.message(), raw.message(), raw.message()];
    assert_eq!(bodies(&again), ["1", "3", "4", "5"]);
    assert_eq!(again.iter().map(delivery_count).collect::<Vec<_>>(), [2, 2, 1, 1]);
    let flagged = |one: &tidegate::wire::Packet| one.header().flags.contains(Flags::REDELIVERED);
    assert_eq!(again.iter().map(flagged).collect::<Vec<_>>(), [true, true, false, false]);
}

#[test]
fn a_shared_subscription_gives_the_share_of_a_dead_connection_to_the_others_in_order() {
    let broker = broker(2);
    let (mut dying, dying_session) = started(&broker, 2);
    subscribed(&mut dying, shared(dying_session, "t", "s"));
    let (mut other, other_session) = started(&broker, 2);
    publish(&mut other, 1..=3);
    assert_eq!(next_bodies(&mut dying, 3), ["1", "2", "3"]);
    subscribed(&mut other, shared(other_session, "t", "s"));
    dying.reset();
    let got = [other.message(), other.message(), other.message()];
    assert_eq!(bodies(&got), ["1", "2", "3"]);
    assert!(got.iter().all(|message| delivery_count(message) == 2));
}

#[test]
fn a_topic_counts_a_message_once_and_until_its_last_subscription_is_done() {
    let broker = broker(2);
    let (mut raw, session) = started_as(&broker, "c", 1);
    let plain = subscribed(&mut raw, consumer(session, "t", TOPIC));
    let one = subscribed(&mut raw, durable(session, "t", "d"));
    let two = subscribed(&mut raw, shared(session, "t", "s"));
    publish(&mut raw, ["x"]);
    await_held(&broker, "t", 1);
    let got = [raw.message(), raw.message(), raw.message()];
    for consumer in [one, plain, two] {
        await_held(&broker, "t", 1);
        let own = got.iter().find(|message| message.header().consumer_id == consumer).unwrap();
        asked(&mut raw, acknowledge(&[own]));
    }
    await_held(&broker, "t", 0);
}

#[test]
fn a_message_that_is_on_the_way_when_its_subscription_ends_is_not_counted_for_ever() {
    let broker = broker(1);
    let (mut raw, session) = started_as(&broker, "c", 1);
    for _ in 0..20 {
        let one = subscribed(&mut raw, durable(session, "t", "d"));
        asked(&mut raw, close(one, None));
        // In one write: the message finds the subscription, and comes to it after its end.
        let message = raw.stamp(text("t", TOPIC, "x", Way::default()));
        let end = raw.stamp(unsubscribe("d"));
        raw.send_bytes(&[&message.raw()[..], end.raw()].concat());
        raw.messages_so_far();
        await_held(&broker, "t", 0);
    }
}

#[test]
fn what_was_delivered_before_a_shared_subscription_ended_can_still_be_acknowledged() {
    let broker = broker(1);
    let (mut raw, session) = started(&broker, 2);
    let one = subscribed(&mut raw, shared(session, "t", "s"));
    publish(&mut raw, 0..3);
    let got = [raw.message(), raw.message(), raw.message()];
    asked(&mut raw, close(one, Some(&got[1])));
    await_held(&broker, "t", 2);
    asked(&mut raw, acknowledge(&[&got[0]]));
    await_held(&broker, "t", 1);
    let session = PacketBuilder::new(PacketType::DESTROY_SESSION).long("JMQSessionID", session);
    asked(&mut raw, session);
    await_held(&broker, "t", 0);
}

#[test]
fn a_shared_subscription_whose_topic_was_destroyed_can_be_made_anew() {
    let broker = broker(1);
    let (mut raw, session) = started(&broker, 1);
    let one = subscribed(&mut raw, shared(session, "t", "s"));
    asked(&mut raw, destination(PacketType::DESTROY_DESTINATION, "t", TOPIC));
    assert_eq!(refused(&mut raw, shared(session, "t", "s")), 409, "it still has a consumer");
    asked(&mut raw, close(one, None));
    let two = subscribed(&mut raw, shared(session, "t", "s"));
    publish(&mut raw, ["x"]);
    let message = raw.message();
    assert_eq!((body(&message).as_str(), message.header().consumer_id), ("x", two));
}

#[test]
fn a_durable_subscription_may_be_to_many_topics() {
    let broker = broker(2);
    let (mut raw, session) = started_as(&broker, "c", 1);
    let one = subscribed(&mut raw, durable(session, "n.*", "d"));
    assert_eq!(refused(&mut raw, durable(session, "n.*", "d")), 409);
    asked(&mut raw, close(one, None));
    let (mut publisher, _) = started(&broker, 1);
    for topic in ["n.a", "n.b", "m.a"] {
        publisher.create_destination(topic, TOPIC);
        send_texts(&mut publisher, topic, TOPIC, [topic]);
    }
    let reply = asked(&mut raw, durable(session, "n.*", "d"));
    assert_eq!(int(&reply, "JMQSize"), 1000, "as the client wants");
    assert_eq!(next_bodies(&mut raw, 2), ["n.a", "n.b"]);
    asked(&mut raw, close(long(&reply, "JMQConsumerID"), None));
    asked(&mut raw, unsubscribe("d"));
    wait_until("nothing is left", || held(&broker, "n.a") + held(&broker, "n.b") == 0);
    send_texts(&mut publisher, "n.a", TOPIC, ["nobody's"]);
    await_held(&broker, "n.a", 0);
}

#[test]
fn the_consumer_of_a_subscription_is_refused_without_a_trace() {
    let broker = broker(1);
    let (mut raw, session) = started_as(&broker, "c", 1);
    let one = subscribed(&mut raw, durable(session, "t", "d"));
    let second = raw.request(durable(session, "t", "d"));
    assert_eq!(status(&second), 409);
    publish(&mut raw, ["x"]);
    let got = raw.messages_so_far();
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].header().consumer_id, one);
}
