//! The same with our own client, as an application would use it.

use bytes::Bytes;
use tidegate::{
    client::{AcknowledgeMode, Connection, ConnectionFactory, Consumer, Producer, Session},
    message::{DeliveryMode, Destination, Message},
};

use crate::{
    duty::{self, Duty},
    stencil::{self, BODY_BYTES},
    times::take_times,
};

/// What a side holds on to.
struct Side {
    session: Session,
    _connection: Connection,
}

impl Side {
    fn new(duty: &Duty) -> Self {
        let mut factory = ConnectionFactory::new();
        factory.address_list(&format!("mqtcp://{}/jms", duty.address())).unwrap();
        // The window of today's client runtimes; that of version 3.5 holds 100.
        factory.consumer_flow_limit(1000).unwrap();
        let connection = factory.create_connection().unwrap();
        connection.start().unwrap();
        let session = connection.create_session(AcknowledgeMode::DupsOk).unwrap();
        Self { session, _connection: connection }
    }

    fn producer(&self, queue: i32) -> Producer {
        let queue = Destination::queue(stencil::name(queue)).unwrap();
        let mut producer = self.session.create_producer(&queue).unwrap();
        producer.set_delivery_mode(DeliveryMode::NonPersistent);
        producer
    }

    fn consumer(&self, queue: i32) -> Consumer {
        let queue = Destination::queue(stencil::name(queue)).unwrap();
        self.session.create_consumer(&queue).unwrap()
    }
}

fn message() -> Message {
    static BODY: [u8; BODY_BYTES] = [7; BODY_BYTES];
    Message::bytes(Bytes::from_static(&BODY))
}

pub(crate) fn producer(duty: &Duty) {
    let side = Side::new(duty);
    let producer = side.producer(0);
    duty.ready();
    // Ends with the process: the program takes the broker away last.
    while producer.send(message()).is_ok() {}
}

pub(crate) fn consumer(duty: &Duty) {
    let side = Side::new(duty);
    let consumer = side.consumer(0);
    duty::say("ready");
    while let Ok(Some(message)) = consumer.receive() {
        std::hint::black_box(message);
        duty::count(1);
    }
}

pub(crate) fn requester(duty: &Duty) {
    let side = Side::new(duty);
    let (consumer, producer) = (side.consumer(1), side.producer(0));
    take_times(duty, || {
        producer.send(message()).unwrap();
        consumer.receive().unwrap().expect("an answer");
    });
}

pub(crate) fn responder(duty: &Duty) {
    let side = Side::new(duty);
    let (consumer, producer) = (side.consumer(0), side.producer(1));
    duty::say("ready");
    while let Ok(Some(request)) = consumer.receive() {
        std::hint::black_box(request);
        producer.send(message()).unwrap();
    }
}
