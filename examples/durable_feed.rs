//! A reader of a feed goes away and comes back: the broker has kept what was published meanwhile. A
//! selector keeps out what the reader does not want.
//!
//! `cargo run --example durable_feed`, or with the address of a running broker:
//! `cargo run --example durable_feed -- mq://localhost:7676/jms`.

mod support;

use std::{error::Error, time::Duration};

use tidegate::{
    client::{AcknowledgeMode, Connection, ConnectionFactory, ConsumerOptions, Session},
    message::{Destination, Message},
};

const SUBSCRIPTION: &str = "reader's feed";

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn Error>> {
    let (factory, broker) = support::broker()?;
    let news = Destination::topic("news")?;
    let publisher = factory.create_connection()?;
    let publishing = publisher.create_session(AcknowledgeMode::Auto)?;

    // The first visit makes the subscription.
    println!("the reader comes");
    let (reader, session) = come(&factory)?;
    let consumer = session.create_consumer_with(&news, &subscription())?;
    publish(&publishing, &news, &["ships at sea", "high tide", "fog"])?;
    for _ in 0..2 {
        println!("  read: {}", headline(&consumer.receive()?.ok_or("closed")?));
    }
    reader.close()?;

    println!("the reader is away");
    publish(&publishing, &news, &["low tide", "a whale"])?;

    println!("the reader comes back");
    let (reader, session) = come(&factory)?;
    let consumer = session.create_consumer_with(&news, &subscription())?;
    while let Some(message) = consumer.receive_timeout(Duration::from_millis(300))? {
        println!("  read: {}", headline(&message));
    }

    // Without this, the broker would go on keeping news for a reader who never comes again.
    consumer.close()?;
    session.unsubscribe(SUBSCRIPTION)?;
    reader.close()?;
    publisher.close()?;
    drop(broker);
    Ok(())
}

/// A connection with the reader's name, to which the subscription belongs.
fn come(factory: &ConnectionFactory) -> Result<(Connection, Session), Box<dyn Error>> {
    let connection = factory.create_connection()?;
    connection.set_client_id("reader")?;
    let session = connection.create_session(AcknowledgeMode::Auto)?;
    connection.start()?;
    Ok((connection, session))
}

fn subscription() -> ConsumerOptions {
    let mut options = ConsumerOptions::new();
    options.durable(SUBSCRIPTION).selector("kind = 'report'");
    options
}

/// Publishes these, and an advertisement after each.
#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn publish(session: &Session, news: &Destination, items: &[&str]) -> Result<(), Box<dyn Error>> {
    let producer = session.create_producer(news)?;
    for item in items {
        for (text, kind) in [(*item, "report"), ("buy more rope", "advertisement")] {
            let mut message = Message::text(text);
            message.set_property("kind", kind)?;
            producer.send(message)?;
        }
        println!("  published: {item}");
    }
    Ok(())
}

fn headline(message: &Message) -> String {
    message.body_text().ok().flatten().unwrap_or_default().into_owned()
}
