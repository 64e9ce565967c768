//! One measurement of one contender: starts the processes, measures, ends them.

use std::{net::SocketAddr, thread, time::Instant};

use crate::{
    library::message_bytes,
    link::Wait,
    parts::{ANSWER_LIMIT, Part},
    plan::Plan,
};

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// A process with a socket and nothing else.
    Bare,
    /// The client.
    Client,
    /// The client with a listener.
    Listener,
    /// The same; before it sleeps, each of the two threads looks again for a while.
    SpinningListener,
}

impl Who {
    /// The name of the part that does this, or its peer.
    fn part(self, part: &str) -> String {
        match self {
            Self::Bare => format!("bare {part}"),
            Self::Client => part.to_owned(),
            Self::Listener | Self::SpinningListener => format!("listening {part}"),
        }
    }

    fn peer(self, peer: &str, wait: Wait, handles: [usize; 2]) -> (Part, SocketAddr) {
        let name = if self == Self::Bare { format!("bare {peer}") } else { peer.to_owned() };
        let settings: [(&str, &dyn ToString); 4] = [
            ("wait", &wait.name()),
            ("bytes", &message_bytes()),
            ("consumers", &handles[0]),
            ("producers", &handles[1]),
        ];
        Part::serve(&name, &settings)
    }

    fn start(self, part: &str, wait: Wait, address: SocketAddr) -> Part {
        let spins = self == Self::SpinningListener;
        let settings: [(&str, &dyn ToString); 4] = [
            ("address", &address),
            ("wait", &wait.name()),
            ("spins", &spins),
            ("bytes", &message_bytes()),
        ];
        Part::start(&self.part(part), &settings)
    }
}

/// Times of something, in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// Round trips, one after the other.
pub(crate) fn trip(plan: &Plan, who: Who, wait: Wait) -> Times {
    let (_peer, address) = who.peer("echo", wait, [1, 1]);
    times(plan, who.start("requester", wait, address))
}

/// Round trips through a broker in the same process.
pub(crate) fn trip_in_process(plan: &Plan) -> Times {
    times(plan, Part::start("in-process requester", &[]))
}

/// Messages sent one at a time, to somebody who is awake.
pub(crate) fn lone(plan: &Plan, who: Who) -> Times {
    let (_peer, address) = who.peer("sink", Wait::Spin, [0, 1]);
    // The bare one's socket never fills up, so it may block.
    times(plan, who.start("lone sender", Wait::Block, address))
}

fn times(plan: &Plan, mut part: Part) -> Times {
    part.ask(&plan.warm.as_millis().to_string());
    let numbers = part.ask(&plan.window.as_millis().to_string());
    Times { p50_us: numbers[0] as f64 / 1e3, p99_us: numbers[1] as f64 / 1e3 }
}

/// Messages a second that arrive from somebody who sends and does not wait.
pub(crate) fn sent(plan: &Plan, who: Who) -> f64 {
    let (mut peer, address) = who.peer("sink", Wait::Block, [0, 1]);
    let settings: [(&str, &dyn ToString); 2] =
        [("address", &address), ("wait", &Wait::Block.name())];
    let (_relay, address) = Part::serve("relay", &settings);
    let mut sender = who.start("sender", Wait::Block, address);
    sender.tell("go");
    let until = Instant::now() + ANSWER_LIMIT;
    while peer.ask("count")[0] == 0 {
        assert!(Instant::now() < until, "nothing arrives");
        thread::yield_now();
    }
    // What is waited for is time: a measurement has a length.
    thread::sleep(plan.warm);
    let before = peer.ask("count");
    // As above.
    thread::sleep(plan.window);
    let after = peer.ask("count");
    let messages = (after[0] - before[0]) as f64 / message_bytes() as f64;
    messages / ((after[1] - before[1]) as f64 / 1e9)
}

/// Messages a second that a consumer takes from its buffer.
pub(crate) fn taken(plan: &Plan) -> f64 {
    let (_peer, address) = Who::Client.peer("source", Wait::Block, [2, 1]);
    let mut taker = Who::Client.start("taker", Wait::Block, address);
    taker.ask(&plan.warm.as_millis().to_string());
    let numbers = taker.ask(&plan.window.as_millis().to_string());
    numbers[0] as f64 / (numbers[1] as f64 / 1e9)
}
