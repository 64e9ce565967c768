//! One credit taken and given back: tokio's semaphore, and a bounded channel as a bucket of tokens.

use std::hint::black_box;
use std::sync::atomic::Ordering;

use tidegate::flow::{Credit, Window};

use crate::harness::{Goal, Harness};

/// Credits there are; never all taken.
const CREDITS: usize = 1_000;

pub(crate) fn credit(harness: &mut Harness) {
    harness.row("credit", Goal { ratio: 3.0, peers: &[], most_ns: Some(10.0) });
    let window = Window::new(Credit::from_wire(i32::try_from(CREDITS).unwrap()));
    harness.contender("tidegate", |start| {
        start.run(|| {
            let taken = window.try_take().unwrap();
            let _resumed = black_box(window.give_back(black_box(taken)));
        })
    });
    let semaphore = tokio::sync::Semaphore::new(CREDITS);
    harness.contender("tokio", |start| {
        start.run(|| drop(black_box(semaphore.try_acquire().unwrap())))
    });
    let (back, tokens) = crossbeam_channel::bounded(CREDITS);
    for _ in 0..CREDITS {
        back.send(()).unwrap();
    }
    harness.contender("channel", |start| {
        start.run(|| {
            tokens.try_recv().unwrap();
            back.try_send(()).unwrap();
        })
    });
}

#[allow(clippy::disallowed_types, reason = "the bare primitive is what is measured")]
type Bare = std::sync::atomic::AtomicU64;

/// A counter that no other thread touches, on a cache line of its own.
#[repr(align(128))]
struct Padded(Bare);

/// What this machine asks for the two locked instructions of a credit, with nothing around them:
/// each thread has a word of its own. No counter that takes and gives back can be faster.
pub(crate) fn floor(harness: &mut Harness) {
    harness.row("credit floor", Goal::NONE);
    harness.contender("two exchanges", |start| {
        let word = Padded(Bare::new(CREDITS as u64));
        start.run(|| {
            for step in [u64::MAX, 1] {
                let seen = word.0.load(Ordering::Acquire);
                let next = seen.wrapping_add(step);
                let exchanged =
                    word.0.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire);
                black_box(exchanged.unwrap());
            }
        })
    });
    harness.contender("two additions", |start| {
        let word = Padded(Bare::new(CREDITS as u64));
        start.run(|| {
            black_box(word.0.fetch_sub(1, Ordering::AcqRel));
            black_box(word.0.fetch_add(1, Ordering::AcqRel));
        })
    });
}
