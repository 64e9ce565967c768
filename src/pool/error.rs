//! Errors of a pool, one type per operation.

use std::error::Error;
use std::time::Duration;

use crate::pool::connect::Cause;
use crate::sync::Plain;

/// Why a session got no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError<E: Error + 'static> {
    /// The pool was shut down; nothing will come of trying again.
    #[error("the pool is shut down and takes no new sessions")]
    Shutdown,
    /// A connection could not be opened. Everybody who waited for it gets the same cause at once;
    /// try again when it is mended.
    #[error("a connection could not be opened")]
    Connect(#[source] Plain<E>),
    /// The connector panicked while it opened a connection. Its slot is free again.
    #[error("the connector panicked while it opened a connection")]
    ConnectorPanicked,
    /// No connection was open in time. Try again, wait longer, or look at the last failure.
    #[error("no connection was ready within {waited:?}")]
    #[non_exhaustive]
    Timeout {
        /// How long the caller was ready to wait.
        waited: Duration,
        /// The last failure to connect that this pool has seen, if any.
        #[source]
        last_failure: Option<Plain<E>>,
    },
    /// Every connection has as many sessions as can be counted (2²⁸ − 1).
    #[error("every connection of the pool has as many sessions as can be counted")]
    TooManySessions,
}

impl<E: Error + 'static> AcquireError<E> {
    /// Whether the same call can succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Shutdown)
    }

    pub(crate) fn from_cause(cause: Cause<E>) -> Self {
        match cause {
            Cause::Refused(cause) => Self::Connect(cause),
            Cause::Panicked => Self::ConnectorPanicked,
        }
    }
}

/// Why a session could not begin an operation on its connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The session's connection broke or was condemned since its last operation. Whatever state
    /// it had is gone; take another one with `Lease::renew`.
    #[error("the session's connection broke; take another with renew")]
    Broken,
    /// The turn did not come in time. The session keeps its connection and can try again.
    #[error("the connection was busy for {waited:?} with operations of other sessions")]
    #[non_exhaustive]
    Timeout {
        /// How long the caller was ready to wait.
        waited: Duration,
    },
    /// More operations wait on this connection than the setting `waiters_max` allows.
    #[error("{waiting} operations wait on the connection already; waiters_max allows no more")]
    #[non_exhaustive]
    TooManyWaiting {
        /// Operations that wait, or gave up and still have their place.
        waiting: usize,
    },
}

impl OperationError {
    /// Whether the same call on the same connection can succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Broken)
    }
}

/// Why a login with a connection of its own failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthenticateError<A: Error + 'static> {
    /// The pool was shut down.
    #[error("the pool is shut down and takes no new sessions")]
    Shutdown,
    /// The login's connection could not be opened: wrong credentials, or no connection at all.
    #[error("the login's own connection could not be opened")]
    Refused(#[source] A),
}
