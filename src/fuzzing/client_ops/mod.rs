//! Any sequence of what applications may do with a client whose broker does as it likes.
//!
//! The bytes choose operations of the client's public interface, and for each of them what becomes
//! of one of the packets that the broker says meanwhile: it is missing, or wrong, or comes twice, or
//! is cut off, or something comes that nobody asked for. The connection is in process, and the
//! broker runs on the thread of whoever writes to it, so an input takes no time but for what is
//! waited for in vain: a few milliseconds each. It must hold that
//!
//! - every call returns, with a result or an error that says something;
//! - the client writes nothing but packets;
//! - no more messages wait in consumers than packets were said;
//! - a completion runs at most once.

mod hostile;
mod operations;
mod reached;

use std::time::Duration;

pub use self::reached::{ClientReached, Outcomes};
use self::{
    hostile::{Hostile, HostileDoor, Mischief, Mood, Order},
    operations::{NEVER_FAIL, OPERATIONS, World},
};
use crate::{client::ConnectionFactory, in_process::InProcess, sync::Plain};

/// Steps of one input; each has five bytes.
const STEPS_MAX: usize = 60;
const STEP_BYTES: usize = 5;
/// The longest that the client waits for an answer, which is there at once or never.
const ANSWER: Duration = Duration::from_millis(2);
/// The same where each answer that is there must be seen, however busy the machine is.
const PATIENT_ANSWER: Duration = Duration::from_millis(50);
/// A broker that answers no ping within so many times that is given up, whatever else is waited
/// for.
const PING: u32 = 100;

/// The body of the fuzz target `client_ops`.
///
/// # Panics
/// If the client breaks one of the laws above.
pub fn client_ops(data: &[u8]) {
    let _reached = run(data, ANSWER);
}

/// The same, with more patience, and how far the input came.
///
/// # Panics
/// As above.
#[must_use]
pub fn client_ops_reached(data: &[u8]) -> ClientReached {
    run(data, PATIENT_ANSWER)
}

fn run(data: &[u8], answer: Duration) -> ClientReached {
    let hostile = Hostile::new();
    let way = InProcess::new(Plain::new(HostileDoor(Plain::clone(&hostile))));
    let (settings, steps) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let mut world = World::new(factory(settings, answer), way, Plain::clone(&hostile));
    for step in steps.chunks(STEP_BYTES).take(STEPS_MAX) {
        let byte = |at: usize| step.get(at).copied().unwrap_or(0);
        let mischief = Mischief::ALL[usize::from(byte(2)) % Mischief::ALL.len()];
        hostile.order(Order::Feel(Mood { mischief, at: byte(3) % 8, way: byte(4) }));
        world.run(usize::from(byte(0)) % OPERATIONS.len(), byte(1));
    }
    let mut reached = world.finish();
    reached.add(&hostile.finish());
    reached
}

/// What was not reached: operations that never did what they are for, or never failed, and kinds
/// of mischief.
#[must_use]
pub fn client_ops_missed(reached: &ClientReached) -> Vec<String> {
    let mut missed = Vec::new();
    for (name, _) in OPERATIONS {
        let outcomes = reached.outcomes(name);
        if outcomes.done == 0 {
            missed.push(format!("{name} that is done"));
        }
        if outcomes.failed == 0 && !NEVER_FAIL.contains(&name) {
            missed.push(format!("{name} that fails"));
        }
    }
    let undone = Mischief::ALL.into_iter().filter(|&one| one != Mischief::None);
    missed.extend(undone.filter(|&one| !reached.has_done(one)).map(|one| format!("{one:?}")));
    missed
}

/// A factory whose waits are short, with the settings that these bits say.
fn factory(settings: u8, answer: Duration) -> ConnectionFactory {
    let mut factory = ConnectionFactory::new();
    factory
        .ack_timeout(Some(answer))
        .completion_timeout(Some(answer))
        .browser_timeout(Some(answer))
        .redelivery(1, Duration::ZERO)
        .ping_interval(Some(answer * PING))
        .ping_ack_timeout(Some(answer * PING));
    let set = |factory: &mut ConnectionFactory, bit: u8, name: &str, value: &str| {
        if settings & bit != 0 {
            let _set = factory.set_attribute(name, value).expect("a good value");
        }
    };
    set(&mut factory, 1, "imqConsumerFlowLimit", "2");
    set(&mut factory, 2, "imqConnectionFlowLimitEnabled", "true");
    set(&mut factory, 2, "imqConnectionFlowLimit", "3");
    set(&mut factory, 4, "imqConsumerFlowLimitPrefetch", "false");
    set(&mut factory, 8, "imqAckOnProduce", "true");
    set(&mut factory, 16, "imqAckOnAcknowledge", "false");
    set(&mut factory, 32, "imqConfiguredClientID", "c1");
    set(&mut factory, 64, "imqQueueBrowserMaxMessagesPerRetrieve", "2");
    set(&mut factory, 128, "imqConnectionFlowCount", "1");
    factory
}
