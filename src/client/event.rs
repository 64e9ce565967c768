//! What observers of a connection are told.

use std::fmt;

use crate::{proto::client::ConnectionError, sync::Plain};

/// Something happened to the connection's link to its broker.
///
/// See [`Connection::set_observer`](super::Connection::set_observer).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// The link is lost, and is about to be restored.
    Lost {
        /// Why.
        reason: ConnectionError,
    },
    /// An address is tried.
    Trying {
        /// Its full form.
        address: String,
        /// Attempts so far since the loss, this one included.
        attempt: u32,
    },
    /// The connection works again: its sessions, consumers and producers are there.
    Restored {
        /// Where the broker is.
        address: String,
    },
    /// The connection is lost for good, and everybody who uses it is told this reason.
    Ended {
        /// Why.
        reason: ConnectionError,
    },
}

/// Whom to tell.
#[derive(Clone)]
pub(super) struct Observer(Plain<dyn Fn(&ConnectionEvent) + Send + Sync>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

impl Observer {
    pub(super) fn new(call: impl Fn(&ConnectionEvent) + Send + Sync + 'static) -> Self {
        Self(Plain::new(call))
    }

    pub(super) fn tell(&self, event: &ConnectionEvent) {
        (self.0)(event);
    }
}
