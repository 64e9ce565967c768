//! Settings of a pool: what sharing is allowed, and how long anybody waits.
//!
//! # Source
//! Siebel shared connection pooling, `MaxSharedDbConns` and `MinSharedDbConns`: both positive and
//! the minimum not over the maximum, or both −1 (the default, no sharing); the maximum at most
//! one less than the tasks of the component.

use std::fmt;
use std::time::Duration;

use crate::pool::event::{Observer, PoolEvent};
use crate::setting::{SettingError, in_range, number};
use crate::sync::Plain;

/// Most connections one pool can have: each is scanned when a session comes.
pub const MAX_SHARED_LIMIT: i64 = 4_096;

/// Most operations that may wait for their turn on one connection.
pub const WAITERS_LIMIT: usize = 1 << 20;

/// The value of `max_shared` and `min_shared` that turns sharing off.
const NO_SHARING: i64 = -1;

const MAX_SHARED: &str = "max_shared (MaxSharedDbConns)";
const MIN_SHARED: &str = "min_shared (MinSharedDbConns)";
const MAX_TASKS: &str = "max_tasks (MaxTasks)";
const KNOWN: &str = "nothing: a pool has no such setting, but max_shared (MaxSharedDbConns), \
                     min_shared (MinSharedDbConns), max_tasks (MaxTasks), long_running, \
                     wait_timeout and waiters_max";

const LONG_RUNNING: Duration = Duration::from_secs(3);
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
const WAITERS_MAX: usize = 65_536;

/// Checked settings of a [`SharedPool`](crate::pool::SharedPool).
#[derive(Clone)]
pub struct PoolSettings {
    pub(crate) sharing: Sharing,
    pub(crate) long_running: Duration,
    pub(crate) wait_timeout: Duration,
    pub(crate) waiters_max: usize,
    pub(crate) observer: Option<Observer>,
}

/// Whether sessions share connections, and within which limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// Each session has a connection of its own, opened and closed with it.
    Off,
    /// Sessions share.
    #[non_exhaustive]
    Pooled {
        /// Most connections, 1 to [`MAX_SHARED_LIMIT`].
        max: usize,
        /// Connections that stay when sessions end, 1 to `max`.
        min: usize,
    },
}

impl PoolSettings {
    /// Starts from the defaults: no sharing, operations over 3 s reported, waits of at most 30 s,
    /// 65,536 waiting operations per connection.
    pub fn builder() -> PoolSettingsBuilder {
        PoolSettingsBuilder {
            max_shared: NO_SHARING,
            min_shared: NO_SHARING,
            max_tasks: None,
            long_running: LONG_RUNNING,
            wait_timeout: WAIT_TIMEOUT,
            waiters_max: WAITERS_MAX,
            observer: None,
        }
    }

    /// Whether sessions share, and within which limits.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.sharing
    }
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            sharing: Sharing::Off,
            long_running: LONG_RUNNING,
            wait_timeout: WAIT_TIMEOUT,
            waiters_max: WAITERS_MAX,
            observer: None,
        }
    }
}

impl fmt::Debug for PoolSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sharing, long_running, wait_timeout, waiters_max, observer } = self;
        f.debug_struct("PoolSettings")
            .field("sharing", sharing)
            .field("long_running", long_running)
            .field("wait_timeout", wait_timeout)
            .field("waiters_max", waiters_max)
            .field("observer", &observer.is_some())
            .finish()
    }
}

/// Collects settings and checks them together.
#[derive(Clone)]
#[must_use = "settings take effect when they are built"]
pub struct PoolSettingsBuilder {
    max_shared: i64,
    min_shared: i64,
    max_tasks: Option<i64>,
    long_running: Duration,
    wait_timeout: Duration,
    waiters_max: usize,
    observer: Option<Observer>,
}

impl PoolSettingsBuilder {
    /// Most shared connections of this process.
    ///
    /// Default −1 (no sharing); range 1 to [`MAX_SHARED_LIMIT`], and at most `max_tasks − 1` if
    /// that is given. A session that finds them all busy shares one.
    pub fn max_shared(&mut self, connections: i64) -> &mut Self {
        self.max_shared = connections;
        self
    }

    /// Shared connections that stay open when their sessions end.
    ///
    /// Default −1 (no sharing); range 1 to `max_shared`.
    pub fn min_shared(&mut self, connections: i64) -> &mut Self {
        self.min_shared = connections;
        self
    }

    /// Tasks (sessions at a time) of the component, if they are known: then `max_shared` must be
    /// less, since more connections than sessions that could use them is a mistake.
    pub fn max_tasks(&mut self, tasks: i64) -> &mut Self {
        self.max_tasks = Some(tasks);
        self
    }

    /// Duration over which an operation is reported with the sessions it held up.
    ///
    /// Default 3 s; any value.
    pub fn long_running(&mut self, mark: Duration) -> &mut Self {
        self.long_running = mark;
        self
    }

