//! The client: connections, sessions, producers and consumers, with blocking calls.
//!
//! A [`ConnectionFactory`] makes a [`Connection`], a connection a [`Session`], a session a
//! [`Producer`] or [`Consumer`].
//!
//! | for | there is |
//! | --- | --- |
//! | when received messages count as done | [`AcknowledgeMode`], [`Session::acknowledge`], [`Session::recover`] |
//! | all or nothing | [`Session::commit`], [`Session::rollback`]; [`XaSession`] for a transaction manager |
//! | some messages of a queue or topic, or keeping them | [`ConsumerOptions`], [`Session::unsubscribe`] |
//! | looking without taking | [`Browser`] |
//! | many handlers for one destination | [`Connection::create_connection_consumer`], [`ServerSessions`] |
//! | many sessions over few connections | [`SharedConnections`] |
//! | a question and its answer | [`Requestor`], [`Session::create_temporary`] |
//! | settings by name, from files and the environment | [`ConnectionFactory::attributes`], [`ConnectionFactory::load_properties`] |
//! | sending without waiting | [`Producer::send_async`] |
//!
//! What is not obvious:
//!
//! - A thread that waits reads the connection's socket itself, so a request and its reply cross no
//!   other thread. Several waiting threads take turns; see [`Consumer::receive`].
//! - Everything that waits ends when its handle, session or connection is closed or lost.
//! - Dropping handles never waits for the broker; closing them does.

mod acks;
mod address;
mod browser;
mod clock;
mod completion;
mod connect;
mod connection;
mod connection_consumer;
mod consumer;
mod core;
mod epoch;
mod error;
mod event;
mod extras;
mod factory;
mod in_process;
mod keeper;
mod link;
mod links;
mod listener;
mod listening;
mod options;
mod output;
mod producer;
mod reading;
mod reconnect;
mod redelivery;
mod replies;
mod requestor;
mod routes;
mod server_session;
mod session;
mod session_state;
mod settings;
mod sharing;
mod socket;
mod stamp;
mod waiting;
mod walk;
mod xa;

pub use crate::in_process::InProcess;
pub use browser::{Browse, Browser};
pub use connection::Connection;
pub use connection_consumer::ConnectionConsumer;
pub use consumer::Consumer;
pub use error::{
    AcknowledgeError, AttemptError, BrowseError, ConfigError, ConnectError, ConnectionError,
    ExchangeError, ReceiveError, RequestError, SendCause, SendError, SessionError, XaError, Xid,
    XidError,
};
pub use event::ConnectionEvent;
pub use factory::ConnectionFactory;
pub use options::ConsumerOptions;
pub use producer::Producer;
pub use requestor::Requestor;
pub use server_session::{Load, ServerSession, ServerSessionPool, ServerSessions};
pub use session::{AcknowledgeMode, Session};
pub use settings::{
    AddressListBehavior, Attribute, AttributeKind, ConnectionType, DestinationObject, Profile,
};
pub use sharing::{SharedConnections, SharedSession, SharingError};
pub use waiting::WaitStrategy;
pub use xa::{XaCommit, XaEnd, XaResource, XaScan, XaSession, XaStart, XaVote};
