//! The links of a connection, one after the other: which one there is, and how it is lost.
//!
//! Whoever finds the link broken ends its epoch and wakes everybody; the housekeeping thread makes
//! the next one, see [`super::reconnect`]. Who needs a link waits here until there is one.

use super::{
    clock,
    core::Core,
    epoch::{Epoch, RemoteId},
    error::RequestError,
    output::Push,
    reading::{Input, credit_of},
    socket::Wire,
};
use crate::{
    message::Destination,
    proto::client::{ConnectionError, Welcome},
    sync::{Arc, Ordering, fence},
    wire::{PacketBuilder, PacketType},
};

/// What belongs to one link of a connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) wire: Arc<Wire>,
    pub(super) welcome: Welcome,
}

impl Core {
    pub(super) fn epoch(&self) -> Epoch {
        self.present.get()
    }

    pub(super) fn wire(&self) -> Arc<Wire> {
        self.link.read(|link| Arc::clone(&link.wire))
    }

    /// What the broker told about itself and the present link, or the last one.
    pub(super) fn welcome<R>(&self, read: impl FnOnce(&Welcome) -> R) -> R {
        self.link.read(|link| read(&link.welcome))
    }

    /// Whether a lost link is restored: as the settings say, and always where brokers take over from
    /// one another.
    pub(super) fn comes_back(&self) -> bool {
        self.settings.reconnect_enabled || self.welcome(|welcome| welcome.takeover)
    }

    /// The present link; waits for one as long as a request waits for its reply.
    pub(super) fn await_link(&self, wanted_for: PacketType) -> Result<Epoch, RequestError> {
        self.check_alive()?;
        // Whoever closes the connection waits for those that wait here; nobody makes a link then.
        let up = || match self.epoch() {
            epoch if epoch.is_up() => Some(Ok(epoch)),
            _ => self.is_closing().then(|| Err(ConnectionError::Closed.into())),
        };
        if let Some(found) = up() {
            return found;
        }
        let deadline = clock::deadline_after(self.settings.ack_timeout);
        let restored = Arc::clone(&self.restored);
        self.wait(&restored, deadline, up)?.unwrap_or_else(|| Err(self.timed_out(wanted_for)))
    }

    /// Whether the broker knows what was just entered into its list: the link is there still, or
    /// whoever restored it has found it.
    pub(super) fn is_registered(
        &self,
        kind: PacketType,
        remote: &RemoteId,
    ) -> Result<bool, RequestError> {
        loop {
            let epoch = self.await_link(kind)?;
            let known = remote.epoch() == epoch;
            if self.epoch() == epoch {
                return Ok(known);
            }
        }
    }

    /// The error of a request whose link is gone.
    pub(super) fn interrupted(&self, request: PacketType) -> RequestError {
        match self.lost().or_else(|| self.outage.read(Clone::clone)) {
            Some(cause) if self.comes_back() => RequestError::Interrupted { request, cause },
            Some(cause) => cause.into(),
            None => RequestError::Interrupted { request, cause: ConnectionError::EndOfStream },
        }
    }

    /// Goes on with a new link that everything has been registered on. Only the housekeeping
    /// thread calls it, while there is none.
    pub(super) fn relink(&self, link: Link, input: Input) {
        let between = self.epoch();
        let epoch = between.next();
        self.output.relink(epoch, Arc::clone(&link.wire));
        // Everybody who waits for credit is woken below.
        let _was_paused = self.credit.resume(credit_of(link.welcome.credit));
        self.link.publish(link);
        // One that nobody took is of a link that was lost at once.
        drop(self.fresh.pop());
        let pushed = self.fresh.push(input);
        debug_assert!(pushed.is_ok(), "one thread restores links");
        let ended = self.present.end(between);
        debug_assert!(ended, "one thread restores links");
        // SeqCst fence: the link is published before the look whether the connection has ended, as
        // in `fail` the end comes before the look for the link. One of the two shuts it down.
        fence(Ordering::SeqCst);
        if self.lost().is_some() {
            self.wire().shut_down();
        }
        // Acquire: as everybody who looks whether messages flow.
        if self.started.load(Ordering::Acquire) {
            self.submit(epoch, PacketBuilder::new(PacketType::START), Push::Now);
        }
        self.wake_everybody();
    }

    /// Notes a temporary destination that was made here: a new link's broker may not know it.
    pub(super) fn remember_temporary(&self, made: &Destination) {
        self.temporaries.update(|all| Some(all.iter().chain([made]).cloned().collect()));
    }

    pub(super) fn forget_temporary(&self, deleted: &Destination) {
        self.temporaries.update(|all| {
            let others = all.iter().filter(|other| *other != deleted);
            Some(others.cloned().collect())
        });
    }

    /// Whether some consumer of the connection receives from `destination`.
    pub(super) fn consumes(&self, destination: &Destination) -> bool {
        self.sessions.read(|sessions| sessions.iter().any(|s| s.consumes(destination)))
    }

    /// The link of `epoch` is lost. If that is to be mended, the housekeeping thread begins; else
    /// the connection ends for this reason.
    pub(super) fn lose(&self, epoch: Epoch, reason: ConnectionError) {
        // Without a link there is none to lose: what was left of the last one failed once more.
        if self.epoch() != epoch || !epoch.is_up() {
            return;
        }
        let exits = matches!(reason, ConnectionError::Goodbye { exit: true, .. });
        if !self.comes_back() || exits || self.is_closing() || self.lost().is_some() {
            return self.fail(reason);
        }
        // Before the epoch ends: whoever sees that wants to know why.
        self.outage.publish(Some(reason));
        if self.present.end(epoch) {
            self.wire().shut_down();
            self.wake_everybody();
        }
    }

    /// Why the last link was lost.
    pub(super) fn outage(&self) -> ConnectionError {
        self.outage.read(Clone::clone).unwrap_or(ConnectionError::EndOfStream)
    }
}
