//! Times of something that is done again and again.

use std::{
    thread,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

use crate::duty::{self, Duty};

/// Makes round trips for as many milliseconds as each order says, and tells p50 and p99 in
/// nanoseconds, and how many there were.
pub(crate) fn take_times(duty: &Duty, mut trip: impl FnMut()) {
    measure(duty, |time, times| {
        let begun = Instant::now();
        let mut last = begun;
        while last - begun < time {
            trip();
            let now = Instant::now();
            record(times, now - last);
            last = now;
        }
    });
}

/// As [`take_times`], of something that is done once in each `pause`.
pub(crate) fn take_times_apart(duty: &Duty, pause: Duration, mut act: impl FnMut()) {
    measure(duty, |time, times| {
        let end = Instant::now() + time;
        loop {
            let begun = Instant::now();
            if begun >= end {
                return;
            }
            act();
            record(times, begun.elapsed());
            while begun.elapsed() < pause {
                thread::yield_now();
            }
        }
    });
}

fn measure(duty: &Duty, mut take: impl FnMut(Duration, &mut Histogram<u64>)) {
    let mut order = duty.ready();
    loop {
        let time = Duration::from_millis(order.parse().expect("a time"));
        let mut times = Histogram::<u64>::new(3).unwrap();
        take(time, &mut times);
        let [p50, p99] = [0.5, 0.99].map(|quantile| times.value_at_quantile(quantile));
        duty::say(&format!("{p50} {p99} {}", times.len()));
        order = duty.order();
    }
}

fn record(times: &mut Histogram<u64>, time: Duration) {
    times.record(u64::try_from(time.as_nanos()).unwrap()).unwrap();
}
