//! The rules of throttling: settings, defaults, ranges.

use std::time::Duration;

use crate::setting::{SettingError, in_range, number};
use crate::throttle::Factor;

/// The highest thread depth there is.
///
/// # Source
/// The job controller of Oracle Messaging Server: depth never goes over 134,217,727.
pub(super) const DEPTH_MOST: u32 = 134_217_727;

/// How one channel is configured: how hard it presses when nothing is wrong.
///
/// Shape: thread depth in messages per job (1 … 134 217 727), job limit in jobs (1 … 2³² − 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelSettings {
    thread_depth: u32,
    job_limit: u32,
}

impl ChannelSettings {
    /// A channel with one job per `thread_depth` waiting messages, at most `job_limit` jobs.
    ///
    /// # Errors
    /// [`SettingError`] for `threaddepth` or `job_limit` outside their ranges.
    pub fn new(thread_depth: u32, job_limit: u32) -> Result<Self, SettingError> {
        in_range("threaddepth", thread_depth, 1, DEPTH_MOST)?;
        in_range("job_limit", job_limit, 1, u32::MAX)?;
        Ok(Self { thread_depth, job_limit })
    }

    /// The same from text.
    ///
    /// # Errors
    /// [`SettingError`] for `threaddepth` or `job_limit` that is no number or outside its range.
    pub fn parse(thread_depth: &str, job_limit: &str) -> Result<Self, SettingError> {
        Self::new(
            number("threaddepth", thread_depth, 1, DEPTH_MOST)?,
            number("job_limit", job_limit, 1, u32::MAX)?,
        )
    }

    /// Waiting messages per job.
    #[must_use]
    pub const fn thread_depth(&self) -> u32 {
        self.thread_depth
    }

    /// Jobs at most.
    #[must_use]
    pub const fn job_limit(&self) -> u32 {
        self.job_limit
    }
}

/// What stress does to a channel, and what brings it back. Made by [`StressSettings::build`].
///
/// Shape: seven checked numbers; plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StressPolicy {
    pub(super) blackout: Duration,
    pub(super) stress_time: Duration,
    pub(super) factor: Factor,
    pub(super) jobs: u32,
    pub(super) unstress_factor: Factor,
    pub(super) unstress_jobs: u32,
    pub(super) unstress_count: u64,
}

impl Default for StressPolicy {
    fn default() -> Self {
        StressSettings::default().resolve()
    }
}

/// The settings of a [`StressPolicy`], by setter or by name.
///
/// | Name (`job_controller.` may be left out) | Default | Range |
/// | --- | --- | --- |
/// | `job_controller.stressblackout` | 60 s | 0 … 2⁶⁴ − 1; 0: every indication counts |
/// | `job_controller.stresstime` | 120 s | 0 … 2⁶⁴ − 1; 0: each tick is a step back |
/// | `job_controller.stressfactor` | 5 | 1 … 134 217 727, up to three decimals |
/// | `job_controller.stressjobs` | 2 jobs | 0 … 2³² − 1; also `stressjob` |
/// | `job_controller.unstressfactor` | `stressfactor` | as `stressfactor`; over 1 if that is |
/// | `job_controller.unstressjobs` | `stressjobs` | as `stressjobs`; over 0 if that is |
/// | `job_controller.unstresscount` | 10 000 messages | 0 … 2⁶⁴ − 1 |
///
/// The two `unstress` values may not be without effect where their counterparts have one: a
/// channel that was throttled would never come back.
///
/// # Source
/// The job controller of Oracle Messaging Server. Its text says `stressjob` once and `stressjobs`
/// in the list of defaults; both are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StressSettings {
    blackout: Duration,
    stress_time: Duration,
    factor: Factor,
    jobs: u32,
    unstress_factor: Option<Factor>,
    unstress_jobs: Option<u32>,
    unstress_count: u64,
}

impl Default for StressSettings {
    fn default() -> Self {
        Self {
            blackout: Duration::from_secs(60),
            stress_time: Duration::from_secs(120),
            factor: Factor::whole(5),
            jobs: 2,
            unstress_factor: None,
            unstress_jobs: None,
            unstress_count: 10_000,
        }
    }
}

impl StressSettings {
    /// How long after an indication that counted further ones are ignored. Default 60 s.
    pub const fn blackout(&mut self, blackout: Duration) -> &mut Self {
        self.blackout = blackout;
        self
    }

    /// How long after a change the channel takes a step back. Default 120 s.
    pub const fn stress_time(&mut self, stress_time: Duration) -> &mut Self {
        self.stress_time = stress_time;
        self
    }

