//! Connections that many sessions share, chosen by lowest usage count.
//!
//! A [`SharedPool`] starts empty. A session that comes gets an open connection nobody uses, else a
//! new one while the pool is under its maximum, else the one with the fewest sessions, and keeps
//! it to its end. One operation runs on a connection at a time, in order of arrival; the others
//! wait. With both limits at −1 nothing is shared and each session has a connection of its own.
//!
//! ```
//! use std::convert::Infallible;
//! use std::future::{Ready, ready};
//! use tidegate::pool::{Connector, PoolSettings, SharedPool};
//!
//! #[derive(Debug)]
//! struct Numbers;
//!
//! impl Connector for Numbers {
//!     type Connection = u64;
//!     type Error = Infallible;
//!     type Connecting = Ready<Result<u64, Infallible>>;
//!
//!     fn connect(&self) -> Self::Connecting {
//!         ready(Ok(0))
//!     }
//!
//!     fn close(&self, _connection: u64) {}
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = PoolSettings::builder().max_shared(2).min_shared(1).build()?;
//! let pool = SharedPool::new(Numbers, settings);
//! let mut session = pool.acquire()?;
//! *session.begin()? += 1; // One operation: the turn ends with the statement.
//! assert_eq!(pool.counts().sessions, 1);
//! drop(session);
//! assert_eq!(pool.counts().open, 1); // The minimum stays.
//! pool.shutdown();
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//! Everything waits with a deadline ([`PoolSettingsBuilder::wait_timeout`]); a connection's queue
//! has a maximum ([`PoolSettingsBuilder::waiters_max`]); connections never exceed `max_shared`,
//! and connections that a login opened for its authentication are counted apart.
//!
//! # Where the source contradicts itself
//! The description this follows says in one place that a released connection is closed if there
//! are *at least* `min_shared` connections, and in another that it is closed if there are *more
//! than* `min_shared`. Here it is **more than**: under the first reading the pool would fall under
//! the minimum that it is meant to keep.
//!
//! # Source
//! Siebel shared connection pooling.

mod acquire;
mod clock;
mod connect;
mod error;
mod event;
mod floor;
mod lease;
mod meter;
mod operation;
mod partition;
mod seat;
mod settings;
mod shared;
pub mod sizing;
#[allow(unreachable_pub, dead_code, reason = "shown to models and benches")]
mod slot;
#[allow(unreachable_pub, dead_code, reason = "shown to models and benches")]
mod table;
#[allow(unreachable_pub, dead_code, reason = "shown to models and benches")]
mod turn;

pub use acquire::Acquire;
pub use connect::Connector;
pub use error::{AcquireError, AuthenticateError, OperationError};
pub use event::{LongOperation, PoolEvent};
pub use lease::{BorrowedLease, Lease};
pub use meter::{Percentiles, Timings};
pub use operation::{BeginOperation, Operation};
pub use partition::{Partition, Share};
pub use settings::{MAX_SHARED_LIMIT, PoolSettings, PoolSettingsBuilder, Sharing, WAITERS_LIMIT};
pub use shared::{Authenticated, Counts, SharedPool, ShutdownReport};

/// What models and benches see.
#[cfg(feature = "unstable-internals")]
pub(crate) mod parts {
    pub use super::slot::{Left, Settled, Slot, State, Surplus, Word};
    pub use super::table::{Assigned, Place, Released, Table};
    pub use super::turn::{Granted, TurnQueue, Waiting};
}
