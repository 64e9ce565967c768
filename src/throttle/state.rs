//! The state of one channel and its transitions: pure functions of state, policy and time.
//!
//! ```text
//!            indication, nothing within the blackout         stresstime since the last change
//!            .-------------------------------------.        .------------------------------.
//!            |                                     v        |                              v
//!  [level 0: as configured]                     [level n >= 1] ------------------> [level n - 1 ...]
//!            ^                                     |   ^    unstresscount messages since the change
//!            |   both values back as configured    |   |    and stresstime without an indication
//!            '-------------------------------------'   '-- indication: level n + 1
//! ```
//!
//! # Invariants
//! - configured depth ≤ depth ≤ 134 217 727; 1 ≤ job limit ≤ configured limit.
//! - Level 0 means exactly the configured values, and nothing else does.
//! - The generation rises by one with each change of depth or limit, and only then.
//!
//! # Source
//! The job controller of Oracle Messaging Server. Where its text leaves a choice:
//! - The blackout counts from the last indication that was *not* ignored: if ignored ones counted,
//!   a store in constant stress would never be heard again.
//! - At the cap and the floor together an indication changes nothing. It still counts as heard: it
//!   restarts the blackout and puts the way back off, but no job has to leave for it.
//! - A late tick takes all the steps that were due, so an idle channel that nobody looked at for
//!   an hour is where it would be.
//! - The rule of the count says "without any indication": ignored ones count there.

use std::time::Duration;

use crate::throttle::{ChannelSettings, StressPolicy};

/// How hard a channel may press now. Plain data, immutable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThrottleState {
    configured: ChannelSettings,
    depth: u32,
    job_limit: u32,
    level: u32,
    generation: u64,
    /// When depth or limit last changed, or an indication was heard.
    last_change: Duration,
    /// The last indication that was not ignored.
    last_heard: Option<Duration>,
    /// The last indication, ignored or not.
    last_indication: Option<Duration>,
    /// The channel's count of processed messages at the last change.
    processed_at_change: u64,
}

/// What a state makes of an indication of stress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// It came within the blackout.
    Ignored,
    /// Depth and limit are as far as they go.
    Held,
    /// Depth, limit or both changed.
    Raised,
}

impl ThrottleState {
    /// A channel that was never stressed.
    #[must_use]
    pub const fn new(configured: ChannelSettings) -> Self {
        Self {
            configured,
            depth: configured.thread_depth(),
            job_limit: configured.job_limit(),
            level: 0,
            generation: 0,
            last_change: Duration::ZERO,
            last_heard: None,
            last_indication: None,
            processed_at_change: 0,
        }
    }

    /// Waiting messages per job.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// Jobs at most, at least 1.
    #[must_use]
    pub const fn job_limit(&self) -> u32 {
        self.job_limit
    }

    /// Steps of stress in effect; 0 is as configured.
    #[must_use]
    pub const fn level(&self) -> u32 {
        self.level
    }

    /// Number of changes so far. A job of an older generation leaves after its message.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// What the channel comes back to.
    #[must_use]
    pub const fn configured(&self) -> ChannelSettings {
        self.configured
    }

    /// When depth or limit last changed, or an indication was last heard; zero if never.
    #[must_use]
    pub const fn last_change(&self) -> Duration {
        self.last_change
    }

    /// When the last indication came, ignored or not.
    #[must_use]
    pub const fn last_indication(&self) -> Option<Duration> {
        self.last_indication
    }

    /// Jobs wanted for `backlog` waiting messages: one for each thread depth begun, up to the
    /// limit; 0 only without a backlog.
    #[must_use]
    pub fn wanted(&self, backlog: u64) -> u32 {
        wanted(backlog, self.depth, self.job_limit)
    }

    /// The state after an indication of stress at `now`; `processed` is the channel's count.
    pub(super) fn stress(
        &self,
        policy: &StressPolicy,
        now: Duration,
        processed: u64,
    ) -> (Self, Heard) {
        // A clock that went back: no time has passed.
        let recent = |heard| now.saturating_sub(heard) < policy.blackout;
        if self.last_heard.is_some_and(recent) {
            return (Self { last_indication: self.last_indication.max(Some(now)), ..*self }, {
                Heard::Ignored
            });
        }
        let depth = policy.factor.raise(self.depth);
        let job_limit = self.job_limit.saturating_sub(policy.jobs).max(1);
        let changed = (depth, job_limit) != (self.depth, self.job_limit);
        let heard = Self {
            depth,
            job_limit,
            level: self.level.saturating_add(changed.into()),
            generation: self.generation + u64::from(changed),
            last_change: now,
            last_heard: Some(now),
            last_indication: Some(now),
            processed_at_change: processed,
            configured: self.configured,
        };
        (heard, if changed { Heard::Raised } else { Heard::Held })
    }

