//! What a destination may be asked to do, and who is told.
//!
//! Commands are left in a destination's inbox by whoever has something for it; whoever is inside
//! its gate carries them out.

use std::fmt;

use bytes::Bytes;

use crate::{
    flow::Taken,
    proto::broker_in::{AckKind, ReplyTo},
    sync::{Arc, AtomicU64, Inbox, Ordering, Plain},
    wire::{MessageId, Status},
};

use super::{
    consumer::Consumer,
    coordinator::Transact,
    destination::Destination,
    dispatch::State,
    gather::Gather,
    output::Output,
    persist::{Copy, StoredKey, Unstored, refused},
    room::Refused,
    settle::Claim,
    stored::{Share, Stored},
    subscription::Identity,
    transaction::Outcome,
    turn::Turn,
};

/// Where a reply goes whose request a destination carries out.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    /// The connection's output.
    pub output: Arc<Output>,
    /// The request.
    pub to: ReplyTo,
}

impl Reply {
    pub(super) fn send(&self, status: Status, turn: &mut Turn<'_>) {
        self.output.put_status(self.to.request.reply(), self.to.id, status);
        turn.touch_output(&self.output);
    }

    /// Tells whether what was asked for is stored.
    pub(super) fn after(&self, stored: Result<(), Unstored>, turn: &mut Turn<'_>) {
        match stored.map_err(|reason| refused(&reason)) {
            Ok(()) => self.send(Status::OK, turn),
            Err((status, reason)) => self.refuse(status, &reason, turn),
        }
    }

    /// Tells the outcome of an acknowledgement.
    fn acknowledged(&self, status: Status, turn: &mut Turn<'_>) {
        match status {
            Status::OK => self.send(status, turn),
            Status::NOT_FOUND => self.refuse(status, "there is no such consumer here", turn),
            Status::UNAVAILABLE => {
                let reason = "it cannot be stored now: the messages stay unacknowledged";
                self.refuse(status, reason, turn);
            }
            _ => {
                let reason = "a message is not with its consumer: it was settled, or went back";
                self.refuse(status, reason, turn);
            }
        }
    }

    pub(super) fn refuse(&self, status: Status, reason: &str, turn: &mut Turn<'_>) {
        let packet = self.to.refuse(status, reason);
        turn.send_packet(&self.output, packet);
    }
}

/// Who is told what became of a message from a producer.
#[derive(Debug, Clone)]
pub(super) enum Sender {
    /// The producer.
    One(Reply),
    /// It is one of several copies; the producer hears of the last one. Only that a copy could not be
    /// stored counts.
    Part(Plain<Gather<Refused>>),
}

impl Sender {
    /// Hears of so many copies, at least one, and then tells the producer.
    pub(super) fn of_copies(count: usize, reply: Reply) -> Self {
        Self::Part(Gather::new(count, move |refusals: Vec<Refused>, turn| {
            match refusals.into_iter().next() {
                None => reply.send(Status::OK, turn),
                Some((status, reason)) => reply.refuse(status, &reason, turn),
            }
        }))
    }

    /// The reply of a message that is not one of several.
    pub(super) fn alone(self) -> Option<Reply> {
        match self {
            Self::One(reply) => Some(reply),
            Self::Part(_) => None,
        }
    }

    /// It was taken.
    pub(super) fn taken(&self, turn: &mut Turn<'_>) {
        match self {
            Self::One(reply) => reply.send(Status::OK, turn),
            Self::Part(all) => all.add(Vec::new(), turn),
        }
    }

    /// It was not.
    pub(super) fn refuse(&self, status: Status, reason: &str, turn: &mut Turn<'_>) {
        match self {
            Self::One(reply) => reply.refuse(status, reason, turn),
            Self::Part(all) if status == Status::UNAVAILABLE => {
                all.add(vec![(status, reason.to_owned())], turn);
            }
            Self::Part(all) => all.add(Vec::new(), turn),
        }
    }
}

/// Who is told the outcome of an acknowledgement once all its parts are done.
#[derive(Debug)]
enum Told {
    Client(Reply),
    /// The transaction it was made in, which tells the client.
    Transaction(Claim),
}

/// The outcome of one acknowledgement whose blocks may concern several destinations: told by the
/// last of them.
#[derive(Debug)]
pub(super) struct Joint {
    left: AtomicU64,
    worst: AtomicU64,
    /// What of it is stored, a vector from each part that has some.
    stored: Inbox<Vec<StoredKey>>,
    told: Told,
}

