//! How long operations waited for their turn, had the connection, and thought in between.
//!
//! Shape: two histograms and a few sums per connection. The one who has the connection's turn
//! writes, so a count goes up by a load and a store, without a read-modify-write; only the meter
//! that connections outside the table share has several writers. Readers see each number whole,
//! and a set of numbers that may be one operation apart.

use std::time::Duration;

use crate::pool::sizing::Load;
use crate::sync::{AtomicU64, Ordering, sized};

/// Buckets: four per power of two, up to 2⁴² ns (73 minutes); longer times count in the last one.
const BUCKETS: usize = sized(164, 1);

/// Percentiles of a time, each the upper bound of its bucket (at most a quarter too high).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Percentiles {
    /// Times recorded.
    pub count: u64,
    /// Half of the times are no longer.
    pub p50: Duration,
    /// Nine in ten are no longer.
    pub p90: Duration,
    /// 99 in 100 are no longer.
    pub p99: Duration,
    /// 999 in 1000 are no longer.
    pub p999: Duration,
    /// The longest; exact.
    pub max: Duration,
}

/// What operations of a pool took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Timings {
    /// From asking for the turn to having it; operations that gave up are not in it.
    pub wait: Percentiles,
    /// From having the turn to giving it up.
    pub service: Percentiles,
}

/// How many may record in a meter at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writers {
    /// The one who has the connection's turn.
    One,
    /// Any number.
    Many,
}

/// The times of one connection's operations.
#[derive(Debug)]
pub(crate) struct Meter {
    wait: Histogram,
    service: Histogram,
    service_ns: AtomicU64,
    /// Bits of an `f64`, in nanoseconds².
    service_square: AtomicU64,
    thinks: AtomicU64,
    think_ns: AtomicU64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            wait: Histogram::new(),
            service: Histogram::new(),
            service_ns: AtomicU64::new(0),
            service_square: AtomicU64::new(0),
            thinks: AtomicU64::new(0),
            think_ns: AtomicU64::new(0),
        }
    }

    /// Records one operation, all times in nanoseconds. With [`Writers::One`] the caller has the
    /// turn.
    #[inline]
    pub(crate) fn record(&self, writers: Writers, operation: Sample) {
        self.wait.record(writers, operation.wait_ns);
        self.service.record(writers, operation.service_ns);
        raise(writers, &self.service_ns, operation.service_ns);
        #[allow(clippy::cast_precision_loss, reason = "a term of a mean")]
        let service_ns = operation.service_ns as f64;
        update(writers, &self.service_square, |bits| {
            (f64::from_bits(bits) + service_ns * service_ns).to_bits()
        });
        if let Some(think_ns) = operation.think_ns {
            raise(writers, &self.thinks, 1);
            raise(writers, &self.think_ns, think_ns);
        }
    }
}

/// The times of one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// From asking for the turn to having it.
    pub(crate) wait_ns: u64,
    /// From having the turn to giving it up.
    pub(crate) service_ns: u64,
    /// From the session's last operation to this, if there was one.
    pub(crate) think_ns: Option<u64>,
}

/// The sum of several meters at about one time.
#[derive(Debug)]
pub(crate) struct Totals {
    wait: Tally,
    service: Tally,
    service_ns: u64,
    service_square_ns2: f64,
    thinks: u64,
    think_ns: u64,
}

impl Totals {
    pub(crate) const fn new() -> Self {
        Self {
            wait: Tally::new(),
            service: Tally::new(),
            service_ns: 0,
            service_square_ns2: 0.0,
            thinks: 0,
            think_ns: 0,
        }
    }

    pub(crate) fn add(&mut self, meter: &Meter) {
        // Relaxed: statistics.
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        self.wait.add(&meter.wait);
        self.service.add(&meter.service);
        self.service_ns = self.service_ns.saturating_add(read(&meter.service_ns));
        self.service_square_ns2 += f64::from_bits(read(&meter.service_square));
        self.thinks += read(&meter.thinks);
        self.think_ns = self.think_ns.saturating_add(read(&meter.think_ns));
    }

    pub(crate) fn timings(&self) -> Timings {
        Timings { wait: self.wait.percentiles(), service: self.service.percentiles() }
    }

    pub(crate) fn load(&self) -> Load {
        let operations = self.service.count();
        let mean_s =
            |sum_ns, count| Duration::from_nanos(sum_ns).as_secs_f64() / at_least_one(count);
        Load {
            operations,
            thinks: self.thinks,
            service_mean_s: mean_s(self.service_ns, operations),
            service_square_s2: self.service_square_ns2 / 1e18 / at_least_one(operations),
            think_mean_s: mean_s(self.think_ns, self.thinks),
        }
    }
}

/// Counts of times by length.
#[derive(Debug)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    max_ns: AtomicU64,
}

impl Histogram {
    fn new() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), max_ns: AtomicU64::new(0) }
    }

    #[inline]
    fn record(&self, writers: Writers, ns: u64) {
        raise(writers, &self.buckets[bucket(ns)], 1);
        // Relaxed: a guess, which `update` repeats.
        if ns > self.max_ns.load(Ordering::Relaxed) {
            update(writers, &self.max_ns, |max| max.max(ns));
        }
    }
}

