//! What the reader of a connection and the handles of its consumers and producers share.

use super::{
    acks::{Acks, Batch, Block},
    answers::Answers,
    core::Core,
    epoch::{Epoch, RemoteId},
};
use crate::{
    flow::{Buffer, BufferSettings, Credit, FlowSettings, Window},
    sync::{Arc, AtomicBool, AtomicU64, Inbox, Ordering, Queue, Signal},
    wire::Packet,
};

/// A message that came, and over which link.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) packet: Packet,
    pub(super) epoch: Epoch,
}

impl Arrived {
    /// What names it at the broker; `None` if it came over a link that is gone: the broker sends
    /// it again.
    pub(super) fn block(&self, core: &Core) -> Option<Block> {
        (core.epoch() == self.epoch).then(|| self.last_block())
    }

    /// What named it when it came.
    pub(super) const fn last_block(&self) -> Block {
        Block::of(self.packet.header(), self.epoch)
    }
}

/// A consumer's messages on their way from the reader to the application.
///
/// Bounded by the agreed prefetch: the broker stops at the end of the window.
#[derive(Debug)]
pub(super) struct ConsumerLink {
    /// Tells it from others of its connection, on every link.
    pub(super) key: u64,
    pub(super) remote: RemoteId,
    pub(super) inbox: Inbox<Arrived>,
    pub(super) buffer: Buffer,
    pub(super) session: Arc<SessionLink>,
    flow: FlowSettings,
    /// Without prefetch: a message was handed out that counts as taken only when the application
    /// comes for the next one.
    owed: AtomicBool,
    /// Nobody gets messages from it any more.
    closed: AtomicBool,
    /// Somebody tells the broker that it is closed, or has.
    deleted: AtomicBool,
    has_listener: AtomicBool,
}

impl ConsumerLink {
    pub(super) fn new(key: u64, flow: FlowSettings, session: Arc<SessionLink>) -> Self {
        let buffer = Buffer::new(flow.consumer_buffer(flow.consumer_wish()));
        Self {
            key,
            remote: RemoteId::new(0, Epoch::FIRST),
            inbox: Inbox::new(),
            buffer,
            session,
            flow,
            owed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
            has_listener: AtomicBool::new(false),
        }
    }

    /// Sets the window to what the broker agreed to.
    pub(super) fn agree(&self, agreed: Credit) {
        let resume = self.buffer.set(self.flow.consumer_buffer(agreed));
        debug_assert!(resume.is_none(), "nothing was delivered before the consumer was added");
    }

    /// Forgets what came over a link that is gone: the broker delivers it again.
    pub(super) fn begin_again(&self, agreed: Credit) {
        while self.inbox.pop().is_some() {}
        // The sender that was paused is gone, too.
        let _paused = self.buffer.reset();
        // Relaxed: as in `owe`.
        self.owed.store(false, Ordering::Relaxed);
        self.agree(agreed);
    }

    /// Whether the next message may be asked for before the application comes for it.
    pub(super) fn prefetches(&self) -> bool {
        // Any window but 1 tells the two apart.
        self.flow.consumer_buffer(Credit::Limited(2)) != BufferSettings::no_prefetch()
    }

    /// Notes that a message is to be counted as taken later.
    pub(super) fn owe(&self) {
        // Relaxed: the same thread, or one that the application has told, comes for the next one.
        self.owed.store(true, Ordering::Relaxed);
    }

