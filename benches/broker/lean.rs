//! Clients that do as little as clients can, so that it is not them who are measured: packets are
//! encoded before, patched in place and written in large batches; what arrives is hopped over from
//! size to size. Neither allocates anything once it is under way.

use tidegate::wire::{Flags, PacketBuilder, PacketType};

use crate::{
    link::{Incoming, Link, Wait},
    raw::{self, QUEUE, Raw},
    stencil::{self, Acks, Address, Answers, MESSAGE_BYTES},
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

/// One of the queues a producer sends to.
struct Target {
    number: i32,
    producer: i64,
    credit: i32,
}

/// Sends to each of its queues in turn, a run of messages at a time.
pub(crate) struct Producer {
    link: Link,
    incoming: Incoming,
    /// Room for a batch, filled with messages that only have to be addressed and numbered.
    batch: Vec<u8>,
    address: Address,
    targets: Vec<Target>,
    /// Whose turn it is, and how many messages of its run are sent.
    turn: usize,
    sent_of_run: usize,
    run: usize,
    sequence: u32,
}

impl Producer {
    /// A producer for each of so many queues.
    pub(crate) fn new(mut raw: Raw, queues: i32, run: usize) -> Self {
        let session = raw.create_session(AUTO);
        let mut target = |number| {
            let name = stencil::name(number);
            let (producer, credit) = add_producer(&mut raw, session, &name, QUEUE);
            // Those of many queues do not all come back for more at the same time.
            Target { number, producer, credit: 1 + credit * number / queues }
        };
        let targets = (0..queues).map(&mut target).collect();
        let message = stencil::message(&stencil::name(0), Flags::QUEUE, stencil::MARK);
        Self {
            link: Link::new(raw.stream, Wait::Block),
            incoming: Incoming::new(),
            address: Address::of(&message),
            batch: message.repeat(BATCH_BYTES / MESSAGE_BYTES),
            targets,
            turn: 0,
            sent_of_run: 0,
            run,
            sequence: 0,
        }
    }

    /// Sends one batch, as far as the credit goes, or waits for credit. Returns how many it sent,
    /// or nothing if the broker is gone.
    pub(crate) fn send(&mut self) -> Option<usize> {
        let mut count = 0;
        for message in self.batch.chunks_exact_mut(MESSAGE_BYTES) {
            let target = &mut self.targets[self.turn];
            if target.credit == 0 {
                break;
            }
            target.credit -= 1;
            self.sequence += 1;
            self.address.write(message, target.number, target.producer);
            stencil::number(message, self.sequence, target.credit == 0);
            self.sent_of_run += 1;
            if self.sent_of_run == self.run {
                (self.sent_of_run, self.turn) = (0, (self.turn + 1) % self.targets.len());
            }
            count += 1;
        }
        if count == 0 {
            return self.wait_for_credit().then_some(0);
        }
        self.link.write(&self.batch[..count * MESSAGE_BYTES]).then_some(count)
    }

    fn wait_for_credit(&mut self) -> bool {
        while self.targets[self.turn].credit == 0 {
            if !self.incoming.fill(&mut self.link) {
                return false;
            }
            for (id, credit) in self.incoming.packets().filter_map(stencil::producer_credit) {
                let known = self.targets.iter_mut().find(|known| known.producer == id);
                known.expect("one of ours").credit = credit;
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
