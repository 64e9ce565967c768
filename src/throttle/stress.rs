//! When a store is stressed: the time of its checkpoints.
//!
//! ```text
//!              a checkpoint takes longer than the limit
//!   [calm] ------------------------------------------------> [stressed]
//!     ^                                                          |
//!     '--- so many checkpoints in a row within the calm limit ---'
//! ```
//!
//! One slow checkpoint is enough to be stressed; it takes several quick ones to be calm again, and
//! "quick" means well under the limit, so that a store at the edge does not flicker.
//!
//! # Ordering
//! The signal is relaxed: a hint that carries nothing but itself. A reader that sees it late acts
//! late by as much.
//!
//! # Source
//! Message store throttling of Oracle Messaging Server: transaction checkpoint time is the stress
//! indicator, and over one minute raises an alarm. The way back to calm is not documented there.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::setting::{SettingError, in_range};
use crate::sync::{Arc, AtomicBool, Ordering};

/// Watches the checkpoints of one store. One owner, the thread that makes them.
///
/// Shape: the last 256 durations (a setting), a state, and a signal that other threads read.
pub struct StressMonitor {
    settings: MonitorSettings,
    signal: StressSignal,
    /// Checkpoints in a row within the calm limit, since the store is stressed.
    calm_seen: u32,
    recent: VecDeque<Duration>,
    alarm: Option<Alarm>,
}

type Alarm = Box<dyn FnMut(StressChange) + Send>;

/// Limits of a [`StressMonitor`].
///
/// | Setting | Default | Range |
/// | --- | --- | --- |
/// | `limit` | 60 s | over 0 |
/// | `calm_percent` of the limit | 50 | 1 … 100 |
/// | `calm_count` checkpoints | 3 | 1 … 1000 |
/// | `history` checkpoints | 256 | 1 … 65 536 |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitorSettings {
    limit: Duration,
    calm_percent: u32,
    calm_count: u32,
    history: usize,
}

impl Default for MonitorSettings {
    fn default() -> Self {
        Self { limit: Duration::from_secs(60), calm_percent: 50, calm_count: 3, history: 256 }
    }
}

impl MonitorSettings {
    /// A checkpoint over this makes the store stressed. Default 60 s.
    ///
    /// # Errors
    /// [`SettingError`] if it is zero.
    pub fn limit(&mut self, limit: Duration) -> Result<&mut Self, SettingError> {
        if limit.is_zero() {
            return Err(SettingError::new("checkpoint limit", "0", "a time over 0"));
        }
        self.limit = limit;
        Ok(self)
    }

    /// How quick a checkpoint must be to speak for calm, in percent of the limit. Default 50.
    ///
    /// # Errors
    /// [`SettingError`] if it is not 1 to 100.
    pub fn calm_percent(&mut self, percent: u32) -> Result<&mut Self, SettingError> {
        self.calm_percent = in_range("calm percent", percent, 1, 100)?;
        Ok(self)
    }

    /// How many of them in a row make the store calm again. Default 3.
    ///
    /// # Errors
    /// [`SettingError`] if it is not 1 to 1000.
    pub fn calm_count(&mut self, checkpoints: u32) -> Result<&mut Self, SettingError> {
        self.calm_count = in_range("calm count", checkpoints, 1, 1000)?;
        Ok(self)
    }

    /// How many durations are kept for percentiles. Default 256.
    ///
    /// # Errors
    /// [`SettingError`] if it is not 1 to 65 536.
    pub fn history(&mut self, checkpoints: usize) -> Result<&mut Self, SettingError> {
        self.history = in_range("checkpoint history", checkpoints, 1, 65_536)?;
        Ok(self)
    }

    fn calm_limit(&self) -> Duration {
        // Divided first only where the product does not fit.
        self.limit
            .checked_mul(self.calm_percent)
            .map_or_else(|| self.limit / 100 * self.calm_percent, |product| product / 100)
    }
}

/// The store became stressed, or calm again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StressChange {
    /// A checkpoint took `duration`, over `limit`: raise the alarm.
    Stressed {
        /// How long the checkpoint took, or has taken so far.
        duration: Duration,
        /// What it should have taken at most.
        limit: Duration,
    },
    /// Enough checkpoints in a row were quick: the alarm is over.
    Calm,
}

/// Whether a store is stressed, for any thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StressSignal {
    stressed: Arc<AtomicBool>,
}

impl StressSignal {
    /// Whether the store is stressed now.
    #[must_use]
    pub fn is_stressed(&self) -> bool {
        // Relaxed: a hint, see the file's text.
        self.stressed.load(Ordering::Relaxed)
    }
}

impl StressMonitor {
    /// A monitor of a calm store.
    #[must_use]
    pub fn new(settings: MonitorSettings) -> Self {
        let signal = StressSignal { stressed: Arc::new(AtomicBool::new(false)) };
        Self { settings, signal, calm_seen: 0, recent: VecDeque::new(), alarm: None }
    }

    /// Calls `alarm` with each change, from the thread that observes.
    #[must_use]
    pub fn with_alarm(mut self, alarm: impl FnMut(StressChange) + Send + 'static) -> Self {
        self.alarm = Some(Box::new(alarm));
        self
    }

    /// A checkpoint has ended and took `duration`.
    pub fn observe(&mut self, duration: Duration) -> Option<StressChange> {
        if self.recent.len() == self.settings.history {
            self.recent.pop_front();
        }
        self.recent.push_back(duration);
        if duration > self.settings.limit {
            return self.stressed_by(duration);
        }
        if !self.signal.is_stressed() {
            return None;
        }
        let quick = duration <= self.settings.calm_limit();
        self.calm_seen = if quick { self.calm_seen + 1 } else { 0 };
        if self.calm_seen < self.settings.calm_count {
            return None;
        }
        self.change(false, StressChange::Calm)
    }