    /// The state after `now`, if steps back are due; `processed` is the channel's count.
    pub(super) fn tick(
        &self,
        policy: &StressPolicy,
        now: Duration,
        processed: u64,
    ) -> Option<Self> {
        if self.level == 0 {
            return None;
        }
        let steps = match self.steps_by_time(policy, now) {
            0 if self.step_by_count(policy, now, processed) => 1,
            0 => return None,
            steps => steps,
        };
        let (depth, job_limit) = self.back(policy, steps);
        let back =
            depth == self.configured.thread_depth() && job_limit == self.configured.job_limit();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        let level = if back { 0 } else { self.level.saturating_sub(steps).max(1) };
        Some(Self {
            depth,
            job_limit,
            level,
            generation: self.generation + 1,
            last_change: now,
            processed_at_change: processed,
            ..*self
        })
    }

    /// Whole stresstimes since the last change.
    fn steps_by_time(&self, policy: &StressPolicy, now: Duration) -> u64 {
        if policy.stress_time.is_zero() {
            return 1;
        }
        let steps = now.saturating_sub(self.last_change).as_nanos() / policy.stress_time.as_nanos();
        u64::try_from(steps).unwrap_or(u64::MAX)
    }

    fn step_by_count(&self, policy: &StressPolicy, now: Duration, processed: u64) -> bool {
        // Another thread may have changed the state after `processed` was read: none since then.
        let since = processed.saturating_sub(self.processed_at_change);
        let quiet = |last| now.saturating_sub(last) >= policy.stress_time;
        since >= policy.unstress_count && self.last_indication.is_none_or(quiet)
    }

    /// Depth and limit after `steps` back, never past the configured values.
    fn back(&self, policy: &StressPolicy, steps: u64) -> (u32, u32) {
        let mut depth = self.depth;
        for _ in 0..steps {
            let lower = policy.unstress_factor.lower(depth).max(self.configured.thread_depth());
            if lower == depth {
                // Back, or a factor of 1. Otherwise each step is at least one: the loop ends.
                break;
            }
            depth = lower;
        }
        let jobs = steps.saturating_mul(policy.unstress_jobs.into());
        let limit = u64::from(self.job_limit).saturating_add(jobs);
        let most = self.configured.job_limit();
        (depth, u32::try_from(limit).map_or(most, |limit| limit.min(most)))
    }

    /// This state at another generation, which no test could reach by changes.
    #[cfg(test)]
    pub(super) const fn with_generation(self, generation: u64) -> Self {
        Self { generation, ..self }
    }
}

