//! How a pool opens and closes connections.

use std::error::Error;
use std::fmt;
use std::future::Future;

/// Opens and closes the connections of a pool.
///
/// A connector that blocks does its work in [`connect`](Self::connect) and returns
/// [`std::future::ready`]; one that does not returns its future (boxed, if it is an `async`
/// block). The pool owns a future that is not done: when the session that waits for it gives up,
/// another one goes on with it, so nothing is lost. It may therefore be polled from different
/// threads, one after the other.
///
/// A panic in any of these methods leaves the pool consistent: a connection in the making is
/// given up, one in use is condemned, one being closed counts as closed.
pub trait Connector: Send + Sync + 'static {
    /// A connection.
    type Connection: Send + 'static;
    /// Why a connection could not be opened. Every waiting session gets the same one.
    type Error: Error + Send + Sync + 'static;
    /// A connection in the making.
    type Connecting: Future<Output = Result<Self::Connection, Self::Error>> + Send + 'static;

    /// Starts to open a connection.
    fn connect(&self) -> Self::Connecting;

    /// Closes a connection that left the pool. Called once per opened connection, outside any
    /// critical section, on the thread that released it last.
    fn close(&self, connection: Self::Connection);

    /// Whether a connection can no longer be used. Asked at the end of each operation, so it must
    /// be cheap; `true` takes the connection out of the pool.
    fn is_broken(&self, connection: &mut Self::Connection) -> bool {
        let _ = connection;
        false
    }
}

/// Why a connection could not be opened, for everybody who waited for it.
pub(crate) enum Cause<E> {
    /// The connector said so.
    Refused(crate::sync::Plain<E>),
    /// The connector panicked.
    Panicked,
}

impl<E> Clone for Cause<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Refused(cause) => Self::Refused(cause.clone()),
            Self::Panicked => Self::Panicked,
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(cause) => f.debug_tuple("Refused").field(cause).finish(),
            Self::Panicked => f.write_str("Panicked"),
        }
    }
}