    /// Longest wait of the blocking calls that are given no deadline: for a connection, and for a
    /// turn on it.
    ///
    /// Default 30 s; more than zero.
    pub fn wait_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.wait_timeout = timeout;
        self
    }

    /// Most operations that wait for their turn on one connection; more are refused at once.
    ///
    /// Default 65,536; range 1 to [`WAITERS_LIMIT`]. An operation that gave up counts until its
    /// place in the queue comes.
    pub fn waiters_max(&mut self, waiters: usize) -> &mut Self {
        self.waiters_max = waiters;
        self
    }

    /// Called with what the pool reports, on the thread where it happened, outside any critical
    /// section. It must not block: the session waits for it.
    pub fn observer(&mut self, observe: impl Fn(&PoolEvent) + Send + Sync + 'static) -> &mut Self {
        self.observer = Some(Plain::new(observe));
        self
    }

    /// Sets one setting from text, by either of its names; `false` if there is none of that name.
    ///
    /// Names: `max_shared` or `MaxSharedDbConns`, `min_shared` or `MinSharedDbConns`, `max_tasks`
    /// or `MaxTasks`, `long_running` and `wait_timeout` (milliseconds), `waiters_max`.
    ///
    /// # Errors
    /// [`SettingError`] if the value is no number or can never be allowed; nothing is set then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, SettingError> {
        match name {
            "max_shared" | "MaxSharedDbConns" => {
                self.max_shared = number(MAX_SHARED, value, i64::MIN, i64::MAX)?;
            }
            "min_shared" | "MinSharedDbConns" => {
                self.min_shared = number(MIN_SHARED, value, i64::MIN, i64::MAX)?;
            }
            "max_tasks" | "MaxTasks" => {
                self.max_tasks = Some(number(MAX_TASKS, value, 1, i64::MAX)?);
            }
            "long_running" => self.long_running = millis("long_running", value, 0)?,
            "wait_timeout" => self.wait_timeout = millis("wait_timeout", value, 1)?,
            "waiters_max" => {
                let limit = u32::try_from(WAITERS_LIMIT).unwrap_or(u32::MAX);
                let waiters: u32 = number("waiters_max", value, 1, limit)?;
                self.waiters_max = usize::try_from(waiters).unwrap_or(WAITERS_LIMIT);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets what a map of strings names, each as [`set`](Self::set) does.
    ///
    /// # Errors
    /// [`SettingError`] as for `set`, and for a name that is no setting of a pool.
    pub fn set_all<'a>(
        &mut self,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<&mut Self, SettingError> {
        for (name, value) in pairs {
            if !self.set(name, value)? {
                return Err(SettingError::new(name.to_owned(), value, KNOWN));
            }
        }
        Ok(self)
    }

    /// Checks the settings together.
    ///
    /// # Errors
    /// [`SettingError`] with setting, value and allowed range; both names if `max_shared` and
    /// `min_shared` do not go together.
    pub fn build(&self) -> Result<PoolSettings, SettingError> {
        let sharing = check_sharing(self.max_shared, self.min_shared, self.max_tasks)?;
        if self.wait_timeout.is_zero() {
            return Err(SettingError::new("wait_timeout", "0", "more than 0 milliseconds"));
        }
        in_range("waiters_max", self.waiters_max, 1, WAITERS_LIMIT)?;
        Ok(PoolSettings {
            sharing,
            long_running: self.long_running,
            wait_timeout: self.wait_timeout,
            waiters_max: self.waiters_max,
            observer: self.observer.clone(),
        })
    }
}

impl fmt::Debug for PoolSettingsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            max_shared,
            min_shared,
            max_tasks,
            long_running,
            wait_timeout,
            waiters_max,
            observer,
        } = self;
        f.debug_struct("PoolSettingsBuilder")
            .field("max_shared", max_shared)
            .field("min_shared", min_shared)
            .field("max_tasks", max_tasks)
            .field("long_running", long_running)
            .field("wait_timeout", wait_timeout)
            .field("waiters_max", waiters_max)
            .field("observer", &observer.is_some())
            .finish()
    }
}

/// Checks the limits of sharing, and against the tasks if they are known.
pub(crate) fn check_sharing(
    max_shared: i64,
    min_shared: i64,
    max_tasks: Option<i64>,
) -> Result<Sharing, SettingError> {
    if let Some(tasks) = max_tasks {
        in_range(MAX_TASKS, tasks, 1, i64::MAX)?;
    }
    if max_shared == NO_SHARING && min_shared == NO_SHARING {
        return Ok(Sharing::Off);
    }
    let max_allowed = max_tasks.map_or(MAX_SHARED_LIMIT, |tasks| MAX_SHARED_LIMIT.min(tasks - 1));
    let refused = || {
        SettingError::new(
            format!("{MAX_SHARED} and {MIN_SHARED}"),
            format!("{max_shared} and {min_shared}"),
            format!(
                "1 to {max_allowed} for max_shared with 1 to max_shared for min_shared, or -1 for \
                 both to give each session a connection of its own"
            ),
        )
    };
    if max_shared > max_allowed || min_shared > max_shared || min_shared < 1 {
        return Err(refused());
    }
    match (usize::try_from(max_shared), usize::try_from(min_shared)) {
        (Ok(max), Ok(min)) => Ok(Sharing::Pooled { max, min }),
        _ => Err(refused()),
    }
}

