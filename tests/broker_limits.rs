//! What happens at the limits of a destination and of the broker, seen on the wire.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod support;

use support::{
    asking::{
        Way, asked, await_held, broker_with, browse, close, consumer, dead, destination, held,
        login_as, next_bodies, property, refused, send_texts, subscribed, text, unsubscribe,
    },
    raw::{QUEUE, Raw, TOPIC, acknowledge, bodies, body, reason, status},
    wait_until,
};
use tidegate::{
    broker::Broker,
    wire::{Packet, PacketBuilder, PacketType},
};

/// A message whose packet has exactly so many bytes.
fn sized(raw: &mut Raw, name: &str, mask: i32, label: &str, bytes: usize) -> PacketBuilder {
    let empty = raw.stamp(text(name, mask, "", Way::default())).raw().len();
    text(name, mask, &format!("{label:-<width$}", width = bytes - empty), Way::default())
}

fn labels(packets: &[Packet]) -> Vec<String> {
    packets.iter().map(|one| body(one).trim_end_matches('-').to_owned()).collect()
}

fn whole(broker: &Broker, name: &str) -> Vec<String> {
    let mut raw = Raw::login(broker.jms_address(), 0);
    labels(&browse(&mut raw, name, None))
}

fn reasons(packets: &[Packet]) -> Vec<String> {
    let reason = |one| property(one, "JMS_SUN_DMQ_UNDELIVERED_REASON").unwrap();
    packets.iter().map(reason).collect()
}

/// Eight messages of 1,050 bytes each, the third of low priority, into a queue of 5,000 bytes.
/// Their statuses.
fn eight_into_five_thousand_bytes(raw: &mut Raw) -> Vec<i32> {
    asked(raw, destination(PacketType::CREATE_DESTINATION, "q", QUEUE));
    (1..=8)
        .map(|number| {
            let message = sized(raw, "q", QUEUE, &number.to_string(), 1050);
            status(&raw.request(if number == 3 { message.priority(1) } else { message }))
        })
        .collect()
}

fn five_thousand_bytes(behavior: &str) -> Broker {
    broker_with(&format!("[queue]\ntotal_bytes_max = 5000\nlimit_behavior = \"{behavior}\"\n"))
}

/// One that can never fit is refused, and costs the others nothing.
fn six_thousand_bytes_are_refused(broker: &Broker, raw: &mut Raw, kept: &[&str]) {
    let message = sized(raw, "q", QUEUE, "large", 6000);
    assert_eq!(refused(raw, message), 414);
    assert_eq!(whole(broker, "q"), kept);
    assert!(held(broker, "q") * 1050 <= 5000);
}

#[test]
fn at_its_byte_limit_a_queue_that_rejects_keeps_what_it_has() {
    let broker = five_thousand_bytes("REJECT_NEWEST");
    let mut raw = Raw::login(broker.jms_address(), 0);
    let statuses = eight_into_five_thousand_bytes(&mut raw);
    assert_eq!(statuses, [200, 200, 200, 200, 414, 414, 414, 414]);
    six_thousand_bytes_are_refused(&broker, &mut raw, &["1", "2", "4", "3"]);
    assert_eq!(dead(&broker, 0).len(), 0, "what is refused is not dead");
}

#[test]
fn at_its_byte_limit_a_queue_that_removes_the_oldest_never_holds_more_than_it_may() {
    let broker = five_thousand_bytes("REMOVE_OLDEST");
    let mut raw = Raw::login(broker.jms_address(), 0);
    assert_eq!(eight_into_five_thousand_bytes(&mut raw), [200; 8]);
    assert_eq!(whole(&broker, "q"), ["5", "6", "7", "8"]);
    let gone = dead(&broker, 4);
    assert_eq!(labels(&gone), ["1", "2", "4", "3"], "by priority, as in every queue");
    assert_eq!(reasons(&gone), ["OLDEST"; 4]);
    six_thousand_bytes_are_refused(&broker, &mut raw, &["5", "6", "7", "8"]);
    assert_eq!(dead(&broker, 4).len(), 4);
}

#[test]
fn at_its_byte_limit_a_queue_removes_the_lowest_priority_first_then_the_oldest() {
    let broker = five_thousand_bytes("REMOVE_LOW_PRIORITY");
    let mut raw = Raw::login(broker.jms_address(), 0);
    asked(&mut raw, destination(PacketType::CREATE_DESTINATION, "q", QUEUE));
    let mut gone = Vec::new();
    for number in 1..=8 {
        let message = sized(&mut raw, "q", QUEUE, &number.to_string(), 1050);
        asked(&mut raw, if number == 3 { message.priority(1) } else { message });
        if number > 4 {
            let now = labels(&dead(&broker, number - 4));
            gone.extend(now.into_iter().filter(|label| !gone.contains(label)).collect::<Vec<_>>());
        }
    }
    assert_eq!(gone, ["3", "1", "2", "4"]);
    assert_eq!(whole(&broker, "q"), ["5", "6", "7", "8"]);
    assert_eq!(reasons(&dead(&broker, 4)), ["LOW_PRIORITY"; 4]);
    six_thousand_bytes_are_refused(&broker, &mut raw, &["5", "6", "7", "8"]);
}