/// Jobs for `backlog` messages: one for each `depth` begun, up to `limit`.
pub(super) fn wanted(backlog: u64, depth: u32, limit: u32) -> u32 {
    let jobs = backlog.div_ceil(u64::from(depth));
    u32::try_from(jobs).map_or(limit, |jobs| jobs.min(limit))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Heard, ThrottleState};
    use crate::throttle::policy::DEPTH_MOST;
    use crate::throttle::{ChannelSettings, StressPolicy, StressSettings};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn policy(settings: &[(&str, &str)]) -> StressPolicy {
        let mut policy = StressSettings::default();
        for (name, value) in settings {
            assert_eq!(policy.set(name, value), Ok(true), "{name}");
        }
        policy.build().unwrap()
    }

    fn channel(depth: u32, limit: u32) -> ThrottleState {
        ThrottleState::new(ChannelSettings::new(depth, limit).unwrap())
    }

    fn values(state: &ThrottleState) -> (u32, u32, u32, u64) {
        (state.depth(), state.job_limit(), state.level(), state.generation())
    }

    enum Input {
        Stress,
        Tick,
    }
    use Input::{Stress, Tick};

    /// An input at a second with a count of messages; depth, limit, level, generation after it.
    type Step = (Input, u64, u64, (u32, u32, u32, u64));

    #[track_caller]
    fn play(policy: &StressPolicy, mut state: ThrottleState, steps: &[Step]) {
        for (number, (input, second, processed, expected)) in steps.iter().enumerate() {
            state = match input {
                Stress => state.stress(policy, s(*second), *processed).0,
                Tick => state.tick(policy, s(*second), *processed).unwrap_or(state),
            };
            assert_eq!(values(&state), *expected, "step {number} at {second} s");
        }
    }

    #[test]
    fn stress_raises_depth_and_lowers_the_limit_outside_the_blackout() {
        play(
            &policy(&[]),
            channel(10, 7),
            &[
                (Stress, 100, 0, (50, 5, 1, 1)),
                (Stress, 159, 0, (50, 5, 1, 1)),
                (Stress, 160, 0, (250, 3, 2, 2)),
                (Stress, 220, 0, (1250, 1, 3, 3)),
                (Stress, 280, 0, (6250, 1, 4, 4)),
            ],
        );
    }

    #[test]
    fn ignored_indications_do_not_lengthen_the_blackout() {
        play(
            &policy(&[]),
            channel(10, 7),
            &[
                (Stress, 0, 0, (50, 5, 1, 1)),
                (Stress, 30, 0, (50, 5, 1, 1)),
                (Stress, 59, 0, (50, 5, 1, 1)),
                (Stress, 60, 0, (250, 3, 2, 2)),
            ],
        );
    }

    #[test]
    fn without_a_blackout_every_indication_counts() {
        play(
            &policy(&[("stressblackout", "0")]),
            channel(10, 7),
            &[
                (Stress, 5, 0, (50, 5, 1, 1)),
                (Stress, 5, 0, (250, 3, 2, 2)),
                (Stress, 4, 0, (1250, 1, 3, 3)),
            ],
        );
    }

    #[test]
    fn time_since_the_last_change_takes_one_step_back_at_a_time() {
        play(
            &policy(&[]),
            channel(10, 7),
            &[
                (Stress, 0, 0, (50, 5, 1, 1)),
                (Stress, 60, 0, (250, 3, 2, 2)),
                (Tick, 179, 0, (250, 3, 2, 2)),
                (Tick, 180, 0, (50, 5, 1, 3)),
                (Tick, 299, 0, (50, 5, 1, 3)),
                (Tick, 300, 0, (10, 7, 0, 4)),
                (Tick, 9999, 0, (10, 7, 0, 4)),
            ],
        );
    }

    #[test]
    fn a_late_tick_takes_the_steps_that_were_due() {
        play(
            &policy(&[]),
            channel(10, 7),
            &[
                (Stress, 0, 0, (50, 5, 1, 1)),
                (Stress, 60, 0, (250, 3, 2, 2)),
                (Stress, 120, 0, (1250, 1, 3, 3)),
                (Tick, 120 + 240, 0, (50, 5, 1, 4)),
                (Tick, u64::MAX, 0, (10, 7, 0, 5)),
            ],
        );
    }

    #[test]
    fn an_idle_channel_at_the_floor_comes_back_by_time_alone() {
        // Depth 10, factor 3, limit 7, two jobs less each time.
        play(
            &policy(&[("stressfactor", "3")]),
            channel(10, 7),
            &[
                (Stress, 0, 0, (30, 5, 1, 1)),
                (Stress, 60, 0, (90, 3, 2, 2)),
                (Stress, 120, 0, (270, 1, 3, 3)),
                (Tick, 240, 0, (90, 3, 2, 4)),
                (Tick, 360, 0, (30, 5, 1, 5)),
                (Tick, 480, 0, (10, 7, 0, 6)),
            ],
        );
    }

    #[test]
    fn the_count_rule_needs_messages_and_quiet() {
        let settings = [("unstresscount", "100")];
        play(
            &policy(&settings),
            channel(10, 7),
            &[
                (Stress, 0, 0, (50, 5, 1, 1)),
                (Stress, 60, 50, (250, 3, 2, 2)),
                // Messages, but no quiet.
                (Tick, 100, 500, (250, 3, 2, 2)),
                // Ignored, but no quiet from here on.
                (Stress, 110, 500, (250, 3, 2, 2)),
                // By time; a change, but no indication.
                (Tick, 180, 500, (50, 5, 1, 3)),
                // Messages since the change at 180, but not quiet for long enough.
                (Tick, 229, 600, (50, 5, 1, 3)),
                // Quiet since 110, but a message short.
                (Tick, 230, 599, (50, 5, 1, 3)),
                // Both, just.
                (Tick, 230, 600, (10, 7, 0, 4)),
            ],
        );
    }

    #[test]
    fn ignored_indications_hold_off_the_count_rule_but_not_the_time_rule() {
        let policy = policy(&[("stressblackout", "900"), ("unstresscount", "10")]);
        let mut state = channel(10, 7);
        for heard in [0, 900, 1800] {
            state = state.stress(&policy, s(heard), heard).0;
        }
        assert_eq!(values(&state), (1250, 1, 3, 3));
        let mut changes = Vec::new();
        for now in (1800..=2400).step_by(30) {
            let (next, heard) = state.stress(&policy, s(now), now);
            assert_eq!(heard, Heard::Ignored, "{now}");
            state = next;
            if let Some(next) = state.tick(&policy, s(now), now) {
                state = next;
                changes.push((now, state.depth()));
            }
        }
        assert_eq!(changes, [(1920, 250), (2040, 50), (2160, 10)]);
    }

    #[test]
    fn depth_stops_at_the_cap_and_ends_exactly_as_configured() {
        for (factor, depth) in [("3", 10), ("7", 9), ("1.5", 13), ("5", 40), ("134217727", 1)] {
            let policy = policy(&[("stressfactor", factor), ("stressblackout", "0")]);
            let mut state = channel(depth, 70);
            for _ in 0..100 {
                state = state.stress(&policy, s(0), 0).0;
            }
            assert_eq!((state.depth(), state.job_limit()), (DEPTH_MOST, 1), "{factor}");
            let mut now = 0;
            let mut generation = state.generation();
            while state.level() > 0 {
                now += 120;
                state = state.tick(&policy, s(now), 0).unwrap();
                generation += 1;
                assert_eq!(state.generation(), generation);
                assert!(state.depth() >= depth && state.job_limit() <= 70);
            }
            assert_eq!((state.depth(), state.job_limit()), (depth, 70), "{factor}");
        }
    }

    #[test]
    fn at_cap_and_floor_an_indication_is_heard_but_changes_nothing() {
        let policy = policy(&[("stressfactor", "1"), ("stressjobs", "1")]);
        let (state, heard) = channel(10, 2).stress(&policy, s(0), 0);
        assert_eq!((heard, values(&state)), (Heard::Raised, (10, 1, 1, 1)));
        let (state, heard) = state.stress(&policy, s(60), 0);
        assert_eq!((heard, values(&state)), (Heard::Held, (10, 1, 1, 1)));
        // It puts the way back off: 120 s from 60 on.
        assert_eq!(state.tick(&policy, s(179), 0), None);
        assert!(state.tick(&policy, s(180), 0).is_some());
        assert_eq!(state.stress(&policy, s(119), 0).1, Heard::Ignored);
    }

    #[test]
    fn a_limit_lowered_past_the_floor_is_one() {
        let (state, _) = channel(10, 2).stress(&policy(&[("stressjobs", "5")]), s(0), 0);
        assert_eq!(state.job_limit(), 1);
    }

    #[test]
    fn a_clock_that_goes_back_counts_as_one_that_stood_still() {
        let policy = policy(&[]);
        let changed = channel(10, 7).stress(&policy, s(1000), 0).0;
        let (state, heard) = changed.stress(&policy, s(400), 0);
        assert_eq!((heard, state), (Heard::Ignored, changed));
        assert_eq!(state.tick(&policy, s(400), u64::MAX), None);
        let (state, heard) = state.stress(&policy, Duration::from_millis(999_999), 0);
        assert_eq!((heard, state), (Heard::Ignored, changed));
        let state = state.tick(&policy, Duration::MAX, 0).unwrap();
        assert_eq!(values(&state), (10, 7, 0, 2));
        let (state, heard) = state.stress(&policy, s(0), 0);
        assert_eq!((heard, values(&state)), (Heard::Ignored, (10, 7, 0, 2)));
        let (state, heard) = state.stress(&policy, s(1061), 0);
        assert_eq!((heard, values(&state)), (Heard::Raised, (50, 5, 1, 3)));
        assert_eq!(state.tick(&policy, s(1180), 0), None);
        assert_eq!(values(&state.tick(&policy, s(1181), 0).unwrap()), (10, 7, 0, 4));
    }

    #[test]
    fn extreme_settings_neither_overflow_nor_freeze() {
        for time in ["0", "2147483648", "9223372036854775808"] {
            let policy = policy(&[("stressblackout", time), ("stresstime", time)]);
            let mut state = channel(DEPTH_MOST, u32::MAX);
            for now in [Duration::ZERO, s(1 << 62), Duration::MAX] {
                state = state.stress(&policy, now, u64::MAX).0;
                state = state.tick(&policy, now, 0).unwrap_or(state);
            }
            assert!(state.job_limit() >= u32::MAX - 6);
        }
    }

    #[test]
    fn wanted_jobs_follow_the_backlog_up_to_the_limit() {
        let state = channel(10, 7);
        for (backlog, jobs) in
            [(0, 0), (1, 1), (10, 1), (11, 2), (70, 7), (71, 7), (1 << 63, 7), (u64::MAX, 7)]
        {
            assert_eq!(state.wanted(backlog), jobs, "{backlog}");
        }
        assert_eq!(channel(1, u32::MAX).wanted(u64::MAX), u32::MAX);
        assert_eq!(channel(DEPTH_MOST, 1).wanted(1), 1);
    }

    #[test]
    fn different_steps_back_keep_the_level_true() {
        let policy = policy(&[("unstressfactor", "25"), ("unstressjobs", "1")]);
        play(
            &policy,
            channel(10, 7),
            &[
                (Stress, 0, 0, (50, 5, 1, 1)),
                (Stress, 60, 0, (250, 3, 2, 2)),
                (Tick, 180, 0, (10, 4, 1, 3)),
                (Tick, 300, 0, (10, 5, 1, 4)),
                (Tick, 420, 0, (10, 6, 1, 5)),
                (Tick, 540, 0, (10, 7, 0, 6)),
            ],
        );
    }
}