    /// A checkpoint has run for `age` and has not ended; one that hangs must not look like calm.
    pub fn observe_running(&mut self, age: Duration) -> Option<StressChange> {
        if age > self.settings.limit { self.stressed_by(age) } else { None }
    }

    /// Whether the store is stressed, for other threads.
    #[must_use]
    pub fn signal(&self) -> StressSignal {
        self.signal.clone()
    }

    /// The duration that `percent` (0 … 100; more counts as 100) of the kept checkpoints did not
    /// exceed, by nearest rank; `None` before the first. Sorts a copy: for reports.
    #[must_use]
    pub fn percentile(&self, percent: u8) -> Option<Duration> {
        let mut sorted: Vec<_> = self.recent.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * usize::from(percent.min(100))).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied()
    }

    fn stressed_by(&mut self, duration: Duration) -> Option<StressChange> {
        self.calm_seen = 0;
        if self.signal.is_stressed() {
            return None;
        }
        self.change(true, StressChange::Stressed { duration, limit: self.settings.limit })
    }

    fn change(&mut self, stressed: bool, change: StressChange) -> Option<StressChange> {
        self.calm_seen = 0;
        // Relaxed: a hint, see the file's text.
        self.signal.stressed.store(stressed, Ordering::Relaxed);
        if let Some(alarm) = &mut self.alarm {
            alarm(change);
        }
        Some(change)
    }
}

impl fmt::Debug for StressMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, signal, calm_seen, recent, alarm } = self;
        f.debug_struct("StressMonitor")
            .field("settings", settings)
            .field("signal", signal)
            .field("calm_seen", calm_seen)
            .field("recent", &recent.len())
            .field("alarm", &alarm.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::{MonitorSettings, StressChange, StressMonitor};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn over_a_minute_is_stressed_and_a_minute_is_not() {
        let mut monitor = StressMonitor::new(MonitorSettings::default());
        let signal = monitor.signal();
        assert_eq!(monitor.observe(s(60)), None);
        assert!(!signal.is_stressed());
        let duration = s(60) + Duration::from_nanos(1);
        let stressed = StressChange::Stressed { duration, limit: s(60) };
        assert_eq!(monitor.observe(duration), Some(stressed));
        assert!(signal.is_stressed());
        assert_eq!(monitor.observe(s(100)), None, "told once");
    }

    #[test]
    fn calm_needs_several_quick_checkpoints_in_a_row() {
        let mut monitor = StressMonitor::new(MonitorSettings::default());
        assert!(monitor.observe(s(61)).is_some());
        for slow in [31, 59, 61] {
            assert_eq!(monitor.observe(s(30)), None);
            assert_eq!(monitor.observe(s(30)), None);
            assert_eq!(monitor.observe(s(slow)), None, "{slow} starts the row again");
        }
        assert_eq!(monitor.observe(s(30)), None);
        assert_eq!(monitor.observe(s(1)), None);
        assert!(monitor.signal().is_stressed());
        assert_eq!(monitor.observe(s(30)), Some(StressChange::Calm));
        assert!(!monitor.signal().is_stressed());
    }

    #[test]
    fn a_checkpoint_that_hangs_is_stress_before_it_ends() {
        let mut monitor = StressMonitor::new(MonitorSettings::default());
        assert_eq!(monitor.observe_running(s(60)), None);
        assert!(monitor.observe_running(s(61)).is_some());
        assert_eq!(monitor.observe_running(s(62)), None);
        assert_eq!(monitor.percentile(100), None, "it has no duration yet");
    }

    #[test]
    fn the_alarm_is_called_with_each_change() {
        let (alarm, changes) = mpsc::channel();
        let mut monitor = StressMonitor::new(MonitorSettings::default())
            .with_alarm(move |change| alarm.send(change).unwrap());
        for duration in [61, 70, 1, 1, 1, 1] {
            let _told_by_the_alarm = monitor.observe(s(duration));
        }
        let stressed = StressChange::Stressed { duration: s(61), limit: s(60) };
        assert_eq!(changes.try_iter().collect::<Vec<_>>(), [stressed, StressChange::Calm]);
    }

    #[test]
    fn percentiles_are_of_the_newest_checkpoints_by_nearest_rank() {
        let mut settings = MonitorSettings::default();
        settings.history(4).unwrap();
        let mut monitor = StressMonitor::new(settings);
        assert_eq!(monitor.percentile(50), None);
        for duration in [50, 4, 2, 3, 1] {
            let _calm = monitor.observe(s(duration));
        }
        for (percent, duration) in [(0, 1), (25, 1), (26, 2), (50, 2), (75, 3), (99, 4), (255, 4)] {
            assert_eq!(monitor.percentile(percent), Some(s(duration)), "{percent}");
        }
    }

    #[test]
    fn settings_outside_their_range_are_refused() {
        let mut settings = MonitorSettings::default();
        assert_eq!(settings.limit(Duration::ZERO).unwrap_err().setting(), "checkpoint limit");
        assert_eq!(settings.calm_percent(101).unwrap_err().allowed(), "1 to 100");
        assert!(settings.calm_percent(0).is_err());
        assert_eq!(settings.calm_count(0).unwrap_err().allowed(), "1 to 1000");
        assert_eq!(settings.history(65_537).unwrap_err().value(), "65537");
        assert_eq!(settings, MonitorSettings::default());
        assert!(settings.limit(Duration::MAX).unwrap().calm_percent(100).is_ok());
        assert_eq!(settings.calm_limit(), Duration::MAX / 100 * 100);
    }
}
