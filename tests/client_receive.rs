//! Receiving: what the application gets, and what the broker is told.
#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scripted.rs"]
mod scripted;

use std::time::Duration;

use scripted::{DEADLINE, Scripted, Style, blocks, gate, int, long, now, pass, queue};
use tidegate::{
    client::AcknowledgeMode,
    wire::{Flags, PacketType},
};

const NONE: Flags = Flags::empty();

#[test]
fn messages_arrive_in_order_and_each_is_acknowledged_before_receive_returns() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        let first = peer.deliver(consumer, "m0", NONE);
        let second = peer.deliver(consumer, "m1", NONE);
        for id in [first, second] {
            let ack = peer.expect(PacketType::ACKNOWLEDGE);
            assert!(ack.header().flags.contains(Flags::ACKNOWLEDGE));
            assert_eq!(blocks(&ack), [(consumer, id.sequence)]);
            peer.ok(&ack);
        }
        peer.serve_to_the_end();
        let kinds: Vec<_> = peer.seen.iter().map(|packet| packet.header().packet_type).collect();
        let end = [
            PacketType::STOP,
            PacketType::DELETE_CONSUMER,
            PacketType::DESTROY_SESSION,
            PacketType::GOODBYE,
        ];
        assert!(kinds.ends_with(&end), "{kinds:?}");
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    for text in ["m0", "m1"] {
        let message = consumer.receive().unwrap().unwrap();
        assert_eq!(message.body_text().unwrap().as_deref(), Some(text));
    }
    assert!(consumer.try_receive().unwrap().is_none());
    let begun = now();
    assert!(consumer.receive_timeout(Duration::from_millis(50)).unwrap().is_none());
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(45) && waited < DEADLINE, "{waited:?}");
    connection.close().unwrap();
    broker.join();
}

#[test]
fn nothing_is_handed_out_while_stopped_and_what_waits_comes_after_start() {
    let broker = Scripted::start(|peer| {
        peer.login();
        let start = peer.serve_until(PacketType::START);
        peer.seen.push_back(start);
        let consumer = peer.consumers[0];
        let stop = peer.serve_until(PacketType::STOP);
        // A broker may have messages on their way when it is told to stop.
        peer.deliver(consumer, "late", NONE);
        peer.ok(&stop);
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::DupsOk).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    connection.stop().unwrap();
    assert_eq!(consumer.buffered(), 1);
    assert!(consumer.receive_timeout(Duration::from_millis(30)).unwrap().is_none());
    // One that waits already is told of the start although no packet comes for it.
    let waiting = std::thread::spawn(move || consumer.receive().unwrap());
    connection.start().unwrap();
    assert_eq!(waiting.join().unwrap().unwrap().body_text().unwrap().as_deref(), Some("late"));
    connection.close().unwrap();
    broker.join();
}

#[test]
fn client_mode_acknowledges_all_so_far_or_one() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        let ids: Vec<_> =
            (0..4).map(|n| peer.deliver(consumer, &format!("m{n}"), NONE).sequence).collect();
        let one = peer.expect(PacketType::ACKNOWLEDGE);
        assert_eq!(blocks(&one), [(consumer, ids[1])]);
        peer.ok(&one);
        let rest = peer.expect(PacketType::ACKNOWLEDGE);
        assert_eq!(blocks(&rest), [(consumer, ids[0]), (consumer, ids[2])]);
        peer.ok(&rest);
        let close = peer.serve_until(PacketType::DELETE_CONSUMER);
        // The fourth was handed out and not acknowledged.
        assert_eq!(int(&close, "JMQBodyType"), Some(3));
        assert_eq!(close.body_bytes().len(), 32);
        peer.answer(&close);
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Client).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    let messages: Vec<_> = (0..3).map(|_| consumer.receive().unwrap().unwrap()).collect();
    session.acknowledge_message(&messages[1]).unwrap();
    assert!(session.acknowledge_message(&messages[1]).is_err());
    session.acknowledge().unwrap();
    session.acknowledge().unwrap();
    let _fourth = consumer.receive().unwrap().unwrap();
    connection.close().unwrap();
    broker.join();
}