impl Joint {
    fn new(parts: usize, told: Told) -> Arc<Self> {
        let worst = AtomicU64::new(status_bits(Status::OK));
        let (left, stored) = (AtomicU64::new(parts as u64), Inbox::new());
        Arc::new(Self { left, worst, stored, told })
    }

    fn done(&self, status: Status, stored: Vec<StoredKey>, turn: &mut Turn<'_>) {
        if !stored.is_empty() {
            self.stored.push(stored);
        }
        // Relaxed: carried by the count below.
        self.worst.fetch_max(status_bits(status), Ordering::Relaxed);
        // AcqRel: the last one sees the statuses of all others.
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let worst = self.worst.load(Ordering::Relaxed);
        let status = i32::try_from(worst).map_or(Status::ERROR, Status);
        match &self.told {
            Told::Client(reply) => reply.acknowledged(status, turn),
            &Told::Transaction(Claim { transaction, ticket }) => {
                let stored = std::iter::from_fn(|| self.stored.pop()).flatten().collect();
                turn.transact(Transact::Consumed { id: transaction, ticket, status, stored });
            }
        }
    }
}

fn status_bits(status: Status) -> u64 {
    u64::try_from(status.0).unwrap_or(0)
}

/// Who is told the outcome of an acknowledgement.
#[derive(Debug, Clone)]
pub(super) enum AckReply {
    /// Nobody asked.
    None,
    /// All blocks are here.
    Direct(Reply),
    /// Other destinations have blocks too, or a transaction is told.
    Joint(Arc<Joint>),
}

impl AckReply {
    /// A reply to a client, after so many parts.
    pub(super) fn to_client(parts: usize, reply: Reply) -> Self {
        if parts == 1 {
            Self::Direct(reply)
        } else {
            Self::Joint(Joint::new(parts, Told::Client(reply)))
        }
    }

    /// Tells a transaction, after so many parts.
    pub(super) fn to_transaction(parts: usize, claim: Claim) -> Self {
        Self::Joint(Joint::new(parts, Told::Transaction(claim)))
    }

    pub(super) fn done(&self, status: Status, turn: &mut Turn<'_>) {
        self.done_with(status, Vec::new(), turn);
    }

    /// As [`done`](Self::done), for a transaction that holds these stored messages from now on.
    pub(super) fn done_with(&self, status: Status, stored: Vec<StoredKey>, turn: &mut Turn<'_>) {
        match self {
            Self::None => {}
            Self::Direct(reply) => reply.acknowledged(status, turn),
            Self::Joint(joint) => joint.done(status, stored, turn),
        }
    }
}

/// How a consumer leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leave {
    /// Closed; up to this message the application has seen them, and may still settle them until
    /// its session ends. What came after goes back uncounted.
    After {
        /// The message; `None`: it has seen none.
        last: Option<MessageId>,
        /// It was acknowledged in the open transaction: what that does not hold goes back, too.
        in_transaction: bool,
    },
    /// Closed; all deliveries count as seen and stay with the session.
    AllSeen,
    /// Its session or connection has ended: everything goes back, what was sent is counted.
    Ended,
}

/// A consumer that comes.
#[derive(Debug)]
pub(super) struct Arrival {
    /// The consumer.
    pub consumer: Arc<Consumer>,
    /// Which subscription it wants, if it comes to one.
    pub wish: Option<Identity>,
    /// Its subscription is recorded as it wants it, or need not be.
    pub recorded: bool,
    /// The size it is told.
    pub size: i32,
    /// Who is told.
    pub reply: Reply,
}

