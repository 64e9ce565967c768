//! How many sessions one connection can serve: the rule to start with, and what a running pool
//! has measured.
//!
//! # Source
//! Siebel shared connection pooling: ten sessions per connection for a think time of 30 s, in
//! proportion for another one, lower if there are long-running operations. The source gives no
//! number for "lower"; here it is half, to be replaced by what [`measured`] says.
//! The waiting time of a queue with Poisson arrivals and any service time is the
//! Pollaczek–Khinchine formula.

use std::time::Duration;

/// Sessions per connection at [`BASE_THINK`].
const BASE_RATIO: u128 = 10;
/// Think time the base ratio holds for.
const BASE_THINK: Duration = Duration::from_secs(30);
/// Operations a recommendation from measurements needs.
const SAMPLES_MIN: u64 = 100;

/// Whether operations are known that keep a connection for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LongOperations {
    /// None are known.
    Absent,
    /// There are some: half as many sessions share a connection.
    Present,
}

/// A recommended number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sizing {
    /// Sessions that share one connection, 1 or more.
    pub sessions_per_connection: usize,
    /// Connections for all tasks, 1 or more.
    pub connections: usize,
}

/// Recommends a size from the think time between a session's operations.
///
/// Rounds down to whole sessions per connection and up to whole connections, the safe side both.
#[must_use]
pub fn recommend(tasks: usize, think: Duration, long: LongOperations) -> Sizing {
    let by_think = think.as_nanos().saturating_mul(BASE_RATIO) / BASE_THINK.as_nanos();
    let ratio = match long {
        LongOperations::Absent => by_think,
        LongOperations::Present => by_think / 2,
    };
    for_ratio(tasks, usize::try_from(ratio).unwrap_or(usize::MAX))
}

/// What a pool measured of its sessions' operations.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Load {
    /// Operations measured.
    pub operations: u64,
    /// Times between two operations of one session that were measured.
    pub thinks: u64,
    /// Mean time an operation has the connection, in seconds.
    pub service_mean_s: f64,
    /// Mean of the squared time, in seconds²; long operations show here.
    pub service_square_s2: f64,
    /// Mean time from the end of a session's operation to its next, in seconds.
    pub think_mean_s: f64,
}

impl Load {
    /// A load of `operations` with these means, for instance from another system's log.
    #[must_use]
    pub fn new(
        operations: u64,
        think_mean: Duration,
        service_mean: Duration,
        service_square_s2: f64,
    ) -> Self {
        Self {
            operations,
            thinks: operations,
            service_mean_s: service_mean.as_secs_f64(),
            service_square_s2,
            think_mean_s: think_mean.as_secs_f64(),
        }
    }
}

/// The most sessions per connection whose operations wait no longer than `wait` on average.
///
/// `None` while fewer than 100 operations and thinks were measured. A session waits for the other
/// sessions of its connection only, so one session per connection never waits and is always
/// within reach.
#[must_use]
pub fn measured(tasks: usize, load: &Load, wait: Duration) -> Option<Sizing> {
    if load.operations < SAMPLES_MIN || load.thinks < SAMPLES_MIN {
        return None;
    }
    let wait_s = wait.as_secs_f64();
    let cycle_s = load.think_mean_s + load.service_mean_s;
    // Mean wait w = λ·E[S²] / (2·(1 − λ·E[S])), solved for the arrivals λ of the other sessions.
    let demand = load.service_square_s2 + 2.0 * wait_s * load.service_mean_s;
    let others = if demand > 0.0 { 2.0 * wait_s / demand * cycle_s } else { f64::INFINITY };
    // Saturates: a load without service time can be shared by everybody.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, and the value is not negative"
    )]
    let others = others.floor() as usize;
    Some(for_ratio(tasks, others.saturating_add(1).min(tasks.max(1))))
}

fn for_ratio(tasks: usize, ratio: usize) -> Sizing {
    let ratio = ratio.max(1);
    Sizing { sessions_per_connection: ratio, connections: tasks.div_ceil(ratio).max(1) }
}

#[cfg(test)]
mod tests {
    use super::{Load, LongOperations, measured, recommend};
    use std::time::Duration;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn think_time_sets_the_ratio_in_proportion() {
        let rule = |think| recommend(500, think, LongOperations::Absent);
        assert_eq!((rule(s(30)).sessions_per_connection, rule(s(30)).connections), (10, 50));
        assert_eq!((rule(s(15)).sessions_per_connection, rule(s(15)).connections), (5, 100));
        assert_eq!((rule(s(60)).sessions_per_connection, rule(s(60)).connections), (20, 25));
        // 20 s would be 6.67 to 1: rounded to the side of shorter waits.
        assert_eq!((rule(s(20)).sessions_per_connection, rule(s(20)).connections), (6, 84));
        assert_eq!((rule(s(0)).sessions_per_connection, rule(s(0)).connections), (1, 500));
        assert_eq!(recommend(0, Duration::MAX, LongOperations::Absent).connections, 1);
    }

    #[test]
    fn long_operations_lower_the_ratio() {
        let with = recommend(500, s(30), LongOperations::Present);
        assert_eq!((with.sessions_per_connection, with.connections), (5, 100));
        assert_eq!(recommend(5, s(3), LongOperations::Present).sessions_per_connection, 1);
    }

    #[test]
    fn measured_ratio_keeps_the_mean_wait_of_the_formula_under_the_target() {
        // Exponential service of 100 ms, think time 30 s: E[S²] = 2·E[S]².
        let load = Load::new(10_000, s(30), Duration::from_millis(100), 0.02);
        for target_ms in [1, 10, 100, 1000] {
            let target = Duration::from_millis(target_ms);
            let ratio = measured(10_000, &load, target).unwrap().sessions_per_connection;
            let wait = |sessions: usize| {
                let arrivals = f64::from(u32::try_from(sessions - 1).unwrap()) / 30.1;
                arrivals * 0.02 / (2.0 * (1.0 - arrivals * 0.1))
            };
            assert!(wait(ratio) <= target.as_secs_f64(), "{ratio} at {target:?}");
            assert!(wait(ratio + 1) > target.as_secs_f64(), "{ratio} at {target:?}");
        }
    }

    #[test]
    fn rare_long_operations_lower_the_measured_ratio_at_the_same_mean() {
        let even = Load::new(1_000, s(30), Duration::from_millis(100), 0.01);
        let with_long = Load::new(1_000, s(30), Duration::from_millis(100), 0.3);
        let target = Duration::from_millis(50);
        assert!(
            measured(10_000, &with_long, target).unwrap().sessions_per_connection
                < measured(10_000, &even, target).unwrap().sessions_per_connection
        );
    }

    #[test]
    fn too_few_measurements_give_no_ratio_and_no_wait_gives_one_to_one() {
        let load = |operations| Load::new(operations, s(30), s(1), 1.0);
        assert_eq!(measured(500, &load(99), s(1)), None);
        let strict = measured(500, &load(100), Duration::ZERO).unwrap();
        assert_eq!((strict.sessions_per_connection, strict.connections), (1, 500));
        let idle = Load::new(100, s(30), Duration::ZERO, 0.0);
        assert_eq!(measured(500, &idle, s(1)).unwrap().connections, 1);
    }
}