fn millis(setting: &'static str, value: &str, least: u64) -> Result<Duration, SettingError> {
    number(setting, value, least, u64::MAX).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::{MAX_SHARED_LIMIT, PoolSettings, Sharing, WAITERS_LIMIT, check_sharing};
    use crate::setting::SettingError;
    use std::time::Duration;

    fn shared(max: i64, min: i64) -> Result<Sharing, SettingError> {
        check_sharing(max, min, None)
    }

    #[test]
    fn sharing_is_off_by_default_and_with_both_at_minus_one() {
        assert_eq!(PoolSettings::builder().build().unwrap().sharing(), Sharing::Off);
        assert_eq!(PoolSettings::default().sharing(), Sharing::Off);
        assert_eq!(shared(-1, -1), Ok(Sharing::Off));
        assert_eq!(check_sharing(-1, -1, Some(500)), Ok(Sharing::Off));
    }

    #[test]
    fn both_positive_and_ordered_enables_sharing() {
        assert_eq!(shared(50, 50), Ok(Sharing::Pooled { max: 50, min: 50 }));
        assert_eq!(shared(1, 1), Ok(Sharing::Pooled { max: 1, min: 1 }));
        assert_eq!(shared(MAX_SHARED_LIMIT, 1), Ok(Sharing::Pooled { max: 4096, min: 1 }));
        assert!(shared(MAX_SHARED_LIMIT + 1, 1).is_err());
    }

    #[test]
    fn any_other_pair_is_refused_with_both_names_values_and_the_range() {
        for (max, min) in
            [(0, 0), (0, -1), (-2, -2), (-2, -1), (-1, 1), (10, -1), (10, 0), (10, 11), (5, -2)]
        {
            let error = shared(max, min).unwrap_err();
            let text = error.to_string();
            for part in [
                "max_shared",
                "min_shared",
                "MaxSharedDbConns",
                "MinSharedDbConns",
                &max.to_string(),
                &min.to_string(),
                "1 to 4096",
                "-1 for both",
            ] {
                assert!(text.contains(part), "{part:?} is missing in {text:?}");
            }
        }
    }

    #[test]
    fn known_tasks_bound_the_maximum_at_one_less() {
        assert!(check_sharing(499, 1, Some(500)).is_ok());
        let error = check_sharing(500, 1, Some(500)).unwrap_err();
        assert!(error.to_string().contains("1 to 499"), "{error}");
        assert!(check_sharing(1, 1, Some(1)).is_err());
        assert!(check_sharing(1, 1, Some(0)).unwrap_err().to_string().contains("max_tasks"));
    }

    #[test]
    fn strings_take_the_old_names_and_the_new() {
        let mut old = PoolSettings::builder();
        old.set_all([("MaxSharedDbConns", "50"), ("MinSharedDbConns", " 5 "), ("MaxTasks", "500")])
            .unwrap();
        assert_eq!(old.build().unwrap().sharing(), Sharing::Pooled { max: 50, min: 5 });
        let mut new = PoolSettings::builder();
        new.set_all([
            ("max_shared", "7"),
            ("min_shared", "7"),
            ("long_running", "250"),
            ("wait_timeout", "1000"),
            ("waiters_max", "9"),
        ])
        .unwrap();
        let new = new.build().unwrap();
        assert_eq!(new.sharing(), Sharing::Pooled { max: 7, min: 7 });
        assert_eq!(new.long_running, Duration::from_millis(250));
        assert_eq!(new.wait_timeout, Duration::from_secs(1));
        assert_eq!(new.waiters_max, 9);
    }

    #[test]
    fn strings_that_make_no_sense_are_named() {
        let refuse = |name: &str, value: &str| {
            PoolSettings::builder().set_all([(name, value)]).unwrap_err().to_string()
        };
        let unknown = refuse("MaxDbConns", "1");
        assert!(unknown.contains("MaxDbConns") && unknown.contains("MaxSharedDbConns"));
        assert!(refuse("max_shared", "ten").contains("\"ten\""));
        assert!(refuse("MaxTasks", "0").contains("max_tasks"));
        assert!(refuse("wait_timeout", "-5").contains("-5"));
        assert!(refuse("wait_timeout", "0").contains("it takes 1 to"));
        assert!(refuse("waiters_max", "0").contains("1 to 1048576"));
        assert_eq!(PoolSettings::builder().set("MaxDbConns", "1"), Ok(false));
    }

    #[test]
    fn waits_and_queues_have_limits() {
        let mut settings = PoolSettings::builder();
        assert!(settings.wait_timeout(Duration::ZERO).build().is_err());
        settings.wait_timeout(Duration::from_millis(1));
        assert!(settings.waiters_max(0).build().is_err());
        assert!(settings.waiters_max(WAITERS_LIMIT + 1).build().is_err());
        assert!(settings.waiters_max(WAITERS_LIMIT).build().is_ok());
    }
}
