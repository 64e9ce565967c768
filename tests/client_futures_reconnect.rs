//! The client's futures while their connection is lost and restored, again and again.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, clippy::disallowed_types, reason = "a test ends where it fails")]

#[path = "support/executors.rs"]
mod executors;
mod support;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use executors::{ALL, within};
use futures_lite::{StreamExt as _, future::zip};
use support::{broker, proxy::Proxy, wait_until};
use tidegate::{
    client::{
        AcknowledgeError, AcknowledgeMode, Connection, ConnectionFactory, Consumer, ReceiveError,
        RequestError, Session,
    },
    message::{Destination, Message},
};

const DEADLINE: Duration = Duration::from_secs(20);
const MESSAGES: u64 = 600;
const CUTS: u64 = 6;

fn factory(proxy: &Proxy) -> ConnectionFactory {
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mqtcp://{}/jms", proxy.address())).unwrap();
    let attributes = [
        ("imqReconnectEnabled", "true"),
        ("imqReconnectAttempts", "-1"),
        ("imqReconnectInterval", "10"),
        ("imqAddressListIterations", "-1"),
    ];
    factory.set_attributes(attributes).unwrap();
    factory
}

fn number(message: &Message) -> u64 {
    message.body_text().unwrap().unwrap().parse().unwrap()
}

async fn start(proxy: &Proxy) -> Connection {
    let connection = factory(proxy).create_connection_future().await.unwrap();
    connection.start().unwrap();
    connection
}

async fn send_all(session: &Session, to: &Destination) {
    let producer = session.create_producer_future(to).await.unwrap();
    for n in 0..MESSAGES {
        // A link that is lost is waited for, and the message sent again under the same id.
        producer.send_future(Message::text(n.to_string())).await.unwrap();
    }
}

/// What came, and that what came again told so.
#[derive(Default)]
struct Received(BTreeMap<u64, u32>);

impl Received {
    fn add(&mut self, message: &Message) {
        let times = self.0.entry(number(message)).or_default();
        *times += 1;
        assert!(*times == 1 || message.is_redelivered(), "it came twice and does not tell");
    }

    fn is_complete(&self) -> bool {
        (0..MESSAGES).all(|n| self.0.contains_key(&n))
    }
}

/// Cuts the connection each time so many messages more were received.
fn cut_now_and_then(
    proxy: Arc<Proxy>,
    connection: Connection,
    received: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for cut in 1..=CUTS {
            let after = cut * MESSAGES / (CUTS + 2);
            wait_until("messages come", || {
                received.load(Ordering::SeqCst) >= after || over.load(Ordering::SeqCst)
            });
            let before = connection.id();
            proxy.cut();
            wait_until("the connection is restored", || connection.id() != before);
        }
    })
}

async fn receive_dropping(consumer: &Consumer, received: &AtomicU64) -> Received {
    let mut all = Received::default();
    let mut turn = 0_u64;
    while !all.is_complete() {
        turn += 1;
        let time =
            if turn.is_multiple_of(2) { DEADLINE } else { Duration::from_micros(turn % 200) };
        if let Some(message) = within(time, consumer.receive_future()).await {
            all.add(&message.unwrap().expect("it is open"));
            received.fetch_add(1, Ordering::SeqCst);
        } else {
            assert!(time < DEADLINE, "nothing comes any more; {} wait", consumer.buffered());
        }
    }
    all
}

#[test]
fn nothing_is_lost_when_the_connection_is_cut_under_futures() {
    for executor in ALL {
        let broker = broker(2);
        let proxy = Arc::new(Proxy::start(broker.jms_address()));
        executor.run(async move {
            let connection = start(&proxy).await;
            let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
            let queue = Destination::queue("a").unwrap();
            let consumer = session.create_consumer_future(&queue).await.unwrap();
            let sending = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
            let received = Arc::new(AtomicU64::new(0));
            let over = Arc::new(AtomicBool::new(false));
            let cutting = cut_now_and_then(
                Arc::clone(&proxy),
                connection.clone(),
                Arc::clone(&received),
                Arc::clone(&over),
            );
            zip(send_all(&sending, &queue), receive_dropping(&consumer, &received)).await;
            over.store(true, Ordering::SeqCst);
            cutting.join().unwrap();
            connection.close_future().await.unwrap();
        });
    }
}

#[test]
fn a_transaction_that_a_cut_took_back_is_told_and_its_messages_come_again() {
    for executor in ALL {
        let broker = broker(2);
        let proxy = Arc::new(Proxy::start(broker.jms_address()));
        executor.run(async move {
            let connection = start(&proxy).await;
            let mode = AcknowledgeMode::Transacted;
            let session = connection.create_session_future(mode).await.unwrap();
            let queue = Destination::queue("a").unwrap();
            let consumer = session.create_consumer_future(&queue).await.unwrap();
            let sending = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
            send_all(&sending, &queue).await;
            let mut messages = consumer.messages();
            let (mut committed, mut open, mut rolled_back) = (0, 0, 0);
            while committed < MESSAGES {
                if open == 10 {
                    if rolled_back < CUTS && (committed / 10).is_multiple_of(7) {
                        let before = connection.id();
                        proxy.cut();
                        wait_until("the connection is restored", || connection.id() != before);
                    }
                    match session.commit_future().await {
                        Ok(()) => committed += open,
                        Err(error) => {
                            rolled_back += 1;
                            assert!(error.to_string().contains("request"), "{error:?}");
                        }
                    }
                    open = 0;
                    continue;
                }
                match messages.next().await.unwrap() {
                    Ok(message) => {
                        assert_eq!(number(&message), committed + open);
                        open += 1;
                    }
                    Err(ReceiveError::Acknowledge(AcknowledgeError::Request(
                        RequestError::RolledBack,
                    ))) => {
                        rolled_back += 1;
                        open = 0;
                        session.rollback_future().await.unwrap();
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            assert!(rolled_back > 0);
            connection.close_future().await.unwrap();
        });
    }
}
