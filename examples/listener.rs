//! Two listeners share a queue: each message goes to one of them, and the one that works faster
//! gets more.
//!
//! `cargo run --example listener`, or with the address of a running broker:
//! `cargo run --example listener -- mq://localhost:7676/jms`.

mod support;

use std::{error::Error, sync::mpsc::channel};

use tidegate::{
    client::AcknowledgeMode,
    message::{Destination, Message},
};

const MESSAGES: usize = 20;

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn Error>> {
    let (mut factory, broker) = support::broker()?;
    // Few ahead, so that nobody hoards what the other could do.
    factory.consumer_flow_limit(2)?;
    let connection = factory.create_connection()?;
    let jobs = Destination::queue("jobs")?;

    let (done, results) = channel();
    let mut consumers = Vec::new();
    for name in ["left", "right"] {
        // Listeners of one session run one at a time, so each gets a session of its own.
        let session = connection.create_session(AcknowledgeMode::Auto)?;
        let consumer = session.create_consumer(&jobs)?;
        let done = done.clone();
        consumer.set_listener(move |message: Message| {
            let job = message.body_text().ok().flatten().unwrap_or_default().into_owned();
            // The receiver is gone only when the program ends.
            let _sent = done.send((name, job));
        })?;
        consumers.push(consumer);
    }
    connection.start()?;

    let session = connection.create_session(AcknowledgeMode::Auto)?;
    let producer = session.create_producer(&jobs)?;
    for n in 0..MESSAGES {
        producer.send(Message::text(format!("job {n}")))?;
    }
    for (name, job) in results.iter().take(MESSAGES) {
        println!("{name:>5} did {job}");
    }
    connection.close()?;
    drop(broker);
    Ok(())
}
