//! A broker that keeps no body in memory, beside the plainest queue there is.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod cold_support;
mod support;

use cold_support::{start, watched::Watched};
use proptest::{collection::vec, prelude::*, test_runner::FileFailurePersistence};
use support::{
    asking::{asked, await_held, browse, close, consumer_ahead, subscribed, with_properties},
    raw::{QUEUE, Raw, acknowledge, bodies, counted, destroy},
};
use tidegate::{
    broker::Broker,
    wire::{Flags, Packet},
};

const COLOURS: [&str; 3] = ["red", "green", "blue"];

/// What is done to both.
#[derive(Debug, Clone)]
enum Step {
    /// So many messages come, of this priority and colour; not all of them are stored.
    Send { count: usize, stored: bool, priority: u8, colour: usize },
    /// A consumer takes some, acknowledges some of them, and goes.
    Take { window: i32, colour: Option<usize>, acknowledged: usize, goes: Goes },
    /// Somebody looks.
    Browse { colour: Option<usize> },
}

/// How a consumer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goes {
    /// With its session: what it was sent counts as seen.
    WithItsSession,
    /// By itself: it has seen nothing.
    Unseen,
}

fn step() -> impl Strategy<Value = Step> {
    let colour = || prop::option::of(0..COLOURS.len());
    let goes = prop_oneof![Just(Goes::WithItsSession), Just(Goes::Unseen)];
    prop_oneof![
        3 => (1..12_usize, prop::bool::weighted(0.8), prop::sample::select(vec![4, 4, 4, 0, 9]), 0..COLOURS.len())
            .prop_map(|(count, stored, priority, colour)| Step::Send { count, stored, priority, colour }),
        3 => (1..30_i32, colour(), 0..30_usize, goes).prop_map(
            |(window, colour, acknowledged, goes)| Step::Take { window, colour, acknowledged, goes }
        ),
        1 => colour().prop_map(|colour| Step::Browse { colour }),
    ]
}

/// A message as the plain queue has it.
#[derive(Debug, Clone)]
struct Plain {
    number: usize,
    priority: u8,
    colour: usize,
    deliveries: i32,
}

impl Plain {
    fn text(&self) -> String {
        format!("m{}", self.number)
    }
}

/// The plain queue, in its order.
#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Plain>,
    sent: usize,
}

impl Queue {
    /// Does it, and says what is seen.
    fn carry_out(&mut self, step: &Step) -> Vec<(String, i32)> {
        let wants = |colour: Option<usize>| {
            move |one: &&mut Plain| colour.is_none_or(|colour| one.colour == colour)
        };
        match *step {
            Step::Send { count, priority, colour, .. } => {
                for _ in 0..count {
                    self.sent += 1;
                    let number = self.sent;
                    self.waiting.push(Plain { number, priority, colour, deliveries: 0 });
                }
                self.waiting.sort_by_key(|one| (9 - one.priority, one.number));
                Vec::new()
            }
            Step::Take { window, colour, acknowledged, goes } => {
                let mut seen = Vec::new();
                let mut gone = Vec::new();
                let window = usize::try_from(window).unwrap();
                for one in self.waiting.iter_mut().filter(wants(colour)).take(window) {
                    seen.push((one.text(), one.deliveries + 1));
                    if gone.len() < acknowledged {
                        gone.push(one.number);
                    } else if goes == Goes::WithItsSession {
                        one.deliveries += 1;
                    }
                }
                self.waiting.retain(|one| !gone.contains(&one.number));
                seen
            }
            Step::Browse { colour } => {
                let seen = self.waiting.iter_mut().filter(wants(colour));
                seen.map(|one| (one.text(), 0)).collect()
            }
        }
    }
}

fn selector(colour: usize) -> String {
    format!("colour = '{}'", COLOURS[colour])
}

/// A client of the broker.
struct Client {
    raw: Raw,
    sent: usize,
}

impl Client {
    fn new(broker: &Broker) -> Self {
        let mut raw = Raw::login(broker.jms_address(), 0);
        raw.create_destination("q", QUEUE);
        raw.start();
        Self { raw, sent: 0 }
    }

    /// Does it, and says what was seen. `expected`: so many messages must come.
    fn carry_out(&mut self, step: &Step, expected: usize) -> Vec<(String, i32)> {
        let raw = &mut self.raw;
        match *step {
            Step::Send { count, stored, priority, colour } => {
                for _ in 0..count {
                    self.sent += 1;
                    let message = with_properties("q", QUEUE, &format!("m{}", self.sent), |own| {
                        own.set("colour", COLOURS[colour]);
                    });
                    let message = message.priority(priority);
                    let stored = if stored { Flags::PERSISTENT } else { Flags::empty() };
                    asked(raw, message.flags(stored));
                }
                Vec::new()
            }
            Step::Take { window, colour, acknowledged, goes } => {
                let session = raw.create_session(2);
                let mut wish = consumer_ahead(session, "q", QUEUE, window);
                if let Some(colour) = colour {
                    wish = wish.string("JMQSelector", &selector(colour));
                }
                let one = subscribed(raw, wish);
                let mut got = raw.messages(expected);
                got.extend(raw.messages_so_far());
                let some: Vec<&Packet> = got.iter().take(acknowledged).collect();
                if !some.is_empty() {
                    asked(raw, acknowledge(&some));
                }
                if goes == Goes::Unseen {
                    asked(raw, close(one, some.last().copied()));
                }
                asked(raw, destroy(session));
                counted(&got)
            }
            Step::Browse { colour } => {
                let seen = browse(raw, "q", colour.map(selector).as_deref());
                bodies(&seen).into_iter().map(|text| (text, 0)).collect()
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/seeds/broker_cold_model.txt"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn nobody_can_tell_where_bodies_are(steps in vec(step(), 1..40)) {
        let store = Watched::new();
        let reading = store.reading();
        let broker = start(store, "");
        let (mut plain, mut client) = (Queue::default(), Client::new(&broker));
        for step in &steps {
            let wanted = plain.carry_out(step);
            let got = client.carry_out(step, wanted.len());
            prop_assert_eq!(&got, &wanted, "{:?} {:?}", step, reading);
        }
        await_held(&broker, "q", plain.waiting.len() as u64);
    }
}
