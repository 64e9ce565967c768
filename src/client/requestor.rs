//! Asks and waits for the reply.

mod futures;

use std::time::{Duration, Instant};

use super::{
    clock,
    consumer::Consumer,
    error::{ExchangeError, SessionError},
    producer::Producer,
    session::{AcknowledgeMode, Session},
};
use crate::message::{Destination, Message};

/// Sends requests to a service and waits for their replies.
///
/// Shape: a producer for the service, and a temporary destination of the same kind with a
/// consumer, where the replies come. One request at a time: it needs `&mut self`. The connection
/// must be started, and the session have no listeners.
///
/// Dropping it closes both without waiting for the broker; the temporary destination ends with the
/// connection. [`close`](Self::close) ends that, too.
///
/// ```
/// # use tidegate::client::{AcknowledgeMode, Requestor};
/// # use tidegate::message::{Destination, Message};
/// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
/// # let mut factory = tidegate::client::ConnectionFactory::new();
/// # factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
/// # let connection = factory.create_connection()?;
/// # let session = connection.create_session(AcknowledgeMode::Auto)?;
/// # connection.start()?;
/// let service = Destination::queue("echo")?;
/// // The service, elsewhere.
/// let serving = connection.create_session(AcknowledgeMode::Auto)?;
/// let requests = serving.create_consumer(&service)?;
/// let replies = serving.create_anonymous_producer()?;
/// requests.set_listener(move |request| {
///     if let Some(to) = request.reply_to().cloned() {
///         let _nobody_waits = replies.send_to(&to, request);
///     }
/// })?;
///
/// let mut requestor = Requestor::new(&session, &service)?;
/// let reply = requestor.request(Message::text("hello?"))?;
/// assert_eq!(reply.body_text()?.as_deref(), Some("hello?"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
/// # Source
/// The queue and topic requestors of the Java message service.
#[derive(Debug)]
pub struct Requestor {
    session: Session,
    producer: Producer,
    inbox: Destination,
    replies: Consumer,
}

impl Requestor {
    /// A requestor for a service that consumes from `service`.
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] for a transacted session, which sends nothing before it is
    /// committed; [`SessionError::Request`].
    pub fn new(session: &Session, service: &Destination) -> Result<Self, SessionError> {
        if session.mode() == AcknowledgeMode::Transacted {
            return Err(SessionError::IllegalState(
                "a transacted session sends nothing before it is committed",
            ));
        }
        let inbox = session.create_temporary(service.kind())?;
        let replies = session.create_consumer(&inbox)?;
        let producer = session.create_producer(service)?;
        Ok(Self { session: session.clone(), producer, inbox, replies })
    }

    /// The producer, to set how requests are sent.
    pub fn producer(&mut self) -> &mut Producer {
        &mut self.producer
    }

    /// Sends a request and waits for its reply, as long as it takes.
    ///
    /// A reply is told by its correlation id: the request's message id, or the request's own
    /// correlation id. One without is taken for the reply; one with another is late, and dropped.
    ///
    /// # Errors
    /// [`ExchangeError`]: not sent, the reply not received, or closed meanwhile.
    pub fn request(&mut self, request: Message) -> Result<Message, ExchangeError> {
        self.exchange(request, None)?.ok_or(ExchangeError::Closed)
    }

    /// Sends a request and waits for its reply, for so long at most; `None` then.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn request_timeout(
        &mut self,
        request: Message,
        timeout: Duration,
    ) -> Result<Option<Message>, ExchangeError> {
        self.exchange(request, clock::deadline_after(Some(timeout)))
    }

    /// Closes it and ends its temporary destination.
    ///
    /// # Errors
    /// [`SessionError::Request`].
    pub fn close(self) -> Result<(), SessionError> {
        self.replies.close()?;
        self.producer.close()?;
        self.session.delete_temporary(&self.inbox)
    }

    fn exchange(
        &mut self,
        mut request: Message,
        deadline: Option<Instant>,
    ) -> Result<Option<Message>, ExchangeError> {
        request.set_reply_to(Some(self.inbox.clone()));
        let own = request.correlation_id().map(std::borrow::Cow::into_owned);
        let id = format!("ID:{}", self.producer.send(request)?);
        loop {
            let reply = match clock::left(deadline) {
                Some(left) => self.replies.receive_timeout(left)?,
                None => self.replies.receive()?,
            };
            match reply {
                Some(reply) if !is_reply(&reply, &id, own.as_deref()) => {}
                reply => return Ok(reply),
            }
        }
    }
}

/// Whether a message is the reply to the request with this id and own correlation id.
fn is_reply(message: &Message, id: &str, own: Option<&str>) -> bool {
    match message.correlation_id().as_deref() {
        None => true,
        Some(told) => told == id || Some(told) == own,
    }
}
