//! What a pool reports to its observer.

use std::time::Duration;

use crate::sync::Plain;

/// The callback that gets a pool's events.
pub(crate) type Observer = Plain<dyn Fn(&PoolEvent) + Send + Sync>;

/// Something a pool's owner wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolEvent {
    /// An operation took longer than the long-running mark.
    LongOperation(LongOperation),
    /// A connection broke or was condemned and left the pool.
    #[non_exhaustive]
    Broken {
        /// Place in the pool, from 0; `None` for a session's own connection.
        connection: Option<usize>,
        /// Sessions that held it and are told on their next operation.
        sessions: usize,
    },
}

/// An operation over the long-running mark.
///
/// # Source
/// Siebel shared connection pooling: a long operation on a shared connection blocks the other
/// sessions on it, so it is what the ratio of sessions to connections depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LongOperation {
    /// Place of the connection in the pool, from 0; `None` for a session's own connection.
    pub connection: Option<usize>,
    /// How long the operation had the connection.
    pub service: Duration,
    /// Operations of other sessions that stood behind it when it ended, those that had given up
    /// waiting included.
    pub held_up: usize,
}
