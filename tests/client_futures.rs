//! The client's futures: under any executor, cancelled anywhere, and nothing is lost.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/executors.rs"]
mod executors;
mod support;

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use executors::{ALL, Executor, join_all, within};
use futures_lite::{Stream as _, StreamExt as _, future::poll_once};
use support::{broker, wait_until};
use tidegate::{
    broker::Broker,
    client::{
        AcknowledgeMode, Connection, ConnectionFactory, Consumer, ConsumerOptions, Requestor,
        Session,
    },
    message::{DeliveryMode, Destination, DestinationKind, Message},
};

const DEADLINE: Duration = Duration::from_secs(20);
/// Long enough for whatever is on its way on this machine.
const QUIET: Duration = Duration::from_millis(100);

fn factory(broker: &Broker) -> ConnectionFactory {
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mqtcp://{}/jms", broker.jms_address())).unwrap();
    factory
}

async fn connect(broker: &Broker) -> Connection {
    let connection = factory(broker).create_connection_future().await.unwrap();
    connection.start_future().await.unwrap();
    connection
}

fn queue(name: &str) -> Destination {
    Destination::queue(name).unwrap()
}

fn number(message: &Message) -> u64 {
    message.body_text().unwrap().unwrap().parse().unwrap()
}

/// A message in time, or the test ends.
async fn next(consumer: &Consumer) -> Message {
    consumer.receive_timeout_future(DEADLINE).await.unwrap().expect("a message in time")
}

async fn send(session: &Session, to: &Destination, numbers: std::ops::Range<u64>) {
    let producer = session.create_producer_future(to).await.unwrap();
    for number in numbers {
        producer.send_future(Message::text(number.to_string())).await.unwrap();
    }
}

/// A small generator: what it gives is the same in each run.
fn times(mut seed: u64) -> impl Iterator<Item = Duration> {
    std::iter::repeat_with(move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Duration::from_micros((seed >> 40) % 300)
    })
}