#[test]
fn lazy_acknowledgements_go_in_tens_and_the_rest_on_close() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        for n in 0..23 {
            peer.deliver(consumer, &n.to_string(), NONE);
        }
        peer.serve_to_the_end();
        let acks = peer.seen_of(PacketType::ACKNOWLEDGE);
        let sizes: Vec<_> = acks.iter().map(|ack| blocks(ack).len()).collect();
        assert_eq!(sizes, [10, 10, 3]);
        assert!(acks.iter().all(|ack| !ack.header().flags.contains(Flags::ACKNOWLEDGE)));
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::DupsOk).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    for n in 0..23 {
        let message = consumer.receive().unwrap().unwrap();
        assert_eq!(message.body_text().unwrap().as_deref(), Some(n.to_string().as_str()));
    }
    connection.close().unwrap();
    broker.join();
}

#[test]
fn an_unfinished_lazy_batch_is_sent_when_nothing_more_comes() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        peer.deliver(peer.consumers[0], "one", NONE);
        let ack = peer.serve_until(PacketType::ACKNOWLEDGE);
        assert_eq!(blocks(&ack).len(), 1);
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::DupsOk).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    assert!(consumer.receive().unwrap().is_some());
    // Nobody drives the connection now; the script waits for the acknowledgement.
    assert!(consumer.receive_timeout(Duration::from_secs(2)).unwrap().is_none());
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_paused_connection_is_answered_before_its_messages_are_worked_on() {
    let (received, seen) = gate();
    let broker = Scripted::start(move |peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        peer.hold();
        for n in 0..4 {
            peer.deliver(consumer, &n.to_string(), NONE);
        }
        peer.deliver(consumer, "4", Flags::FLOW_PAUSED);
        peer.release();
        let resume = peer.expect(PacketType::RESUME_FLOW);
        assert_eq!(long(&resume, "JMQConsumerID"), None);
        assert_eq!(resume.property_bytes().len(), 0);
        pass(&seen);
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Client).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    assert!(consumer.receive().unwrap().is_some());
    received.send(()).unwrap();
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_limited_connection_is_resumed_only_when_fewer_messages_wait() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        for batch in 0..4 {
            for n in 0..5 {
                let last = if n == 4 { Flags::FLOW_PAUSED } else { NONE };
                peer.deliver(consumer, "x", last);
            }
            let resume = peer.serve_until(PacketType::RESUME_FLOW);
            assert_eq!(long(&resume, "JMQConsumerID"), None);
            // Five came, fewer than three wait: at least three were acknowledged before.
            let acked = peer.seen_of(PacketType::ACKNOWLEDGE).len();
            assert!(acked >= batch * 5 + 2, "resumed after {acked}");
        }
        peer.serve_to_the_end();
    });
    let mut factory = broker.factory();
    factory.connection_flow_count(5).unwrap().connection_flow_limit(Some(3)).unwrap();
    let connection = factory.create_connection().unwrap();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    for _ in 0..20 {
        assert!(consumer.receive_timeout(DEADLINE).unwrap().is_some());
    }
    connection.close().unwrap();
    broker.join();
}

#[test]
fn every_window_and_threshold_flows_without_a_stall_and_never_asks_for_nothing() {
    for window in [1, 2, 3, 10, 1000] {
        for threshold in [0, 1, 50, 99, 100] {
            flow(window, threshold, 400, "true");
        }
    }
    flow(1000, 50, 400, "false");
}

