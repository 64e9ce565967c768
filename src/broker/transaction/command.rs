//! What the transactions are told, and what comes of it.

use bytes::Bytes;

use crate::{
    proto::{
        broker_in::ReplyTo,
        transaction::{Start, TransactionRequest, Xid},
    },
    sync::Plain,
    wire::{PacketBuilder, PacketType, Status},
};

use super::{super::persist::StoredKey, State};

/// Something happened that concerns transactions.
///
/// `D` names a destination, `M` is a message it has made room for, `R` is where a reply goes.
#[derive(Debug)]
pub(in crate::broker) enum TxCommand<D, M, R> {
    /// A client asks.
    Request {
        /// The client's connection.
        connection: i64,
        /// Who is logged in there, for listings.
        user: Option<Plain<str>>,
        /// What it asks for.
        request: TransactionRequest,
        /// Answered exactly once.
        reply: R,
    },
    /// A message was sent in a transaction; its destination has checked it and made room.
    Produce {
        /// The transaction named by the message.
        id: i64,
        /// The connection it was sent on.
        connection: i64,
        /// Where it goes.
        destination: D,
        /// The message.
        message: M,
        /// It is one of several: the transaction has all of them, or fails.
        is_copy: bool,
        /// Who hears of it.
        reply: Option<R>,
    },
    /// A message sent in a transaction was refused before it came here, and its sender does not
    /// hear of that: carried out without it, the transaction would be half of what was meant.
    Refused {
        /// The transaction named by the message.
        id: i64,
        /// The connection it was sent on.
        connection: i64,
    },
    /// An acknowledgement in a transaction was handed to these destinations, before this command.
    /// [`Consumed`](Self::Consumed) follows exactly once, or has come already.
    Expect {
        /// The transaction named by the acknowledgement.
        id: i64,
        /// Sets it apart from all others.
        ticket: i64,
        /// The connection it was sent on.
        connection: i64,
        /// Its destinations.
        parts: Vec<D>,
        /// How many messages it is about.
        messages: usize,
        /// Who hears of it.
        reply: Option<R>,
    },
    /// All destinations of an acknowledgement are done. Destinations do not wait for each other,
    /// so this may come before its [`Expect`](Self::Expect), and before those of earlier ones.
    Consumed {
        /// The transaction.
        id: i64,
        /// Which acknowledgement.
        ticket: i64,
        /// How it went; the worst of all parts.
        status: Status,
        /// What of it is stored, to be removed by the commit.
        stored: Vec<StoredKey>,
    },
    /// The end of a transaction could not be stored: what became of it is not known.
    Doubtful {
        /// Which one.
        id: i64,
    },
    /// A session ended.
    SessionEnded {
        /// Its connection.
        connection: i64,
        /// The session.
        session: i64,
        /// Told once all that it leaves behind is undone or held.
        then: R,
    },
    /// A connection ended.
    ConnectionEnded {
        /// Which one.
        connection: i64,
        /// Told once all that it leaves behind is undone or held.
        then: R,
    },
    /// The time of an [`Effect::WakeAt`] has come.
    Tick {
        /// That time, in milliseconds since 1970.
        at: i64,
    },
    /// An administrator decides.
    Admin {
        /// The transaction.
        id: i64,
        /// How.
        verdict: Verdict,
        /// Answered exactly once.
        reply: R,
    },
    /// An administrator asks for all of them.
    List(R),
}

/// What an administrator decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::broker) enum Verdict {
    /// Carry it out; only what is prepared.
    Commit,
    /// Undo it, whatever its state.
    Rollback,
}

/// What is to be done, in this order.
#[derive(Debug, PartialEq)]
pub(in crate::broker) enum Effect<D, M, R> {
    /// Tell a client.
    Reply {
        /// Where.
        to: R,
        /// What.
        reply: TxReply,
    },
    /// Give an administrator the list.
    List {
        /// Where.
        to: R,
        /// By id.
        transactions: Vec<Listed>,
    },
    /// Carried out: put this message in. Room was made for it when it was sent.
    Produce {
        /// Where it goes.
        destination: D,
        /// The message.
        message: M,
    },
    /// Undone or refused: forget this message, and give its room back.
    Drop(M, D),
    /// What was acknowledged there in this transaction is decided.
    Settle {
        /// Where.
        destination: D,
        /// The transaction.
        id: i64,
        /// How.
        outcome: Outcome,
    },
    /// Refused: what this acknowledgement did there is undone.
    LetGo {
        /// Where.
        destination: D,
        /// The transaction it named.
        id: i64,
        /// Which acknowledgement.
        ticket: i64,
    },
    /// Do this once it is stored, as far as it is about anything that is.
    Durably {
        /// What is to be stored.
        change: Change<D, M>,
        /// What follows.
        then: Vec<Self>,
    },
    /// Send a [`TxCommand::Tick`] at this time, in milliseconds since 1970.
    WakeAt(i64),
    /// What was acknowledged there in this transaction no longer belongs to its consumers: it
    /// survives them, until it is settled.
    Hold {
        /// Where.
        destination: D,
        /// The transaction.
        id: i64,
    },
}

