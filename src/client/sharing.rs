//! Sessions spread over few connections: one connection is one stream of bytes and one place in the
//! broker's order of things, so several carry more.

use std::future::{Ready, ready};
use std::ops::Deref;

use super::{
    connection::Connection,
    error::{ConnectError, SessionError},
    factory::ConnectionFactory,
    session::{AcknowledgeMode, Session},
};
use crate::{
    pool::{
        AcquireError, Connector, Counts, Lease, OperationError, PoolSettings, SharedPool,
        ShutdownReport,
    },
    sync::Plain,
};

/// Connections that sessions share: a new session goes to the one with the fewest.
///
/// Shape: a handle; clones are the same connections. They are made when sessions come, up to
/// `max_shared`, and are started; those above `min_shared` go when their last session does. A
/// connection that is lost is replaced when the next session comes; its sessions tell of the loss.
///
/// A factory with a client id needs `imqEnableSharedClientID`, as all these connections have it.
///
/// Dropping the last handle, of this and of its sessions, closes the connections without waiting for
/// the broker.
///
/// ```
/// # use tidegate::client::{AcknowledgeMode, ConnectionFactory, SharedConnections};
/// # use tidegate::message::{Destination, Message};
/// # use tidegate::pool::PoolSettings;
/// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
/// # let mut factory = ConnectionFactory::new();
/// # factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
/// let settings = PoolSettings::builder().max_shared(2).min_shared(1).build()?;
/// let connections = SharedConnections::new(factory, settings);
/// let orders = Destination::queue("orders")?;
///
/// let [first, second, third] = [(); 3].map(|()| connections.session(AcknowledgeMode::Auto));
/// let (first, second, third) = (first?, second?, third?);
/// assert_eq!(connections.usage(), [Some(2), Some(1)]);
///
/// first.create_producer(&orders)?.send(Message::text("three apples"))?;
/// assert!(second.create_consumer(&orders)?.receive()?.is_some());
/// drop(third); // Its place is free again.
/// assert_eq!(connections.counts().sessions, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
/// Shared database connections, see [`pool`](crate::pool), with messaging connections.
#[derive(Clone)]
pub struct SharedConnections {
    pool: Plain<SharedPool<Connecting>>,
}

/// A session on a shared connection; dereferences to the [`Session`].
///
/// Dropping it closes the session with everything made from it, without waiting for the broker, and
/// gives its place back; [`close`](Self::close) waits.
#[derive(Debug)]
pub struct SharedSession {
    session: Session,
    lease: Lease<Connecting>,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SharingError {
    /// No connection could be had. See [`AcquireError::is_retryable`].
    #[error("no shared connection")]
    Acquire(#[from] AcquireError<ConnectError>),
    /// Too many others make sessions on the connection.
    #[error("a shared connection is busy")]
    Busy(#[source] OperationError),
    /// The broker made no session.
    #[error("no session on a shared connection")]
    Session(#[from] SessionError),
}

/// Makes the connections.
struct Connecting {
    factory: ConnectionFactory,
}

impl Connector for Connecting {
    type Connection = Connection;
    type Error = ConnectError;
    type Connecting = Ready<Result<Connection, ConnectError>>;

    fn connect(&self) -> Self::Connecting {
        ready(self.factory.create_connection().inspect(|connection| {
            if let Err(error) = connection.start() {
                // It is lost already, and replaced when somebody wants to use it.
                tracing::debug!(%error, "a shared connection was lost at once");
            }
        }))
    }

    fn close(&self, connection: Connection) {
        connection.owner.abandon();
    }

    fn is_broken(&self, connection: &mut Connection) -> bool {
        connection.lost().is_some()
    }
}

impl SharedConnections {
    /// Connections of `factory`, as many as `settings` allow; none yet.
    #[must_use]
    pub fn new(factory: ConnectionFactory, settings: PoolSettings) -> Self {
        Self { pool: Plain::new(SharedPool::new(Connecting { factory }, settings)) }
    }

    /// Makes a session, on an open connection nobody uses, else on a new one while there are fewer
    /// than `max_shared`, else on the one with the fewest sessions. Waits at most `wait_timeout` for
    /// others who make sessions; connecting itself has the factory's limits.
    ///
    /// # Errors
    /// [`SharingError`]: the connections are shut down, none could be made, or the broker refused
    /// the session.
    pub fn session(&self, mode: AcknowledgeMode) -> Result<SharedSession, SharingError> {
        let mut lease = self.pool.acquire_owned()?;
        // Each try finds one lost connection more; a new one counts as well.
        for _ in 0..=self.pool.counts().open {
            let made = match lease.begin() {
                Ok(mut turn) => turn.run(|connection| match connection.lost() {
                    // Out of the pool it goes, at the end of this turn.
                    Some(_reason) => None,
                    None => Some(connection.create_session(mode)),
                }),
                Err(OperationError::Broken) => None,
                Err(busy) => return Err(SharingError::Busy(busy)),
            };
            match made {
                Some(Ok(session)) => return Ok(SharedSession { session, lease }),
                Some(Err(error)) if !lease.is_broken() => return Err(error.into()),
                Some(Err(_)) | None => lease.renew()?,
            }
        }
        let made = match lease.begin() {
            Ok(mut turn) => turn.run(|connection| connection.create_session(mode)),
            Err(busy) => return Err(SharingError::Busy(busy)),
        };
        Ok(SharedSession { session: made?, lease })
    }

    /// Sessions on each connection, by place; `None` where none is open.
    #[must_use]
    pub fn usage(&self) -> Vec<Option<usize>> {
        self.pool.usage()
    }

    /// Connections and sessions, at about one time.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.pool.counts()
    }

    /// Closes connections that no session uses, without waiting for the broker, and makes no new
    /// sessions from now on. Sessions there are go on; the last one of a connection closes it.
    #[allow(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn shutdown(&self) -> ShutdownReport {
        self.pool.shutdown()
    }
}

impl SharedSession {
    /// The place of its connection, as in [`SharedConnections::usage`]; `None` if it has one of its
    /// own.
    #[must_use]
    pub fn place(&self) -> Option<usize> {
        self.lease.connection()
    }

    /// Closes the session as [`Session::close`] does, and gives its place back.
    ///
    /// # Errors
    /// As [`Session::close`]; the place is free in any case.
    pub fn close(self) -> Result<(), SessionError> {
        self.session.close()
    }
}

impl Deref for SharedSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for SharedSession {
    fn drop(&mut self) {
        self.session.owner.abandon();
        // At the end of a turn the pool looks whether the connection is lost, and lets go of it.
        if self.session.owner.connection.core.lost().is_some() {
            drop(self.lease.try_begin());
        }
    }
}

impl std::fmt::Debug for SharedConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedConnections").field("usage", &self.usage()).finish_non_exhaustive()
    }
}
