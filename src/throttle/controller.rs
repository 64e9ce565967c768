//! Which jobs to start and which leave, for every channel. No threads, no clock: the state part
//! of the job controller.
//!
//! ```text
//!            Start                      the channel changed              handle_job_ended
//!  wanted ----------> [running: current] ---------------> [leaving] -----------------> gone
//!                            |                                                           ^
//!                            '---------------- handle_job_ended -------------------------'
//! ```
//!
//! # Invariants
//! - Running and leaving jobs of a channel together are never more than were wanted when the last
//!   of them was started: the new ones take the places of the old as these leave. So stress is
//!   relieved at once, and never doubled by a change.
//! - There is no queue of events: what is due follows from the state, so nothing can pile up.
//!
//! After any input, call [`JobController::poll_event`] until it returns `None`.
//!
//! # Source
//! The job controller of Oracle Messaging Server: after a change all current programs of a channel
//! are asked to leave, and if the queue is not empty an appropriate number is started.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::setting::SettingError;
use crate::sync::Arc;
use crate::throttle::{ChannelSettings, Indication, StressPolicy, Throttle, ThrottleState};

/// Keeps the channels by name and decides about their jobs. One owner.
///
/// Shape: up to 4096 channels, each with a [`Throttle`] that jobs share, its backlog in messages,
/// and its jobs, counted as running or leaving.
#[derive(Debug)]
pub struct JobController {
    policy: StressPolicy,
    by_name: BTreeMap<String, usize>,
    channels: Vec<Channel>,
    /// Channels that may have something to tell; each at most once.
    due: VecDeque<usize>,
}

/// Something for whoever owns the controller to do or to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "jobs are counted as started or leaving once the event was handed out"]
pub enum JobEvent {
    /// Start so many jobs, of this generation. They count as running from now on; one that could
    /// not be started is reported by [`JobController::handle_job_ended`].
    Start {
        /// The channel.
        channel: String,
        /// How many, at least 1.
        jobs: u32,
        /// What the jobs pass to [`Throttle::admit`].
        generation: u64,
    },
    /// The channel was throttled, or came a step back. Jobs of older generations leave after their
    /// message (those that ask [`Throttle::admit`] do so by themselves).
    Changed {
        /// The channel.
        channel: String,
        /// Its new state.
        state: ThrottleState,
        /// How many jobs must leave.
        leaving: u32,
    },
}

/// A channel was not added, or there is none of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The name is empty or longer than 255 bytes, or the settings are out of range.
    #[error("the channel was not added")]
    Setting(#[from] SettingError),
    /// There is a channel of that name already; names are unique.
    #[error("channel \"{name}\" exists already, choose another name")]
    Exists {
        /// The name.
        name: String,
    },
    /// There are as many channels as there can be.
    #[error("channel \"{name}\" was not added, there are {limit} already and no more are allowed")]
    TooMany {
        /// The name.
        name: String,
        /// The largest number of channels.
        limit: usize,
    },
    /// There is no channel of that name.
    #[error("there is no channel \"{name}\", add it first")]
    Unknown {
        /// The name.
        name: String,
    },
}

impl JobController {
    /// A controller without channels.
    #[must_use]
    pub const fn new(policy: StressPolicy) -> Self {
        Self { policy, by_name: BTreeMap::new(), channels: Vec::new(), due: VecDeque::new() }
    }

