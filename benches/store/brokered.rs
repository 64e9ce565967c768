//! A broker with a store, and clients over loopback sockets.

use std::{
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Instant,
};

use tempfile::TempDir;
use tidegate::{
    broker::{Broker, BrokerConfig},
    client::{AcknowledgeMode, Connection, ConnectionFactory, Producer, Session},
    message::{Body, DeliveryMode, Destination, Message},
};

use crate::{BODY_BYTES, folder, plan::Plan};

/// Producers of one connection, at most.
const SHARING: usize = 16;

fn start() -> (TempDir, Broker) {
    let folder = folder();
    let mut config = BrokerConfig::default();
    config.listen = ([127, 0, 0, 1], 0).into();
    config.jms = config.listen;
    config.admin = config.listen;
    config.data = Some(folder.path().to_path_buf());
    config.loops = 1;
    (folder, Broker::start(config).unwrap())
}

fn connect(broker: &Broker) -> Connection {
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mqtcp://{}/jms", broker.jms_address())).unwrap();
    factory.consumer_flow_limit(1000).unwrap();
    let connection = factory.create_connection().unwrap();
    connection.start().unwrap();
    connection
}

fn queue(number: usize) -> Destination {
    Destination::queue(format!("q{number}")).unwrap()
}

fn producer(session: &Session, number: usize) -> Producer {
    let mut producer = session.create_producer(&queue(number)).unwrap();
    producer.set_delivery_mode(DeliveryMode::Persistent);
    producer
}

fn message() -> Message {
    Message::bytes(vec![7; BODY_BYTES])
}

/// Sends, and says so when it is acknowledged.
fn send(producer: &Producer, number: usize, told: &Sender<usize>) {
    let told = told.clone();
    let completion = move |sent: Result<Message, _>| {
        sent.map(drop).unwrap();
        // At the end nobody listens any more.
        let _nobody = told.send(number);
    };
    producer.send_async(message(), completion).unwrap();
}

/// Messages a second that are acknowledged to producers which have so many in flight each.
pub(crate) fn sent(plan: &Plan, producers: usize, each: usize) -> f64 {
    let (_folder, broker) = start();
    let connections: Vec<_> = (0..producers.div_ceil(SHARING)).map(|_| connect(&broker)).collect();
    let sessions: Vec<_> = (0..producers)
        .map(|number| connections[number / SHARING].create_session(AcknowledgeMode::Auto).unwrap())
        .collect();
    let all: Vec<_> =
        sessions.iter().enumerate().map(|(number, session)| producer(session, number)).collect();
    let rate = if producers == 1 && each == 1 {
        let send = || all[0].send(message()).map(drop).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < plan.warm {
            send();
        }
        let (begun, mut count) = (Instant::now(), 0_u32);
        while begun.elapsed() < plan.window {
            send();
            count += 1;
        }
        f64::from(count) / begun.elapsed().as_secs_f64()
    } else {
        let (told, hears) = mpsc::channel();
        for (number, producer) in all.iter().enumerate() {
            (0..each).for_each(|_| send(producer, number, &told));
        }
        let rate = acknowledged(plan, &hears, |number| send(&all[number], number, &told));
        assert_eq!(hears.iter().take(producers * each).count(), producers * each);
        rate
    };
    for connection in connections {
        connection.close().unwrap();
    }
    broker.shutdown();
    rate
}

/// Counts what is heard of, and goes on with each.
fn acknowledged(plan: &Plan, hears: &Receiver<usize>, next: impl Fn(usize)) -> f64 {
    let begun = Instant::now();
    while begun.elapsed() < plan.warm {
        next(hears.recv().unwrap());
    }
    let (begun, mut count) = (Instant::now(), 0_u32);
    while begun.elapsed() < plan.window {
        next(hears.recv().unwrap());
        count += 1;
    }
    f64::from(count) / begun.elapsed().as_secs_f64()
}

/// Messages a second that a consumer has acknowledged, from a producer with 256 in flight.
pub(crate) fn through(plan: &Plan) -> f64 {
    const BATCH: u32 = 64;
    let (_folder, broker) = start();
    let (sending, taking) = (connect(&broker), connect(&broker));
    let producing = thread::spawn(move || {
        let session = sending.create_session(AcknowledgeMode::Auto).unwrap();
        let producer = producer(&session, 0);
        let (told, hears) = mpsc::channel();
        (0..256).for_each(|_| send(&producer, 0, &told));
        move |stop: Receiver<()>| {
            while stop.try_recv() == Err(mpsc::TryRecvError::Empty) {
                send(&producer, hears.recv().unwrap(), &told);
            }
            assert_eq!(hears.iter().take(256).count(), 256);
            // An empty one is the last.
            producer.send(Message::bytes(Vec::new())).unwrap();
            drop(session);
            sending.close().unwrap();
        }
    });
    let (stop, stops) = mpsc::channel();
    let produce = producing.join().unwrap();
    let producing = thread::spawn(move || produce(stops));
    let session = taking.create_session(AcknowledgeMode::Client).unwrap();
    let consumer = session.create_consumer(&queue(0)).unwrap();
    let take = || {
        for _ in 0..BATCH {
            consumer.receive().unwrap().unwrap();
        }
        session.acknowledge().unwrap();
    };
    let begun = Instant::now();
    while begun.elapsed() < plan.warm {
        take();
    }
    let (begun, mut count) = (Instant::now(), 0_u32);
    while begun.elapsed() < plan.window {
        take();
        count += BATCH;
    }
    let rate = f64::from(count) / begun.elapsed().as_secs_f64();
    stop.send(()).unwrap();
    loop {
        let message = consumer.receive().unwrap().unwrap();
        if matches!(message.body(), Ok(Body::Bytes(bytes)) if bytes.is_empty()) {
            break;
        }
    }
    session.acknowledge().unwrap();
    producing.join().unwrap();
    taking.close().unwrap();
    broker.shutdown();
    rate
}
