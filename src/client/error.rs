//! What can go wrong, by operation.
//!
//! Each operation has a type of its own. Beneath them lies [`RequestError`], one request to the
//! broker and its reply, and beneath that [`ConnectionError`], the end of the connection.

use std::time::Duration;

pub use crate::proto::{
    client::ConnectionError,
    transaction::{Xid, XidError},
};
use crate::{
    message::{Message, MessageError},
    setting::SettingError,
    wire::{PacketType, Status},
};

/// A setting of the connection factory was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No attribute has this name. Look at the nearest one.
    #[error("there is no setting {name:?}; did you mean {nearest}?")]
    Unknown {
        /// The name as given.
        name: String,
        /// The known name that is most like it.
        nearest: &'static str,
    },
    /// The value is not allowed; the text says what is.
    #[error(transparent)]
    Value(#[from] SettingError),
    /// A properties file cannot be read, or not as one.
    #[error("cannot read the properties file {path}: {reason}")]
    File {
        /// Where it should be.
        path: String,
        /// The system's words, or the line that is none.
        reason: String,
    },
    /// A line of a properties file was refused.
    #[error("in {path}, line {line}")]
    Line {
        /// The file.
        path: String,
        /// Its line, from 1.
        line: usize,
        /// Why.
        #[source]
        cause: Box<Self>,
    },
    /// A variable of the environment was refused; the cause names it.
    #[error("in the environment")]
    Environment {
        /// Why.
        #[source]
        cause: Box<Self>,
    },
}

/// No connection could be made.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Every address was tried as often as the settings say. The last failure is the cause.
    #[error("no broker could be reached at {addresses} ({attempts} {})", attempts_word(*.attempts))]
    Unreachable {
        /// The addresses tried.
        addresses: String,
        /// How many attempts were made.
        attempts: u32,
        /// Why the last one failed.
        #[source]
        last: AttemptError,
    },
    /// The broker was reached and refuses this client; trying again would not help.
    #[error("the broker at {address} refused the connection")]
    Refused {
        /// Where it is.
        address: String,
        /// What it said.
        #[source]
        cause: ConnectionError,
    },
}

const fn attempts_word(attempts: u32) -> &'static str {
    if attempts == 1 { "attempt" } else { "attempts" }
}

/// One attempt to connect failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AttemptError {
    /// The host's name has no address.
    #[error("host {host} was not found: {reason}")]
    Host {
        /// The name.
        host: String,
        /// The resolver's words.
        reason: String,
    },
    /// Nothing listens there, or it does not answer in time.
    #[error("cannot connect to {place}: {reason}")]
    Connect {
        /// Host and port.
        place: String,
        /// The system's words.
        reason: String,
    },
    /// The port mapper's answer is no list of services, or lacks the service.
    #[error("the port mapper at {place} does not help: {reason}")]
    PortMapper {
        /// Host and port.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// The address is a good one, but this build has no way there. Another attempt is the same.
    #[error(
        "{address} needs {missing}, which this build does not include; it has mq:// and mqtcp:// \
         to services over TCP"
    )]
    NotIncluded {
        /// The address in full.
        address: String,
        /// The transport: "TLS", "WebSocket", "WebSocket over TLS", "the HTTP tunnel", …
        missing: &'static str,
    },
    /// `imqConnectionType` is `Direct`: the broker of this process is reached by
    /// [`create_connection_in_process`](super::ConnectionFactory::create_connection_in_process).
    #[error(
        "with imqConnectionType Direct, connect by create_connection_in_process, which takes the \
         broker"
    )]
    SameProcess,
    /// The broker there sent this client on to an address that cannot be used.
    #[error("the broker at {place} sent this client on to nowhere: {reason}")]
    Redirect {
        /// Host and port.
        place: String,
        /// What is wrong with the address.
        reason: String,
    },
    /// The login failed.
    #[error("login at {place} failed")]
    Login {
        /// Host and port.
        place: String,
        /// Why.
        #[source]
        cause: ConnectionError,
    },
}

/// A request to the broker failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The connection is gone for good. Make a new one; what was unacknowledged comes again.
    #[error("the connection is lost")]
    Connection(#[from] ConnectionError),
    /// The broker said no.
    #[error("the broker refused {request}: {status}{}", words(.reason))]
    Refused {
        /// What was asked.
        request: PacketType,
        /// The broker's status.
        status: Status,
        /// The broker's words, if any.
        reason: Option<String>,
    },
    /// No reply came in time. Whether the request was done is not known.
    #[error("no reply to {request} within {waited:?} ({setting})")]
    TimedOut {
        /// What was asked.
        request: PacketType,
        /// How long was waited.
        waited: Duration,
        /// The factory's attribute that says how long.
        setting: &'static str,
    },
    /// The link to the broker was lost before the reply came, and is being restored. Whether the
    /// request was done is not known.
    #[error("the connection was lost before {request} was answered, and is being restored")]
    Interrupted {
        /// What was asked.
        request: PacketType,
        /// Why the link was lost.
        #[source]
        cause: ConnectionError,
    },
    /// The connection was lost and restored in the middle of the transaction, so the broker has
    /// rolled it back. Roll back here, too, and do it all again.
    #[error("the transaction was rolled back, as the connection was lost meanwhile")]
    RolledBack,
    /// The connection was lost and restored, and messages were not acknowledged before. They come
    /// again; recover the session first.
    #[error("messages were not acknowledged before the connection was lost; recover the session")]
    Unacknowledged,
    /// The session is transacted and has no transaction: the last one could not be begun. Roll
    /// back to try again.
    #[error("the session has no transaction: the broker did not begin one")]
    NoTransaction,
    /// The session, consumer or producer was closed.
    #[error("the {what} is closed")]
    Closed {
        /// What is closed.
        what: &'static str,
    },
}