/// A step of a transaction that outlives the broker.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::broker) enum Change<D, M> {
    /// It is prepared.
    Prepared(Box<Promise<D, M>>),
    /// It is over.
    Ended {
        /// Its id.
        id: i64,
        /// Its name, if it has one.
        xid: Option<Xid>,
        /// Whether it was prepared.
        was_prepared: bool,
        /// Committed; rolled back otherwise.
        committed: bool,
        /// What is stored of what it consumed.
        stored: Vec<StoredKey>,
    },
}

/// What a prepared transaction will do.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::broker) struct Promise<D, M> {
    /// Its id.
    pub id: i64,
    /// How it was started.
    pub start: Start,
    /// When, in milliseconds since 1970.
    pub created_ms: i64,
    /// Who was logged in.
    pub user: Option<Plain<str>>,
    /// It is the first half of a one-phase commit.
    pub one_phase: bool,
    /// What it sends.
    pub produced: Vec<(D, M)>,
    /// What is stored of what it consumes.
    pub stored: Vec<StoredKey>,
}

/// How acknowledgements of a transaction end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::broker) enum Outcome {
    /// The messages are consumed.
    Commit,
    /// They are not.
    Rollback {
        /// Put them back at their place. Otherwise they are again what they were before they were
        /// acknowledged, delivered to their consumer, and the client has them redelivered.
        redeliver: bool,
        /// The application has seen them: if they are put back, the delivery counts.
        seen: bool,
        /// A message that was rolled back so often is given up, if it may be.
        max_rollbacks: Option<u32>,
        /// It may be, and goes to the dead message queue then.
        dead_on_max: bool,
    },
}

impl Outcome {
    /// Undone without a client's word about it; nothing is given up for that.
    pub(in crate::broker) const fn undone(redeliver: bool) -> Self {
        Self::Rollback { redeliver, seen: true, max_rollbacks: None, dead_on_max: false }
    }
}

/// What a reply says besides its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::broker) struct TxReply {
    /// The status.
    pub status: Status,
    /// Why not.
    pub reason: Option<String>,
    /// `JMQTransactionID`: which transaction it is about, where that is part of the reply.
    pub transaction: Option<i64>,
    /// `JMQNextTransactionID`: the next one of the session.
    pub next: Option<i64>,
    /// `JMQPrepareStateFAILED`: the transaction is marked as failed.
    pub failed: bool,
    /// `JMQQuantity`: how many XIDs are in the body.
    pub quantity: Option<i32>,
    /// The body.
    pub body: Bytes,
}

impl TxReply {
    /// Nothing but a status.
    pub(super) const fn bare(status: Status) -> Self {
        Self {
            status,
            reason: None,
            transaction: None,
            next: None,
            failed: false,
            quantity: None,
            body: Bytes::new(),
        }
    }

    /// Done, with the transaction.
    pub(super) fn done(transaction: i64) -> Self {
        Self { transaction: Some(transaction), ..Self::bare(Status::OK) }
    }

    /// Why not.
    pub(in crate::broker) fn refuse(
        status: Status,
        transaction: Option<i64>,
        reason: String,
    ) -> Self {
        Self { transaction, reason: Some(reason), ..Self::bare(status) }
    }

    /// The packet that answers this request.
    pub(in crate::broker) fn packet(&self, to: &ReplyTo) -> PacketBuilder {
        // The C client reads the id of a start before the status, and gives up if there is none.
        let is_start = to.request == PacketType::START_TRANSACTION;
        let transaction = self.transaction.or_else(|| is_start.then_some(0));
        let mut packet = to.with(self.status);
        if let Some(id) = transaction {
            packet = packet.long("JMQTransactionID", id);
        }
        if let Some(id) = self.next {
            packet = packet.long("JMQNextTransactionID", id);
        }
        if self.failed {
            packet = packet.boolean("JMQPrepareStateFAILED", true);
        }
        if let Some(quantity) = self.quantity {
            packet = packet.int("JMQQuantity", quantity);
        }
        if let Some(reason) = &self.reason {
            packet = packet.string("JMQReason", reason);
        }
        packet.body(self.body.clone())
    }
}

/// One transaction in an administrator's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::broker) struct Listed {
    /// The broker's id.
    pub id: i64,
    /// The transaction manager's name; a local transaction has none.
    pub xid: Option<Xid>,
    /// How far it is.
    pub state: State,
    /// The connection it was started on; none once that has ended.
    pub connection: Option<i64>,
    /// Who was logged in there.
    pub user: Option<Plain<str>>,
    /// When it was started, in milliseconds since 1970.
    pub created_ms: i64,
    /// Messages sent in it.
    pub messages: usize,
    /// Messages acknowledged in it.
    pub acknowledgements: usize,
}
