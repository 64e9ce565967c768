//! Receiving without blocking: a future, and the stream of all messages.
//!
//! From the moment a message is taken out of the inbox nothing is waited for until it is handed
//! out, so a future that is dropped has no message. That is why the broker's word on the
//! acknowledgement is awaited by whoever comes next: see [`super::super::answers`].

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use futures_core::{FusedStream, Stream};

use super::{Consumer, Next, Word, lost, refused};
use crate::{
    client::{
        clock,
        error::{ReceiveError, SessionError},
        operation::Operation,
        sleeper::Sleeper,
    },
    message::Message,
    wire::PacketType,
};

/// The next message of a consumer, as a future: see [`Consumer::receive_future`].
///
/// Needs no particular executor. Dropping it loses no message. Polled again after it was ready, it
/// waits for another message.
#[derive(Debug)]
#[must_use = "nothing is received before it is polled"]
pub struct Receive {
    consumer: Consumer,
    limit: Limit,
    /// Until when the broker's word on an earlier message is awaited.
    answer_by: Option<Instant>,
    sleeper: Sleeper,
}

/// How long it waits for a message.
#[derive(Debug, Clone, Copy)]
enum Limit {
    None,
    /// From the first poll on.
    For(Duration),
    Until(Option<Instant>),
}

/// The messages of a consumer as they come: see [`Consumer::messages`].
///
/// Shape: a stream without an end of its own. Messages are taken when it is polled and not before:
/// while it is not, the consumer's prefetch limit holds. It ends when the consumer, its session or
/// its connection is closed, or, after an error, lost; from then on it stays ended. After any other
/// error it goes on. Dropping it leaves the consumer open, and what waits there.
#[derive(Debug)]
#[must_use = "nothing is received before it is polled"]
pub struct Messages {
    receive: Receive,
    ended: bool,
}

impl Consumer {
    /// Waits for the next message, as [`receive`](Self::receive) does, as a future.
    ///
    /// Dropping the future loses nothing: the message that it would have had goes to whoever
    /// receives next. In an automatic or transacted session the acknowledgement is written when the
    /// future is ready; if the broker refuses it, the next future to receive in the session is told,
    /// and [`Session::commit`](crate::client::Session::commit).
    ///
    /// ```
    /// # use tidegate::client::{AcknowledgeMode, ConnectionFactory};
    /// # use tidegate::message::{Destination, Message};
    /// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
    /// # let mut factory = ConnectionFactory::new();
    /// # factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
    /// # pollster::block_on(async {
    /// let connection = factory.create_connection_future().await?;
    /// let session = connection.create_session_future(AcknowledgeMode::Auto).await?;
    /// let orders = Destination::queue("orders")?;
    /// let producer = session.create_producer_future(&orders).await?;
    /// let consumer = session.create_consumer_future(&orders).await?;
    /// connection.start()?;
    ///
    /// producer.send_future(Message::text("three apples")).await?;
    /// let order = consumer.receive_future().await?.expect("nobody closes it");
    /// assert_eq!(order.body_text()?.as_deref(), Some("three apples"));
    /// connection.close_future().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_future(&self) -> Receive {
        self.receive_within(Limit::None)
    }

    /// Waits for the next message, as [`receive_timeout`](Self::receive_timeout) does, as a future.
    /// The time runs from its first poll.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_timeout_future(&self, timeout: Duration) -> Receive {
        self.receive_within(Limit::For(timeout))
    }

    /// The messages as a stream.
    ///
    /// ```
    /// # use tidegate::client::{AcknowledgeMode, ConnectionFactory};
    /// # use tidegate::message::{Destination, Message};
    /// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
    /// # let mut factory = ConnectionFactory::new();
    /// # factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
    /// # let connection = factory.create_connection()?;
    /// # let session = connection.create_session(AcknowledgeMode::Auto)?;
    /// # let orders = Destination::queue("orders")?;
    /// # let producer = session.create_producer(&orders)?;
    /// # for _ in 0..3 { producer.send(Message::text("apples"))?; }
    /// # connection.start()?;
    /// use futures_lite::StreamExt;
    ///
    /// let consumer = session.create_consumer(&orders)?;
    /// let orders = pollster::block_on(consumer.messages().take(3).count());
    /// assert_eq!(orders, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn messages(&self) -> Messages {
        Messages { receive: self.receive_future(), ended: false }
    }

    /// [`close`](Self::close) as a future; see [`Operation`].
    pub fn close_future(&self) -> Operation<Result<(), SessionError>> {
        let consumer = self.clone();
        Operation::new(move || consumer.close())
    }

    fn receive_within(&self, limit: Limit) -> Receive {
        let (consumer, sleeper) = (self.clone(), Sleeper::default());
        Receive { consumer, limit, answer_by: None, sleeper }
    }
}

impl Receive {
    fn deadline(&mut self) -> Option<Instant> {
        let deadline = match self.limit {
            Limit::None => return None,
            Limit::For(time) => clock::deadline_after(Some(time)),
            Limit::Until(deadline) => deadline,
        };
        self.limit = Limit::Until(deadline);
        deadline
    }
}

impl Receive {
    /// Waits for the broker's word on what was acknowledged before.
    fn poll_answers(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReceiveError>> {
        let (session, consumer) = self.consumer.parts();
        let (core, answers) = (&session.core, &session.link.answers);
        if answers.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if self.answer_by.is_none() {
            self.answer_by = clock::deadline_after(core.settings.ack_timeout);
        }
        let look = || match consumer.link.is_closed() {
            true => Some(Ok(())),
            false => answers.settle(core),
        };
        let signal = &session.link.signal;
        let settled = ready!(self.sleeper.poll(context, core, signal, self.answer_by, look));
        self.answer_by = None;
        Poll::Ready(match settled {
            Ok(Some(outcome)) => outcome.map_err(refused),
            Ok(None) => {
                answers.forget(core);
                Err(refused(core.timed_out(PacketType::ACKNOWLEDGE)))
            }
            // The next step tells it.
            Err(_reason) => Ok(()),
        })
    }
}

impl Future for Receive {
    type Output = Result<Option<Message>, ReceiveError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let deadline = self.deadline();
        loop {
            self.consumer.parts().0.check_no_listeners()?;
            ready!(self.poll_answers(context))?;
            let Self { consumer, sleeper, .. } = &mut *self;
            let (session, consumer) = consumer.parts();
            session.ask_for_next(consumer);
            let (signal, look) = (&session.link.signal, || consumer.next(session));
            match ready!(sleeper.poll(context, &session.core, signal, deadline, look)) {
                Ok(Some(Next::Message(arrived))) => {
                    if let Some(message) = session.accept(consumer, &arrived, Word::Later)? {
                        return Poll::Ready(Ok(Some(message)));
                    }
                }
                Ok(Some(Next::Refused(error))) => return Poll::Ready(Err(refused(error))),
                Ok(Some(Next::Closed) | None) => return Poll::Ready(Ok(None)),
                Err(reason) => return Poll::Ready(lost(Some(reason)).map(|()| None)),
            }
        }
    }
}

impl Stream for Messages {
    type Item = Result<Message, ReceiveError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = ready!(Pin::new(&mut self.receive).poll(context)).transpose();
        self.ended = match &next {
            None | Some(Err(ReceiveError::Connection(_) | ReceiveError::IllegalState(_))) => true,
            Some(_) => false,
        };
        Poll::Ready(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.ended.then_some(0))
    }
}

impl FusedStream for Messages {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}
