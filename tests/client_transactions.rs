//! Transactions: what goes back on a rollback, and what a transaction manager may do when.
#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scripted.rs"]
mod scripted;

use std::sync::mpsc::channel;

use scripted::{DEADLINE, Peer, Scripted, Style, blocks, int, long, queue};
use tidegate::{
    client::{
        AcknowledgeMode, Consumer, SendCause, SessionError, XaCommit, XaEnd, XaError, XaStart,
        XaVote, Xid,
    },
    message::Message,
    wire::{Flags, Packet, PacketBuilder, PacketType, Padding, Status, VariableHeader},
};

const NONE: Flags = Flags::empty();

fn next(consumer: &Consumer) -> Message {
    consumer.receive_timeout(DEADLINE).unwrap().expect("a message comes in time")
}

fn text(message: &Message) -> String {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

fn is_seen(packet: &Packet) -> bool {
    packet.properties().unwrap().boolean("JMQSetRedelivered").unwrap().unwrap()
}

/// A queue that gives what came back again, each counted as the client says.
struct Queue {
    consumer: i64,
    /// Number of the message's packet, its text, how often it counts as delivered.
    out: Vec<(i32, u32, u32)>,
}

impl Queue {
    fn deliver(&mut self, peer: &mut Peer, text: u32, count: u32) {
        let flags = NONE.set(Flags::REDELIVERED, count > 1);
        let fields = VariableHeader {
            delivery_count: Some(count.try_into().unwrap()),
            destination: Some(b"q"),
            ..VariableHeader::default()
        };
        let id = peer.deliver_with(self.consumer, &text.to_string(), flags, |packet| {
            packet.variable(&fields, Padding::Java).unwrap()
        });
        self.out.push((id.sequence, text, count));
    }

    /// Takes one packet of a rollback in, or answers it.
    fn handle(&mut self, peer: &mut Peer, packet: &Packet) {
        match packet.header().packet_type {
            PacketType::REDELIVER => {
                let numbers: Vec<_> = blocks(packet).iter().map(|&(_, number)| number).collect();
                let places: Vec<_> = numbers
                    .iter()
                    .map(|number| self.out.iter().position(|out| out.0 == *number).unwrap())
                    .collect();
                assert!(places.is_sorted(), "in the order of their delivery");
                let more = u32::from(is_seen(packet));
                places.iter().for_each(|&place| self.out[place].2 += more);
            }
            // All of it comes again, under new packet numbers.
            PacketType::START if long(packet, "JMQSessionID").is_some() => {
                for (_, text, count) in std::mem::take(&mut self.out) {
                    self.deliver(peer, text, count);
                }
            }
            _ => peer.answer(packet),
        }
    }
}

/// Ten messages, the first five received and committed; then `rollbacks` times the next two
/// received and rolled back; at last the other five received.
fn roll_back(rollbacks: i32) {
    let broker = Scripted::start(move |peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let mut queue = Queue { consumer: peer.consumers[0], out: Vec::new() };
        (1..=10).for_each(|text| queue.deliver(peer, text, 1));
        let commit = peer.serve_until(PacketType::COMMIT_TRANSACTION);
        assert_eq!(peer.seen_of(PacketType::ACKNOWLEDGE).len(), 5);
        queue.out.drain(..5);
        peer.answer(&commit);
        loop {
            let packet = peer.packet();
            if packet.header().packet_type == PacketType::GOODBYE {
                return peer.answer(&packet);
            }
            queue.handle(peer, &packet);
        }
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Transacted).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    for wanted in 1..=5 {
        assert_eq!(text(&next(&consumer)), wanted.to_string());
    }
    session.commit().unwrap();
    for times in 0..rollbacks {
        for wanted in 6..=7 {
            let message = next(&consumer);
            assert_eq!(text(&message), wanted.to_string());
            assert_eq!(message.is_redelivered(), times > 0);
            assert_eq!(message.delivery_count(), Some(times + 1));
        }
        session.rollback().unwrap();
    }
    for wanted in 6..=10 {
        let message = next(&consumer);
        // What only waited in the client does not count as delivered.
        let times = if wanted <= 7 { rollbacks } else { 0 };
        assert_eq!(text(&message), wanted.to_string());
        assert_eq!(message.is_redelivered(), times > 0);
        assert_eq!(message.delivery_count(), Some(times + 1));
    }
    session.commit().unwrap();
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_rollback_counts_what_was_seen_and_keeps_the_order() {
    roll_back(1);
}

#[test]
fn ten_rollbacks_count_only_what_was_seen() {
    roll_back(10);
}

#[test]
fn a_rollback_in_a_listener_takes_its_own_message_back_too() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        let id = peer.deliver(consumer, "m", NONE);
        let ack = peer.serve_until(PacketType::ACKNOWLEDGE);
        assert_eq!(ack.variable().unwrap().transaction_id, Some(7));
        peer.answer(&ack);
        let back = peer.serve_until(PacketType::REDELIVER);
        assert_eq!((blocks(&back), is_seen(&back)), (vec![(consumer, id.sequence)], true));
        assert_eq!(back.variable().unwrap().transaction_id, Some(7));
        assert_eq!(long(&back, "JMQTransactionID"), Some(7));
        peer.serve_until(PacketType::START_TRANSACTION);
        peer.hang_up();
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Transacted).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    let (told, outcome) = channel();
    consumer.set_listener(move |_message| told.send(session.rollback().is_err()).unwrap()).unwrap();
    connection.start().unwrap();
    // The script hangs up in the middle of it, which the listener is told.
    assert!(outcome.recv_timeout(DEADLINE).unwrap());
    connection.close().unwrap();
    broker.join();
}

