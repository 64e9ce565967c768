//! What is committed whole, and what follows once it is.

use crate::{
    proto::transaction::Xid,
    store::Batch,
    sync::{Arc, Plain},
    wire::Status,
};

use super::super::{
    command::{AckReply, Sender},
    destination::Destination,
    stored::Stored,
    turn::Turn,
};

/// Where a message is stored: at a queue, or for a durable subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::broker) struct StoredKey {
    /// The store's id of the queue, topic or subscription.
    pub place: u64,
    /// The message.
    pub sequence: u64,
    /// It is a subscription's copy; otherwise the message itself.
    pub is_copy: bool,
    /// A count of its deliveries is stored as well.
    pub is_counted: bool,
}

/// A durable subscription that gets a message.
#[derive(Debug, Clone)]
pub(in crate::broker) struct Copy {
    /// The subscription.
    pub to: Arc<Destination>,
    /// Somebody there was ready for it, so it may be delivered as soon as it is stored.
    pub delivered: bool,
}

/// One change.
pub(in crate::broker) enum Op {
    /// A message comes.
    Put {
        /// Its destination.
        at: Arc<Destination>,
        /// The message; the commit gives it its sequence.
        message: Arc<Stored>,
        /// As in [`Copy::delivered`].
        delivered: bool,
        /// Who gets it, if it is a topic's.
        copies: Vec<Copy>,
    },
    /// A message is consumed, or gone in another way.
    Remove(StoredKey),
    /// How often a message was delivered, where that is more than once.
    Count(StoredKey, u32),
    /// Everything up to this sequence may be delivered.
    Deliver {
        /// The queue or subscription.
        place: u64,
        /// The priority.
        priority: u8,
        /// The sequence.
        through: u64,
    },
    /// A transaction is prepared.
    Prepare(Box<Prepared>),
    /// A transaction has ended.
    Ended {
        /// Its id.
        id: i64,
        /// Its name.
        xid: Option<Xid>,
        /// It was prepared, so a record of it is there.
        was_prepared: bool,
        /// Committed; rolled back otherwise.
        committed: bool,
    },
    /// Anything that is rare.
    Rare(Box<RareOp>),
}

/// Writes rare changes. The function gives a destination's place, and has it recorded if need be.
pub(in crate::broker) type RareOp = dyn FnOnce(&mut Batch, &mut Places) + Send + Sync;

/// Gives places in the store.
#[derive(Debug)]
pub(in crate::broker) struct Places {
    pub(super) next: u64,
}

impl Places {
    /// A number that no queue, topic or subscription of the store has.
    pub(in crate::broker) const fn take(&mut self) -> u64 {
        let place = self.next;
        self.next += 1;
        place
    }
}

/// A transaction to be prepared.
#[derive(Debug)]
pub(in crate::broker) struct Prepared {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub xid: Option<Xid>,
    /// When it was started, in milliseconds since 1970.
    pub created_ms: i64,
    /// Who was logged in.
    pub user: Option<Plain<str>>,
    /// It is the first half of a one-phase commit.
    pub one_phase: bool,
    /// Milliseconds it was allowed.
    pub lifetime_ms: Option<u64>,
    /// When it is rolled back by itself, as on the wire.
    pub auto_rollback: i32,
    /// It does not end with its session.
    pub session_less: bool,
    /// Persistent messages sent in it.
    pub messages: Vec<(Arc<Destination>, Arc<Stored>)>,
    /// Stored messages consumed in it.
    pub consumed: Vec<StoredKey>,
}

/// Why something is not stored.
pub(in crate::broker) type Unstored = Plain<str>;

/// What a committed or refused unit is to bring about.
pub(in crate::broker) enum Then {
    /// Nothing.
    Nothing,
    /// A message goes on to its consumers, or its producer hears why not.
    Produced {
        /// Where.
        at: Arc<Destination>,
        /// The message.
        message: Arc<Stored>,
        /// Who wants a reply.
        reply: Option<Sender>,
        /// The durable subscriptions that get it.
        copies: Vec<Copy>,
        /// As in [`Copy::delivered`].
        marked: bool,
    },
    /// An acknowledgement is carried out, or its messages stay with their consumers.
    Acknowledged {
        /// Where.
        at: Arc<Destination>,
        /// Under which number its messages are held.
        ticket: i64,
        /// Who wants to know.
        reply: AckReply,
        /// What they hear if all goes well.
        status: Status,
    },
    /// Whatever it is.
    Rare(Box<RareThen>),
}

/// Goes on after a commit; the error says why there was none.
pub(in crate::broker) type RareThen = dyn FnOnce(Result<(), Unstored>, &mut Turn<'_>) + Send + Sync;

/// Changes that are committed together, and what follows.
pub(in crate::broker) struct Unit {
    pub ops: Ops,
    pub then: Then,
}

/// Nearly always one change; then it needs no memory of its own.
pub(in crate::broker) enum Ops {
    One(Op),
    Many(Vec<Op>),
}

impl Ops {
    /// Messages among them and their bytes, for the bounds of a batch.
    pub(in crate::broker) fn weight(&self) -> (usize, u64) {
        let of = |op: &Op| match op {
            Op::Put { message, .. } => message.bytes(),
            _ => 0,
        };
        match self {
            Self::One(op) => (1, of(op)),
            Self::Many(ops) => (ops.len(), ops.iter().map(of).sum()),
        }
    }
}

impl std::fmt::Debug for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (changes, bytes) = self.ops.weight();
        f.debug_struct("Unit").field("changes", &changes).field("bytes", &bytes).finish()
    }
}
