//! Clients that do as little as clients can, so that it is not them who are measured: packets are
//! encoded before, patched in place and written in large batches; what arrives is hopped over from
//! size to size. Neither allocates anything once it is under way.

use tidegate::wire::{Flags, PacketBuilder, PacketType};

use crate::{
    link::{Incoming, Link, Wait},
    raw::{self, QUEUE, Raw},
    stencil::{self, Acks, Answers, MESSAGE_BYTES},
};

/// Messages of a metered batch of a connection.
pub(crate) const METERING: i32 = 100;

/// Messages a consumer is sent ahead.
pub(crate) const WINDOW: i32 = 1000;

/// Bytes of one write, at most.
pub(crate) const BATCH_BYTES: usize = 64 * 1024;

/// How a session acknowledges, as the wire says it.
pub(crate) const AUTO: i32 = 1;
pub(crate) const DUPS_OK: i32 = 3;

/// A producer for this destination: its id and its first credit.
pub(crate) fn add_producer(raw: &mut Raw, session: i64, name: &str, kind: i32) -> (i64, i32) {
    raw.create_destination(name, kind);
    let reply = raw.request(
        PacketBuilder::new(PacketType::ADD_PRODUCER)
            .string("JMQDestination", name)
            .int("JMQDestType", kind)
            .long("JMQSessionID", session),
    );
    assert_eq!(raw::status(&reply), 200);
    (raw::long(&reply, "JMQProducerID"), raw::int(&reply, "JMQSize"))
}

/// A consumer of this destination.
pub(crate) fn add_consumer(raw: &mut Raw, session: i64, name: &str, kind: i32) {
    raw.create_destination(name, kind);
    raw.add_consumer(session, name, kind, WINDOW);
}

/// Sends to each of its queues in turn.
pub(crate) struct Producer {
    link: Link,
    incoming: Incoming,
    /// Messages one behind the other, for each queue in turn.
    cycle: Vec<u8>,
    /// Where in it the next message is.
    at: usize,
    /// Whose turn it is, of `producers`.
    turn: usize,
    /// Ids, and what credit is left.
    producers: Vec<(i64, i32)>,
    sequence: u32,
}

impl Producer {
    /// A producer for each of so many queues.
    pub(crate) fn new(mut raw: Raw, queues: i32) -> Self {
        let session = raw.create_session(AUTO);
        let (mut producers, mut cycle) = (Vec::new(), Vec::new());
        for queue in 0..queues {
            let name = stencil::name(queue);
            let (id, credit) = add_producer(&mut raw, session, &name, QUEUE);
            cycle.extend(stencil::message(&name, Flags::QUEUE, id));
            // Those of many queues do not all come back for more at the same time.
            producers.push((id, 1 + credit * queue / queues));
        }
        if queues == 1 {
            cycle = cycle.repeat(BATCH_BYTES / MESSAGE_BYTES);
        }
        Self {
            link: Link::new(raw.stream, Wait::Block),
            incoming: Incoming::new(),
            cycle,
            at: 0,
            turn: 0,
            producers,
            sequence: 0,
        }
    }

    /// Sends one batch, as far as the credit goes, or waits for credit. Returns how many it sent,
    /// or nothing if the broker is gone.
    pub(crate) fn send(&mut self) -> Option<usize> {
        let begin = self.at;
        while self.at < self.cycle.len() && self.at + MESSAGE_BYTES - begin <= BATCH_BYTES {
            let credit = &mut self.producers[self.turn].1;
            if *credit == 0 {
                break;
            }
            *credit -= 1;
            self.sequence += 1;
            let message = &mut self.cycle[self.at..self.at + MESSAGE_BYTES];
            stencil::number(message, self.sequence, *credit == 0);
            self.at += MESSAGE_BYTES;
            self.turn = (self.turn + 1) % self.producers.len();
        }
        let batch = begin..self.at;
        if self.at == self.cycle.len() {
            self.at = 0;
        }
        if batch.is_empty() {
            self.wait_for_credit().then_some(0)
        } else {
            self.link.write(&self.cycle[batch.clone()]).then_some(batch.len() / MESSAGE_BYTES)
        }
    }

    fn wait_for_credit(&mut self) -> bool {
        while self.producers[self.turn].1 == 0 {
            if !self.incoming.fill(&mut self.link) {
                return false;
            }
            for (id, credit) in self.incoming.packets().filter_map(stencil::producer_credit) {
                let known = self.producers.iter_mut().find(|(known, _)| *known == id);
                known.expect("one of ours").1 = credit;
            }
        }
        true
    }
}

/// Takes what comes from each of its queues, ten to an acknowledgement.
pub(crate) struct Consumer {
    link: Link,
    incoming: Incoming,
    acks: Acks,
    answers: Answers,
    out: Vec<u8>,
}

impl Consumer {
    /// A consumer for each of so many queues.
    pub(crate) fn new(mut raw: Raw, queues: i32) -> Self {
        let session = raw.create_session(DUPS_OK);
        for queue in 0..queues {
            add_consumer(&mut raw, session, &stencil::name(queue), QUEUE);
        }
        raw.start();
        Self {
            link: Link::new(raw.stream, Wait::Block),
            incoming: Incoming::new(),
            acks: Acks::new(),
            answers: Answers::new(WINDOW),
            out: Vec::with_capacity(4096),
        }
    }

    /// Reads once and does all that follows. Returns how many messages came, or nothing if the
    /// broker is gone.
    pub(crate) fn receive(&mut self) -> Option<usize> {
        if !self.incoming.fill(&mut self.link) {
            return None;
        }
        let messages = || self.incoming.packets().filter(|packet| packet.kind().is_message());
        messages().for_each(|message| self.answers.add(message, &mut self.out));
        let mut goes_on = true;
        if !self.out.is_empty() {
            goes_on = self.link.write(&self.out);
            self.out.clear();
        }
        messages().for_each(|message| self.acks.add(message));
        let count = messages().count();
        self.acks.take(|full| goes_on &= self.link.write(full));
        goes_on.then_some(count)
    }
}