    /// Adds a channel and returns what its jobs share.
    ///
    /// # Errors
    /// [`ChannelError`] if the name is taken, empty or longer than 255 bytes, or there are 4096
    /// channels.
    pub fn add_channel(
        &mut self,
        name: &str,
        settings: ChannelSettings,
    ) -> Result<Arc<Throttle>, ChannelError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(SettingError::new("channel", name, "a name of 1 to 255 bytes").into());
        }
        if self.by_name.contains_key(name) {
            return Err(ChannelError::Exists { name: name.to_owned() });
        }
        if self.channels.len() >= CHANNELS_MAX {
            return Err(ChannelError::TooMany { name: name.to_owned(), limit: CHANNELS_MAX });
        }
        let throttle = Arc::new(Throttle::new(self.policy, settings));
        let channel = Channel {
            name: name.to_owned(),
            throttle: Arc::clone(&throttle),
            backlog: 0,
            generation: 0,
            running: 0,
            leaving: 0,
            due: false,
        };
        self.by_name.insert(name.to_owned(), self.channels.len());
        self.channels.push(channel);
        Ok(throttle)
    }

    /// What the jobs of a channel share, if there is such a channel.
    #[must_use]
    pub fn throttle(&self, name: &str) -> Option<&Arc<Throttle>> {
        self.by_name.get(name).map(|index| &self.channels[*index].throttle)
    }

    /// Names of the channels, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Jobs of a channel: running, and leaving.
    #[must_use]
    pub fn jobs(&self, name: &str) -> Option<(u32, u32)> {
        let channel = &self.channels[*self.by_name.get(name)?];
        Some((channel.running, channel.leaving))
    }

    /// The channel has `backlog` messages waiting.
    ///
    /// # Errors
    /// [`ChannelError::Unknown`].
    pub fn handle_backlog(&mut self, name: &str, backlog: u64) -> Result<(), ChannelError> {
        let index = self.index(name)?;
        self.channels[index].backlog = backlog;
        self.touch(index);
        Ok(())
    }

    /// A job of the channel says at `now` that its store is stressed. Jobs may as well tell the
    /// [`Throttle`] directly; then the next tick finds it.
    ///
    /// # Errors
    /// [`ChannelError::Unknown`].
    pub fn handle_stress(&mut self, name: &str, now: Duration) -> Result<Indication, ChannelError> {
        let index = self.index(name)?;
        let indication = self.channels[index].throttle.stress(now);
        self.touch(index);
        Ok(indication)
    }

    /// A job of the channel, of this generation, has ended or was not started.
    ///
    /// # Errors
    /// [`ChannelError::Unknown`].
    pub fn handle_job_ended(&mut self, name: &str, generation: u64) -> Result<(), ChannelError> {
        let index = self.index(name)?;
        self.channels[index].job_ended(generation);
        self.touch(index);
        Ok(())
    }

    /// Time is `now`: every channel takes the steps back that are due.
    pub fn handle_tick(&mut self, now: Duration) {
        for index in 0..self.channels.len() {
            self.channels[index].throttle.tick(now);
            self.touch(index);
        }
    }

    /// The next thing to do or to tell.
    pub fn poll_event(&mut self) -> Option<JobEvent> {
        while let Some(index) = self.due.front() {
            let channel = &mut self.channels[*index];
            if let Some(event) = channel.event() {
                return Some(event);
            }
            channel.due = false;
            self.due.pop_front();
        }
        None
    }

    fn index(&self, name: &str) -> Result<usize, ChannelError> {
        let unknown = || ChannelError::Unknown { name: name.to_owned() };
        self.by_name.get(name).copied().ok_or_else(unknown)
    }

    fn touch(&mut self, index: usize) {
        let channel = &mut self.channels[index];
        if !channel.due {
            channel.due = true;
            self.due.push_back(index);
        }
    }
}

#[derive(Debug)]
struct Channel {
    name: String,
    throttle: Arc<Throttle>,
    backlog: u64,
    /// The generation that `running` belongs to.
    generation: u64,
    running: u32,
    leaving: u32,
    due: bool,
}

impl Channel {
    fn job_ended(&mut self, generation: u64) {
        let count =
            if generation == self.generation { &mut self.running } else { &mut self.leaving };
        *count = count.saturating_sub(1);
    }

    fn event(&mut self) -> Option<JobEvent> {
        let state = self.throttle.state();
        if state.generation() != self.generation {
            self.generation = state.generation();
            let leaving = std::mem::take(&mut self.running);
            self.leaving = self.leaving.saturating_add(leaving);
            return Some(JobEvent::Changed { channel: self.name.clone(), state, leaving });
        }
        let present = self.running.saturating_add(self.leaving);
        let jobs = state.wanted(self.backlog).saturating_sub(present);
        if jobs == 0 {
            return None;
        }
        self.running += jobs;
        let generation = self.generation;
        Some(JobEvent::Start { channel: self.name.clone(), jobs, generation })
    }
}