#[test]
fn a_queue_under_flow_control_takes_what_is_late_above_its_limit() {
    let broker = five_thousand_bytes("FLOW_CONTROL");
    let mut raw = Raw::login(broker.jms_address(), 0);
    assert_eq!(eight_into_five_thousand_bytes(&mut raw), [200; 8]);
    let message = sized(&mut raw, "q", QUEUE, "large", 6000);
    asked(&mut raw, message);
    await_held(&broker, "q", 9);
}

#[test]
fn a_limit_of_messages_counts_those_that_are_with_consumers() {
    let broker = broker_with("[queue]\nmessages_max = 3\n");
    let mut raw = Raw::login(broker.jms_address(), 0);
    let (_, _) = raw.consume(2, "q", 10);
    send_texts(&mut raw, "q", QUEUE, 0..3);
    let got = [raw.message(), raw.message(), raw.message()];
    let full = raw.request(text("q", QUEUE, "x", Way::default()));
    assert_eq!(status(&full), 414);
    assert!(reason(&full).contains("q is full with 3 messages"), "{}", reason(&full));
    asked(&mut raw, acknowledge(&[&got[1]]));
    send_texts(&mut raw, "q", QUEUE, ["there is room again"]);
}

#[test]
fn what_is_with_consumers_does_not_give_way() {
    for behavior in ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"] {
        let broker =
            broker_with(&format!("[queue]\nmessages_max = 2\nlimit_behavior = \"{behavior}\"\n"));
        let mut raw = Raw::login(broker.jms_address(), 0);
        raw.consume(2, "q", 1);
        send_texts(&mut raw, "q", QUEUE, ["out", "waits", "comes"]);
        assert_eq!(next_bodies(&mut raw, 1), ["out"]);
        let gone = dead(&broker, 1);
        assert_eq!(bodies(&gone), ["waits"]);
        // The next one takes the place of the only one that waits.
        send_texts(&mut raw, "q", QUEUE, ["last"]);
        let mut other = Raw::login(broker.jms_address(), 0);
        other.consume(2, "q", 10);
        assert_eq!(next_bodies(&mut other, 1), ["last"]);
        assert_eq!(refused(&mut raw, text("q", QUEUE, "x", Way::default())), 414);
        assert_eq!(held(&broker, "q"), 2);
    }
}

#[test]
fn a_commit_brings_in_what_was_promised_even_if_nothing_can_give_way() {
    for behavior in ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY", "REJECT_NEWEST"] {
        let broker =
            broker_with(&format!("[queue]\nmessages_max = 2\nlimit_behavior = \"{behavior}\"\n"));
        let mut raw = Raw::login(broker.jms_address(), 0);
        raw.consume(2, "q", 10);
        let session = raw.create_session(0);
        let transaction = raw.begin(session);
        raw.fill_in(transaction, "q", &["1"]);
        send_texts(&mut raw, "q", QUEUE, ["a"]);
        let second = status(&raw.request(text("q", QUEUE, "b", Way::default())));
        assert_eq!(second == 200, behavior.starts_with("REMOVE"), "{behavior}");
        assert_eq!(raw.messages_so_far().len(), if second == 200 { 2 } else { 1 });
        assert_eq!(status(&raw.commit(transaction)), 200);
        assert_eq!(next_bodies(&mut raw, 1), ["1"], "{behavior}");
    }
}

#[test]
fn a_rolled_back_transaction_gives_its_room_back() {
    let broker = broker_with("[queue]\nmessages_max = 2\n");
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("q", QUEUE);
    let session = raw.create_session(0);
    let transaction = raw.begin(session);
    raw.fill_in(transaction, "q", &["1", "2"]);
    let third = Way { transaction: Some(transaction), ..Way::default() };
    assert_eq!(refused(&mut raw, text("q", QUEUE, "3", third)), 414);
    assert_eq!(refused(&mut raw, text("q", QUEUE, "x", Way::default())), 414);
    raw.rollback(transaction);
    send_texts(&mut raw, "q", QUEUE, ["y", "z"]);
}

