//! Throttling: per-channel concurrency that backs off when a store reports stress.
//!
//! A channel is a separately throttled flow of work: its jobs take messages from a backlog and
//! write them to a store. Two numbers say how hard it may press. *Thread depth* is how many
//! waiting messages justify one more job; *job limit* is how many jobs there may be. Stress raises
//! the first and lowers the second, quiet brings both back, never past what was configured.
//!
//! - [`StressMonitor`] watches how long a store's checkpoints take and says stressed or calm.
//! - [`Throttle`] holds the state of one channel: what a job asks before each message is one load.
//! - [`JobController`] keeps the channels by name and says which jobs to start, and which leave.
//! - [`StressPolicy`] and [`ChannelSettings`] are the rules, under their usual names.
//!
//! Time is an argument: how long it is since some fixed start, by a clock that is not set. One
//! that goes backwards all the same counts as one that stood still.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::throttle::{ChannelSettings, StressPolicy, Throttle};
//!
//! let throttle = Throttle::new(StressPolicy::default(), ChannelSettings::new(10, 7)?);
//! assert_eq!(throttle.wanted(1000), 7);
//! throttle.stress(Duration::from_secs(1));
//! // Depth 10 × 5, limit 7 − 2.
//! assert_eq!(throttle.wanted(1000), 5);
//! assert_eq!(throttle.wanted(100), 2);
//! // Two minutes later it is as it was.
//! throttle.tick(Duration::from_secs(121));
//! assert_eq!(throttle.wanted(1000), 7);
//! # Ok::<(), tidegate::SettingError>(())
//! ```
//!
//! # Source
//! The job controller of Oracle Messaging Server, message store throttling.

mod channel;
mod controller;
mod digest;
mod factor;
mod policy;
mod state;
mod stress;

pub use channel::{Admission, Change, Indication, Throttle};
pub use controller::{ChannelError, JobController, JobEvent};
pub use factor::Factor;
pub use policy::{ChannelSettings, StressPolicy, StressSettings};
pub use state::ThrottleState;
pub use stress::{MonitorSettings, StressChange, StressMonitor, StressSignal};
