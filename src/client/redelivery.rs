//! Sending back what was received: recover, and the end of transactions.
//!
//! The session is stopped first, so that what waits is all there is. The broker gets what the
//! application has not seen, then what it has; each goes in front of what went before, so the
//! order is kept, and only what was seen counts as delivered.
//!
//! ```text
//!  STOP -> STOP_REPLY -> REDELIVER unseen, seen -> START
//!                        rolling back: -> ROLLBACK (no reply) -> START_TRANSACTION -> its reply
//! ```
//!
//! A link that is lost on the way has done the same by itself: the broker redelivers everything,
//! and the next link has a new transaction.

use super::{
    acks::{self, Block, Seen},
    connection_consumer::Rest,
    epoch::Epoch,
    error::RequestError,
    output::Push,
    session::AcknowledgeMode,
    session_state::{SessionShared, read_id},
};
use crate::{
    sync::Ordering,
    wire::{PacketBuilder, PacketType},
};

impl SessionShared {
    /// Sends everything unacknowledged back.
    pub(super) fn recover(&self) -> Result<(), RequestError> {
        self.check_open()?;
        let epoch = self.core.await_link(PacketType::REDELIVER)?;
        let sent_back = self.while_handing_nothing_out(|| {
            self.send_back(epoch, || self.link.acks.take_all(), None)
        });
        self.unless_lost(sent_back)
    }

    /// The outcome of sending everything back: done by the broker itself if the link was lost.
    fn unless_lost(&self, outcome: Result<(), RequestError>) -> Result<(), RequestError> {
        match outcome {
            Err(RequestError::Interrupted { request, .. }) => {
                self.core.await_link(request)?;
            }
            outcome => outcome?,
        }
        self.admit_lost_work();
        Ok(())
    }

    /// Runs `work` while no message of this session is handed out.
    pub(super) fn while_handing_nothing_out(
        &self,
        work: impl FnOnce() -> Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        // Release: with the STOP_REPLY below, whoever hands out sees it.
        self.recovering.store(true, Ordering::Release);
        let outcome = work();
        // Release: everything that waited is gone before something is handed out again.
        self.recovering.store(false, Ordering::Release);
        self.link.signal.wake_all();
        self.core.flush();
        // What came meanwhile woke nobody to any use, and one who reads sleeps in the socket.
        self.core.nudge_reader();
        outcome
    }

    /// Sends back what waits and what `seen` gives, which is asked after the session is stopped.
    ///
    /// # Errors
    /// [`RequestError::Interrupted`] if the link is lost.
    pub(super) fn send_back(
        &self,
        epoch: Epoch,
        seen: impl FnOnce() -> Vec<Block>,
        transaction: Option<i64>,
    ) -> Result<(), RequestError> {
        let session = self.remote.get();
        self.link.acks.flush(&self.core);
        let stop = |packet: PacketBuilder| packet.long("JMQSessionID", session);
        self.core.request_on(epoch, PacketType::STOP, stop)?;
        // After the reply nothing more comes: what waits now is all there is.
        let consumers = self.consumers();
        let rest = Rest::take(self)?;
        let mut unseen: Vec<_> = rest.blocks().collect();
        let mut emptied = Vec::new();
        for consumer in consumers.iter() {
            let before = unseen.len();
            while let Some(arrived) = consumer.link.inbox.pop() {
                unseen.push(arrived.last_block());
            }
            emptied.push((consumer, u32::try_from(unseen.len() - before).unwrap_or(u32::MAX)));
        }
        acks::redeliver(&self.core, epoch, unseen, Seen::No, transaction);
        acks::redeliver(&self.core, epoch, seen(), Seen::Yes, transaction);
        rest.let_go();
        for (consumer, count) in emptied {
            // The reset counts it, too.
            let _owed = consumer.link.settle();
            self.core.emptied(&consumer.link, count);
        }
        let start = PacketBuilder::new(PacketType::START).long("JMQSessionID", session);
        self.core.submit(epoch, start, Push::Now);
        Ok(())
    }

    // ---- local transactions ----

    /// The transaction that sends and acknowledgements of now belong to, if any.
    ///
    /// # Errors
    /// [`RequestError::RolledBack`] if it was lost, and the application has not been told.
    pub(super) fn transaction(&self) -> Result<Option<i64>, RequestError> {
        let present = self.present_transaction();
        if self.mode != AcknowledgeMode::Client {
            self.check_work()?;
        }
        present
    }

