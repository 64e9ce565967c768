//! A publisher and its subscribers, each on a connection of its own: how long until the last of
//! them has a message.

use std::{net::TcpStream, time::Instant};

use tidegate::wire::Flags;

use crate::{
    duty::{self, Duty},
    lean::{AUTO, DUPS_OK, WINDOW, add_consumer, add_producer},
    link::{Incoming, Link, Wait},
    raw::TOPIC,
    report::median,
    stencil::{self, Acks, Answers},
    stream::log_in,
};

struct Subscriber {
    link: Link,
    incoming: Incoming,
    acks: Acks,
}

/// Publishes as many messages as the order says, each when the one before has reached everybody,
/// and tells the median time of the last arrival in nanoseconds.
pub(crate) fn subscribers(duty: &Duty) {
    let is_bare: bool = duty.setting("bare");
    let name = stencil::name(0);
    let bare = || TcpStream::connect(duty.address()).unwrap();
    let subscribe = |_| {
        let stream = if is_bare {
            bare()
        } else {
            let (mut raw, session) = log_in(duty, DUPS_OK);
            add_consumer(&mut raw, session, &name, TOPIC);
            raw.start();
            raw.stream
        };
        let link = Link::new(stream, Wait::Block);
        Subscriber { link, incoming: Incoming::new(), acks: Acks::new() }
    };
    let mut all: Vec<Subscriber> = (0..duty.setting("sockets")).map(subscribe).collect();
    let (stream, producer) = if is_bare {
        (bare(), 1)
    } else {
        let (mut raw, session) = log_in(duty, AUTO);
        let (producer, _) = add_producer(&mut raw, session, &name, TOPIC);
        (raw.stream, producer)
    };
    let mut publisher = Link::new(stream, Wait::Block);
    let mut message = stencil::message(&name, Flags::empty(), producer);
    let (mut answers, mut out) = (Answers::new(WINDOW), Vec::new());

    let mut times = Vec::new();
    let count: u32 = duty.ready().parse().expect("a number");
    for sequence in 1..=count {
        // What asks for credit is answered, and the answers are never looked at: nobody is held.
        stencil::number(&mut message, sequence, sequence % 1000 == 0);
        let begun = Instant::now();
        publisher.write(&message);
        for one in &mut all {
            loop {
                assert!(one.incoming.fill(&mut one.link), "a subscriber's stream has ended");
                if one.incoming.packets().any(|packet| packet.kind().is_message()) {
                    break;
                }
            }
        }
        times.push(begun.elapsed().as_nanos() as f64);
        for Subscriber { link, incoming, acks } in all.iter_mut().filter(|_| !is_bare) {
            for packet in incoming.packets().filter(|packet| packet.kind().is_message()) {
                answers.add(packet, &mut out);
                acks.add(packet);
            }
            acks.take(|full| out.extend_from_slice(full));
            link.write(&out);
            out.clear();
        }
    }
    drop(publisher);
    duty::say(&format!("{:.0}", median(&times)));
    duty.order();
}
