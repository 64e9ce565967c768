//! The client of this crate, as an application uses it.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tidegate::{
    broker::{Broker, BrokerConfig, Idle},
    client::{
        AcknowledgeMode, Connection, ConnectionFactory, Consumer, Producer, Session, WaitStrategy,
    },
    message::{DeliveryMode, Destination, Message, Origin},
};

use crate::{
    bare::LONE,
    duty::{self, Duty},
    link::Wait,
    peer::LOAD,
    times::{take_times, take_times_apart},
};

const BODY_BYTES: usize = 1024;

/// How long those look again that sleep then.
const SPIN: Duration = Duration::from_micros(50);

fn queue() -> Destination {
    Destination::queue("a_destination_with_a_longish_name").unwrap()
}

fn message() -> Message {
    static BODY: [u8; BODY_BYTES] = [7; BODY_BYTES];
    Message::bytes(Bytes::from_static(&BODY))
}

/// How many bytes a message has when it is sent.
pub(crate) fn message_bytes() -> usize {
    let mut message = message();
    message.set_destination(queue());
    let origin = Origin { producer_id: Some(1), transaction_id: None };
    message.encode(&origin).unwrap().finish().raw().len()
}

/// A connection and a session of it.
struct Side {
    session: Session,
    connection: Connection,
}

impl Side {
    fn new(duty: &Duty) -> Self {
        let mut factory = ConnectionFactory::new();
        factory.address_list(&format!("mqtcp://{}/jms", duty.address())).unwrap();
        factory.consumer_flow_limit(u32::try_from(LOAD).unwrap()).unwrap();
        factory.wait_strategy(match duty.setting("wait") {
            Wait::Spin => WaitStrategy::Spin,
            Wait::Block if duty.setting("spins") => WaitStrategy::SpinThenPark(SPIN),
            Wait::Block => WaitStrategy::Park,
        });
        Self::over(factory.create_connection().unwrap())
    }

    fn over(connection: Connection) -> Self {
        connection.start().unwrap();
        let session = connection.create_session(AcknowledgeMode::DupsOk).unwrap();
        Self { session, connection }
    }

    fn consumer(&self) -> Consumer {
        self.session.create_consumer(&queue()).unwrap()
    }

    fn producer(&self) -> Producer {
        let mut producer = self.session.create_producer(&queue()).unwrap();
        producer.set_delivery_mode(DeliveryMode::NonPersistent);
        producer
    }
}

/// Makes round trips in one thread.
pub(crate) fn requester(duty: &Duty) {
    let side = Side::new(duty);
    let (consumer, producer) = (side.consumer(), side.producer());
    take_times(duty, || {
        producer.send(message()).unwrap();
        consumer.receive().unwrap().expect("an answer");
    });
}

/// Makes round trips with a listener, which hands each answer to the thread that asks.
pub(crate) fn listening_requester(duty: &Duty) {
    let side = Side::new(duty);
    let (consumer, producer) = (side.consumer(), side.producer());
    let (sender, answers) = mpsc::channel();
    consumer.set_listener(move |message| sender.send(message).unwrap()).unwrap();
    let spin = if duty.setting("spins") { SPIN } else { Duration::ZERO };
    take_times(duty, || {
        producer.send(message()).unwrap();
        let until = Instant::now() + spin;
        while answers.try_recv().is_err() {
            if Instant::now() >= until {
                answers.recv().unwrap();
                return;
            }
            thread::yield_now();
        }
    });
}

/// Makes round trips through a broker in the same process, without sockets; it has one loop, which
/// spins as this thread does.
pub(crate) fn in_process_requester(duty: &Duty) {
    let mut config = BrokerConfig::default();
    config.listen.set_port(0);
    (config.loops, config.idle) = (1, Idle::Spin);
    let broker = Broker::start(config).expect("a broker on free ports");
    let mut factory = ConnectionFactory::new();
    factory.wait_strategy(WaitStrategy::Spin);
    let connection = factory.create_connection_in_process(&broker.in_process()).unwrap();
    let side = Side::over(connection);
    let (consumer, producer) = (side.consumer(), side.producer());
    take_times(duty, || {
        producer.send(message()).unwrap();
        consumer.receive().unwrap().expect("it comes back");
    });
}

/// Sends without waiting for anything.
pub(crate) fn sender(duty: &Duty) {
    let side = Side::new(duty);
    let producer = side.producer();
    duty.ready();
    while producer.send(message()).is_ok() {}
    duty.order();
}

/// Sends a message now and then, and takes the time of that.
pub(crate) fn lone_sender(duty: &Duty) {
    let side = Side::new(duty);
    let producer = side.producer();
    take_times_apart(duty, LONE, || {
        producer.send(message()).unwrap();
    });
}

/// Takes messages that are all there, for as many milliseconds as each order says; tells how many
/// it took, and in how many nanoseconds.
pub(crate) fn taker(duty: &Duty) {
    let side = Side::new(duty);
    let consumer = side.consumer();
    // Somebody who waits for something else reads the socket.
    let other = side.connection.create_session(AcknowledgeMode::DupsOk).unwrap();
    let waiting = other.create_consumer(&queue()).unwrap();
    thread::spawn(move || waiting.receive());
    let producer = side.producer();
    let mut order = duty.ready();
    loop {
        let wanted = order.parse::<u128>().unwrap() * 1_000_000;
        let (mut taken, mut time) = (0, 0);
        while time < wanted {
            producer.send(message()).unwrap();
            while consumer.buffered() < LOAD {
                thread::yield_now();
            }
            let begun = Instant::now();
            for _ in 0..LOAD {
                std::hint::black_box(consumer.receive().unwrap().expect("it is there"));
            }
            time += begun.elapsed().as_nanos();
            taken += LOAD;
        }
        duty::say(&format!("{taken} {time}"));
        order = duty.order();
    }
}
