//! A channel's throttle read and a message admitted: governor's check, and a lock around the same
//! state. Then the same while a writer changes the state a thousand times a second.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::RwLock;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidegate::throttle::{Admission, ChannelSettings, StressPolicy, Throttle};

use crate::harness::{Goal, Harness};

const GOAL: Goal = Goal { ratio: 5.0, peers: &["governor"], most_ns: Some(8.0) };

pub(crate) fn admit(harness: &mut Harness) {
    let throttle = Throttle::new(StressPolicy::default(), ChannelSettings::new(10, 7).unwrap());
    let admit = || black_box(throttle.admit(black_box(0))) == Admission::GoOn;

    harness.row("admit", GOAL);
    harness.contender("tidegate", |start| {
        start.run(|| {
            black_box(admit());
        })
    });
    peers(harness, &throttle);

    harness.row("admit, state changing 1000/s", GOAL);
    let (stop, stopped) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let throttle = &throttle;
        scope.spawn(move || {
            // Each step is an hour on: every stress is heard, every tick brings it back.
            let mut now = Duration::ZERO;
            let tick = Duration::from_micros(500);
            while stopped.recv_timeout(tick) == Err(mpsc::RecvTimeoutError::Timeout) {
                now += Duration::from_secs(3_600);
                black_box(throttle.stress(now));
                now += Duration::from_secs(3_600);
                black_box(throttle.tick(now));
            }
        });
        harness.contender("tidegate", |start| {
            start.run(|| {
                black_box(admit());
            })
        });
        stop.send(()).unwrap();
    });
    peers(harness, &throttle);
}

fn peers(harness: &mut Harness, throttle: &Throttle) {
    let quota = governor::Quota::per_second(NonZeroU32::MAX);
    let limiter = governor::RateLimiter::direct(quota);
    harness.contender("governor", |start| {
        start.run(|| {
            black_box(limiter.check()).ok();
        })
    });
    let lock = RwLock::new(throttle.state());
    harness.contender("rwlock", |start| {
        start.run(|| {
            black_box(lock.read().unwrap().generation() == black_box(0));
        })
    });
}
