//! How long a message takes there and back, in three ways of waiting for it.
//!
//! A thread that waits in `receive` reads the socket itself: nobody has to wake it when the message
//! is there. With a listener, the session's thread does so, and hands over to the one that asked.
//! Looking again and again does not sleep at all, and costs a core.
//!
//! `cargo run --release --example low_latency`, or with the address of a running broker:
//! `cargo run --release --example low_latency -- mq://localhost:7676/jms`.

mod support;

use std::{
    error::Error,
    sync::mpsc::channel,
    time::{Duration, Instant},
};

use tidegate::{
    client::{AcknowledgeMode, Connection, Consumer, ReceiveError, Session},
    message::{DeliveryMode, Destination, Message},
};

const ROUND_TRIPS: usize = 4_000;

fn main() -> Result<(), Box<dyn Error>> {
    let (factory, broker) = support::broker()?;
    let there = Destination::queue("there")?;
    let back = Destination::queue("back")?;

    let echo = factory.create_connection()?;
    let (echo_session, requests) = open(&echo, &there)?;
    let mut replies = echo_session.create_producer(&back)?;
    replies.set_delivery_mode(DeliveryMode::NonPersistent);
    let echoing = std::thread::spawn(move || {
        while let Ok(Some(message)) = requests.receive() {
            if replies.send(message).is_err() {
                break;
            }
        }
    });

    let connection = factory.create_connection()?;
    let (session, consumer) = open(&connection, &back)?;
    measure("receive", &session, &there, || consumer.receive())?;
    measure("try_receive, again and again", &session, &there, || {
        loop {
            if let Some(message) = consumer.try_receive()? {
                return Ok(Some(message));
            }
            std::hint::spin_loop();
        }
    })?;
    // From here on the session's thread receives.
    let (hand_over, handed_over) = channel();
    consumer.set_listener(move |message| {
        // The receiver is gone only when the program ends.
        let _sent = hand_over.send(message);
    })?;
    measure("a listener, and a channel", &session, &there, || Ok(handed_over.recv().ok()))?;

    connection.close()?;
    echo.close()?;
    echoing.join().map_err(|_| "the echo panicked")?;
    drop(broker);
    Ok(())
}

/// A lazily acknowledging session costs no packet for each message.
fn open(
    connection: &Connection,
    from: &Destination,
) -> Result<(Session, Consumer), Box<dyn Error>> {
    let session = connection.create_session(AcknowledgeMode::DupsOk)?;
    let consumer = session.create_consumer(from)?;
    connection.start()?;
    Ok((session, consumer))
}

#[allow(clippy::print_stdout, clippy::disallowed_methods, reason = "an example measures and tells")]
fn measure(
    how: &str,
    session: &Session,
    there: &Destination,
    mut next: impl FnMut() -> Result<Option<Message>, ReceiveError>,
) -> Result<(), Box<dyn Error>> {
    let mut producer = session.create_producer(there)?;
    producer.set_delivery_mode(DeliveryMode::NonPersistent);
    let mut times: Vec<Duration> = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let begun = Instant::now();
        producer.send(Message::bytes(&b"ping"[..]))?;
        next()?.ok_or("the connection was closed")?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let part = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
    println!("{how:<30} half within {:>9.1?}, 99 % within {:>9.1?}", part(50), part(99));
    Ok(())
}
