//! What a destination may be asked to do, and who is told.
//!
//! Commands are left in a destination's inbox by whoever has something for it; whoever is inside
//! its gate carries them out.

use std::fmt;

use bytes::Bytes;

use crate::{
    flow::Taken,
    proto::broker_in::{AckKind, ReplyTo},
    sync::{Arc, AtomicU64, Ordering},
    wire::{MessageId, Status},
};

use super::{
    consumer::Consumer, destination::Destination, dispatch::State, output::Output, stored::Stored,
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
        self.output.put_status(
            self.to.header.packet_type.reply(),
            self.to.header.consumer_id,
            status,
        );
        turn.touch_output(&self.output);
    }

    pub(super) fn refuse(&self, status: Status, reason: &str, turn: &mut Turn<'_>) {
        let packet = self.to.refuse(status, reason);
        turn.send_packet(&self.output, packet);
    }
}

/// The reply to one acknowledgement whose blocks concern several destinations: sent by the last.
#[derive(Debug)]
pub(super) struct Joint {
    left: AtomicU64,
    worst: AtomicU64,
    reply: Reply,
}

impl Joint {
    /// For so many parts.
    pub(super) fn new(parts: usize, reply: Reply) -> Self {
        Self {
            left: AtomicU64::new(parts as u64),
            worst: AtomicU64::new(status_bits(Status::OK)),
            reply,
        }
    }

    /// One part is done.
    pub(super) fn done(&self, status: Status, turn: &mut Turn<'_>) {
        // Relaxed: carried by the count below.
        self.worst.fetch_max(status_bits(status), Ordering::Relaxed);
        // AcqRel: the last one sees the statuses of all others.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let worst = self.worst.load(Ordering::Relaxed);
            let status = i32::try_from(worst).map_or(Status::ERROR, Status);
            self.reply.send(status, turn);
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
    /// Other destinations have blocks too.
    Joint(Arc<Joint>),
}

impl AckReply {
    pub(super) fn done(&self, status: Status, turn: &mut Turn<'_>) {
        match self {
            Self::None => {}
            Self::Direct(reply) => reply.send(status, turn),
            Self::Joint(joint) => joint.done(status, turn),
        }
    }
}

/// How a consumer leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leave {
    /// Closed; up to this message the application has seen them, and may still settle them until
    /// its session ends. What came after goes back uncounted.
    After(Option<MessageId>),
    /// Closed; all deliveries count as seen and stay with the session.
    AllSeen,
    /// Its session or connection has ended: everything goes back, what was sent is counted.
    Ended,
}

/// Work for a destination.
#[derive(Debug)]
pub(super) enum Command {
    /// A message from a producer.
    Produce {
        /// The message.
        message: Arc<Stored>,
        /// Who wants a reply.
        reply: Option<Reply>,
        /// The producer that used up its credit and waits for more.
        credit: Option<(Arc<Output>, i64)>,
    },
    /// A consumer comes. The reply goes out before its first message.
    Subscribe(Arc<Consumer>),
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
    },
    /// Deliveries come back.
    Redeliver {
        /// Whole blocks.
        blocks: Bytes,
        /// The application has seen them.
        seen: bool,
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
