//! How a future waits: at the same signals as threads, and for the same conditions.

use std::{
    future::{Future as _, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use futures_timer::Delay;

use super::{clock, core::Core, driver::Driven, epoch::Epoch, error::RequestError};
use crate::{
    proto::client::ConnectionError,
    sync::{Arc, EventListener, Signal, Ticket},
    wire::{Packet, PacketType},
};

/// One future's place among those who wait, taken when it must and left when it need not, or when
/// this is dropped.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    place: Option<Place>,
}

/// Goes in the order of its fields: the last one looks after a call that the first one had.
#[derive(Debug)]
struct Place {
    called: EventListener,
    late: Option<Delay>,
    _driven: Driven,
}

impl Sleeper {
    /// As [`Core::wait`], for a future: ready at once with what `found` gives. The signal and the
    /// deadline must stay the same while it is not.
    ///
    /// # Errors
    /// The reason of the connection's end.
    pub(super) fn poll<R>(
        &mut self,
        context: &mut Context<'_>,
        core: &Arc<Core>,
        signal: &Signal,
        deadline: Option<Instant>,
        mut found: impl FnMut() -> Option<R>,
    ) -> Poll<Result<Option<R>, ConnectionError>> {
        if self.place.is_none() {
            if let Some(result) = found() {
                return Poll::Ready(Ok(Some(result)));
            }
            core.flush();
            core.poll(1);
        }
        loop {
            if let Some(outcome) = look(core, deadline, &mut found) {
                self.place = None;
                return Poll::Ready(outcome);
            }
            match &mut self.place {
                Some(place) => {
                    ready!(place.poll(context));
                    // It may have been called to the helm, which is not for futures: somebody else
                    // must be. Then, listening comes before the next look.
                    core.helm.hand_over();
                    place.called = signal.listen();
                }
                None => {
                    let called = signal.listen();
                    let late = clock::left(deadline).map(Delay::new);
                    self.place = Some(Place { called, late, _driven: core.read_for_future()? });
                }
            }
            core.flush();
        }
    }
}

impl Place {
    /// Whether it is time to look again.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if Pin::new(&mut self.called).poll(context).is_ready() {
            return Poll::Ready(());
        }
        self.late.as_mut().map_or(Poll::Pending, |late| Pin::new(late).poll(context))
    }
}

fn look<R>(
    core: &Core,
    deadline: Option<Instant>,
    found: &mut impl FnMut() -> Option<R>,
) -> Option<Result<Option<R>, ConnectionError>> {
    if let Some(result) = found() {
        return Some(Ok(Some(result)));
    }
    if let Some(reason) = core.lost() {
        return Some(Err(reason));
    }
    let passed = deadline.is_some_and(|deadline| clock::now() >= deadline);
    passed.then_some(Ok(None))
}

/// A reply slot of a future, which goes back when the future is dropped.
#[derive(Debug)]
pub(super) struct Claimed {
    core: Arc<Core>,
    pub(super) ticket: Ticket,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.core.replies.release(self.ticket);
    }
}

impl Core {
    /// As [`wait`](Self::wait), as a future.
    pub(super) async fn wait_future<R>(
        self: &Arc<Self>,
        signal: &Signal,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, ConnectionError> {
        let mut sleeper = Sleeper::default();
        poll_fn(|context| sleeper.poll(context, self, signal, deadline, &mut ready)).await
    }

    /// As [`await_link`](Self::await_link), as a future.
    pub(super) async fn await_link_future(
        self: &Arc<Self>,
        wanted_for: PacketType,
    ) -> Result<Epoch, RequestError> {
        self.check_alive()?;
        let up = || Some(self.epoch()).filter(|epoch| epoch.is_up());
        if let Some(epoch) = up() {
            return Ok(epoch);
        }
        if self.is_closing() {
            return Err(ConnectionError::Closed.into());
        }
        let deadline = clock::deadline_after(self.settings.ack_timeout);
        let restored = self.wait_future(&self.restored, deadline, up).await?;
        restored.ok_or_else(|| self.timed_out(wanted_for))
    }

    /// Waits until less is unwritten than senders may leave, or the link is gone.
    pub(super) async fn await_room_future(
        self: &Arc<Self>,
        epoch: Epoch,
    ) -> Result<(), ConnectionError> {
        let ready = || {
            if !self.output.is_full() || self.epoch() != epoch {
                return Some(());
            }
            // Somebody must write it, and tell.
            self.call_keeper();
            None
        };
        self.wait_future(&self.room, None, ready).await.map(drop)
    }

    /// Claims a reply slot.
    pub(super) async fn claim_future(
        self: &Arc<Self>,
        kind: PacketType,
    ) -> Result<Claimed, RequestError> {
        let deadline = clock::deadline_after(self.settings.ack_timeout);
        let claim = || {
            let ticket = self.replies.claim()?;
            Some(Claimed { core: Arc::clone(self), ticket })
        };
        let claimed = self.wait_future(self.replies.freed(), deadline, claim).await?;
        claimed.ok_or_else(|| self.timed_out(kind))
    }

    /// As [`await_reply`](Self::await_reply), as a future.
    pub(super) async fn await_reply_future(
        self: &Arc<Self>,
        epoch: Epoch,
        kind: PacketType,
        ticket: Ticket,
    ) -> Result<Packet, RequestError> {
        let deadline = clock::deadline_after(self.settings.ack_timeout);
        let signal = self.replies.signal(ticket);
        let ready = || match self.replies.take(ticket) {
            Some(reply) => Some(Ok(reply)),
            None if self.epoch() != epoch => Some(Err(self.interrupted(kind))),
            None => None,
        };
        let reply = self.wait_future(&signal, deadline, ready).await?;
        reply.ok_or_else(|| self.timed_out(kind))?
    }
}
