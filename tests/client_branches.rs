//! Branches of distributed transactions that more than one session works in, and what transaction
//! managers ask for beside the usual.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scenario.rs"]
mod scenario;

use std::time::Duration;

use scenario::{Stage, next, nothing, queue, send, session, text, wait_until};
use tidegate::{
    client::{
        AcknowledgeMode, Connection, Consumer, XaCommit, XaEnd, XaError, XaResource, XaScan,
        XaSession, XaStart, XaVote, Xid,
    },
    message::{DeliveryMode, Destination, Message},
};

const AUTO: AcknowledgeMode = AcknowledgeMode::Auto;

fn xid(name: &str) -> Xid {
    Xid::new(4661, name.as_bytes(), b"branch").unwrap()
}

fn works(connection: &Connection, queue: &Destination) -> (XaSession, XaResource, Consumer) {
    let xa = connection.create_xa_session().unwrap();
    let consumer = xa.session().create_consumer(queue).unwrap();
    let resource = xa.resource();
    (xa, resource, consumer)
}

fn seen(message: &Message) -> (String, Option<i32>) {
    (text(message), message.delivery_count())
}

fn is_protocol<T: std::fmt::Debug>(result: Result<T, XaError>) -> bool {
    matches!(result, Err(XaError::Protocol { .. }))
}

/// One message in each of two queues, received in one branch by two sessions, the second of which
/// joins; then the first resource rolls back, and both messages come again.
fn joined(stage: &Stage, first: &Connection, second: &Connection, name: &str) {
    let queues = ["a", "b"].map(|end| queue(&format!("xa.{name}.{end}")));
    let sending = session(first, AUTO);
    queues.iter().for_each(|queue| send(&sending, queue, 0..1, DeliveryMode::Persistent));
    let (_one, one, from_one) = works(first, &queues[0]);
    let (_two, two, from_two) = works(second, &queues[1]);
    first.start().unwrap();
    second.start().unwrap();
    assert!(one.is_same_rm(&two));
    for (round, commits) in [false, true].into_iter().enumerate() {
        let xid = xid(&format!("{name} {round}"));
        let count = i32::try_from(round + 1).unwrap();
        one.start(&xid, XaStart::New).unwrap();
        assert_eq!(seen(&next(&from_one)), ("m0".to_owned(), Some(count)));
        one.end(&xid, XaEnd::Success).unwrap();
        two.start(&xid, XaStart::Join).unwrap();
        assert_eq!(seen(&next(&from_two)), ("m0".to_owned(), Some(count)));
        two.end(&xid, XaEnd::Success).unwrap();
        if commits {
            assert_eq!(two.prepare(&xid).unwrap(), XaVote::Ready);
            one.commit(&xid, XaCommit::Prepared).unwrap();
        } else {
            one.rollback(&xid).unwrap();
        }
    }
    nothing(&from_one);
    nothing(&from_two);
    let last = stage.connect();
    last.start().unwrap();
    let session = session(&last, AUTO);
    queues.iter().for_each(|queue| nothing(&session.create_consumer(queue).unwrap()));
}

#[test]
fn a_branch_is_joined_by_another_session_and_rolled_back_for_both() {
    let stage = Stage::new();
    let connection = stage.connect();
    joined(&stage, &connection, &connection, "sessions");
}

#[test]
fn a_branch_is_joined_over_another_connection_and_rolled_back_for_both() {
    let stage = Stage::new();
    joined(&stage, &stage.connect(), &stage.connect(), "connections");
}

#[test]
fn while_one_session_works_in_a_branch_no_other_settles_it() {
    let stage = Stage::new();
    let connection = stage.connect();
    let to = queue("xa.busy");
    let (_one, one, _) = works(&connection, &to);
    let (_two, two, _) = works(&connection, &to);
    let xid = xid("busy");
    one.start(&xid, XaStart::New).unwrap();
    assert!(is_protocol(two.prepare(&xid)));
    assert!(is_protocol(two.forget(&xid)));
    one.end(&xid, XaEnd::Suspend).unwrap();
    assert!(is_protocol(two.rollback(&xid)));
    assert!(is_protocol(two.commit(&xid, XaCommit::OnePhase)));
    one.end(&xid, XaEnd::Success).unwrap();
    two.rollback(&xid).unwrap();
    // The other resource knows that it is settled.
    one.forget(&xid).unwrap();
}

