//! A message admitted by a channel's throttle: governor's check, and a lock around the same state.
//! Then the same while a writer changes the state a thousand times a second.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::RwLock;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::throttle::{Admission, ChannelSettings, StressPolicy, Throttle, ThrottleState};

use crate::harness::{Goal, Harness, Start};

const GOAL: Goal = Goal { ratio: 5.0, peers: &["governor", "rwlock"], most_ns: Some(8.0) };

pub(crate) fn admit(harness: &mut Harness) {
    let throttle = throttle();
    let lock = RwLock::new(throttle.state());
    harness.row("admit", GOAL);
    harness.contender("tidegate", |start| ask_throttle(start, &throttle));
    governor(harness);
    harness.contender("rwlock", |start| ask_lock(start, &lock));
}

pub(crate) fn admit_beside_a_writer(harness: &mut Harness) {
    let throttle = throttle();
    harness.row("admit, state changing 1000/s", GOAL);
    // Ours once more without a writer, so that the line itself shows what the writer costs.
    let mut changes = Changes::new();
    let ours = || {
        changes.make(&throttle);
    };
    beside_a_writer(harness, ours, |harness| {
        harness.contender("tidegate", |start| ask_throttle(start, &throttle));
    });
    harness.contender("no writer", |start| ask_throttle(start, &throttle));
    // It has no state that could change.
    governor(harness);
    let source = self::throttle();
    let lock = RwLock::new(source.state());
    let mut changes = Changes::new();
    let theirs = || {
        changes.make(&source);
        *lock.write().unwrap() = source.state();
    };
    beside_a_writer(harness, theirs, |harness| {
        harness.contender("rwlock", |start| ask_lock(start, &lock));
    });
}

fn throttle() -> Throttle {
    Throttle::new(StressPolicy::default(), ChannelSettings::new(10, 7).unwrap())
}

/// A job asks; told to leave, its successor asks on.
fn ask_throttle(start: Start<'_>, throttle: &Throttle) -> Duration {
    let mut generation = throttle.state().generation();
    start.run(|| {
        if black_box(throttle.admit(black_box(generation))) == Admission::Leave {
            generation = throttle.state().generation();
        }
    })
}

fn ask_lock(start: Start<'_>, lock: &RwLock<ThrottleState>) -> Duration {
    let current = || lock.read().unwrap().generation();
    let mut generation = current();
    start.run(|| {
        if black_box(current() != black_box(generation)) {
            generation = current();
        }
    })
}

fn governor(harness: &mut Harness) {
    let quota = governor::Quota::per_second(NonZeroU32::MAX);
    let limiter = governor::RateLimiter::direct(quota);
    harness.contender("governor", |start| {
        start.run(|| {
            black_box(limiter.check()).ok();
        })
    });
}

/// Changes of a channel's state, each an hour after the last: every one is due.
struct Changes {
    now: Duration,
    stressed: bool,
}

impl Changes {
    const fn new() -> Self {
        Self { now: Duration::ZERO, stressed: false }
    }

    fn make(&mut self, throttle: &Throttle) {
        let before = throttle.state().generation();
        self.now += Duration::from_secs(3_600);
        if self.stressed {
            black_box(throttle.tick(self.now));
        } else {
            let _raised = black_box(throttle.stress(self.now));
        }
        self.stressed = !self.stressed;
        assert_eq!(throttle.state().generation(), before + 1, "the writer writes");
    }
}

/// Runs `readers` while another thread calls `change` once in each millisecond.
fn beside_a_writer(
    harness: &mut Harness,
    mut change: impl FnMut() + Send,
    readers: impl FnOnce(&mut Harness),
) {
    let (stop, stopped) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut due = Instant::now();
            loop {
                due += Duration::from_millis(1);
                // Late, it makes up for what it missed: the rate is kept.
                let wait = due.saturating_duration_since(Instant::now());
                if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                change();
            }
        });
        readers(harness);
        stop.send(()).unwrap();
    });
}
