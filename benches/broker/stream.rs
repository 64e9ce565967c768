//! The clients of the throughput rows.

use std::{collections::VecDeque, net::TcpStream};

use tidegate::wire::{Flags, PacketType};

use crate::{
    duty::{self, Duty},
    lean::{self, AUTO, BATCH_BYTES, METERING, WINDOW, add_consumer},
    link::{Incoming, Link, Wait},
    raw::{QUEUE, Raw},
    stencil::{self, Answers, MESSAGE_BYTES},
};

/// Messages on their way at which a pump takes before it sends again.
const PUMPED: usize = 2000;

/// Logs in and opens a session.
pub(crate) fn log_in(duty: &Duty, ack_mode: i32) -> (Raw, i64) {
    let mut raw = Raw::login(duty.address(), METERING);
    let session = raw.create_session(ack_mode);
    (raw, session)
}

/// Sends as fast as its credit allows.
pub(crate) fn producer(duty: &Duty) {
    let raw = Raw::login(duty.address(), METERING);
    let mut producer = lean::Producer::new(raw, 1, 1);
    duty.ready();
    while producer.send().is_some() {}
}

/// Takes whatever comes.
pub(crate) fn consumer(duty: &Duty) {
    let raw = Raw::login(duty.address(), METERING);
    let mut consumer = lean::Consumer::new(raw, 1);
    duty::say("ready");
    while let Some(count) = consumer.receive() {
        duty::count(count as u64);
    }
}

/// Sends and takes by turns, so that there are never many messages on their way, however many
/// queues they go through.
pub(crate) fn pump(duty: &Duty) {
    let queues = duty.setting("queues");
    let log_in = || Raw::login(duty.address(), METERING);
    let mut consumer = lean::Consumer::new(log_in(), queues);
    let mut producer = lean::Producer::new(log_in(), queues, duty.setting("run"));
    duty.ready();
    let mut on_their_way = 0;
    loop {
        while on_their_way < PUMPED {
            let Some(count) = producer.send() else { return };
            on_their_way += count;
        }
        let Some(count) = consumer.receive() else { return };
        on_their_way -= count;
        duty::count(count as u64);
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
        if !incoming.fill(&mut link) {
            return;
        }
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
