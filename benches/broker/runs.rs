//! One measurement of one contender: starts the processes, measures, ends them.

use std::{net::SocketAddr, thread};

use crate::{link::Wait, parts::Part, plan::Plan};

/// Length of a packet with one acknowledgement, and of the reply to it.
const ACK_BYTES: usize = 72 + 40;
const ACK_REPLY_BYTES: usize = 97;

/// What stands between the clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Middle {
    /// A process that copies bytes.
    Relay,
    /// The broker with so many loops.
    Broker(usize),
}

impl Middle {
    fn start(self, pairs: usize, wait: Wait) -> (Part, SocketAddr) {
        match self {
            Self::Relay => Part::serve("relay", &[("pairs", &pairs), ("wait", &wait.name())]),
            Self::Broker(loops) => {
                Part::serve("broker", &[("loops", &loops), ("wait", &wait.name())])
            }
        }
    }

    /// The name of a part that does this with the relay or the broker.
    fn part(self, clients: Clients, part: &str) -> String {
        match (self, clients) {
            (Self::Relay, _) => format!("bare {part}"),
            (Self::Broker(_), Clients::Lean) => part.to_owned(),
            (Self::Broker(_), Clients::Library) => format!("library {part}"),
        }
    }
}

/// Who talks to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clients {
    /// Those of this bench.
    Lean,
    /// The client of this crate.
    Library,
}

/// How much went through, and what it cost.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    /// Messages, or replies, a second.
    pub(crate) per_second: f64,
    /// Processor time of the process in the middle, user and system, for each.
    pub(crate) cpu_ns: f64,
}

/// Producers and consumers at full speed.
pub(crate) fn stream(plan: &Plan, middle: Middle, clients: Clients, pairs: usize) -> Rate {
    let (server, address) = middle.start(pairs, Wait::Block);
    let start = |part| Part::start(&middle.part(clients, part), &[("address", &address)]);
    let consumers: Vec<Part> = (0..pairs).map(|_| start("consumer")).collect();
    let producers: Vec<Part> = (0..pairs).map(|_| start("producer")).collect();
    rate(plan, &server, consumers, producers)
}

/// Through so many queues in turn, a run of messages to each, with as many messages on their way as
/// through one.
pub(crate) fn pump(plan: &Plan, queues: usize, run: usize) -> Rate {
    let (server, address) = Middle::Broker(1).start(1, Wait::Block);
    let settings: [(&str, &dyn ToString); 3] =
        [("address", &address), ("queues", &queues), ("run", &run)];
    let pump = Part::start("pump", &settings);
    rate_of_one(plan, &server, pump)
}

/// One message at a time, each acknowledged and that answered before the next.
pub(crate) fn acknowledged(plan: &Plan) -> Rate {
    let (server, address) = Middle::Broker(1).start(1, Wait::Block);
    let consumer = Part::start("acknowledger", &[("address", &address)]);
    let producer = Part::start("producer", &[("address", &address)]);
    rate(plan, &server, vec![consumer], vec![producer])
}

/// A request and its reply, over one socket, of the sizes an acknowledgement and its reply have.
pub(crate) fn answered(plan: &Plan) -> Rate {
    let sizes: [(&str, &dyn ToString); 2] =
        [("request_bytes", &ACK_BYTES), ("reply_bytes", &ACK_REPLY_BYTES)];
    let (server, address) = Part::serve("answerer", &sizes);
    let requester = Part::start("asker", &[("address", &address), sizes[0], sizes[1]]);
    rate_of_one(plan, &server, requester)
}

fn rate(plan: &Plan, server: &Part, mut consumers: Vec<Part>, mut producers: Vec<Part>) -> Rate {
    producers.iter_mut().for_each(|one| one.tell("go"));
    measure(plan, server, &mut consumers)
}

fn rate_of_one(plan: &Plan, server: &Part, mut one: Part) -> Rate {
    one.tell("go");
    measure(plan, server, &mut [one])
}

