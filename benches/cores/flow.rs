//! One credit taken and given back: tokio's semaphore, and a bounded channel as a bucket of tokens.

use std::hint::black_box;

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