#[test]
fn without_a_transaction_nothing_is_sent_and_a_rollback_begins_one() {
    let broker = Scripted::start(|peer| {
        peer.login();
        let mut begun = 0;
        loop {
            let packet = peer.packet();
            match packet.header().packet_type {
                PacketType::START_TRANSACTION => {
                    begun += 1;
                    if begun == 2 {
                        let refusal = PacketBuilder::reply(packet.header(), Status::UNAVAILABLE);
                        peer.send(refusal.long("JMQTransactionID", 0));
                        continue;
                    }
                }
                PacketType::TEXT_MESSAGE => assert_eq!(begun, 3),
                // The second one is a new session's; there was nothing to roll back.
                PacketType::ROLLBACK_TRANSACTION => assert_eq!(begun, 3),
                PacketType::GOODBYE => return peer.answer(&packet),
                _ => {}
            }
            peer.answer(&packet);
        }
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Transacted).unwrap();
    let producer = session.create_producer(&queue("q")).unwrap();
    let error = session.commit().unwrap_err();
    let SessionError::Request(error) = error else { panic!("{error:?}") };
    assert_eq!(error.status(), Some(Status::UNAVAILABLE));
    let error = producer.send(Message::text("x")).unwrap_err();
    assert!(
        matches!(error.cause(), SendCause::Request(cause) if cause.to_string().contains("no transaction"))
    );
    session.rollback().unwrap();
    producer.send(Message::text("x")).unwrap();
    connection.close().unwrap();
    broker.join();
}

#[test]
fn only_transacted_sessions_commit_and_only_others_recover() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let refused = |result: Result<(), SessionError>| {
        assert!(matches!(result, Err(SessionError::IllegalState(_))), "{result:?}");
    };
    for mode in [AcknowledgeMode::Auto, AcknowledgeMode::Client, AcknowledgeMode::NoAcknowledge] {
        let session = connection.create_session(mode).unwrap();
        refused(session.commit());
        refused(session.rollback());
    }
    refused(connection.create_session(AcknowledgeMode::Transacted).unwrap().recover());
    connection.close().unwrap();
    broker.join();
}

