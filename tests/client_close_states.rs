//! Closing consumers, sessions and connections in every state they can be in: what was not settled is
//! there again, in order, and nothing hangs.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scenario.rs"]
mod scenario;

use std::time::Duration;

use scenario::{Stage, next, numbered, queue, send, session, text, texts, wait_until};
use tidegate::{
    client::{AcknowledgeMode, Connection, Consumer, Session},
    message::DeliveryMode,
};

const MESSAGES: usize = 5;
const PERSISTENT: DeliveryMode = DeliveryMode::Persistent;
/// How long nothing more may come.
const MOMENT: Duration = Duration::from_millis(5);

/// How far things have gone before something is closed.
#[derive(Debug, Clone, Copy)]
enum State {
    NeverStarted,
    Buffered,
    TwoReceived,
    TwoReceivedAndStopped,
    Recovered,
}

/// What is closed, and how.
#[derive(Debug, Clone, Copy)]
enum Close {
    Consumer,
    Session,
    Connection,
    /// Each, twice, from the inside to the outside.
    Everything,
    /// Nothing: the handles are dropped.
    Dropped,
}

fn bring_to(state: State, connection: &Connection, session: &Session, consumer: &Consumer) {
    if matches!(state, State::NeverStarted) {
        return;
    }
    connection.start().unwrap();
    wait_until("all have arrived", || {
        // Whoever waits for an answer reads what comes before it.
        drop(connection.create_session(AcknowledgeMode::Auto).unwrap());
        consumer.buffered() == MESSAGES
    });
    if matches!(state, State::Buffered) {
        return;
    }
    assert_eq!(texts(consumer, 2), numbered(0..2));
    match (state, session.mode()) {
        (State::TwoReceivedAndStopped, _) => connection.stop().unwrap(),
        (State::Recovered, AcknowledgeMode::Transacted) => session.rollback().unwrap(),
        (State::Recovered, _) => session.recover().unwrap(),
        _ => {}
    }
}

fn close(what: Close, connection: Connection, session: Session, consumer: Consumer) {
    match what {
        Close::Consumer => {
            consumer.close().unwrap();
            assert!(consumer.receive().unwrap().is_none());
            // What was seen stays with the session until that ends.
            connection.close().unwrap();
        }
        Close::Session => session.close().unwrap(),
        Close::Connection => connection.close().unwrap(),
        Close::Everything => {
            for _ in 0..2 {
                consumer.close().unwrap();
            }
            for _ in 0..2 {
                session.close().unwrap();
            }
            for _ in 0..2 {
                connection.close().unwrap();
            }
        }
        Close::Dropped => {}
    }
    if !matches!(what, Close::Dropped) {
        assert!(consumer.receive().unwrap().is_none());
        assert!(session.create_consumer(&queue("states.more")).is_err());
    }
}

#[test]
fn whatever_is_closed_in_whatever_state_only_what_was_settled_is_gone() {
    let stage = Stage::new();
    let checking = stage.connect();
    checking.start().unwrap();
    for mode in [
        AcknowledgeMode::Auto,
        AcknowledgeMode::Client,
        AcknowledgeMode::DupsOk,
        AcknowledgeMode::Transacted,
    ] {
        for state in [
            State::NeverStarted,
            State::Buffered,
            State::TwoReceived,
            State::TwoReceivedAndStopped,
            State::Recovered,
        ] {
            for what in [
                Close::Consumer,
                Close::Session,
                Close::Connection,
                Close::Everything,
                Close::Dropped,
            ] {
                let case = format!("{mode:?} {state:?} {what:?}");
                let to = queue(&format!("states.{}", case.replace(' ', ".")));
                send(&session(&checking, AcknowledgeMode::Auto), &to, 0..MESSAGES, PERSISTENT);
                let connection = stage.connect();
                let closed = session(&connection, mode);
                let consumer = closed.create_consumer(&to).unwrap();
                bring_to(state, &connection, &closed, &consumer);
                close(what, connection, closed, consumer);

                let received = !matches!(state, State::NeverStarted | State::Buffered);
                let settles = matches!(mode, AcknowledgeMode::Auto | AcknowledgeMode::DupsOk);
                let first = if received && settles { 2 } else { 0 };
                let next_one = session(&checking, AcknowledgeMode::Auto);
                let other = next_one.create_consumer(&to).unwrap();
                let mut found: Vec<_> = (first..MESSAGES)
                    .map(|_| next(&other))
                    .map(|message| (text(&message), message.is_redelivered()))
                    .collect();
                if matches!(what, Close::Dropped) {
                    // Nobody has waited, so the unseen may come before the seen are back.
                    found.sort();
                }
                // Only what the application has seen counts as delivered before.
                let wanted: Vec<_> = numbered(first..MESSAGES)
                    .into_iter()
                    .map(|text| (text.clone(), received && ["m0", "m1"].contains(&text.as_str())))
                    .collect();
                assert_eq!(found, wanted, "{case}");
                assert!(other.receive_timeout(MOMENT).unwrap().is_none(), "{case}");
                next_one.close().unwrap();
            }
        }
    }
}
