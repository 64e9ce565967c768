//! Moves orders through a workshop: each order is taken and its bill sent in one transaction. Some
//! fail half-way; in the end there is one bill for each order all the same.
//!
//! `cargo run --example transactions`, or with the address of a running broker:
//! `cargo run --example transactions -- mq://localhost:7676/jms`.

mod support;

use std::{error::Error, time::Duration};

use tidegate::{
    client::{AcknowledgeMode, Connection},
    message::{Destination, Message},
};

const ORDERS: usize = 9;
const PATIENCE: Duration = Duration::from_millis(300);

fn main() -> Result<(), Box<dyn Error>> {
    let (factory, broker) = support::broker()?;
    let connection = factory.create_connection()?;
    connection.start()?;
    let orders = Destination::queue("orders")?;
    let bills = Destination::queue("bills")?;
    order(&connection, &orders)?;
    work(&connection, &orders, &bills)?;
    count(&connection, &bills)?;
    connection.close()?;
    drop(broker);
    Ok(())
}

/// All orders come in one transaction: nobody sees half of the list.
fn order(connection: &Connection, orders: &Destination) -> Result<(), Box<dyn Error>> {
    let session = connection.create_session(AcknowledgeMode::Transacted)?;
    let producer = session.create_producer(orders)?;
    for n in 1..=ORDERS {
        producer.send(Message::text(format!("order {n}")))?;
    }
    Ok(session.commit()?)
}

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn work(
    connection: &Connection,
    orders: &Destination,
    bills: &Destination,
) -> Result<(), Box<dyn Error>> {
    let session = connection.create_session(AcknowledgeMode::Transacted)?;
    let consumer = session.create_consumer(orders)?;
    let producer = session.create_producer(bills)?;
    while let Some(order) = consumer.receive_timeout(PATIENCE)? {
        let name = order.body_text()?.unwrap_or_default().into_owned();
        producer.send(Message::text(format!("bill for {name}")))?;
        // Every third order fails when it comes for the first time, after its bill was sent.
        let fails = name.ends_with(['3', '6', '9']) && !order.is_redelivered();
        if fails {
            println!("{name} fails: neither taken nor billed");
            session.rollback()?;
        } else {
            let times = order.delivery_count().unwrap_or(1);
            println!("{name} is done{}", if times > 1 { ", at the second try" } else { "" });
            session.commit()?;
        }
    }
    Ok(session.close()?)
}

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn count(connection: &Connection, bills: &Destination) -> Result<(), Box<dyn Error>> {
    let session = connection.create_session(AcknowledgeMode::Auto)?;
    let consumer = session.create_consumer(bills)?;
    let mut found = 0;
    while consumer.receive_timeout(PATIENCE)?.is_some() {
        found += 1;
    }
    println!("{found} bills for {ORDERS} orders");
    Ok(())
}
