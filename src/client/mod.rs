//! The client: connections, sessions, producers and consumers, with blocking calls and futures.
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
//! | a connection that comes back when it is lost | [`ConnectionFactory::reconnect`], [`Connection::set_observer`] |
//! | spinning instead of sleeping | [`ConnectionFactory::wait_strategy`] |
//! | no sockets | [`ConnectionFactory::create_connection_in_process`] |
//!
//! # Futures
//!
//! Each call that waits has a sibling whose name ends in `_future`. The futures are [`Send`] and need
//! no particular executor: what reads the socket for them is a thread of the connection's own, as
//! long as one of them waits. Threads and futures may share a connection, and a session.
//!
//! | call | as a future | dropped in the middle |
//! | --- | --- | --- |
//! | [`Consumer::receive`], [`receive_timeout`](Consumer::receive_timeout) | [`Consumer::receive_future`], [`receive_timeout_future`](Consumer::receive_timeout_future), which may be [`ZERO`](std::time::Duration::ZERO) for [`try_receive`](Consumer::try_receive) | loses no message: the next one to receive gets it |
//! | one after the other | [`Consumer::messages`], a [`Stream`](futures_core::Stream) | the same |
//! | [`Producer::send`], [`send_to`](Producer::send_to) | [`Producer::send_future`], [`send_to_future`](Producer::send_to_future) | has sent the message whole, or not at all |
//! | [`Producer::send_async`] | [`Producer::send_future`], in a task of its own | |
//! | [`Requestor::request`], [`request_timeout`](Requestor::request_timeout) | [`Requestor::request_future`], [`request_timeout_future`](Requestor::request_timeout_future) | may have sent the request; its reply is dropped |
//! | [`Browser::messages`], the iterator [`Browse`] | [`Browser::messages_future`], [`Browse::take_future`] | a browse that is dropped with it ends |
//! | everything that makes, ends or settles something: [`ConnectionFactory::create_connection`], [`Connection::create_session`], [`Session::commit`], [`XaResource::prepare`] and so on | the same name with `_future`: an [`Operation`] | goes on to its end once it has begun |
//!
//! A future that is never polled does nothing. Only the blocking calls promise to allocate nothing: a
//! future that must wait allocates its place among those who do.
//!
//! What is not obvious:
//!
//! - A thread that waits reads the connection's socket itself, so a request and its reply cross no
//!   other thread. Several waiting threads take turns; see [`Consumer::receive`].
//! - Everything that waits ends when its handle, session or connection is closed or lost. A
//!   connection that is being restored is not lost: sends and requests wait for it, as long as
//!   `imqAckTimeout` says, and receivers go on.
//! - Dropping handles never waits for the broker; closing them does.

mod acks;
mod address;
mod answers;
mod browser;
mod clock;
mod completion;
mod connect;
mod connection;
mod connection_consumer;
mod consumer;
mod core;
mod driver;
mod epoch;
mod error;
mod event;
mod extras;
mod factory;
mod futures;
mod in_process;
mod keeper;
mod link;
mod links;
mod listener;
mod listening;
mod operation;
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
mod sleeper;
mod socket;
mod stamp;
mod waiting;
mod walk;
mod xa;

pub use crate::in_process::InProcess;
pub use browser::{Browse, Browser};
pub use connection::Connection;
pub use connection_consumer::ConnectionConsumer;
pub use consumer::{Consumer, Messages, Receive};
pub use error::{
    AcknowledgeError, AttemptError, BrowseError, ConfigError, ConnectError, ConnectionError,
    ExchangeError, ReceiveError, RequestError, SendCause, SendError, SessionError, XaError, Xid,
    XidError,
};
pub use event::ConnectionEvent;
pub use factory::ConnectionFactory;
pub use operation::Operation;
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