/// Runs a scenario under each executor, each time with a broker of its own.
fn under_each<F>(scenario: impl Fn(Executor, Arc<Broker>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for executor in ALL {
        executor.run(scenario(executor, Arc::new(broker(2))));
    }
}

#[test]
fn the_same_calls_do_the_same_under_every_executor() {
    under_each(|_, broker| async move {
        let connection = connect(&broker).await;
        let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
        let mut producer = session.create_producer_future(&queue("a")).await.unwrap();
        let consumer = session.create_consumer_future(&queue("a")).await.unwrap();
        for mode in [DeliveryMode::Persistent, DeliveryMode::NonPersistent] {
            producer.set_delivery_mode(mode);
            for n in 0..50 {
                producer.send_future(Message::text(n.to_string())).await.unwrap();
            }
            for n in 0..50 {
                let message = next(&consumer).await;
                assert_eq!((number(&message), message.is_redelivered()), (n, false));
            }
        }
        assert!(consumer.receive_timeout_future(Duration::ZERO).await.unwrap().is_none());
        assert!(consumer.receive_timeout_future(QUIET).await.unwrap().is_none());
        // To a destination that is told with the message.
        let anywhere = session.create_anonymous_producer().unwrap();
        for _ in 0..2 {
            anywhere.send_to_future(&queue("a"), Message::text("7")).await.unwrap();
            assert_eq!(number(&next(&consumer).await), 7);
        }
        let browser = session.create_browser_future(&queue("a"), None).await.unwrap();
        producer.send_future(Message::text("8")).await.unwrap();
        let (seen, _rest) = browser.messages_future().await.unwrap().take_future(10).await;
        assert!(seen.len() <= 1);
        producer.close_future().await.unwrap();
        consumer.close_future().await.unwrap();
        session.close_future().await.unwrap();
        connection.close_future().await.unwrap();
    });
}

#[test]
fn transactions_are_committed_and_rolled_back_by_futures() {
    under_each(|_, broker| async move {
        let connection = connect(&broker).await;
        let session = connection.create_session_future(AcknowledgeMode::Transacted).await.unwrap();
        let (from, to) = (queue("from"), queue("to"));
        let plain = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
        send(&plain, &from, 0..2).await;
        let consumer = session.create_consumer_future(&from).await.unwrap();
        let producer = session.create_producer_future(&to).await.unwrap();
        let results = plain.create_consumer_future(&to).await.unwrap();

        assert_eq!(number(&next(&consumer).await), 0);
        producer.send_future(Message::text("100")).await.unwrap();
        session.rollback_future().await.unwrap();
        assert!(results.receive_timeout_future(QUIET).await.unwrap().is_none());

        for n in 0..2 {
            let message = next(&consumer).await;
            assert_eq!((number(&message), message.is_redelivered()), (n, n == 0));
            producer.send_future(Message::text((100 + n).to_string())).await.unwrap();
        }
        session.commit_future().await.unwrap();
        assert_eq!(number(&next(&results).await), 100);
        assert_eq!(number(&next(&results).await), 101);
        connection.close_future().await.unwrap();
    });
}

#[test]
fn requests_are_answered_and_a_reply_nobody_waits_for_any_more_is_dropped() {
    under_each(|_, broker| async move {
        let connection = connect(&broker).await;
        let service = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
        let requests = service.create_consumer_future(&queue("echo")).await.unwrap();
        let replies = service.create_anonymous_producer().unwrap();
        let asking = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
        let mut requestor = Requestor::new_future(&asking, &queue("echo")).await.unwrap();
        let answer = || async {
            let mut request = next(&requests).await;
            let (id, to) = (request.id().unwrap(), request.reply_to().cloned().unwrap());
            request.set_correlation_id(Some(&format!("ID:{id}"))).unwrap();
            replies.send_to_future(&to, request).await.unwrap();
        };
        for n in 0..20 {
            let asked = requestor.request_timeout_future(Message::text("late"), QUIET / 20);
            assert!(asked.await.unwrap().is_none());
            answer().await;
            let asked = requestor.request_future(Message::text(n.to_string()));
            let (reply, ()) = futures_lite::future::zip(asked, answer()).await;
            assert_eq!(number(&reply.unwrap()), n);
        }
        requestor.close_future().await.unwrap();
        connection.close_future().await.unwrap();
    });
}

/// Receives `0..count` in their order with futures that are dropped all the time.
async fn receive_cancelled(session: &Session, consumer: &Consumer, count: u64, seed: u64) {
    let (mut expected, mut cancelled) = (0, 0);
    let mut times = times(seed);
    while expected < count {
        let time = times.next().unwrap();
        let got = if time.as_micros().is_multiple_of(3) {
            poll_once(consumer.receive_future()).await
        } else {
            within(time, consumer.receive_future()).await
        };
        let Some(got) = got else {
            cancelled += 1;
            continue;
        };
        let message = got.unwrap().expect("it is open");
        assert_eq!((number(&message), message.is_redelivered()), (expected, false));
        expected += 1;
        if session.mode() == AcknowledgeMode::Transacted && expected.is_multiple_of(7) {
            session.commit_future().await.unwrap();
        }
    }
    assert!(cancelled > 0, "nothing was cancelled");
    match session.mode() {
        AcknowledgeMode::Transacted => session.commit_future().await.unwrap(),
        AcknowledgeMode::Client | AcknowledgeMode::DupsOk => {
            session.acknowledge_future().await.unwrap();
        }
        _ => {}
    }
}

#[test]
fn receives_that_are_cancelled_all_the_time_lose_nothing_and_double_nothing() {
    const MESSAGES: u64 = 400;
    let modes = [
        AcknowledgeMode::Auto,
        AcknowledgeMode::Transacted,
        AcknowledgeMode::Client,
        AcknowledgeMode::DupsOk,
    ];
    under_each(|executor, broker| async move {
        let connection = connect(&broker).await;
        for (mode, seed) in modes.into_iter().zip(executor as u64 * 10..) {
            let from = queue(&format!("from{seed}"));
            let session = connection.create_session_future(mode).await.unwrap();
            let consumer = session.create_consumer_future(&from).await.unwrap();
            let sending = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
            let sent = send(&sending, &from, 0..MESSAGES);
            let received = receive_cancelled(&session, &consumer, MESSAGES, seed);
            futures_lite::future::zip(sent, received).await;
            // Nothing is left, and nothing comes again.
            session.close_future().await.unwrap();
            let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
            let consumer = session.create_consumer_future(&from).await.unwrap();
            assert!(consumer.receive_timeout_future(QUIET).await.unwrap().is_none());
        }
        connection.close_future().await.unwrap();
    });
}

#[test]
fn sends_that_are_cancelled_are_whole_or_not_there_and_hold_nothing() {
    const SENDS: u64 = 1000;
    under_each(|executor, broker| async move {
        let connection = connect(&broker).await;
        let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
        let producer = session.create_producer_future(&queue("a")).await.unwrap();
        let mut times = times(executor as u64);
        let (mut done, mut begun, mut cancelled) = (BTreeSet::new(), BTreeSet::new(), 0);
        for n in 0..SENDS {
            let sending = producer.send_future(Message::text(n.to_string()));
            let time = times.next().unwrap();
            if time.as_micros().is_multiple_of(5) {
                // Never polled: it does nothing.
                drop(sending);
                continue;
            }
            begun.insert(n);
            let sent = match time.as_micros() % 2 {
                0 => poll_once(sending).await,
                _ => within(time / 10, sending).await,
            };
            match sent {
                Some(sent) => {
                    sent.unwrap();
                    done.insert(n);
                }
                None => cancelled += 1,
            }
        }
        assert!(cancelled > 64, "more than there are places for replies: {cancelled}");
        // As ever.
        for n in SENDS..SENDS + 100 {
            producer.send_future(Message::text(n.to_string())).await.unwrap();
            done.insert(n);
            begun.insert(n);
        }
        let consumer = session.create_consumer_future(&queue("a")).await.unwrap();
        let mut got = BTreeSet::new();
        while let Some(message) = consumer.receive_timeout_future(QUIET).await.unwrap() {
            assert!(got.insert(number(&message)), "it came twice");
            assert!(got.last() == Some(&number(&message)), "out of order");
        }
        assert!(got.is_superset(&done) && got.is_subset(&begun));
        connection.close_future().await.unwrap();
    });
}

#[test]
fn a_thousand_futures_wait_on_one_connection() {
    const FUTURES: u64 = 1000;
    for executor in ALL {
        let broker = Arc::new(broker(2));
        executor.run(async move {
            let connection = connect(&broker).await;
            let sessions =
                join_all((0..20).map(|_| connection.create_session_future(AcknowledgeMode::Auto)));
            let sessions: Vec<_> = sessions.await.into_iter().map(Result::unwrap).collect();
            let consumers = join_all((0..FUTURES).map(|n| {
                let at = usize::try_from(n).unwrap() % sessions.len();
                sessions[at].create_consumer_future(&queue(&format!("q{n}")))
            }));
            let consumers: Vec<_> = consumers.await.into_iter().map(Result::unwrap).collect();
            let receiving = join_all(consumers.iter().map(next));
            let producer = sessions[0].create_anonymous_producer().unwrap();
            let sending =
                join_all((0..FUTURES).map(|n| {
                    let (producer, to) = (&producer, queue(&format!("q{n}")));
                    async move {
                        producer.send_to_future(&to, Message::text(n.to_string())).await.unwrap()
                    }
                }));
            let (received, _sent) = futures_lite::future::zip(receiving, sending).await;
            let received: Vec<_> = received.iter().map(number).collect();
            assert_eq!(received, (0..FUTURES).collect::<Vec<_>>());
            connection.close_future().await.unwrap();
        });
    }
}

#[test]
fn futures_that_wait_end_when_what_they_wait_at_is_closed() {
    under_each(|_, broker| async move {
        let connection = connect(&broker).await;
        let waiting = |consumer: Consumer| async move {
            assert!(consumer.receive_future().await.unwrap().is_none());
            // From then on, too.
            assert!(consumer.receive_future().await.unwrap().is_none());
            let mut messages = consumer.messages();
            assert!(messages.next().await.is_none() && messages.next().await.is_none());
            assert_eq!(messages.size_hint(), (0, Some(0)));
        };
        for what in ["consumer", "session", "connection"] {
            let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
            let consumer = session.create_consumer_future(&queue("a")).await.unwrap();
            let all = join_all((0..50).map(|_| waiting(consumer.clone())));
            let closing = async {
                match what {
                    "consumer" => consumer.close_future().await.unwrap(),
                    "session" => session.close_future().await.unwrap(),
                    _ => connection.close_future().await.unwrap(),
                }
            };
            futures_lite::future::zip(all, closing).await;
        }
        assert!(connection.create_session_future(AcknowledgeMode::Auto).await.is_err());
    });
}

#[test]
fn a_stream_that_is_not_polled_holds_the_prefetch_limit() {
    under_each(|_, broker| async move {
        let mut factory = factory(&broker);
        factory.set_attribute("imqConsumerFlowLimit", "10").unwrap();
        let connection = factory.create_connection_future().await.unwrap();
        connection.start().unwrap();
        let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
        let consumer = session.create_consumer_future(&queue("a")).await.unwrap();
        let sending = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
        let mut messages = consumer.messages();
        send(&sending, &queue("a"), 0..5).await;
        for n in 0..5 {
            assert_eq!(number(&messages.next().await.unwrap().unwrap()), n);
        }
        send(&sending, &queue("a"), 5..100).await;
        let filled = consumer.clone();
        wait_until("the window is full", move || filled.buffered() >= 10);
        assert!(within(QUIET, std::future::pending::<()>()).await.is_none());
        assert_eq!(consumer.buffered(), 10);
        assert_eq!(messages.size_hint(), (0, None));
        // Another stream of the same consumer goes on where the first one is.
        drop(messages);
        let mut rest = pin!(consumer.messages().take(95).map(Result::unwrap));
        for n in 5..100 {
            assert_eq!(number(&rest.next().await.unwrap()), n);
        }
        connection.close_future().await.unwrap();
    });
}

#[test]
fn a_call_that_has_begun_runs_to_its_end_and_one_that_has_not_does_nothing() {
    under_each(|_, broker| async move {
        let connection = connect(&broker).await;
        let plain = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
        let results = plain.create_consumer_future(&queue("a")).await.unwrap();
        for n in 0..50 {
            let mode = AcknowledgeMode::Transacted;
            let session = connection.create_session_future(mode).await.unwrap();
            let producer = session.create_producer_future(&queue("a")).await.unwrap();
            producer.send_future(Message::text(n.to_string())).await.unwrap();
            drop(session.commit_future());
            assert!(results.receive_timeout_future(QUIET / 50).await.unwrap().is_none());
            // Dropped as soon as it has begun, it goes on by itself.
            drop(poll_once(session.commit_future()).await);
            assert_eq!(number(&next(&results).await), n);
        }
        let temporary = plain.create_temporary_future(DestinationKind::Topic).await.unwrap();
        plain.delete_temporary_future(&temporary).await.unwrap();
        let mut options = ConsumerOptions::new();
        options.selector("n = 1");
        let chosen = plain.create_consumer_with_future(&queue("b"), &options).await.unwrap();
        assert!(chosen.receive_timeout_future(QUIET / 10).await.unwrap().is_none());
        connection.close_future().await.unwrap();
    });
}

#[test]
fn threads_and_futures_share_a_connection() {
    const EACH: u64 = 300;
    under_each(|_, broker| async move {
        let connection = connect(&broker).await;
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
                let consumer = session.create_consumer(&queue(&format!("t{thread}"))).unwrap();
                std::thread::spawn(move || {
                    for n in 0..EACH {
                        let message = consumer.receive_timeout(DEADLINE).unwrap().unwrap();
                        assert_eq!(number(&message), n);
                    }
                })
            })
            .collect();
        let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
        let consumer = session.create_consumer_future(&queue("f")).await.unwrap();
        let sending = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
        let all = ["f", "t0", "t1"].map(queue);
        let sent = join_all(all.iter().map(|to| send(&sending, to, 0..EACH)));
        let received = async {
            for n in 0..EACH {
                assert_eq!(number(&next(&consumer).await), n);
            }
        };
        futures_lite::future::zip(sent, received).await;
        for thread in threads {
            thread.join().unwrap();
        }
        connection.close_future().await.unwrap();
    });
}

