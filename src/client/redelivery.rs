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

use super::{
    acks::{self, Block, Seen},
    connection_consumer::Rest,
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
        self.while_handing_nothing_out(|| self.send_back(|| self.link.acks.take_all(), None))
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
    pub(super) fn send_back(
        &self,
        seen: impl FnOnce() -> Vec<Block>,
        transaction: Option<i64>,
    ) -> Result<(), RequestError> {
        let session = self.id;
        self.link.acks.flush(&self.core);
        self.core.request(PacketType::STOP, |packet| packet.long("JMQSessionID", session))?;
        // After the reply nothing more comes: what waits now is all there is.
        let consumers = self.consumers();
        let rest = Rest::take(self)?;
        let mut unseen: Vec<_> = rest.blocks().collect();
        let mut emptied = Vec::new();
        for consumer in consumers.iter() {
            let before = unseen.len();
            while let Some(packet) = consumer.link.inbox.pop() {
                unseen.push(Block::of(packet.header()));
            }
            emptied.push((consumer, u32::try_from(unseen.len() - before).unwrap_or(u32::MAX)));
        }
        acks::redeliver(&self.core, &unseen, Seen::No, transaction);
        acks::redeliver(&self.core, &seen(), Seen::Yes, transaction);
        rest.let_go();
        for (consumer, count) in emptied {
            // The reset counts it, too.
            let _owed = consumer.link.settle();
            self.core.emptied(consumer.id, &consumer.link, count);
        }
        let start = PacketBuilder::new(PacketType::START).long("JMQSessionID", session);
        self.core.submit(start, Push::Now);
        Ok(())
    }

    // ---- local transactions ----

    /// The transaction that sends and acknowledgements of now belong to, if any.
    pub(super) fn transaction(&self) -> Result<Option<i64>, RequestError> {
        // Acquire: pairs with the store of whoever began it; what follows belongs to it.
        match self.transaction.load(Ordering::Acquire) {
            0 if self.mode == AcknowledgeMode::Transacted => Err(RequestError::NoTransaction),
            0 => Ok(None),
            id => Ok(Some(id.cast_signed())),
        }
    }

    /// Makes this the transaction of what follows; `None` for none.
    pub(super) fn set_transaction(&self, id: Option<i64>) {
        // Release: see `transaction`.
        self.transaction.store(id.unwrap_or(0).cast_unsigned(), Ordering::Release);
    }

    /// Begins the next transaction of a transacted session.
    pub(super) fn begin(&self) -> Result<(), RequestError> {
        self.set_transaction(None);
        let session = self.id;
        let reply = self.core.request(PacketType::START_TRANSACTION, |packet| {
            packet.long("JMQSessionID", session)
        })?;
        self.set_transaction(Some(read_id(&reply, "JMQTransactionID")?));
        Ok(())
    }

    /// Commits the transaction and begins the next one.
    pub(super) fn commit(&self) -> Result<(), RequestError> {
        self.check_open()?;
        if let Some(id) = self.transaction()? {
            self.core.request(PacketType::COMMIT_TRANSACTION, |packet| {
                packet.long("JMQTransactionID", id)
            })?;
            drop(self.link.acks.take_all());
        }
        self.begin()
    }

    /// Rolls the transaction back and begins the next one.
    pub(super) fn roll_back(&self) -> Result<(), RequestError> {
        self.check_open()?;
        self.while_handing_nothing_out(|| {
            // None if it could not be begun.
            let id = self.transaction().unwrap_or(None);
            self.send_back(|| self.link.acks.take_all(), id)?;
            if let Some(id) = id {
                let packet = PacketBuilder::new(PacketType::ROLLBACK_TRANSACTION);
                self.core.submit(packet.long("JMQTransactionID", id), Push::Later);
            }
            self.begin()
        })
    }

    /// Rolls the transaction of a transacted session back because the session ends. What it
    /// received counts as delivered.
    pub(super) fn roll_back_for_good(&self) {
        if self.mode != AcknowledgeMode::Transacted {
            return;
        }
        if let Ok(Some(id)) = self.transaction() {
            let packet = PacketBuilder::new(PacketType::ROLLBACK_TRANSACTION)
                .long("JMQTransactionID", id)
                .boolean("JMQUpdateConsumed", true);
            self.core.submit(packet, Push::Later);
        }
    }
}