    /// As [`transaction`](Self::transaction), whatever was lost before.
    pub(super) fn present_transaction(&self) -> Result<Option<i64>, RequestError> {
        // Acquire: pairs with the store of whoever began it; what follows belongs to it.
        match self.transaction.load(Ordering::Acquire) {
            0 if self.mode == AcknowledgeMode::Transacted => Err(RequestError::NoTransaction),
            0 => Ok(None),
            id => Ok(Some(id.cast_signed())),
        }
    }

    /// Makes this the transaction of what follows; `None` for none.
    pub(super) fn set_transaction(&self, id: Option<i64>) {
        // Release: see `present_transaction`.
        self.transaction.store(id.unwrap_or(0).cast_unsigned(), Ordering::Release);
    }

    /// Begins the transaction after `ended` of a transacted session, unless a new link brings it.
    pub(super) fn begin(&self, mut epoch: Epoch, ended: Option<i64>) -> Result<(), RequestError> {
        let mut ended = ended.unwrap_or(0).cast_unsigned();
        loop {
            // Relaxed: nothing of the next transaction comes before its beginning.
            self.touched.store(false, Ordering::Relaxed);
            // A new link may have brought the next one already. Release: see
            // `present_transaction`.
            let order = (Ordering::Release, Ordering::Relaxed);
            let _gone = self.transaction.compare_exchange(ended, 0, order.0, order.1);
            let session = self.remote.get();
            let fill = |packet: PacketBuilder| packet.long("JMQSessionID", session);
            match self.core.request_on(epoch, PacketType::START_TRANSACTION, fill) {
                Ok(reply) => {
                    let id = read_id(&reply, "JMQTransactionID")?;
                    // If the link is lost just here, the next one's transaction must not be
                    // replaced. Release: see `present_transaction`.
                    let (begun, none) = (id.cast_unsigned(), 0);
                    let order = (Ordering::Release, Ordering::Relaxed);
                    let set = self.transaction.compare_exchange(none, begun, order.0, order.1);
                    debug_assert!(set.is_ok() || self.core.epoch() != epoch, "one begins it");
                    return Ok(());
                }
                Err(RequestError::Interrupted { request, .. }) => {
                    epoch = self.core.await_link(request)?;
                    if self.present_transaction().is_ok() {
                        return Ok(());
                    }
                    ended = 0;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Commits the transaction and begins the next one.
    pub(super) fn commit(&self) -> Result<(), RequestError> {
        self.check_open()?;
        let epoch = self.core.await_link(PacketType::COMMIT_TRANSACTION)?;
        let ended = match self.transaction() {
            Err(RequestError::RolledBack) => {
                // With what came after the loss.
                self.roll_back()?;
                return Err(RequestError::RolledBack);
            }
            Ok(Some(id)) => {
                self.await_answers()?;
                let fill = |packet: PacketBuilder| packet.long("JMQTransactionID", id);
                let committed = self.core.request_on(epoch, PacketType::COMMIT_TRANSACTION, fill);
                if let Err(RequestError::Interrupted { request, .. }) = &committed {
                    // This tells the application; the next transaction begins with the next link.
                    self.core.await_link(*request)?;
                    self.admit_lost_work();
                }
                committed?;
                drop(self.link.acks.take_all());
                Some(id)
            }
            outcome => outcome?,
        };
        self.begin(epoch, ended)?;
        // A link that was lost behind the commit took no work with it.
        self.admit_lost_work();
        Ok(())
    }

    /// Rolls the transaction back and begins the next one.
    pub(super) fn roll_back(&self) -> Result<(), RequestError> {
        self.check_open()?;
        let epoch = self.core.await_link(PacketType::ROLLBACK_TRANSACTION)?;
        let rolled_back = self.while_handing_nothing_out(|| {
            // None if it could not be begun.
            let id = self.present_transaction().unwrap_or(None);
            self.link.answers.forget(&self.core);
            self.send_back(epoch, || self.link.acks.take_all(), id)?;
            if let Some(id) = id {
                let packet = PacketBuilder::new(PacketType::ROLLBACK_TRANSACTION);
                self.core.submit(epoch, packet.long("JMQTransactionID", id), Push::Later);
            }
            self.begin(epoch, id)
        });
        self.unless_lost(rolled_back)
    }

    /// Rolls the transaction of a transacted session back because the session ends. What it
    /// received counts as delivered.
    pub(super) fn roll_back_for_good(&self) {
        if self.mode != AcknowledgeMode::Transacted {
            return;
        }
        let epoch = self.core.epoch();
        if let Ok(Some(id)) = self.present_transaction() {
            let packet = PacketBuilder::new(PacketType::ROLLBACK_TRANSACTION)
                .long("JMQTransactionID", id)
                .boolean("JMQUpdateConsumed", true);
            self.core.submit(epoch, packet, Push::Later);
        }
    }
}