#[test]
fn threads_and_futures_take_turns_at_one_consumer() {
    const MESSAGES: u64 = 1500;
    under_each(|executor, broker| async move {
        let connection = connect(&broker).await;
        let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
        let consumer = session.create_consumer_future(&queue("a")).await.unwrap();
        let (got, all) = std::sync::mpsc::channel();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (consumer, got) = (consumer.clone(), got.clone());
                std::thread::spawn(move || {
                    while let Some(message) = consumer.receive().unwrap() {
                        got.send(number(&message)).unwrap();
                    }
                })
            })
            .collect();
        // It waits for each reply, so the helm changes hands all the time.
        let sending = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let sender = std::thread::spawn(move || {
            let producer = sending.create_producer(&queue("a")).unwrap();
            for n in 0..MESSAGES {
                producer.send(Message::text(n.to_string())).unwrap();
            }
        });
        let futures = join_all((0..4).map(|at| {
            let (consumer, got) = (&consumer, got.clone());
            let mut times = times(executor as u64 + at);
            async move {
                loop {
                    // Some are dropped all the time, and some never.
                    let time = times.next().filter(|_| at == 0).unwrap_or(DEADLINE);
                    match within(time, consumer.receive_future()).await {
                        None => {}
                        Some(Ok(None)) => return,
                        Some(message) => got.send(number(&message.unwrap().unwrap())).unwrap(),
                    }
                }
            }
        }));
        let closing = async {
            let counted = consumer.clone();
            let closing = connection.clone();
            let (told, done) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let all = (0..MESSAGES).map(|_| all.recv_timeout(DEADLINE).expect("all come"));
                let all: BTreeSet<_> = all.collect();
                assert_eq!(counted.buffered(), 0);
                closing.close().unwrap();
                told.send(all).unwrap();
            });
            done
        };
        let (_over, done) = futures_lite::future::zip(futures, closing).await;
        assert_eq!(done.recv_timeout(DEADLINE).unwrap(), (0..MESSAGES).collect());
        sender.join().unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