const CHANNELS_MAX: usize = 4096;
const NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CHANNELS_MAX, ChannelError, JobController, JobEvent};
    use crate::throttle::{ChannelSettings, Indication, StressPolicy};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn controller() -> JobController {
        let mut controller = JobController::new(StressPolicy::default());
        controller.add_channel("mail", ChannelSettings::new(10, 7).unwrap()).unwrap();
        controller
    }

    /// Events in short: starts as jobs > 0, changes as jobs that leave ≤ 0.
    fn drain(controller: &mut JobController) -> Vec<(i64, u64)> {
        std::iter::from_fn(|| controller.poll_event())
            .map(|event| match event {
                JobEvent::Start { jobs, generation, .. } => (i64::from(jobs), generation),
                JobEvent::Changed { state, leaving, .. } => {
                    (-i64::from(leaving), state.generation())
                }
            })
            .collect()
    }

    #[test]
    fn jobs_follow_the_backlog_up_to_the_limit() {
        let mut controller = controller();
        assert_eq!(drain(&mut controller), []);
        for (backlog, events) in
            [(1, vec![(1, 0)]), (10, vec![]), (11, vec![(1, 0)]), (1000, vec![(5, 0)]), (0, vec![])]
        {
            controller.handle_backlog("mail", backlog).unwrap();
            assert_eq!(drain(&mut controller), events, "{backlog}");
        }
        assert_eq!(controller.jobs("mail"), Some((7, 0)));
    }

    #[test]
    fn a_job_that_ended_is_replaced_while_there_is_a_backlog() {
        let mut controller = controller();
        controller.handle_backlog("mail", 20).unwrap();
        assert_eq!(drain(&mut controller), [(2, 0)]);
        controller.handle_job_ended("mail", 0).unwrap();
        assert_eq!(drain(&mut controller), [(1, 0)]);
        controller.handle_backlog("mail", 0).unwrap();
        controller.handle_job_ended("mail", 0).unwrap();
        controller.handle_job_ended("mail", 0).unwrap();
        assert_eq!(drain(&mut controller), []);
        assert_eq!(controller.jobs("mail"), Some((0, 0)));
    }

    #[test]
    fn after_stress_new_jobs_take_the_places_of_those_that_leave() {
        let mut controller = controller();
        controller.handle_backlog("mail", 1000).unwrap();
        assert_eq!(drain(&mut controller), [(7, 0)]);
        let indication = controller.handle_stress("mail", s(1)).unwrap();
        assert!(matches!(indication, Indication::Raised(_)));
        assert_eq!(drain(&mut controller), [(-7, 1)]);
        assert_eq!(controller.jobs("mail"), Some((0, 7)));
        // Five are wanted now: two places go, the next five are filled one by one.
        let mut started = Vec::new();
        for _ in 0..7 {
            controller.handle_job_ended("mail", 0).unwrap();
            started.extend(drain(&mut controller));
            let (running, leaving) = controller.jobs("mail").unwrap();
            assert!(running + leaving <= 7);
        }
        assert_eq!(started, [(1, 1); 5]);
        assert_eq!(controller.jobs("mail"), Some((5, 0)));
    }

    #[test]
    fn a_tick_brings_the_jobs_back() {
        let mut controller = controller();
        controller.handle_backlog("mail", 1000).unwrap();
        let _indication = controller.handle_stress("mail", s(0)).unwrap();
        assert_eq!(drain(&mut controller), [(0, 1), (5, 1)]);
        controller.handle_tick(s(119));
        assert_eq!(drain(&mut controller), []);
        controller.handle_tick(s(120));
        // Two places are free at once, the others when the five have left.
        assert_eq!(drain(&mut controller), [(-5, 2), (2, 2)]);
    }

    #[test]
    fn stress_that_a_job_told_the_throttle_is_found_by_the_next_tick() {
        let mut controller = controller();
        let throttle = controller.throttle("mail").unwrap().clone();
        assert!(matches!(throttle.stress(s(5)), Indication::Raised(_)));
        controller.handle_tick(s(6));
        assert_eq!(drain(&mut controller), [(0, 1)]);
    }

    #[test]
    fn stress_of_one_channel_leaves_the_others_alone() {
        let mut controller = controller();
        controller.add_channel("news", ChannelSettings::new(1, 2).unwrap()).unwrap();
        controller.handle_backlog("news", 9).unwrap();
        assert_eq!(drain(&mut controller), [(2, 0)]);
        let _indication = controller.handle_stress("mail", s(0)).unwrap();
        assert_eq!(drain(&mut controller), [(0, 1)]);
        assert_eq!(controller.jobs("news"), Some((2, 0)));
        assert_eq!(controller.names().collect::<Vec<_>>(), ["mail", "news"]);
    }

    #[test]
    fn names_are_unique_bounded_and_known() {
        let mut controller = controller();
        let settings = ChannelSettings::new(1, 1).unwrap();
        assert!(matches!(
            controller.add_channel("mail", settings),
            Err(ChannelError::Exists { .. })
        ));
        assert!(matches!(controller.add_channel("", settings), Err(ChannelError::Setting(_))));
        assert!(controller.add_channel(&"n".repeat(255), settings).is_ok());
        let long = controller.add_channel(&"n".repeat(256), settings);
        assert!(matches!(long, Err(ChannelError::Setting(_))));
        let unknown = controller.handle_backlog("nobody", 1).unwrap_err();
        assert_eq!(unknown.to_string(), "there is no channel \"nobody\", add it first");
        for number in 2..CHANNELS_MAX {
            controller.add_channel(&number.to_string(), settings).unwrap();
        }
        let many = controller.add_channel("one more", settings);
        assert!(matches!(many, Err(ChannelError::TooMany { limit: CHANNELS_MAX, .. })));
    }

    #[test]
    fn a_job_that_ends_twice_counts_once() {
        let mut controller = controller();
        controller.handle_job_ended("mail", 0).unwrap();
        controller.handle_job_ended("mail", 9).unwrap();
        assert_eq!(controller.jobs("mail"), Some((0, 0)));
    }
}