/// Sends `count` messages within the window, and checks each RESUME.
fn flow(window: i32, threshold: i32, count: i32, prefetch: &str) {
    let wanted = if prefetch == "true" { window } else { 1 };
    let broker = Scripted::start(move |peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        assert_eq!(peer.windows[0], wanted);
        let mut credit = wanted;
        let mut sent = 0;
        let mut resumes = 0;
        let mut pauses = 0;
        while sent < count {
            while credit > 0 && sent < count {
                credit -= 1;
                let last = if credit == 0 { Flags::CONSUMER_FLOW } else { NONE };
                pauses += i32::from(credit == 0);
                peer.deliver(consumer, "x", last);
                sent += 1;
            }
            if credit == 0 {
                let resume = peer.serve_until(PacketType::RESUME_FLOW);
                assert_eq!(long(&resume, "JMQConsumerID"), Some(consumer));
                let size = int(&resume, "JMQSize").unwrap();
                assert!(size >= 1 && size <= wanted, "{window} {threshold}: {size}");
                credit = size;
                resumes += 1;
            }
        }
        assert_eq!(resumes, pauses, "{window} {threshold}");
        peer.serve_to_the_end();
    });
    let mut factory = broker.factory();
    factory
        .set_attributes([
            ("imqConsumerFlowLimit", window.to_string().as_str()),
            ("imqConsumerFlowThreshold", threshold.to_string().as_str()),
            ("imqConsumerFlowLimitPrefetch", prefetch),
        ])
        .unwrap();
    let connection = factory.create_connection().unwrap();
    let session = connection.create_session(AcknowledgeMode::DupsOk).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    for n in 0..count {
        let got = consumer.receive_timeout(DEADLINE).unwrap();
        assert!(got.is_some(), "{window} {threshold} {prefetch}: stalled after {n}");
        assert!(consumer.buffered() <= usize::try_from(wanted).unwrap());
    }
    // Without prefetch this, and nothing before, asks for one more.
    assert!(consumer.try_receive().unwrap().is_none());
    connection.close().unwrap();
    broker.join();
}

#[test]
fn recover_sends_the_unseen_back_first_and_a_paused_consumer_asks_once_for_a_whole_window() {
    let broker =
        Scripted::start_with(Style { consumer_limit: Some(4), ..Style::default() }, |peer| {
            peer.login();
            peer.serve_until(PacketType::START);
            let consumer = peer.consumers[0];
            let ids: Vec<_> = (0..4)
                .map(|n| {
                    let last = if n == 3 { Flags::CONSUMER_FLOW } else { NONE };
                    peer.deliver(consumer, &n.to_string(), last).sequence
                })
                .collect();
            let stop = peer.serve_until(PacketType::STOP);
            assert!(long(&stop, "JMQSessionID").is_some());
            peer.ok(&stop);
            let unseen = peer.expect(PacketType::REDELIVER);
            let set = |packet: &tidegate::wire::Packet| {
                packet.properties().unwrap().boolean("JMQSetRedelivered").unwrap()
            };
            assert_eq!(set(&unseen), Some(false));
            assert_eq!(blocks(&unseen), [1, 2, 3].map(|n| (consumer, ids[n])));
            let seen = peer.expect(PacketType::REDELIVER);
            assert_eq!(set(&seen), Some(true));
            assert_eq!(blocks(&seen), [(consumer, ids[0])]);
            let resume = peer.expect(PacketType::RESUME_FLOW);
            assert_eq!(int(&resume, "JMQSize"), Some(4));
            peer.expect(PacketType::START);
            for n in 0..4 {
                let redelivered = if n == 0 { Flags::REDELIVERED } else { NONE };
                let last = if n == 3 { Flags::CONSUMER_FLOW } else { NONE };
                peer.deliver(consumer, &n.to_string(), redelivered.with(last));
            }
            peer.serve_to_the_end();
            let resumes = peer.seen_of(PacketType::RESUME_FLOW);
            assert_eq!(resumes.len(), 1, "one for the second pause");
        });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Client).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    assert!(consumer.receive().unwrap().is_some());
    session.recover().unwrap();
    for n in 0..4 {
        let message = consumer.receive().unwrap().unwrap();
        assert_eq!(message.body_text().unwrap().as_deref(), Some(n.to_string().as_str()));
        assert_eq!(message.is_redelivered(), n == 0);
    }
    session.acknowledge().unwrap();
    connection.close().unwrap();
    broker.join();
}

#[test]
fn expired_messages_are_reported_dead_and_not_handed_out() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        let old = peer.deliver_with(consumer, "old", NONE, |packet| packet.expiration(1));
        peer.deliver(consumer, "new", NONE);
        let dead = peer.serve_until(PacketType::ACKNOWLEDGE);
        assert_eq!(int(&dead, "JMQAckType"), Some(2));
        assert_eq!(int(&dead, "JMQDeadReason"), Some(1));
        assert!(!dead.header().flags.contains(Flags::ACKNOWLEDGE));
        assert_eq!(blocks(&dead), [(consumer, old.sequence)]);
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    let message = consumer.receive().unwrap().unwrap();
    assert_eq!(message.body_text().unwrap().as_deref(), Some("new"));
    connection.close().unwrap();
    broker.join();
}