#[test]
fn closing_a_consumer_tells_what_it_has_seen_in_the_transaction() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        let first = peer.deliver(consumer, "seen", NONE);
        peer.deliver(consumer, "unseen", NONE);
        let delete = peer.serve_until(PacketType::DELETE_CONSUMER);
        assert_eq!(
            (int(&delete, "JMQBodyType"), delete.body_bytes()),
            (Some(3), &first.encode()[..])
        );
        let flag = delete.properties().unwrap().boolean("JMQLastDeliveredIDInTransaction");
        assert_eq!(flag.unwrap(), Some(true));
        peer.answer(&delete);
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Transacted).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    assert_eq!(text(&next(&consumer)), "seen");
    consumer.close().unwrap();
    session.commit().unwrap();
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_paused_consumer_owes_one_resume_of_its_window_after_a_rollback() {
    let style = Style { consumer_limit: Some(4), ..Style::default() };
    let broker = Scripted::start_with(style, |peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        let mut credit = 4;
        let mut waiting: std::collections::VecDeque<u32> = (0..100).collect();
        let mut out: Vec<(i32, u32)> = Vec::new();
        let mut acknowledged = Vec::new();
        let mut stopped = false;
        loop {
            while credit > 0 && !stopped && !waiting.is_empty() {
                let text = waiting.pop_front().unwrap();
                credit -= 1;
                let last = NONE.set(Flags::CONSUMER_FLOW, credit == 0);
                let id = peer.deliver(consumer, &text.to_string(), last);
                out.push((id.sequence, text));
            }
            let packet = peer.packet();
            match packet.header().packet_type {
                PacketType::RESUME_FLOW if long(&packet, "JMQConsumerID").is_some() => {
                    assert_eq!(credit, 0, "asked for without need");
                    credit = int(&packet, "JMQSize").unwrap();
                    assert!((1..=4).contains(&credit), "{credit}");
                }
                PacketType::STOP => stopped = long(&packet, "JMQSessionID").is_some(),
                PacketType::START => stopped = false,
                PacketType::ACKNOWLEDGE => acknowledged.extend(blocks(&packet)),
                PacketType::COMMIT_TRANSACTION => {
                    let done = std::mem::take(&mut acknowledged);
                    out.retain(|(number, _)| done.iter().all(|block| block.1 != *number));
                }
                PacketType::REDELIVER => {
                    acknowledged.clear();
                    for (_, number) in blocks(&packet).into_iter().rev() {
                        let place = out.iter().position(|out| out.0 == number).unwrap();
                        waiting.push_front(out.remove(place).1);
                    }
                    continue;
                }
                PacketType::GOODBYE => return peer.answer(&packet),
                _ => {}
            }
            peer.answer(&packet);
        }
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Transacted).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    for n in (0..100).step_by(2) {
        for again in [true, false] {
            for wanted in [n, n + 1] {
                assert_eq!(text(&next(&consumer)), wanted.to_string());
                assert!(consumer.buffered() <= 4);
            }
            match again {
                true if n < 50 => session.rollback().unwrap(),
                true => {
                    session.commit().unwrap();
                    break;
                }
                false => session.commit().unwrap(),
            }
        }
    }
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_transaction_manager_is_held_to_the_states_of_a_branch() {
    let xid = |n: u8| Xid::new(1, &[n], &[]).unwrap();
    let broker = Scripted::start(|peer| {
        peer.login();
        loop {
            let packet = peer.packet();
            let kind = packet.header().packet_type;
            let numbers = packet.body_bytes().get(8).copied();
            let status = match (kind, numbers) {
                (PacketType::START_TRANSACTION, Some(2)) => Status::CONFLICT,
                // Nobody on this connection knows what to resume, so the broker is asked.
                (PacketType::START_TRANSACTION, Some(6)) => {
                    assert_eq!(int(&packet, "JMQXAFlags"), Some(0x800_0000));
                    Status::NOT_FOUND
                }
                (PacketType::PREPARE_TRANSACTION, Some(3)) => Status::NOT_MODIFIED,
                (PacketType::COMMIT_TRANSACTION, Some(9)) => Status::NOT_FOUND,
                (PacketType::ROLLBACK_TRANSACTION, Some(8)) => {
                    // Of nobody here: the broker redelivers by itself.
                    assert_eq!(long(&packet, "JMQTransactionID"), Some(0));
                    let redeliver = packet.properties().unwrap().boolean("JMQRedeliver").unwrap();
                    assert_eq!(redeliver, Some(true));
                    Status::OK
                }
                (PacketType::GOODBYE, _) => return peer.answer(&packet),
                _ => {
                    peer.answer(&packet);
                    peer.seen.push_back(packet);
                    continue;
                }
            };
            peer.status(&packet, status);
        }
    });
    let connection = broker.connect();
    let xa = connection.create_xa_session().unwrap();
    let resource = xa.resource();
    let code = |result: Result<(), XaError>| result.map_err(|error| error.code());
    assert_eq!(code(resource.start(&xid(2), XaStart::New)), Err(-8));
    assert_eq!(code(resource.start(&xid(6), XaStart::Resume)), Err(-4));
    assert_eq!(code(resource.end(&xid(1), XaEnd::Success)), Err(-4));
    assert_eq!(code(resource.start(&xid(1), XaStart::New)), Ok(()));
    assert_eq!(code(resource.start(&xid(3), XaStart::New)), Err(-6));
    assert_eq!(code(resource.rollback(&xid(1))), Err(-6));
    assert_eq!(code(resource.end(&xid(1), XaEnd::Suspend)), Ok(()));
    assert_eq!(code(resource.prepare(&xid(1)).map(drop)), Err(-6));
    assert_eq!(code(resource.start(&xid(3), XaStart::New)), Ok(()));
    assert_eq!(code(resource.end(&xid(3), XaEnd::Success)), Ok(()));
    assert_eq!(resource.prepare(&xid(3)).unwrap(), XaVote::ReadOnly);
    assert_eq!(code(resource.start(&xid(1), XaStart::Resume)), Ok(()));
    assert_eq!(code(resource.end(&xid(1), XaEnd::Success)), Ok(()));
    assert_eq!(code(resource.commit(&xid(1), XaCommit::OnePhase)), Ok(()));
    assert_eq!(code(resource.commit(&xid(9), XaCommit::Prepared)), Err(-4));
    assert_eq!(code(resource.rollback(&xid(8))), Ok(()));
    assert!(matches!(xa.session().commit(), Err(SessionError::IllegalState(_))));
    connection.close().unwrap();
    broker.join();
}

#[test]
fn what_a_suspended_branch_received_goes_back_with_the_rest_when_it_is_rolled_back() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        let ids = [1, 2, 3, 4].map(|n| peer.deliver(consumer, &format!("m{n}"), NONE).sequence);
        let back = peer.serve_until(PacketType::REDELIVER);
        assert_eq!((blocks(&back), is_seen(&back)), (vec![(consumer, ids[3])], false));
        let back = peer.expect(PacketType::REDELIVER);
        assert_eq!(blocks(&back), [(consumer, ids[0]), (consumer, ids[2])]);
        assert!(is_seen(&back));
        peer.serve_to_the_end();
        // The one between was received outside of the branch.
        let transactions: Vec<_> = peer
            .seen_of(PacketType::ACKNOWLEDGE)
            .iter()
            .map(|ack| ack.variable().unwrap().transaction_id)
            .collect();
        assert_eq!(transactions, [Some(7), None, Some(7)]);
    });
    let connection = broker.connect();
    let xa = connection.create_xa_session().unwrap();
    let resource = xa.resource();
    let consumer = xa.session().create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    let xid = Xid::new(1, b"global", b"branch").unwrap();
    resource.start(&xid, XaStart::New).unwrap();
    assert_eq!(text(&next(&consumer)), "m1");
    resource.end(&xid, XaEnd::Suspend).unwrap();
    assert_eq!(text(&next(&consumer)), "m2");
    resource.start(&xid, XaStart::Resume).unwrap();
    assert_eq!(text(&next(&consumer)), "m3");
    resource.end(&xid, XaEnd::Success).unwrap();
    resource.rollback(&xid).unwrap();
    connection.close().unwrap();
    broker.join();
}
