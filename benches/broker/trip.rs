//! The lean clients of the round trip rows: a message goes through one queue to the responder, and
//! another comes back through a second queue.

use std::net::TcpStream;

use tidegate::wire::Flags;

use crate::{
    duty::{self, Duty},
    lean::{DUPS_OK, WINDOW, add_consumer, add_producer},
    link::{Incoming, Link},
    raw::QUEUE,
    stencil::{self, Acks, Answers, MESSAGE_BYTES},
    stream::log_in,
    times::take_times,
};

/// One side of the conversation. Acknowledgements and answers travel with its next message.
struct Side {
    link: Link,
    incoming: Incoming,
    message: Vec<u8>,
    sequence: u32,
    credit: i32,
    arrived: usize,
    acks: Acks,
    answers: Answers,
    out: Vec<u8>,
}

impl Side {
    fn new(duty: &Duty, from: i32, to: i32) -> Self {
        let (mut raw, session) = log_in(duty, DUPS_OK);
        add_consumer(&mut raw, session, &stencil::name(from), QUEUE);
        let to = stencil::name(to);
        let (producer, credit) = add_producer(&mut raw, session, &to, QUEUE);
        raw.start();
        Self {
            link: Link::new(raw.stream, duty.setting("wait")),
            incoming: Incoming::new(),
            message: stencil::message(&to, Flags::QUEUE, producer),
            sequence: 0,
            credit,
            arrived: 0,
            acks: Acks::new(),
            answers: Answers::new(WINDOW),
            out: Vec::new(),
        }
    }

    fn send(&mut self) {
        while self.credit == 0 {
            self.read();
        }
        (self.credit, self.sequence) = (self.credit - 1, self.sequence + 1);
        stencil::number(&mut self.message, self.sequence, self.credit == 0);
        self.acks.take(|full| self.out.extend_from_slice(full));
        self.out.extend_from_slice(&self.message);
        self.link.write(&self.out);
        self.out.clear();
    }

    fn receive(&mut self) {
        while self.arrived == 0 {
            self.read();
        }
        self.arrived -= 1;
    }

    fn read(&mut self) {
        if !self.incoming.fill(&mut self.link) {
            // Comes only when everything ends.
            std::process::exit(0);
        }
        for packet in self.incoming.packets() {
            if packet.kind().is_message() {
                self.answers.add(packet, &mut self.out);
                self.acks.add(packet);
                self.arrived += 1;
            } else if let Some((_, credit)) = stencil::producer_credit(packet) {
                self.credit = credit;
            }
        }
    }
}

pub(crate) fn requester(duty: &Duty) {
    let mut side = Side::new(duty, 1, 0);
    take_times(duty, || {
        side.send();
        side.receive();
    });
}

pub(crate) fn responder(duty: &Duty) {
    let mut side = Side::new(duty, 0, 1);
    duty::say("ready");
    loop {
        side.receive();
        side.send();
    }
}

pub(crate) fn bare_requester(duty: &Duty) {
    let (mut link, mut message) = bare(duty);
    take_times(duty, || {
        link.write(&message);
        link.read_exact(&mut message);
    });
}

pub(crate) fn bare_responder(duty: &Duty) {
    let (mut link, mut message) = bare(duty);
    duty::say("ready");
    while link.read_exact(&mut message) && link.write(&message) {}
}

fn bare(duty: &Duty) -> (Link, Vec<u8>) {
    let stream = TcpStream::connect(duty.address()).unwrap();
    (Link::new(stream, duty.setting("wait")), vec![7; MESSAGE_BYTES])
}
