//! Messages that the application has and the broker does not know it has: what acknowledgements
//! and recover are made of.
//!
//! A block is a consumer's id and a message's id, 40 bytes, as the wire has it. Blocks are added
//! by whoever receives and taken by whoever acknowledges; each is taken once.

use bytes::{BufMut as _, BytesMut};

use super::{core::Core, epoch::Epoch, error::RequestError, output::Push};
use crate::{
    sync::{AtomicUsize, Inbox, Ordering},
    wire::{
        Flags, Header, MessageId, PacketBuilder, PacketType, Padding, VariableHeader, put_head,
    },
};

/// Messages of one lazy batch.
const BATCH: usize = 10;
/// Blocks that one acknowledgement carries at most.
const BLOCKS_MAX: usize = 10_000;

/// A block on the wire.
const BLOCK_BYTES: usize = 8 + MessageId::LEN;

/// One message of one consumer, as it came over one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) consumer: i64,
    pub(super) message: MessageId,
    /// Over a later link the broker has forgotten it, and sends it again.
    pub(super) epoch: Epoch,
}

impl Block {
    pub(super) const fn of(header: &Header, epoch: Epoch) -> Self {
        Self { consumer: header.consumer_id, message: header.id, epoch }
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_i64(self.consumer);
        out.put_slice(&self.message.encode());
    }
}

/// Whether blocks are sent by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    /// Ten at a time, or when nothing more comes.
    Lazy,
    /// When the application says so.
    Asked,
}

/// The unacknowledged messages of one session, in the order in which they were handed out.
///
/// Bounded by what the application takes without acknowledging.
#[derive(Debug)]
pub(super) struct Acks {
    batch: Batch,
    blocks: Inbox<Block>,
    /// Blocks added and not taken; with a lazy batch only.
    count: AtomicUsize,
    /// The count at the last look for idle ones.
    idle: AtomicUsize,
}

impl Acks {
    pub(super) fn new(batch: Batch) -> Self {
        let (count, idle) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { batch, blocks: Inbox::new(), count, idle }
    }

