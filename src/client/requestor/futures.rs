//! Asking without blocking.

use std::time::{Duration, Instant};

use super::{Requestor, is_reply};
use crate::{
    client::{
        clock,
        error::{ExchangeError, SessionError},
        operation::Operation,
        session::Session,
    },
    message::{Destination, Message},
};

impl Requestor {
    /// [`new`](Self::new) as a future; see [`Operation`].
    pub fn new_future(
        session: &Session,
        service: &Destination,
    ) -> Operation<Result<Self, SessionError>> {
        let (session, service) = (session.clone(), service.clone());
        Operation::new(move || Self::new(&session, &service))
    }

    /// Sends a request and waits for its reply, as [`request`](Self::request) does, as a future.
    ///
    /// If it is dropped the request may have been sent; its reply is dropped when it comes.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn request_future(&mut self, request: Message) -> Result<Message, ExchangeError> {
        self.exchange_future(request, None).await?.ok_or(ExchangeError::Closed)
    }

    /// Sends a request and waits for its reply, as [`request_timeout`](Self::request_timeout) does,
    /// as a future. The time runs from its first poll.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn request_timeout_future(
        &mut self,
        request: Message,
        timeout: Duration,
    ) -> Result<Option<Message>, ExchangeError> {
        let deadline = clock::deadline_after(Some(timeout));
        self.exchange_future(request, deadline).await
    }

    /// [`close`](Self::close) as a future; see [`Operation`].
    pub fn close_future(self) -> Operation<Result<(), SessionError>> {
        Operation::new(move || self.close())
    }

    async fn exchange_future(
        &mut self,
        mut request: Message,
        deadline: Option<Instant>,
    ) -> Result<Option<Message>, ExchangeError> {
        request.set_reply_to(Some(self.inbox.clone()));
        let own = request.correlation_id().map(std::borrow::Cow::into_owned);
        let id = format!("ID:{}", self.producer.send_future(request).await?);
        loop {
            let reply = match clock::left(deadline) {
                Some(left) => self.replies.receive_timeout_future(left).await?,
                None => self.replies.receive_future().await?,
            };
            match reply {
                Some(reply) if !is_reply(&reply, &id, own.as_deref()) => {}
                reply => return Ok(reply),
            }
        }
    }
}