/// Work for a destination.
#[derive(Debug)]
pub(super) enum Command {
    /// A message from a producer.
    Produce {
        /// The message.
        message: Arc<Stored>,
        /// Who wants a reply.
        reply: Option<Sender>,
        /// The producer that used up its credit with it.
        used_up: Option<i64>,
        /// Room was kept for it when its transaction took it.
        reserved: bool,
        /// The stored message it takes the place of, in the same commit.
        instead_of: Option<StoredKey>,
    },
    /// A message that was let in before is stored, or will not be.
    Stored {
        /// The message.
        message: Arc<Stored>,
        /// Who wants a reply.
        reply: Option<Sender>,
        /// The durable subscriptions that get it, if it is a topic's.
        copies: Vec<Copy>,
        /// It is stored as one that may have been delivered.
        marked: bool,
        /// Whether it is stored.
        outcome: Result<(), Unstored>,
    },
    /// The removal of messages that are held under a number is stored, or will not be.
    Removed {
        /// The number.
        ticket: i64,
        /// Who is told.
        reply: AckReply,
        /// What they are told if it is stored.
        status: Status,
        /// Whether it is.
        outcome: Result<(), Unstored>,
    },
    /// A message whose transaction is committed: let in and stored already.
    Committed {
        /// The message.
        message: Arc<Stored>,
        /// The durable subscriptions that get it, if it is a topic's.
        copies: Vec<Copy>,
        /// It is stored as one that may have been delivered.
        marked: bool,
    },
    /// A message for a subscription, from its topic.
    Forward {
        /// The message.
        message: Arc<Stored>,
        /// It is stored as one that may have been delivered.
        marked: bool,
    },
    /// The last subscription is done with a message of this topic.
    Released {
        /// What they shared of it.
        share: Arc<Share>,
        /// Its place in the order of the store; 0: it is not stored.
        sequence: u64,
        /// Its size.
        bytes: u64,
    },
    /// A producer comes. Room for it was counted.
    AddProducer {
        /// Its id.
        id: i64,
        /// Its connection's output.
        output: Arc<Output>,
        /// Who is told its credit.
        reply: Option<ReplyTo>,
    },
    /// A producer used up its credit with a message that a transaction keeps.
    UsedUp(i64),
    /// A producer leaves.
    RemoveProducer(i64),
    /// A consumer comes. The reply goes out before its first message.
    Subscribe(Box<Arrival>),
    /// A consumer leaves.
    Leave {
        /// Which one.
        consumer: Arc<Consumer>,
        /// How.
        how: Leave,
    },
    /// A consumer may have credit again, or its session runs again.
    Ready(i64),
    /// Deliveries are settled.
    Acknowledge {
        /// Whole blocks, all of consumers of this destination.
        blocks: Bytes,
        /// What they say.
        kind: AckKind,
        /// Who is told.
        reply: AckReply,
        /// For which transaction they are held from now on; none: they are settled at once.
        claim: Option<Claim>,
    },
    /// A transaction has refused an acknowledgement.
    Disclaim(Claim),
    /// A transaction that holds deliveries has ended.
    Settle {
        /// Its id.
        transaction: i64,
        /// How it ended.
        outcome: Outcome,
    },
    /// A transaction is prepared: what it holds leaves its consumers.
    Hold {
        /// Its id.
        transaction: i64,
    },
    /// Deliveries come back.
    Redeliver {
        /// Whole blocks.
        blocks: Bytes,
        /// The application has seen them.
        seen: bool,
        /// The transaction that is about to be rolled back; 0: none.
        transaction: i64,
    },
    /// A delivery that was not sent comes back with its credit.
    TakeBack {
        /// Whose it was.
        consumer: i64,
        /// Its number.
        number: u64,
        /// The credit it took.
        taken: Taken,
    },
    /// Deliveries up to this number were sent to a consumer that forgets, or cannot be sent at all.
    Forget {
        /// Whose they were.
        consumer: i64,
        /// The last number.
        through: u64,
    },
    /// A time that was asked for has come: this one.
    Tick(i64),
    /// The destination is no more.
    Destroy,
    /// Something that is asked for seldom.
    Rare(Rare),
}

/// Work that runs behind a destination's gate, in its turn with everything else.
pub(super) struct Rare(Box<RareWork>);

type RareWork = dyn FnOnce(&Arc<Destination>, &mut State, &mut Turn<'_>) + Send + Sync;

impl Rare {
    /// The command that does this.
    pub(super) fn command(
        work: impl FnOnce(&Arc<Destination>, &mut State, &mut Turn<'_>) + Send + Sync + 'static,
    ) -> Command {
        Command::Rare(Self(Box::new(work)))
    }

    /// Does it.
    pub(super) fn run(self, at: &Arc<Destination>, state: &mut State, turn: &mut Turn<'_>) {
        (self.0)(at, state, turn);
    }
}

impl fmt::Debug for Rare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rare")
    }
}
