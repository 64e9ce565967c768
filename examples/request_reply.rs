//! Asks a service and waits for its replies, and says how long a round trip took.
//!
//! `cargo run --release --example request_reply`, or with the address of a running broker:
//! `cargo run --release --example request_reply -- mq://localhost:7676/jms`.

mod support;

use std::{
    error::Error,
    time::{Duration, Instant},
};

use tidegate::{
    client::{AcknowledgeMode, Connection, Consumer, Producer, Requestor},
    message::{DeliveryMode, Destination, Message},
};

const REQUESTS: usize = 20_000;

#[allow(clippy::print_stdout, clippy::disallowed_methods, reason = "an example measures and tells")]
fn main() -> Result<(), Box<dyn Error>> {
    let (factory, broker) = support::broker()?;
    let service = factory.create_connection()?;
    let (requests, replies) = service_ends(&service)?;
    // The service waits for requests on a thread of its own, until its connection is closed.
    let serving = std::thread::spawn(move || serve(&requests, &replies));

    let connection = factory.create_connection()?;
    connection.start()?;
    let session = connection.create_session(AcknowledgeMode::DupsOk)?;
    let mut requestor = Requestor::new(&session, &Destination::queue("echo")?)?;
    requestor.producer().set_delivery_mode(DeliveryMode::NonPersistent);
    let body = vec![b'x'; 1024];
    let mut times: Vec<Duration> = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let begun = Instant::now();
        let reply = requestor.request(Message::bytes(body.clone()))?;
        times.push(begun.elapsed());
        assert_eq!(reply.body_bytes()?.len(), body.len());
    }
    times.sort_unstable();
    let part = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
    println!("{REQUESTS} round trips: half within {:?}, 99 % within {:?}", part(50), part(99));

    connection.close()?;
    service.close()?;
    serving.join().map_err(|_| "the service panicked")??;
    drop(broker);
    Ok(())
}

fn service_ends(connection: &Connection) -> Result<(Consumer, Producer), Box<dyn Error>> {
    let session = connection.create_session(AcknowledgeMode::DupsOk)?;
    let consumer = session.create_consumer(&Destination::queue("echo")?)?;
    let mut replies = session.create_anonymous_producer()?;
    replies.set_delivery_mode(DeliveryMode::NonPersistent);
    connection.start()?;
    Ok((consumer, replies))
}

fn serve(requests: &Consumer, replies: &Producer) -> Result<(), String> {
    while let Some(request) = requests.receive().map_err(|error| error.to_string())? {
        let Some(to) = request.reply_to().cloned() else { continue };
        replies.send_to(&to, request).map_err(|error| error.to_string())?;
    }
    Ok(())
}
