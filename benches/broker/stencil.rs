//! Packets encoded once and patched where they lie.

use bytes::Bytes;
use tidegate::wire::{Flags, Packet, PacketBuilder, PacketType, Padding, VariableHeader};

use crate::link::View;

/// Body of a message, in bytes.
pub(crate) const BODY_BYTES: usize = 1024;

/// A message as it is sent: header, variable header, body.
pub(crate) const MESSAGE_BYTES: usize = 72 + 60 + BODY_BYTES;

/// Acknowledgements in one packet.
const ACKS: usize = 10;

/// One acknowledgement: consumer and message id.
const ACK_BYTES: usize = 40;

/// A number no packet has by chance, to find the place where one stands.
pub(crate) const MARK: i64 = 0x7A6B_5C4D_3E2F_1A0B;

/// What the names of all destinations begin with, as long as makes a message [`MESSAGE_BYTES`] long.
const NAME: &str = "a_destination_with_a_longish_name_";

/// Digits behind it.
const DIGITS: usize = 5;

/// The name of one of many destinations.
pub(crate) fn name(number: i32) -> String {
    format!("{NAME}{number:0DIGITS$}")
}

/// A message to this destination.
pub(crate) fn message(name: &str, destination: Flags, producer: i64) -> Vec<u8> {
    let fields = VariableHeader {
        destination: Some(name.as_bytes()),
        producer_id: Some(producer),
        ..VariableHeader::default()
    };
    let builder = PacketBuilder::new(PacketType::BYTES_MESSAGE)
        .flags(destination)
        .variable(&fields, Padding::Java)
        .expect("a short name")
        .body(vec![7; BODY_BYTES]);
    let bytes = builder.finish().raw().to_vec();
    assert_eq!(bytes.len(), MESSAGE_BYTES);
    bytes
}

/// Where in a message its destination and its producer stand.
pub(crate) struct Address {
    digits: usize,
    producer: usize,
}

impl Address {
    /// Finds them in a message of the producer [`MARK`].
    pub(crate) fn of(message: &[u8]) -> Self {
        let find = |wanted: &[u8]| message.windows(wanted.len()).position(|bytes| bytes == wanted);
        let name = find(NAME.as_bytes()).expect("the name");
        Self { digits: name + NAME.len(), producer: find(&MARK.to_be_bytes()).expect("the mark") }
    }

    /// Sends a message of this shape to another destination, from another producer.
    pub(crate) fn write(&self, message: &mut [u8], number: i32, producer: i64) {
        let mut rest = number;
        for digit in message[self.digits..self.digits + DIGITS].iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
            rest /= 10;
        }
        message[self.producer..self.producer + 8].copy_from_slice(&producer.to_be_bytes());
    }
}

/// Gives a message its number, and says whether it uses up the producer's credit.
pub(crate) fn number(message: &mut [u8], sequence: u32, uses_up: bool) {
    message[48..52].copy_from_slice(&sequence.to_be_bytes());
    let flags = Flags::from_bits(u16::from_be_bytes([message[62], message[63]]));
    let flags = flags.set(Flags::CONSUMER_FLOW, uses_up);
    message[62..64].copy_from_slice(&flags.bits().to_be_bytes());
}

/// What a delivery has to be answered with before anything else.
pub(crate) struct Answers {
    connection: Vec<u8>,
    consumer: Vec<u8>,
    at: usize,
}

impl Answers {
    /// `window`: how many messages a consumer asks for when it has none left.
    pub(crate) fn new(window: i32) -> Self {
        let resume = || PacketBuilder::new(PacketType::RESUME_FLOW);
        let consumer = resume().long("JMQConsumerID", MARK).int("JMQSize", window).finish();
        let consumer = consumer.raw().to_vec();
        let at = consumer.windows(8).position(|bytes| bytes == MARK.to_be_bytes());
        Self { connection: resume().finish().raw().to_vec(), consumer, at: at.expect("the mark") }
    }

    /// Adds what this delivery asks for.
    pub(crate) fn add(&mut self, delivery: View<'_>, out: &mut Vec<u8>) {
        if delivery.has(Flags::FLOW_PAUSED) {
            out.extend_from_slice(&self.connection);
        }
        if delivery.has(Flags::CONSUMER_FLOW) {
            self.consumer[self.at..self.at + 8].copy_from_slice(delivery.consumer());
            out.extend_from_slice(&self.consumer);
        }
    }
}

/// Acknowledgements, gathered into packets of ten.
pub(crate) struct Acks {
    /// A packet with room for ten.
    empty: Vec<u8>,
    out: Vec<u8>,
    /// Bytes of `out` that are packets full up to the end.
    full: usize,
    /// Acknowledgements in the packet behind those.
    open: usize,
}

impl Acks {
    pub(crate) fn new() -> Self {
        Self { empty: acknowledgement(ACKS), out: Vec::with_capacity(1 << 16), full: 0, open: 0 }
    }

    /// Acknowledges a delivery.
    pub(crate) fn add(&mut self, delivery: View<'_>) {
        if self.open == 0 {
            self.out.extend_from_slice(&self.empty);
        }
        let at = self.out.len() - (ACKS - self.open) * ACK_BYTES;
        put_ack(&mut self.out[at..], delivery);
        self.open += 1;
        if self.open == ACKS {
            (self.open, self.full) = (0, self.out.len());
        }
    }

    /// Hands out the packets that are full.
    pub(crate) fn take(&mut self, write: impl FnOnce(&[u8])) {
        if self.full > 0 {
            write(&self.out[..self.full]);
            self.out.drain(..self.full);
            self.full = 0;
        }
    }
}

/// A packet with room for so many acknowledgements at its end.
pub(crate) fn acknowledgement(count: usize) -> Vec<u8> {
    let packet = PacketBuilder::new(PacketType::ACKNOWLEDGE).body(vec![0; count * ACK_BYTES]);
    packet.finish().raw().to_vec()
}

/// A packet that acknowledges one delivery and wants a reply.
pub(crate) fn single_acknowledgement() -> Vec<u8> {
    let packet = PacketBuilder::new(PacketType::ACKNOWLEDGE).flags(Flags::ACKNOWLEDGE);
    packet.consumer_id(1).body(vec![0; ACK_BYTES]).finish().raw().to_vec()
}

/// Fills in one acknowledgement.
pub(crate) fn put_ack(place: &mut [u8], delivery: View<'_>) {
    place[..8].copy_from_slice(delivery.consumer());
    place[8..ACK_BYTES].copy_from_slice(delivery.id());
}

/// Which producer gets how much, if that is what this packet says.
pub(crate) fn producer_credit(view: View<'_>) -> Option<(i64, i32)> {
    if view.kind() != PacketType::RESUME_FLOW {
        return None;
    }
    let packet = Packet::decode(Bytes::copy_from_slice(view.0)).expect("the broker sends packets");
    let table = packet.properties().expect("it has properties");
    Some((table.long("JMQProducerID").ok()??, table.int("JMQSize").ok()??))
}