#[test]
fn a_suspended_branch_goes_on_in_another_session_of_the_same_or_another_connection() {
    let stage = Stage::new();
    let (connection, other) = (stage.connect(), stage.connect());
    let to = queue("xa.resume");
    for (n, second) in [&connection, &other].into_iter().enumerate() {
        let xid = xid(&format!("resume {n}"));
        let (one_session, two_session) =
            (connection.create_xa_session().unwrap(), second.create_xa_session().unwrap());
        let (one, two) = (one_session.resource(), two_session.resource());
        let send = |session: &XaSession, text: &str| {
            let producer = session.session().create_producer(&to).unwrap();
            producer.send(Message::text(text)).unwrap();
        };
        one.start(&xid, XaStart::New).unwrap();
        send(&one_session, "in");
        one.end(&xid, XaEnd::Suspend).unwrap();
        send(&one_session, "out");
        two.start(&xid, XaStart::Resume).unwrap();
        send(&two_session, "in again");
        two.end(&xid, XaEnd::Success).unwrap();
        two.rollback(&xid).unwrap();
        let receiving = session(&connection, AUTO);
        let consumer = receiving.create_consumer(&to).unwrap();
        connection.start().unwrap();
        assert_eq!(text(&next(&consumer)), "out");
        nothing(&consumer);
        receiving.close().unwrap();
        let unknown = two.start(&self::xid("never begun"), XaStart::Resume);
        assert!(matches!(unknown, Err(XaError::UnknownBranch { .. })), "{unknown:?}");
    }
}

#[test]
fn only_the_beginning_of_a_scan_tells_branches_and_a_prepared_one_is_not_forgotten() {
    let stage = Stage::new();
    let connection = stage.connect();
    let xa = connection.create_xa_session().unwrap();
    let resource = xa.resource();
    let xid = xid("scan");
    resource.start(&xid, XaStart::New).unwrap();
    let producer = xa.session().create_producer(&queue("xa.scan")).unwrap();
    producer.send(Message::text("m")).unwrap();
    resource.end(&xid, XaEnd::Success).unwrap();
    assert_eq!(resource.prepare(&xid).unwrap(), XaVote::Ready);
    for (part, wanted) in
        [(XaScan::Whole, true), (XaScan::Start, true), (XaScan::Next, false), (XaScan::End, false)]
    {
        assert_eq!(resource.recover_part(part).unwrap().contains(&xid), wanted, "{part:?}");
    }
    assert!(is_protocol(resource.forget(&xid)));
    // Nor by one that has never heard of it.
    let other = stage.connect().create_xa_session().unwrap().resource();
    assert!(is_protocol(other.forget(&xid)));
    resource.commit(&xid, XaCommit::Prepared).unwrap();
    resource.forget(&xid).unwrap();
    other.forget(&xid).unwrap();
}

#[test]
fn a_branch_that_takes_too_long_is_gone_and_what_it_received_comes_again() {
    let stage = Stage::new();
    let connection = stage.connect();
    let to = queue("xa.timeout");
    send(&session(&connection, AUTO), &to, 0..1, DeliveryMode::Persistent);
    let (_xa, resource, consumer) = works(&connection, &to);
    connection.start().unwrap();
    resource.set_timeout(Some(Duration::from_millis(100)));
    let short = xid("too long");
    resource.start(&short, XaStart::New).unwrap();
    assert_eq!(seen(&next(&consumer)), ("m0".to_owned(), Some(1)));
    // Another resource settles by name, so it learns of it from the broker.
    let other = stage.connect().create_xa_session().unwrap().resource();
    wait_until("its time is over", || match other.commit(&short, XaCommit::Prepared) {
        Err(XaError::Protocol { problem, .. }) => problem.contains("timed out"),
        Err(XaError::UnknownBranch { .. }) => true,
        other => panic!("{other:?}"),
    });
    assert!(resource.end(&short, XaEnd::Success).is_err());
    assert!(resource.rollback(&short).is_err());
    // It counts as delivered, as it was seen.
    resource.set_timeout(None);
    let long = xid("long enough");
    resource.start(&long, XaStart::New).unwrap();
    assert_eq!(seen(&next(&consumer)), ("m0".to_owned(), Some(2)));
    resource.end(&long, XaEnd::Success).unwrap();
    resource.commit(&long, XaCommit::OnePhase).unwrap();
    nothing(&consumer);
}

#[test]
fn resources_of_two_brokers_are_not_the_same() {
    let (one, two) = (Stage::new(), Stage::new());
    if one.embedded().is_none() {
        return;
    }
    let [first, again] = [(); 2].map(|()| one.connect().create_xa_session().unwrap().resource());
    let foreign = two.connect().create_xa_session().unwrap().resource();
    assert!(first.is_same_rm(&first.clone()) && first.is_same_rm(&again));
    assert!(!first.is_same_rm(&foreign));
}
