//! Sending without blocking.
//!
//! A send waits for a link, for room in the output, for credit and for a reply slot, and has none of
//! them while it waits for another. Once it has seen all of them free it takes them and writes in
//! one go. So a future that is dropped before has sent nothing and holds nothing, and one that is
//! dropped afterwards has sent its message whole.

use std::future::Future;

use super::{SessionOwner, Target, Use, close_all, put};
use crate::{
    client::{
        Producer, SessionError,
        core::check,
        epoch::Epoch,
        error::{RequestError, SendCause, SendError},
        operation::Operation,
        output::Push,
        replies::reply_id,
        sleeper::Claimed,
    },
    message::{DeliveryMode, Destination, Message, MessageError},
    sync::Arc,
    wire::{Flags, MessageId, Status},
};

impl Producer {
    /// Sends a message to the producer's destination, as [`send`](Self::send) does, as a future.
    /// The message gets its headers and its times now, and is sent when the future is polled.
    ///
    /// A future that is dropped has sent its message whole or not at all: it is not sent before the
    /// first poll, and may be afterwards. What was sent stays sent.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_future(
        &self,
        mut message: Message,
    ) -> impl Future<Output = Result<MessageId, SendError>> + Send + use<> {
        let session = Arc::clone(&self.session);
        let ready = match &self.target {
            Some(target) => self.set_headers(target, &mut message).map(|()| Arc::clone(target)),
            None => Err(MessageError::NoDestination.into()),
        };
        async move {
            match ready {
                Ok(target) => deliver(session, target, message).await,
                Err(cause) => Err(SendError::new(message, cause)),
            }
        }
    }

    /// Sends a message to `destination`, as [`send_future`](Self::send_future) does.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_to_future(
        &self,
        destination: &Destination,
        mut message: Message,
    ) -> impl Future<Output = Result<MessageId, SendError>> + Send + use<'_> {
        let destination = destination.clone();
        async move {
            let target = match self.own_or_known_target(&destination) {
                Some(target) => target,
                None => match self.open_future(destination).await {
                    Ok(target) => target,
                    Err(error) => return Err(SendError::new(message, error)),
                },
            };
            if let Err(cause) = self.set_headers(&target, &mut message) {
                return Err(SendError::new(message, cause));
            }
            deliver(Arc::clone(&self.session), target, message).await
        }
    }

    /// [`close`](Self::close) as a future; see [`Operation`].
    pub fn close_future(&self) -> Operation<Result<(), SessionError>> {
        let (session, own) = (Arc::clone(&self.session), self.target.as_ref().map(Arc::clone));
        let others = self.others.load_full();
        Operation::new(move || close_all(&session.shared, own.iter().chain(others.iter())))
    }

    async fn open_future(&self, destination: Destination) -> Result<Arc<Target>, RequestError> {
        let session = Arc::clone(&self.session);
        let open = move || Target::open(&session.shared, &destination, Use::Passing);
        let target = Operation::new(open).await?;
        self.remember(&target);
        Ok(target)
    }
}

/// Sends; `_session` keeps the session open meanwhile.
async fn deliver(
    _session: Arc<SessionOwner>,
    target: Arc<Target>,
    message: Message,
) -> Result<MessageId, SendError> {
    match target.transmit_future(&message).await {
        Ok(id) => Ok(id),
        Err(cause) => Err(SendError::new(message, cause)),
    }
}

impl Target {
    /// As [`transmit`](Self::transmit), as a future.
    async fn transmit_future(&self, message: &Message) -> Result<MessageId, SendCause> {
        let core = &self.session.core;
        let kind = message.kind().packet_type();
        let persistent = message.delivery_mode() == DeliveryMode::Persistent;
        let waits = core.settings.ack_on_produce.unwrap_or(persistent);
        let mut sent = None;
        loop {
            let epoch = core.await_link_future(kind).await?;
            match self.attempt_future(epoch, message, waits, &mut sent).await {
                Err(SendCause::Request(RequestError::Interrupted { .. })) => {}
                outcome => return outcome,
            }
        }
    }

    async fn attempt_future(
        &self,
        epoch: Epoch,
        message: &Message,
        waits: bool,
        sent: &mut Option<MessageId>,
    ) -> Result<MessageId, SendCause> {
        let (core, producer) = (&self.session.core, &self.shared.link);
        let kind = message.kind().packet_type();
        let again = sent.is_some();
        let (id, slot) = loop {
            core.await_room_future(epoch).await.map_err(RequestError::from)?;
            let slot = if waits { Some(core.claim_future(kind).await?) } else { None };
            if let Some(id) = self.try_write(epoch, message, slot.as_ref(), sent)? {
                break (id, slot);
            }
            // Others may use it meanwhile.
            drop(slot);
            let ready = || core.may_have_credit(epoch, producer).then_some(());
            let credit = core.wait_future(&producer.signal, None, ready).await;
            credit.map_err(RequestError::from)?;
        };
        let Some(slot) = slot else { return Ok(id) };
        match check(kind, core.await_reply_future(epoch, kind, slot.ticket).await?) {
            // It had arrived before.
            Err(error) if again && error.status() == Some(Status::NOT_MODIFIED) => Ok(id),
            reply => Ok(reply.map(|_reply| id)?),
        }
    }

    /// Takes credit and writes the message, if there is credit.
    fn try_write(
        &self,
        epoch: Epoch,
        message: &Message,
        slot: Option<&Claimed>,
        sent: &mut Option<MessageId>,
    ) -> Result<Option<MessageId>, SendCause> {
        let core = &self.session.core;
        // First: a message that cannot be sent takes no credit.
        let ready = self.check(message)?;
        let kind = ready.packet_type();
        let open = || self.session.check_open().is_ok();
        let Some(flags) = core.try_take_credit(epoch, kind, &self.shared.link, open)? else {
            return Ok(None);
        };
        let (flags, reply_id, push) = match slot {
            Some(slot) => {
                let flags = flags.with(Flags::ACKNOWLEDGE).set(Flags::INDEMPOTENT, sent.is_some());
                // Written when this future waits for the reply, with what others left.
                (flags, reply_id(slot.ticket), Push::Later)
            }
            None => (flags, 0, Push::Soon),
        };
        let mut id = MessageId::default();
        core.submit_message_now(epoch, kind, push, |out| {
            id = *sent.get_or_insert_with(|| core.stamp.next());
            put(&ready, id, (flags, reply_id), out)
        })?;
        Ok(Some(id))
    }
}
