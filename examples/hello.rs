//! Sends a message and receives it again, with a broker inside this program.
//!
//! `cargo run --example hello`, or with the address of a running broker:
//! `cargo run --example hello -- mq://localhost:7676/jms`.

use std::error::Error;

use tidegate::{
    broker::Broker,
    client::{AcknowledgeMode, ConnectionFactory},
    message::{Destination, Message},
};

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut embedded = None;
    let address = match std::env::args().nth(1) {
        Some(address) => address,
        None => {
            let mut builder = Broker::builder();
            builder.listen(([127, 0, 0, 1], 0).into());
            let broker = embedded.insert(builder.start()?);
            format!("mq://{}/jms", broker.port_mapper_address())
        }
    };

    let mut factory = ConnectionFactory::new();
    factory.address_list(&address)?;
    let connection = factory.create_connection()?;
    let session = connection.create_session(AcknowledgeMode::Auto)?;
    let queue = Destination::queue("greetings")?;

    let id = session.create_producer(&queue)?.send(Message::text("hello"))?;
    println!("sent     ID:{id}");

    let consumer = session.create_consumer(&queue)?;
    connection.start()?;
    let message = consumer.receive()?.ok_or("the consumer was closed")?;
    let text = message.body_text()?;
    println!("received {}: {}", message.message_id().unwrap_or_default(), text.unwrap_or_default());
    drop(embedded.filter(|_| connection.close().is_ok()));
    Ok(())
}