    /// Notes a message that the application gets; a full batch is acknowledged.
    pub(super) fn add(&self, core: &Core, block: Block) {
        self.blocks.push(block);
        if self.batch == Batch::Asked {
            return;
        }
        // Relaxed: whoever counts the tenth takes ten; the queue itself carries the blocks.
        if (self.count.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(BATCH) {
            self.send_batch(core);
        }
    }

    /// Takes everything, in order.
    pub(super) fn take_all(&self) -> Vec<Block> {
        let all: Vec<_> = std::iter::from_fn(|| self.blocks.pop()).collect();
        if self.batch == Batch::Lazy {
            // Relaxed: as in `add`.
            self.count.fetch_sub(all.len(), Ordering::Relaxed);
        }
        all
    }

    /// Takes one message of a consumer out, if it is there.
    pub(super) fn take_one(&self, consumer: i64, message: MessageId) -> Option<Block> {
        let all = self.take_all();
        let mut found = None;
        for block in all {
            if found.is_none() && (block.consumer, block.message) == (consumer, message) {
                found = Some(block);
            } else {
                self.blocks.push(block);
            }
        }
        found
    }

    /// Takes out everything up to one message of a consumer; nothing if that is not there.
    pub(super) fn take_through(&self, consumer: i64, message: MessageId) -> Vec<Block> {
        let mut all = self.take_all();
        let is_last = |block: &Block| (block.consumer, block.message) == (consumer, message);
        let count = all.iter().position(is_last).map_or(0, |place| place + 1);
        self.put_back(all.split_off(count));
        all
    }

    /// Puts blocks back that were only looked at.
    pub(super) fn put_back(&self, blocks: Vec<Block>) {
        let count = blocks.len();
        for block in blocks {
            self.blocks.push(block);
        }
        if self.batch == Batch::Lazy {
            // Relaxed: as in `add`.
            self.count.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Sends an unfinished lazy batch.
    pub(super) fn flush(&self, core: &Core) {
        if self.batch == Batch::Lazy {
            self.send_all(core);
        }
    }

    /// Sends an unfinished lazy batch to which nothing was added since the last call.
    pub(super) fn flush_idle(&self, core: &Core) {
        if self.batch == Batch::Lazy {
            // Relaxed, both: only one thread looks for idle ones.
            let count = self.count.load(Ordering::Relaxed);
            if self.idle.swap(count, Ordering::Relaxed) == count && count > 0 {
                self.send_all(core);
            }
        }
    }

    fn send_batch(&self, core: &Core) {
        // Some are missing if they were taken otherwise meanwhile.
        let blocks: [Option<Block>; BATCH] = std::array::from_fn(|_| self.blocks.pop());
        // Relaxed: as in `add`.
        self.count.fetch_sub(blocks.iter().flatten().count(), Ordering::Relaxed);
        let epoch = core.epoch();
        let wanted = blocks.iter().flatten().filter(|block| block.epoch == epoch);
        submit(core, epoch, wanted, None, None);
    }

    fn send_all(&self, core: &Core) {
        let mut blocks: Vec<_> = std::iter::from_fn(|| self.blocks.pop()).collect();
        // Relaxed: as in `add`.
        self.count.fetch_sub(blocks.len(), Ordering::Relaxed);
        let epoch = core.epoch();
        blocks.retain(|block| block.epoch == epoch);
        for blocks in blocks.chunks(BLOCKS_MAX) {
            submit(core, epoch, blocks.iter(), None, None);
        }
    }
}

/// Whether an acknowledgement's reply is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Awaited,
    None,
}

/// Acknowledges these messages, which came over this link, in a transaction if there is one.
///
/// # Errors
/// [`RequestError::Interrupted`] if the link is gone: they come again.
pub(super) fn acknowledge(
    core: &Core,
    epoch: Epoch,
    blocks: &[Block],
    transaction: Option<i64>,
    answer: Answer,
) -> Result<(), RequestError> {
    for blocks in blocks.chunks(BLOCKS_MAX) {
        let submit =
            |reply_id: Option<i64>| submit(core, epoch, blocks.iter(), transaction, reply_id);
        match answer {
            Answer::None => submit(None),
            Answer::Awaited => {
                core.ask(epoch, PacketType::ACKNOWLEDGE, |reply_id| submit(Some(reply_id)))?;
            }
        }
    }
    Ok(())
}

/// Acknowledges one message; the reply, if one is wanted, is awaited elsewhere.
pub(super) fn send(core: &Core, block: Block, transaction: Option<i64>, reply_id: Option<i64>) {
    submit(core, block.epoch, std::iter::once(&block), transaction, reply_id);
}

/// Submits an acknowledgement of these blocks, if there are any. Written without a builder, which
/// allocates: there is one for each message, or for every ten.
fn submit<'a>(
    core: &Core,
    epoch: Epoch,
    blocks: impl Iterator<Item = &'a Block> + Clone,
    transaction_id: Option<i64>,
    reply_id: Option<i64>,
) {
    let count = blocks.clone().count();
    if count == 0 {
        return;
    }
    core.submit_own(epoch, Push::Later, |id, out| {
        let header = Header {
            id,
            flags: Flags::empty().set(Flags::ACKNOWLEDGE, reply_id.is_some()),
            consumer_id: reply_id.unwrap_or_default(),
            ..Header::new(PacketType::ACKNOWLEDGE)
        };
        let fields = VariableHeader { transaction_id, ..VariableHeader::default() };
        let put_fields = |out: &mut BytesMut| fields.put(Padding::Java, out);
        put_head(header, put_fields, |_no_table| (), count * BLOCK_BYTES, out);
        blocks.for_each(|block| block.put(out));
    });
}

/// Says in the variable header which transaction a packet belongs to.
fn in_transaction(packet: PacketBuilder, transaction: Option<i64>) -> PacketBuilder {
    if transaction.is_none() {
        return packet;
    }
    let fields = VariableHeader { transaction_id: transaction, ..VariableHeader::default() };
    packet.variable(&fields, Padding::Java).expect("a header without strings always fits")
}

/// Why a message cannot be handed to the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unwanted {
    /// It expired before the application took it.
    Expired,
    /// It cannot be read.
    Unreadable,
    /// The listener failed on it each time.
    Failed,
}

/// Tells the broker that a message was not handed over, or in vain. Wants no reply.
pub(super) fn decline(core: &Core, block: Block, why: Unwanted) {
    let packet = PacketBuilder::new(PacketType::ACKNOWLEDGE).body(body(&[block]));
    let packet = match why {
        Unwanted::Expired => packet.int("JMQAckType", DEAD).int("JMQDeadReason", EXPIRED),
        Unwanted::Unreadable => packet.int("JMQAckType", DEAD).int("JMQDeadReason", UNDELIVERABLE),
        Unwanted::Failed => packet.int("JMQAckType", PUT_BACK),
    };
    core.submit(block.epoch, packet, Push::Later);
}

const PUT_BACK: i32 = 1;
const DEAD: i32 = 2;
const UNDELIVERABLE: i32 = 0;
const EXPIRED: i32 = 1;

/// Sends messages that came over this link back to the broker, to be delivered again; out of a
/// transaction, if there is one.
pub(super) fn redeliver(
    core: &Core,
    epoch: Epoch,
    mut blocks: Vec<Block>,
    seen: Seen,
    transaction: Option<i64>,
) {
    blocks.retain(|block| block.epoch == epoch);
    if blocks.is_empty() {
        return;
    }
    let mut packet = PacketBuilder::new(PacketType::REDELIVER)
        .boolean("JMQSetRedelivered", seen == Seen::Yes)
        .body(body(&blocks));
    if let Some(id) = transaction {
        packet = in_transaction(packet.long("JMQTransactionID", id), transaction);
    }
    core.submit(epoch, packet, Push::Later);
}

/// Whether the application has seen the messages that go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Yes,
    No,
}

fn body(blocks: &[Block]) -> BytesMut {
    let mut out = BytesMut::with_capacity(blocks.len() * BLOCK_BYTES);
    blocks.iter().for_each(|block| block.put(&mut out));
    out
}