#[test]
fn a_message_over_the_limit_of_its_destination_is_refused_with_423() {
    let broker = broker_with("[queues.small]\nmessage_bytes_max = 1000\n");
    let mut raw = Raw::login(broker.jms_address(), 0);
    let fits = sized(&mut raw, "small", QUEUE, "fits", 1000);
    asked(&mut raw, fits);
    let large = sized(&mut raw, "small", QUEUE, "large", 1001);
    assert_eq!(refused(&mut raw, large), 423);
    raw.create_destination("other", QUEUE);
    let large = sized(&mut raw, "other", QUEUE, "large", 1001);
    asked(&mut raw, large);
    let session = raw.create_session(0);
    let transaction = raw.begin(session);
    let text = "x".repeat(1000);
    assert_eq!(refused(&mut raw, Raw::text_in(transaction, "small", QUEUE, &text)), 423);
}

#[test]
fn a_topic_rejects_what_its_slowest_subscription_has_no_room_for() {
    let broker = broker_with("[topic]\nmessages_max = 2\n");
    let mut raw = login_as(&broker, "c");
    raw.start();
    let session = raw.create_session(1);
    let slow = subscribed(&mut raw, consumer(session, "t", TOPIC).string("JMQDurableName", "d"));
    asked(&mut raw, close(slow, None));
    subscribed(&mut raw, consumer(session, "t", TOPIC));
    send_texts(&mut raw, "t", TOPIC, 0..2);
    assert_eq!(refused(&mut raw, text("t", TOPIC, "x", Way::default())), 414);
    let got = [raw.message(), raw.message()];
    asked(&mut raw, acknowledge(&[&got[0], &got[1]]));
    assert_eq!(refused(&mut raw, text("t", TOPIC, "x", Way::default())), 414, "not the slowest");
    asked(&mut raw, unsubscribe("d"));
    await_held(&broker, "t", 0);
    send_texts(&mut raw, "t", TOPIC, 0..2);
}

#[test]
fn a_topic_that_removes_takes_a_message_from_all_who_still_wait_for_it_and_buries_it_once() {
    for (behavior, kept, gone) in
        [("REMOVE_OLDEST", ["3", "4"], ["1", "2"]), ("REMOVE_LOW_PRIORITY", ["1", "4"], ["2", "3"])]
    {
        let broker =
            broker_with(&format!("[topic]\nmessages_max = 2\nlimit_behavior = \"{behavior}\"\n"));
        let mut raw = login_as(&broker, "c");
        raw.start();
        let session = raw.create_session(1);
        let wish = |name: &str| consumer(session, "t", TOPIC).string("JMQDurableName", name);
        for name in ["d", "e"] {
            let one = subscribed(&mut raw, wish(name));
            asked(&mut raw, close(one, None));
        }
        for (label, priority) in [("1", 7), ("2", 3), ("3", 3), ("4", 7)] {
            asked(&mut raw, text("t", TOPIC, label, Way::default()).priority(priority));
        }
        await_held(&broker, "t", 2);
        let mut buried = bodies(&dead(&broker, 2));
        buried.sort();
        assert_eq!(buried, gone, "{behavior}");
        for name in ["d", "e"] {
            let one = subscribed(&mut raw, wish(name));
            let mut got = raw.messages_so_far();
            asked(&mut raw, acknowledge(&got.iter().collect::<Vec<_>>()));
            asked(&mut raw, close(one, got.last()));
            got.sort_by_key(body);
            assert_eq!(bodies(&got), kept, "{behavior}");
        }
        await_held(&broker, "t", 0);
    }
}

#[test]
fn the_limits_of_the_broker_hold_for_all_destinations_together() {
    let broker =
        broker_with("messages_max = 3\n[queues.flow]\nlimit_behavior = \"FLOW_CONTROL\"\n");
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("a", QUEUE);
    send_texts(&mut raw, "a", QUEUE, 0..2);
    send_texts(&mut raw, "flow", QUEUE, ["the third"]);
    await_held(&broker, "flow", 1);
    for queue in ["a", "flow"] {
        assert_eq!(refused(&mut raw, text(queue, QUEUE, "x", Way::default())), 414, "{queue}");
    }
    raw.consume(1, "flow", 10);
    let got = raw.message();
    asked(&mut raw, acknowledge(&[&got]));
    await_held(&broker, "flow", 0);
    wait_until("there is room again", || {
        status(&raw.request(text("a", QUEUE, "x", Way::default()))) == 200
    });

    let broker = broker_with("total_bytes_max = 2000\n");
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("a", QUEUE);
    for (bytes, wanted) in [(1200, 200), (900, 414), (800, 200), (100, 414)] {
        let message = sized(&mut raw, "a", QUEUE, "", bytes.max(100));
        assert_eq!(status(&raw.request(message)), wanted, "{bytes}");
    }
}