#[derive(Debug)]
struct Tally {
    buckets: [u64; BUCKETS],
    max_ns: u64,
}

impl Tally {
    const fn new() -> Self {
        Self { buckets: [0; BUCKETS], max_ns: 0 }
    }

    fn add(&mut self, histogram: &Histogram) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            // Relaxed: a statistic.
            *sum += bucket.load(Ordering::Relaxed);
        }
        // Relaxed: a statistic.
        self.max_ns = self.max_ns.max(histogram.max_ns.load(Ordering::Relaxed));
    }

    fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn percentiles(&self) -> Percentiles {
        let count = self.count();
        let at = |per_mille: u128| {
            // The smallest bucket that has this part of the times at or below it.
            let wanted = (u128::from(count) * per_mille).div_ceil(1000);
            let mut below = 0;
            let index = self.buckets.iter().position(|&times| {
                below += u128::from(times);
                below >= wanted && below > 0
            });
            let bound_ns = index.map_or(0, upper_bound_ns);
            Duration::from_nanos(bound_ns.min(self.max_ns))
        };
        Percentiles {
            count,
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p999: at(999),
            max: Duration::from_nanos(self.max_ns),
        }
    }
}

/// The bucket of a time: 0 to 3 ns have one each, then four per power of two.
#[inline]
fn bucket(ns: u64) -> usize {
    let power = 63 - (ns | 1).leading_zeros();
    let index = if power < 2 { ns } else { u64::from(power - 1) * 4 + ((ns >> (power - 2)) & 3) };
    usize::try_from(index).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// The longest time that counts in a bucket.
fn upper_bound_ns(index: usize) -> u64 {
    let index = u64::try_from(index).unwrap_or(u64::MAX);
    if index < 4 {
        return index;
    }
    if index >= u64::try_from(BUCKETS - 1).unwrap_or(u64::MAX) {
        return u64::MAX;
    }
    let power = index / 4 + 1;
    (1 << power) + ((index % 4 + 1) << (power - 2)) - 1
}

#[inline]
fn raise(writers: Writers, number: &AtomicU64, by: u64) {
    update(writers, number, |value| value.saturating_add(by));
}

#[inline]
fn update(writers: Writers, number: &AtomicU64, step: impl Fn(u64) -> u64) {
    // Relaxed throughout: one writer is ordered by the turn; for readers it is a statistic.
    let mut value = number.load(Ordering::Relaxed);
    match writers {
        Writers::One => number.store(step(value), Ordering::Relaxed),
        Writers::Many => {
            // Forbids that one of two writers is forgotten.
            while let Err(now) = number.compare_exchange_weak(
                value,
                step(value),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                value = now;
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a divisor of a mean; 2^53 operations never happen")]
fn at_least_one(count: u64) -> f64 {
    count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Meter, Sample, Totals, Writers, bucket, upper_bound_ns};
    use std::time::Duration;

    #[test]
    fn buckets_follow_each_other_without_gap_and_bound_their_times() {
        for ns in (0..100_000).chain([1 << 20, (1 << 30) - 1, 1 << 41]) {
            let index = bucket(ns);
            assert!(ns <= upper_bound_ns(index), "{ns}");
            assert!(index == 0 || ns > upper_bound_ns(index - 1), "{ns}");
            assert!(ns < 4 || upper_bound_ns(index) - ns <= ns / 4, "{ns}");
        }
        assert_eq!(bucket((1 << 42) - 1), BUCKETS - 1);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_of_known_times_come_out() {
        let meter = Meter::new();
        for ms in 1..=1000_u64 {
            let writers = if ms.is_multiple_of(2) { Writers::One } else { Writers::Many };
            let think_ns = Some(30_000_000_000);
            meter.record(writers, Sample { wait_ns: 0, service_ns: ms * 1_000_000, think_ns });
        }
        let mut totals = Totals::new();
        totals.add(&meter);
        let timings = totals.timings();
        assert_eq!(timings.service.count, 1000);
        let near = |time: Duration, ms: u64| {
            assert!(time >= Duration::from_millis(ms), "{time:?} < {ms} ms");
            assert!(time <= Duration::from_millis(ms + ms / 4 + 1), "{time:?} > {ms} ms");
        };
        near(timings.service.p50, 500);
        near(timings.service.p90, 900);
        near(timings.service.p99, 990);
        assert_eq!(timings.service.max, Duration::from_secs(1));
        assert_eq!((timings.wait.p999, timings.wait.count), (Duration::ZERO, 1000));
        let load = totals.load();
        assert!((load.service_mean_s - 0.5005).abs() < 1e-9);
        assert!((load.service_square_s2 - 0.333_833_5).abs() < 1e-6);
        assert!((load.think_mean_s - 30.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_recorded_gives_zeros() {
        let timings = Totals::new().timings();
        assert_eq!(timings.service.count, 0);
        assert_eq!(timings.service.p999, Duration::ZERO);
        assert!(Totals::new().load().service_mean_s.abs() < f64::EPSILON);
    }
}