/// Lets everything run, and looks at the counts twice.
fn measure(plan: &Plan, server: &Part, counting: &mut [Part]) -> Rate {
    let mut counts = || -> Vec<(u64, u64)> {
        let of = |one: &mut Part| {
            let numbers = one.ask("count");
            (numbers[0], numbers[1])
        };
        counting.iter_mut().map(of).collect()
    };
    // Everybody has something before anything is measured, however busy the machine is. A part
    // that never gets anything is ended by the limit of the sum of all looks.
    let until = std::time::Instant::now() + crate::parts::ANSWER_LIMIT;
    while counts().iter().any(|&(done, _)| done == 0) {
        assert!(std::time::Instant::now() < until, "nothing goes through");
        thread::yield_now();
    }
    // What is waited for is time: a measurement has a length.
    thread::sleep(plan.warm);
    let (cpu, before) = (server.cpu_ns(), counts());
    // As above.
    thread::sleep(plan.window);
    let (after, cpu) = (counts(), server.cpu_ns() - cpu);
    let mut rate = Rate { per_second: 0.0, cpu_ns: 0.0 };
    let mut done = 0;
    for (before, after) in before.into_iter().zip(after) {
        done += after.0 - before.0;
        rate.per_second += (after.0 - before.0) as f64 / ((after.1 - before.1) as f64 / 1e9);
    }
    rate.cpu_ns = cpu as f64 / done as f64;
    rate
}

/// Times of round trips, in microseconds, and what one costs.
#[derive(Clone, Copy)]
pub(crate) struct Trip {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) cpu_us: f64,
}

/// Round trips, one after the other, beside so many messages that wait in another queue.
pub(crate) fn trip_beside(plan: &Plan, waiting: usize) -> Trip {
    let (server, address) = Middle::Broker(1).start(1, Wait::Block);
    let _filler = Part::start("filler", &[("address", &address), ("messages", &waiting)]);
    measure_trips(plan, &server, address, ["responder", "requester"], Wait::Block)
}

/// Round trips, one after the other.
pub(crate) fn trip(plan: &Plan, middle: Middle, clients: Clients, wait: Wait) -> Trip {
    let (server, address) = middle.start(1, wait);
    let [responder, requester] = ["responder", "requester"].map(|part| middle.part(clients, part));
    measure_trips(plan, &server, address, [&responder, &requester], wait)
}

fn measure_trips(
    plan: &Plan,
    server: &Part,
    address: SocketAddr,
    [responder, requester]: [&str; 2],
    wait: Wait,
) -> Trip {
    let settings: [(&str, &dyn ToString); 2] = [("address", &address), ("wait", &wait.name())];
    let _responder = Part::start(responder, &settings);
    let mut requester = Part::start(requester, &settings);
    requester.ask(&plan.warm.as_millis().to_string());
    let cpu = server.cpu_ns();
    let numbers = requester.ask(&plan.window.as_millis().to_string());
    let cpu = server.cpu_ns() - cpu;
    Trip {
        p50_us: numbers[0] as f64 / 1e3,
        p99_us: numbers[1] as f64 / 1e3,
        cpu_us: cpu as f64 / 1e3 / numbers[2] as f64,
    }
}

/// Subscribers of a topic.
const SUBSCRIBERS: usize = 100;

/// Time until the last of 100 sockets has a message, in microseconds: with a bare writer, and what
/// that needs to write to all of them.
pub(crate) fn spread_barely(plan: &Plan) -> (f64, f64) {
    let (mut server, address) = Part::serve("spreader", &[("sockets", &SUBSCRIBERS)]);
    let arrival = last_arrival(plan, address, true);
    (arrival, server.ask("how long")[0] as f64 / 1e3)
}

/// The same with the broker and subscribers of a topic.
pub(crate) fn spread(plan: &Plan, loops: usize) -> f64 {
    let (_server, address) = Middle::Broker(loops).start(1, Wait::Block);
    last_arrival(plan, address, false)
}

fn last_arrival(plan: &Plan, address: SocketAddr, bare: bool) -> f64 {
    let settings: [(&str, &dyn ToString); 3] =
        [("address", &address), ("sockets", &SUBSCRIBERS), ("bare", &bare)];
    let mut subscribers = Part::start("subscribers", &settings);
    subscribers.ask(&plan.published.to_string())[0] as f64 / 1e3
}

/// What came of opening many connections.
pub(crate) struct Crowd {
    /// How many were served while all were open.
    pub(crate) served: u64,
    /// What each added to the broker's memory, in bytes.
    pub(crate) bytes_each: f64,
}

/// Many connections, all open at the same time.
pub(crate) fn crowd(plan: &Plan, loops: usize) -> Crowd {
    let (server, address) = Middle::Broker(loops).start(1, Wait::Block);
    let open = |connections: usize| {
        Part::start("crowd", &[("address", &address), ("connections", &connections)])
    };
    // What the first ones cost is there once, and not for each.
    let few = open(10);
    let before = server.resident_bytes();
    let mut many = open(plan.connections);
    let served = many.ask("ping")[0];
    let after = server.resident_bytes();
    drop(few);
    let bytes_each = (after.saturating_sub(before)) as f64 / plan.connections as f64;
    Crowd { served, bytes_each }
}