fn words(reason: &Option<String>) -> String {
    reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

impl RequestError {
    /// The broker's status, if it answered.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the same request may succeed later: a full destination, a busy broker.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.status(), Some(Status::RESOURCE_FULL | Status::UNAVAILABLE))
    }
}

/// A connection or session cannot do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The request to the broker failed.
    #[error("the session's request failed")]
    Request(#[from] RequestError),
    /// It cannot be done here and now; the text says why.
    #[error("illegal state: {0}")]
    IllegalState(&'static str),
}

impl From<ConnectionError> for SessionError {
    fn from(error: ConnectionError) -> Self {
        Self::Request(error.into())
    }
}

/// A message was not sent, or it is not known whether it was. Holds the message.
#[derive(Debug, thiserror::Error)]
#[error("the message was not sent")]
pub struct SendError {
    message: Box<Message>,
    #[source]
    cause: SendCause,
}

/// Why a message was not sent.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SendCause {
    /// The broker refused it or did not answer. See [`RequestError::is_retryable`].
    #[error("the request failed")]
    Request(#[from] RequestError),
    /// The message cannot be written as a packet.
    #[error("the message cannot be written")]
    Message(#[from] MessageError),
}

impl From<ConnectionError> for SendCause {
    fn from(error: ConnectionError) -> Self {
        Self::Request(error.into())
    }
}

impl SendError {
    pub(super) fn new(message: Message, cause: impl Into<SendCause>) -> Self {
        Self { message: Box::new(message), cause: cause.into() }
    }

    /// The message, to send again or elsewhere.
    #[must_use]
    pub fn into_inner(self) -> Message {
        *self.message
    }

    /// Why it was not sent.
    #[must_use]
    pub const fn cause(&self) -> &SendCause {
        &self.cause
    }

    /// The broker's status, if it answered.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        match &self.cause {
            SendCause::Request(error) => error.status(),
            SendCause::Message(_) => None,
        }
    }

    /// Whether sending it again later may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(&self.cause, SendCause::Request(error) if error.is_retryable())
    }
}

/// No message was received.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The connection is gone. Make a new one; what was unacknowledged comes again.
    #[error("the connection is lost")]
    Connection(#[from] ConnectionError),
    /// A message was there, but the broker did not take its acknowledgement; it comes again, or
    /// somebody else has it.
    #[error("the received message could not be acknowledged")]
    Acknowledge(#[from] AcknowledgeError),
    /// A message was there that cannot be read; it was reported to the broker as undeliverable.
    #[error("a message arrived that cannot be read")]
    Message(#[from] MessageError),
    /// It cannot be done here and now; the text says why.
    #[error("illegal state: {0}")]
    IllegalState(&'static str),
}

/// A message of a queue could not be looked at.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BrowseError {
    /// The request to the broker failed. Look again with a new iterator.
    #[error("the queue cannot be looked at any further")]
    Request(#[from] RequestError),
    /// This message cannot be read; the next ones may.
    #[error("the queue has a message that cannot be read")]
    Message(#[from] MessageError),
    /// A message that the broker promised did not come. Look again with a new iterator.
    #[error("no message within {waited:?} (imqQueueBrowserRetrieveTimeout)")]
    TimedOut {
        /// How long was waited.
        waited: Duration,
    },
}

/// A transaction manager's request about a branch failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum XaError {
    /// Nobody knows the branch: the session if there is no cause, else the broker.
    #[error("there is no branch {xid}")]
    UnknownBranch {
        /// The branch.
        xid: Box<Xid>,
        /// What the broker said.
        #[source]
        cause: Option<RequestError>,
    },
    /// There is a branch of this name already.
    #[error("there is a branch {xid} already")]
    DuplicateBranch {
        /// The branch.
        xid: Box<Xid>,
        /// What the broker said.
        #[source]
        cause: RequestError,
    },
    /// The branch is in no state for that; the text says which it is in.
    #[error("not now for branch {xid}: {problem}")]
    Protocol {
        /// The branch.
        xid: Box<Xid>,
        /// What is in the way.
        problem: String,
    },
    /// The broker's list of branches has one that is none.
    #[error("the broker listed a branch that cannot be read")]
    Malformed(#[from] XidError),
    /// The request to the broker failed.
    #[error("the request about the branch failed")]
    Request(#[from] RequestError),
}

impl XaError {
    /// The number that the XA interface has for it: −4 no such branch (`XAER_NOTA`), −8 duplicate
    /// (`XAER_DUPID`), −6 wrong state (`XAER_PROTO`), −7 the broker is gone (`XAER_RMFAIL`), −3
    /// anything else (`XAER_RMERR`).
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self {
            Self::UnknownBranch { .. } => -4,
            Self::DuplicateBranch { .. } => -8,
            Self::Protocol { .. } => -6,
            Self::Request(RequestError::Connection(_)) => -7,
            Self::Malformed(_) | Self::Request(_) => -3,
        }
    }
}

/// A request to a service got no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The request was not sent, or it is not known whether it was. Holds the message.
    #[error("the request was not sent")]
    Send(#[from] SendError),
    /// The reply could not be received.
    #[error("the reply was not received")]
    Receive(#[from] ReceiveError),
    /// The session or connection was closed meanwhile.
    #[error("closed while the reply was waited for")]
    Closed,
}

/// Messages were not acknowledged; they come again.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AcknowledgeError {
    /// The request to the broker failed.
    #[error("the acknowledgement failed")]
    Request(#[from] RequestError),
    /// The message was not received by this session, or is acknowledged already.
    #[error("the session has no such message to acknowledge")]
    UnknownMessage,
    /// It cannot be done in this session; the text says why.
    #[error("illegal state: {0}")]
    IllegalState(&'static str),
}