    /// What an indication multiplies the thread depth by. Default 5.
    pub const fn factor(&mut self, factor: Factor) -> &mut Self {
        self.factor = factor;
        self
    }

    /// Jobs that an indication takes off the limit. Default 2.
    pub const fn jobs(&mut self, jobs: u32) -> &mut Self {
        self.jobs = jobs;
        self
    }

    /// What a step back divides the thread depth by. Default: [`factor`](Self::factor).
    pub const fn unstress_factor(&mut self, factor: Factor) -> &mut Self {
        self.unstress_factor = Some(factor);
        self
    }

    /// Jobs that a step back adds to the limit. Default: [`jobs`](Self::jobs).
    pub const fn unstress_jobs(&mut self, jobs: u32) -> &mut Self {
        self.unstress_jobs = Some(jobs);
        self
    }

    /// Messages since the last change that, with [`stress_time`](Self::stress_time) without any
    /// indication, bring a step back as well. Default 10 000.
    pub const fn unstress_count(&mut self, messages: u64) -> &mut Self {
        self.unstress_count = messages;
        self
    }

    /// Sets one setting from text, times in whole seconds. `Ok(false)` means that the name is none
    /// of these. The two factors of the way back take the word `stressfactor`, `stressjobs` too.
    ///
    /// # Errors
    /// [`SettingError`] if the value is outside the setting's range; nothing is changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, SettingError> {
        match name.strip_prefix(PREFIX).unwrap_or(name) {
            "stressblackout" => self.blackout = seconds(BLACKOUT, value)?,
            "stresstime" => self.stress_time = seconds(STRESS_TIME, value)?,
            "stressfactor" => self.factor = factor(FACTOR, value)?,
            "stressjobs" | "stressjob" => self.jobs = number(JOBS, value, 0, u32::MAX)?,
            "unstressfactor" => {
                self.unstress_factor =
                    or_word(value, "stressfactor", |value| factor(UNSTRESS_FACTOR, value))?;
            }
            "unstressjobs" | "unstressjob" => {
                self.unstress_jobs = or_word(value, "stressjobs", |value| {
                    number(UNSTRESS_JOBS, value, 0, u32::MAX)
                })?;
            }
            "unstresscount" => self.unstress_count = number(UNSTRESS_COUNT, value, 0, u64::MAX)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// [`SettingError`] if a step back would have no effect where stress has one.
    pub fn build(&self) -> Result<StressPolicy, SettingError> {
        let policy = self.resolve();
        if policy.factor > Factor::ONE && policy.unstress_factor == Factor::ONE {
            let allowed = "over 1 to 134217727, because stressfactor is over 1";
            return Err(SettingError::new(UNSTRESS_FACTOR, policy.unstress_factor, allowed));
        }
        if policy.jobs > 0 && policy.unstress_jobs == 0 {
            let allowed = "1 to 4294967295, because stressjobs is not 0";
            return Err(SettingError::new(UNSTRESS_JOBS, 0, allowed));
        }
        Ok(policy)
    }

    fn resolve(&self) -> StressPolicy {
        StressPolicy {
            blackout: self.blackout,
            stress_time: self.stress_time,
            factor: self.factor,
            jobs: self.jobs,
            unstress_factor: self.unstress_factor.unwrap_or(self.factor),
            unstress_jobs: self.unstress_jobs.unwrap_or(self.jobs),
            unstress_count: self.unstress_count,
        }
    }
}

fn seconds(setting: &'static str, value: &str) -> Result<Duration, SettingError> {
    number(setting, value, 0, u64::MAX).map(Duration::from_secs)
}

fn factor(setting: &'static str, value: &str) -> Result<Factor, SettingError> {
    value.parse().map_err(|_| SettingError::new(setting, value, Factor::ALLOWED))
}

fn or_word<T>(
    value: &str,
    word: &str,
    parse: impl Fn(&str) -> Result<T, SettingError>,
) -> Result<Option<T>, SettingError> {
    if value.trim() == word { Ok(None) } else { parse(value).map(Some) }
}

const PREFIX: &str = "job_controller.";
const BLACKOUT: &str = "job_controller.stressblackout";
const STRESS_TIME: &str = "job_controller.stresstime";
const FACTOR: &str = "job_controller.stressfactor";
const JOBS: &str = "job_controller.stressjobs";
const UNSTRESS_FACTOR: &str = "job_controller.unstressfactor";
const UNSTRESS_JOBS: &str = "job_controller.unstressjobs";
const UNSTRESS_COUNT: &str = "job_controller.unstresscount";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ChannelSettings, DEPTH_MOST, Factor, StressPolicy, StressSettings};

    #[test]
    fn defaults_are_the_documented_ones() {
        let policy = StressPolicy::default();
        assert_eq!(policy.blackout, Duration::from_secs(60));
        assert_eq!(policy.stress_time, Duration::from_secs(120));
        assert_eq!((policy.factor, policy.unstress_factor), (Factor::whole(5), Factor::whole(5)));
        assert_eq!((policy.jobs, policy.unstress_jobs), (2, 2));
        assert_eq!(policy.unstress_count, 10_000);
    }

    #[test]
    fn the_way_back_follows_the_way_there_unless_it_is_set() {
        let mut settings = StressSettings::default();
        assert_eq!(settings.set("job_controller.stressfactor", "3"), Ok(true));
        assert_eq!(settings.set("stressjob", "4"), Ok(true));
        let policy = settings.build().unwrap();
        assert_eq!((policy.unstress_factor, policy.unstress_jobs), (Factor::whole(3), 4));
        for (name, value) in [("unstressfactor", "2.5"), ("unstressjobs", "1")] {
            assert_eq!(settings.set(name, value), Ok(true));
        }
        let policy = settings.build().unwrap();
        assert_eq!(policy.unstress_factor.to_string(), "2.5");
        assert_eq!(policy.unstress_jobs, 1);
        for (name, value) in [("unstressfactor", "stressfactor"), ("unstressjobs", "stressjobs")] {
            assert_eq!(settings.set(name, value), Ok(true));
        }
        assert_eq!(settings.build().unwrap().unstress_factor, Factor::whole(3));
    }

    #[test]
    fn a_refusal_names_setting_value_and_range_and_changes_nothing() {
        let mut settings = StressSettings::default();
        for (name, value, allowed) in [
            ("stressfactor", "0", Factor::ALLOWED),
            ("stressfactor", "0.5", Factor::ALLOWED),
            ("stressfactor", "-1", Factor::ALLOWED),
            ("unstressfactor", "NaN", Factor::ALLOWED),
            ("stressjobs", "-1", "0 to 4294967295"),
            ("stressjobs", "9223372036854775808", "0 to 4294967295"),
            ("unstressjobs", "1.5", "0 to 4294967295"),
            ("stressblackout", "-1", "0 to 18446744073709551615"),
            ("stresstime", "soon", "0 to 18446744073709551615"),
            ("unstresscount", "", "0 to 18446744073709551615"),
        ] {
            let error = settings.set(name, value).unwrap_err();
            assert_eq!(error.setting(), format!("job_controller.{name}"));
            assert_eq!((error.value(), error.allowed()), (value, allowed));
        }
        assert_eq!(settings, StressSettings::default());
        assert_eq!(settings.set("job_controller.stressed", "1"), Ok(false));
    }

    #[test]
    fn times_from_zero_to_the_largest_number_of_seconds_are_taken() {
        for value in ["0", "1", "2147483648", "9223372036854775808", "18446744073709551615"] {
            let mut settings = StressSettings::default();
            for name in ["stressblackout", "stresstime", "unstresscount"] {
                assert_eq!(settings.set(name, value), Ok(true));
            }
            assert!(settings.build().is_ok());
        }
    }

    #[test]
    fn a_way_back_that_leads_nowhere_is_refused() {
        for (name, value) in [("unstressfactor", "1"), ("unstressjobs", "0")] {
            let mut settings = StressSettings::default();
            assert_eq!(settings.set(name, value), Ok(true));
            let error = settings.build().unwrap_err();
            assert_eq!(error.setting(), format!("job_controller.{name}"));
            assert_eq!(error.value(), value);
        }
        let mut idle = StressSettings::default();
        idle.factor(Factor::ONE).jobs(0);
        assert!(idle.build().is_ok());
    }

    #[test]
    fn a_channel_takes_depth_and_limit_within_their_bounds() {
        for (depth, limit, good) in [
            (0, 1, false),
            (1, 0, false),
            (1, 1, true),
            (DEPTH_MOST, u32::MAX, true),
            (DEPTH_MOST + 1, 1, false),
        ] {
            assert_eq!(ChannelSettings::new(depth, limit).is_ok(), good, "{depth} {limit}");
        }
        let error = ChannelSettings::parse("0", "7").unwrap_err();
        assert_eq!(error.setting(), "threaddepth");
        assert_eq!((error.value(), error.allowed()), ("0", "1 to 134217727"));
        assert_eq!(ChannelSettings::parse("10", "4294967296").unwrap_err().setting(), "job_limit");
        assert_eq!(ChannelSettings::parse("10", "7"), ChannelSettings::new(10, 7));
    }
}