    /// Whether a message is to be counted as taken now; once.
    pub(super) fn settle(&self) -> bool {
        // Relaxed: as in `owe`. The look first, as there is hardly ever anything.
        self.owed.load(Ordering::Relaxed) && self.owed.swap(false, Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        // Acquire: pairs with `close`; a waiter that sees it has nothing else to see.
        self.closed.load(Ordering::Acquire)
    }

    /// Whether the broker need not know it any more.
    pub(super) fn is_deleted(&self) -> bool {
        // SeqCst: whoever deletes it looks at the epoch afterwards, see `Present`.
        self.deleted.load(Ordering::SeqCst)
    }

    /// Ends the handing out; the session will delete it.
    pub(super) fn end(&self) {
        // Release: see `is_closed`.
        self.closed.store(true, Ordering::Release);
        // Release: the session's thread, which sees that one more is gone, sees which.
        self.session.gone.fetch_add(1, Ordering::Release);
    }

    /// Tells those who wait that something came for this consumer.
    pub(super) fn arrived(&self) {
        // Relaxed: the reader's fence stands before this.
        if self.has_listener.load(Ordering::Relaxed) {
            self.session.ready.push(self.key);
        }
        self.session.signal.wake_all();
    }

    /// Ends the handing out; whether this caller is the one to delete it.
    pub(super) fn close(&self) -> bool {
        self.end();
        // SeqCst: forbids that two callers both delete the consumer; see also `is_deleted`.
        !self.deleted.swap(true, Ordering::SeqCst)
    }

    /// Whether this caller is the first to set a listener.
    pub(super) fn claim_listener(&self) -> bool {
        // AcqRel: forbids two listeners of one consumer.
        !self.has_listener.swap(true, Ordering::AcqRel)
    }
}

/// A producer's number and credit.
#[derive(Debug)]
pub(super) struct ProducerLink {
    pub(super) remote: RemoteId,
    pub(super) credit: Window,
    /// The session's: where its threads sleep.
    pub(super) signal: Arc<Signal>,
    /// Its session closes: nobody waits for credit any more.
    ending: AtomicBool,
    closed: AtomicBool,
}

impl ProducerLink {
    pub(super) fn new(signal: Arc<Signal>) -> Self {
        Self {
            remote: RemoteId::new(0, Epoch::FIRST),
            // Until the broker has said how much, nothing may be sent.
            credit: Window::new(Credit::Limited(0)),
            signal,
            ending: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        // SeqCst: whoever closes it looks at the epoch afterwards, see `Present`.
        self.closed.load(Ordering::SeqCst)
    }

    /// Whether a sender without credit goes away.
    pub(super) fn is_ending(&self) -> bool {
        // Acquire: pairs with `end`; a sender that sees it has nothing else to see.
        self.ending.load(Ordering::Acquire) || self.is_closed()
    }

    /// Sends those away who wait for its credit.
    pub(super) fn end(&self) {
        // Release: see `is_ending`.
        self.ending.store(true, Ordering::Release);
        self.signal.wake_all();
    }

    /// Marks it closed and wakes those who wait for its credit; whether this call did.
    pub(super) fn close(&self) -> bool {
        // SeqCst: forbids that two callers both delete the producer; see also `is_closed`.
        let first = !self.closed.swap(true, Ordering::SeqCst);
        self.signal.wake_all();
        first
    }
}

/// What the connection needs to know of a session.
#[derive(Debug)]
pub(super) struct SessionLink {
    /// Where the session's threads sleep.
    pub(super) signal: Arc<Signal>,
    pub(super) acks: Acks,
    /// Acknowledgements of futures.
    pub(super) answers: Answers,
    /// Keys of consumers with a listener for which something came, for the session's thread.
    /// Bounded by what is buffered: each entry stands for a message at least.
    pub(super) ready: Inbox<u64>,
    /// Consumers that were closed so far.
    pub(super) gone: AtomicU64,
}

impl SessionLink {
    pub(super) fn new(batch: Batch) -> Self {
        Self {
            signal: Arc::new(Signal::new()),
            acks: Acks::new(batch),
            answers: Answers::default(),
            ready: Inbox::new(),
            gone: AtomicU64::new(0),
        }
    }
}

#[cfg(test)]
impl Default for SessionLink {
    fn default() -> Self {
        Self::new(Batch::Asked)
    }
}

/// One reply that a thread waits for in a queue of its own.
#[derive(Debug)]
pub(super) struct Awaited {
    /// One place, as there is one reply.
    pub(super) reply: Queue<Packet>,
    signal: Arc<Signal>,
}

impl Awaited {
    pub(super) fn new(signal: Arc<Signal>) -> Self {
        Self { reply: Queue::new(1), signal }
    }

    /// Puts the reply there and wakes who waits.
    pub(super) fn put(&self, reply: Packet) {
        let pushed = self.reply.push(reply);
        debug_assert!(pushed.is_ok(), "the reader forgets it after one reply");
        self.signal.wake_all();
    }
}

/// What a handle tells the reader.
#[derive(Debug)]
pub(super) enum Command {
    /// The reply with this id makes a consumer, or a browser.
    AddConsumer {
        reply_id: i64,
        link: Arc<ConsumerLink>,
    },
    /// The reply with this id makes a producer.
    AddProducer {
        reply_id: i64,
        link: Arc<ProducerLink>,
    },
    RemoveConsumer(Arc<ConsumerLink>),
    RemoveProducer(Arc<ProducerLink>),
    /// The reply with this id goes here.
    AwaitReply {
        reply_id: i64,
        awaited: Arc<Awaited>,
    },
    /// Nobody waits for the reply with this id any more.
    ForgetReply(i64),
}

impl Command {
    pub(super) const fn reply_id(&self) -> Option<i64> {
        match self {
            Self::AddConsumer { reply_id, .. } | Self::AddProducer { reply_id, .. } => {
                Some(*reply_id)
            }
            _ => None,
        }
    }
}
