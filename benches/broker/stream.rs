//! The lean clients of the throughput rows. They do as little as a client can, so that it is not
//! them who are measured: packets are encoded before, patched in place and written in large
//! batches; what arrives is hopped over from size to size.

use std::{collections::VecDeque, net::TcpStream};

use tidegate::wire::{Flags, PacketBuilder, PacketType};

use crate::{
    duty::{self, Duty},
    link::{Incoming, Link, Wait},
    raw::{self, QUEUE, Raw},
    stencil::{self, Acks, Answers, MESSAGE_BYTES},
};

/// Messages of a metered batch of a connection.
pub(crate) const METERING: i32 = 100;

/// Messages a consumer is sent ahead.
pub(crate) const WINDOW: i32 = 1000;

/// Bytes of one write, at most.
const BATCH_BYTES: usize = 64 * 1024;

/// How a session acknowledges, as the wire says it.
pub(crate) const AUTO: i32 = 1;
pub(crate) const DUPS_OK: i32 = 3;

/// Logs in and opens a session.
pub(crate) fn log_in(duty: &Duty, ack_mode: i32) -> (Raw, i64) {
    let mut raw = Raw::login(duty.address(), METERING);
    let session = raw.create_session(ack_mode);
    (raw, session)
}

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

/// Sends to each of its queues in turn, as fast as its credit allows.
pub(crate) fn producer(duty: &Duty) {
    let queues: i32 = duty.setting("queues");
    let (mut raw, session) = log_in(duty, AUTO);
    let mut producers = Vec::new();
    let mut cycle = Vec::new();
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
    let mut link = Link::new(raw.stream, Wait::Block);
    let mut incoming = Incoming::new();
    duty.ready();
    let (mut sequence, mut batch) = (0, 0..0);
    for (at, turn) in
        (0..cycle.len()).step_by(MESSAGE_BYTES).zip((0..producers.len()).cycle()).cycle()
    {
        if at == 0 || batch.len() + MESSAGE_BYTES > BATCH_BYTES {
            link.write(&cycle[batch]);
            batch = at..at;
        }
        if producers[turn].1 == 0 {
            link.write(&cycle[batch]);
            batch = at..at;
            while producers[turn].1 == 0 {
                incoming.fill(&mut link);
                for (id, credit) in incoming.packets().filter_map(stencil::producer_credit) {
                    let known = producers.iter_mut().find(|(known, _)| *known == id);
                    known.expect("one of ours").1 = credit;
                }
            }
        }
        sequence += 1;
        producers[turn].1 -= 1;
        let message = &mut cycle[at..at + MESSAGE_BYTES];
        stencil::number(message, sequence, producers[turn].1 == 0);
        batch.end += MESSAGE_BYTES;
    }
}

/// Takes what comes from each of its queues, ten to an acknowledgement.
pub(crate) fn consumer(duty: &Duty) {
    let (mut raw, session) = log_in(duty, DUPS_OK);
    for queue in 0..duty.setting("queues") {
        add_consumer(&mut raw, session, &stencil::name(queue), QUEUE);
    }
    raw.start();
    let mut link = Link::new(raw.stream, Wait::Block);
    let (mut incoming, mut acks) = (Incoming::new(), Acks::new());
    let (mut answers, mut out) = (Answers::new(WINDOW), Vec::new());
    duty::say("ready");
    loop {
        incoming.fill(&mut link);
        let messages = || incoming.packets().filter(|packet| packet.kind().is_message());
        messages().for_each(|message| answers.add(message, &mut out));
        if !out.is_empty() {
            link.write(&out);
            out.clear();
        }
        messages().for_each(|message| acks.add(message));
        duty::count(messages().count() as u64);
        acks.take(|full| {
            link.write(full);
        });
    }
}

/// Takes one message at a time and waits for the reply to its acknowledgement.
pub(crate) fn acknowledger(duty: &Duty) {
    let (mut raw, session) = log_in(duty, AUTO);
    add_consumer(&mut raw, session, &stencil::name(0), QUEUE);
    raw.start();
    let mut link = Link::new(raw.stream, Wait::Block);
    let mut incoming = Incoming::new();
    let (mut answers, mut out) = (Answers::new(WINDOW), Vec::new());
    // What it has received and not looked at, each as the acknowledgement it will be.
    let mut waiting: VecDeque<Vec<u8>> = VecDeque::new();
    let empty = stencil::single_acknowledgement();
    duty::say("ready");
    let mut is_free = true;
    loop {
        if is_free && let Some(mut next) = waiting.pop_front() {
            link.write(&next);
            next.clear();
            is_free = false;
        }
        incoming.fill(&mut link);
        for packet in incoming.packets() {
            if packet.kind().is_message() {
                answers.add(packet, &mut out);
                let mut ack = empty.clone();
                let at = ack.len() - 40;
                stencil::put_ack(&mut ack[at..], packet);
                waiting.push_back(ack);
            } else if packet.kind() == PacketType::ACKNOWLEDGE_REPLY {
                duty::count(1);
                is_free = true;
            }
        }
        if !out.is_empty() {
            link.write(&out);
            out.clear();
        }
    }
}

/// Writes messages that nobody looks into, in batches.
pub(crate) fn bare_producer(duty: &Duty) {
    let mut link = Link::new(TcpStream::connect(duty.address()).unwrap(), Wait::Block);
    let batch =
        stencil::message(&stencil::name(0), Flags::QUEUE, 1).repeat(BATCH_BYTES / MESSAGE_BYTES);
    duty.ready();
    while link.write(&batch) {}
}

/// Reads what there is.
pub(crate) fn bare_consumer(duty: &Duty) {
    let mut link = Link::new(TcpStream::connect(duty.address()).unwrap(), Wait::Block);
    let mut buffer = vec![0; 256 * 1024];
    duty::say("ready");
    let mut rest = 0;
    loop {
        match link.read(&mut buffer) {
            0 => return,
            count => rest += count,
        }
        duty::count((rest / MESSAGE_BYTES) as u64);
        rest %= MESSAGE_BYTES;
    }
}

/// Sends requests, each when the one before is answered.
pub(crate) fn asker(duty: &Duty) {
    let mut link = Link::new(TcpStream::connect(duty.address()).unwrap(), Wait::Block);
    let request = vec![0; duty.setting("request_bytes")];
    let mut reply = vec![0; duty.setting("reply_bytes")];
    duty.ready();
    while link.write(&request) && link.read_exact(&mut reply) {
        duty::count(1);
    }
}
