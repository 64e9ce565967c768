//! Calls that make, end or settle something, as futures: one line for each.

use super::{
    AcknowledgeError, AcknowledgeMode, Browse, BrowseError, Browser, ConnectError, Connection,
    ConnectionConsumer, ConnectionFactory, Consumer, ConsumerOptions, InProcess, Operation,
    Producer, ServerSessionPool, Session, SessionError, SharedConnections, SharedSession,
    SharingError, XaCommit, XaEnd, XaError, XaResource, XaScan, XaSession, XaStart, XaVote, Xid,
};
use crate::message::{Destination, DestinationKind, Message};

/// Siblings of blocking calls of a handle: `name = call(arguments by reference; by value)`.
macro_rules! futures {
    ($handle:ident: $($name:ident = $call:ident(
        $($given:ident: &$referent:ty),* $(; $($copied:ident: $value:ty),+)?
    ) -> Result<$ok:ty, $error:ty>;)*) => {
        impl $handle {$(
            #[doc = concat!("[`", stringify!($call), "`](Self::", stringify!($call), ") as a future; see [`Operation`].")]
            pub fn $name(
                &self $(, $given: &$referent)* $($(, $copied: $value)+)?
            ) -> Operation<Result<$ok, $error>> {
                let handle = self.clone();
                $(let $given = $given.to_owned();)*
                Operation::new(move || handle.$call($(&$given,)* $($($copied),+)?))
            }
        )*}
    };
}

futures! { ConnectionFactory:
    create_connection_future = create_connection() -> Result<Connection, ConnectError>;
    create_connection_in_process_future = create_connection_in_process(broker: &InProcess) -> Result<Connection, ConnectError>;
}

futures! { Connection:
    set_client_id_future = set_client_id(id: &str) -> Result<(), SessionError>;
    start_future = start() -> Result<(), SessionError>;
    stop_future = stop() -> Result<(), SessionError>;
    create_session_future = create_session(; mode: AcknowledgeMode) -> Result<Session, SessionError>;
    create_xa_session_future = create_xa_session() -> Result<XaSession, SessionError>;
    close_future = close() -> Result<(), SessionError>;
}

futures! { Session:
    create_producer_future = create_producer(destination: &Destination) -> Result<Producer, SessionError>;
    create_consumer_future = create_consumer(destination: &Destination) -> Result<Consumer, SessionError>;
    create_consumer_with_future = create_consumer_with(destination: &Destination, options: &ConsumerOptions) -> Result<Consumer, SessionError>;
    create_temporary_future = create_temporary(; kind: DestinationKind) -> Result<Destination, SessionError>;
    delete_temporary_future = delete_temporary(destination: &Destination) -> Result<(), SessionError>;
    unsubscribe_future = unsubscribe(durable: &str) -> Result<(), SessionError>;
    commit_future = commit() -> Result<(), SessionError>;
    rollback_future = rollback() -> Result<(), SessionError>;
    acknowledge_future = acknowledge() -> Result<(), AcknowledgeError>;
    acknowledge_message_future = acknowledge_message(message: &Message) -> Result<(), AcknowledgeError>;
    acknowledge_up_to_future = acknowledge_up_to(message: &Message) -> Result<(), AcknowledgeError>;
    recover_future = recover() -> Result<(), SessionError>;
    close_future = close() -> Result<(), SessionError>;
}

futures! { Browser:
    messages_future = messages() -> Result<Browse, SessionError>;
}

futures! { ConnectionConsumer:
    close_future = close() -> Result<(), SessionError>;
}

futures! { SharedConnections:
    session_future = session(; mode: AcknowledgeMode) -> Result<SharedSession, SharingError>;
}

futures! { XaResource:
    start_future = start(xid: &Xid; how: XaStart) -> Result<(), XaError>;
    end_future = end(xid: &Xid; how: XaEnd) -> Result<(), XaError>;
    prepare_future = prepare(xid: &Xid) -> Result<XaVote, XaError>;
    commit_future = commit(xid: &Xid; how: XaCommit) -> Result<(), XaError>;
    rollback_future = rollback(xid: &Xid) -> Result<(), XaError>;
    forget_future = forget(xid: &Xid) -> Result<(), XaError>;
    recover_future = recover() -> Result<Vec<Xid>, XaError>;
    recover_part_future = recover_part(; part: XaScan) -> Result<Vec<Xid>, XaError>;
}

impl Session {
    /// [`create_browser`](Self::create_browser) as a future; see [`Operation`].
    pub fn create_browser_future(
        &self,
        queue: &Destination,
        selector: Option<&str>,
    ) -> Operation<Result<Browser, SessionError>> {
        let (session, queue) = (self.clone(), queue.clone());
        let selector = selector.map(str::to_owned);
        Operation::new(move || session.create_browser(&queue, selector.as_deref()))
    }
}

impl Connection {
    /// [`create_connection_consumer`](Self::create_connection_consumer) as a future; see
    /// [`Operation`].
    pub fn create_connection_consumer_future(
        &self,
        destination: &Destination,
        options: &ConsumerOptions,
        pool: impl ServerSessionPool,
        max_messages: usize,
    ) -> Operation<Result<ConnectionConsumer, SessionError>> {
        let (connection, destination) = (self.clone(), destination.clone());
        let options = options.clone();
        Operation::new(move || {
            connection.create_connection_consumer(&destination, &options, pool, max_messages)
        })
    }
}

impl Browse {
    /// The next messages, so many at most, as a future; see [`Operation`]. Gives the rest back with
    /// them; none are left if there are fewer than that.
    pub fn take_future(
        mut self,
        most: usize,
    ) -> Operation<(Vec<Result<Message, BrowseError>>, Self)> {
        Operation::new(move || (self.by_ref().take(most).collect(), self))
    }
}

impl SharedSession {
    /// [`close`](Self::close) as a future; see [`Operation`].
    pub fn close_future(self) -> Operation<Result<(), SessionError>> {
        Operation::new(move || self.close())
    }
}
