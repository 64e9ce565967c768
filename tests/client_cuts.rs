//! A network that fails once, at each byte of a short exchange in turn.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    reason = "a test ends where it fails, and counts"
)]

mod support;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use support::{
    broker,
    proxy::{Fault, Plan, Proxy, Script},
    wait_until,
};
use tidegate::{
    broker::Broker,
    client::{
        AcknowledgeMode, Connection, ConnectionFactory, RequestError, SendCause, SessionError,
    },
    message::{Destination, Message},
};

const DEADLINE: Duration = Duration::from_secs(20);
/// Exchanges that run at one time.
const LANES: u64 = 4;

/// A factory whose connections come back as long as it takes.
fn factory(proxy: &Proxy) -> ConnectionFactory {
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mqtcp://{}/jms", proxy.address())).unwrap();
    let attributes = [
        ("imqReconnectEnabled", "true"),
        ("imqReconnectAttempts", "-1"),
        ("imqReconnectInterval", "1"),
        ("imqAddressListIterations", "-1"),
    ];
    factory.set_attributes(attributes).unwrap();
    factory
}

/// Lets the network of one connection fail behind each `step`th byte of a direction, until a
/// connection ends before its fault; `exchange` is told the queue to use.
fn at_every_byte(
    step: u64,
    fault: Fault,
    to_broker: bool,
    exchange: impl Fn(&Broker, &ConnectionFactory, &Destination) + Sync,
) {
    let broker = broker(2);
    let (next, last) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let byte = next.fetch_add(step, Ordering::SeqCst);
                    if byte > last.load(Ordering::SeqCst) {
                        return;
                    }
                    let script = Script::at(byte, fault);
                    let plan = move |number| match (number, to_broker) {
                        (0, true) => Plan { to_broker: script.clone(), ..Plan::default() },
                        (0, false) => Plan { to_client: script.clone(), ..Plan::default() },
                        _ => Plan::default(),
                    };
                    let proxy = Proxy::start_with(broker.jms_address(), plan);
                    let queue = Destination::queue(format!("q{byte}")).unwrap();
                    exchange(&broker, &factory(&proxy), &queue);
                    if proxy.accepted() == 1 {
                        // The exchange is not so long.
                        last.fetch_min(byte, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let bytes = last.load(Ordering::SeqCst);
    assert!((500..20_000).contains(&bytes), "an exchange of {bytes} bytes");
}

fn text(message: &Message) -> String {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

/// What is left in a queue, over a connection of its own.
fn left(broker: &Broker, queue: &Destination) -> usize {
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mqtcp://{}/jms", broker.jms_address())).unwrap();
    let connection = factory.create_connection().unwrap();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let count = session.create_browser(queue, None).unwrap().messages().unwrap().count();
    connection.close().unwrap();
    count
}

/// Sends two messages and receives them; neither is lost, nor comes twice without saying so.
fn send_and_receive(broker: &Broker, factory: &ConnectionFactory, queue: &Destination) {
    let connection = factory.create_connection().unwrap();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let producer = session.create_producer(queue).unwrap();
    for n in 0..2 {
        producer.send(Message::text(n.to_string())).unwrap();
    }
    let consumer = session.create_consumer(queue).unwrap();
    connection.start().unwrap();
    let mut seen = Vec::new();
    while seen.last().map(String::as_str) != Some("1") {
        let message = consumer.receive_timeout(DEADLINE).unwrap().expect("it comes in time");
        let text = text(&message);
        assert!(!seen.contains(&text) || message.is_redelivered(), "{queue:?}: {text} twice");
        seen.push(text);
    }
    assert!(seen.contains(&"0".to_owned()), "{queue:?}: {seen:?}");
    // Whoever lost only the reply to the last acknowledgement may get that message again.
    while let Some(message) = consumer.try_receive().unwrap() {
        assert!(message.is_redelivered(), "{queue:?}");
    }
    producer.close().unwrap();
    connection.close().unwrap();
    // An acknowledgement that was lost on its way leaves its message.
    assert!(left(broker, queue) <= 1, "{queue:?}");
}

/// Sends two messages in a transaction until its commit is certain, or was interrupted: both are
/// there then, or neither, as often as the client may believe.
fn send_in_a_transaction(broker: &Broker, factory: &ConnectionFactory, queue: &Destination) {
    let connection = factory.create_connection().unwrap();
    let session = connection.create_session(AcknowledgeMode::Transacted).unwrap();
    let producer = session.create_producer(queue).unwrap();
    let (mut certain, mut open) = (0, 0);
    while certain == 0 {
        let sent = (0..2).try_for_each(|n| match producer.send(Message::text(n.to_string())) {
            Ok(_id) => Ok(()),
            Err(error) => match error.cause() {
                SendCause::Request(RequestError::RolledBack) => Err(()),
                cause => panic!("{queue:?}: {cause:?}"),
            },
        });
        if sent.is_err() {
            session.rollback().unwrap();
            continue;
        }
        match session.commit() {
            Ok(()) => certain = 1,
            Err(SessionError::Request(RequestError::RolledBack)) => {}
            Err(SessionError::Request(RequestError::Interrupted { .. })) => {
                open += 1;
                session.rollback().unwrap();
            }
            Err(error) => panic!("{queue:?}: {error:?}"),
        }
    }
    connection.close().unwrap();
    let left = left(broker, queue);
    assert!(
        left >= 2 * certain && left <= 2 * (certain + open) && left.is_multiple_of(2),
        "{left}"
    );
}

#[test]
fn a_cut_at_any_byte_to_the_broker_loses_and_repeats_nothing() {
    at_every_byte(1, Fault::Cut, true, send_and_receive);
}

#[test]
fn a_cut_at_any_byte_to_the_client_loses_and_repeats_nothing() {
    at_every_byte(1, Fault::Cut, false, send_and_receive);
}

#[test]
fn a_reset_at_any_byte_loses_and_repeats_nothing() {
    at_every_byte(7, Fault::Reset, true, send_and_receive);
    at_every_byte(7, Fault::Reset, false, send_and_receive);
}

#[test]
fn an_end_of_one_direction_at_any_byte_loses_and_repeats_nothing() {
    at_every_byte(7, Fault::HalfClose, true, send_and_receive);
    at_every_byte(7, Fault::HalfClose, false, send_and_receive);
}

#[test]
fn a_transaction_is_whole_wherever_its_connection_is_cut() {
    at_every_byte(3, Fault::Cut, true, send_in_a_transaction);
    at_every_byte(3, Fault::Cut, false, send_in_a_transaction);
}

#[test]
fn a_connection_that_does_not_answer_pings_is_given_up_and_restored() {
    let broker = broker(1);
    // Behind the login nothing more comes to the client.
    let plan = |number| match number {
        0 => Plan { to_client: Script::at(900, Fault::Stall), ..Plan::default() },
        _ => Plan::default(),
    };
    let proxy = Proxy::start_with(broker.jms_address(), plan);
    let mut factory = factory(&proxy);
    let attributes = [
        ("imqPingInterval", "1"),
        ("imqPingAckTimeout", "100"),
        ("imqAbortOnPingAckTimeout", "true"),
    ];
    factory.set_attributes(attributes).unwrap();
    let connection: Connection = factory.create_connection().unwrap();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let queue = Destination::queue("stalled").unwrap();
    let producer = session.create_producer(&queue).unwrap();
    producer.send(Message::text("through")).unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    let message = consumer.receive_timeout(DEADLINE).unwrap().expect("it comes in time");
    assert_eq!(text(&message), "through");
    wait_until("another connection was made", || proxy.accepted() > 1);
    connection.close().unwrap();
}
