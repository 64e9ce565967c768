//! What waits to be written, and who writes it.
//!
//! A sender enters the gate, appends its packet to the connection's buffer and, if that is due,
//! writes the buffer whole. Who finds somebody inside leaves its packet in the inbox, and the one
//! inside takes it along. So nobody waits for a lock, packets of a thread keep their order, and
//! the bytes of many packets go out in one write.
//!
//! When to write is a matter of how urgent a packet is, see [`Push`]: an answer that keeps the
//! other side waiting goes out at once; a message at once if something was received since the last
//! write, or that is a little while ago, else with the next ones; an acknowledgement with whatever
//! comes next, at the latest when the thread is about to wait.
//!
//! A packet belongs to one link, told by its epoch: what was meant for a link that is lost is not
//! written to the next one, where its ids would mean something else.
//!
//! # Invariants
//! - Bytes leave in the order in which their packets entered the gate.
//! - After a failed write nothing more is written, until there is a new link.
//!
//! # Ordering
//! The gate's and the inbox's edges; `backlog` is a count that decides nothing by itself.

use std::{io, time::Duration, time::Instant};

use bytes::{Buf as _, Bytes, BytesMut};

use super::{clock, epoch::Epoch, socket::Wire};
use crate::sync::{Arc, AtomicU64, AtomicUsize, Entered, Gate, Inbox, Ordering};

/// Bytes at which a message's sender writes.
const WRITE_BYTES: usize = 32 * 1024;
/// Bytes at which an acknowledgement's sender writes.
const WRITE_LATER_BYTES: usize = 64 * 1024;
/// Senders wait while more bytes than this are unwritten.
const BACKLOG_BYTES_MAX: usize = 1024 * 1024;
/// A message is written at once if the last write is so long ago.
const SETTLED: Duration = Duration::from_micros(20);
/// Bodies from here on are written from where they are, smaller ones are copied together.
pub(super) const SHARED_BODY_BYTES: usize = 32 * 1024;
/// A buffer larger than this is given back when it is empty.
const BUFFER_BYTES_KEPT: usize = 256 * 1024;

/// How urgent a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Push {
    /// With the next write, at the latest before the thread waits.
    Later,
    /// Now if something was received since the last write or that is a little while ago, else with
    /// the next ones.
    Soon,
    /// Now.
    Now,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "what is left needs somebody to write it soon"]
pub(super) enum Submitted {
    /// Written, or it may wait, or somebody else takes care of it.
    Settled,
    /// It waits in the buffer and should not wait long.
    Left,
}

/// Why a packet was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The link's write failed, this one or an earlier one.
    Failed(io::ErrorKind),
    /// It was meant for another link than the present one.
    Stale,
}

/// What somebody left who found the gate taken.
#[derive(Debug)]
enum Piece {
    Bytes { epoch: Epoch, bytes: Bytes, push: Push },
    Link { epoch: Epoch, wire: Arc<Wire> },
}

/// The output half of a connection.
#[derive(Debug)]
pub(super) struct Output {
    gate: Gate<Pending>,
    inbox: Inbox<Piece>,
    backlog: AtomicUsize,
    writes: AtomicU64,
    /// Bursts that were read on the same connection.
    reads: AtomicU64,
}

#[derive(Debug)]
struct Pending {
    wire: Arc<Wire>,
    epoch: Epoch,
    buffer: BytesMut,
    /// A large body that follows the buffer.
    body: Bytes,
    last_write: Option<Instant>,
    /// Bursts that had been read when a message was last written at once.
    reads: u64,
    failed: Option<io::ErrorKind>,
}

impl Output {
    /// An output to this link, the first of its connection.
    pub(super) fn new(wire: Arc<Wire>) -> Self {
        let pending = Pending {
            wire,
            epoch: Epoch::FIRST,
            buffer: BytesMut::new(),
            body: Bytes::new(),
            last_write: None,
            reads: 0,
            failed: None,
        };
        Self {
            gate: Gate::new(pending),
            inbox: Inbox::new(),
            backlog: AtomicUsize::new(0),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        }
    }

    /// Adds what `put` writes for the link of `epoch`, and writes to the socket if that is due.
    /// `put` may return a large body that follows; it is not called for a link that is gone.
    ///
    /// # Errors
    /// [`Refused`]. What was left to somebody inside the gate is dropped if its link is gone by
    /// then: whoever waits for an answer sees that by the epoch.
    pub(super) fn submit(
        &self,
        epoch: Epoch,
        push: Push,
        put: impl FnOnce(&mut BytesMut) -> Option<Bytes>,
    ) -> Result<Submitted, Refused> {
        let mut put = Some(put);
        let mut outcome = Ok(Submitted::Settled);
        let entered = self.gate.try_enter(|pending| {
            let mut most = Push::Later;
            if let Some(put) = put.take() {
                // What others left came before this packet.
                most = push.max(self.take_inbox(pending));
                if pending.epoch != epoch {
                    outcome = Err(Refused::Stale);
                    return true;
                }
                pending.settle_body();
                let before = pending.len();
                let body = put(&mut pending.buffer);
                pending.add_body(body);
                self.count(pending.len() - before);
            }
            self.turn(pending, most, &mut outcome);
            true
        });
        match (entered, put) {
            (Some(_), _) => outcome,
            (None, Some(put)) => {
                let mut piece = BytesMut::new();
                let body = put(&mut piece);
                if let Some(body) = body {
                    piece.extend_from_slice(&body);
                }
                self.leave(Piece::Bytes { epoch, bytes: piece.freeze(), push })
            }
            (None, None) => Ok(Submitted::Settled),
        }
    }

    /// Writes everything that waits, as far as the socket takes it.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub(super) fn flush(&self, epoch: Epoch) -> Result<(), Refused> {
        if self.backlog() == 0 {
            return Ok(());
        }
        let mut outcome = Ok(Submitted::Settled);
        let entered = self.gate.try_enter(|pending| {
            self.turn(pending, Push::Now, &mut outcome);
            true
        });
        if entered.is_none() {
            outcome = self.leave(Piece::Bytes { epoch, bytes: Bytes::new(), push: Push::Now });
        }
        outcome.map(|_settled| ())
    }

    /// Goes on with another link; what was not written to the last one is dropped.
    pub(super) fn relink(&self, epoch: Epoch, wire: Arc<Wire>) {
        // A failure is the next one's to see.
        let _outcome = self.leave(Piece::Link { epoch, wire });
    }

    /// Bytes that are not written yet.
    pub(super) fn backlog(&self) -> usize {
        // Relaxed: a count; the caller's own bytes are in it, which is all a flush needs.
        self.backlog.load(Ordering::Relaxed)
    }

    /// Whether senders should wait for room.
    pub(super) fn is_full(&self) -> bool {
        self.backlog() > BACKLOG_BYTES_MAX
    }

    /// How often something was written; for idle times.
    pub(super) fn writes(&self) -> u64 {
        // Relaxed: a statistic.
        self.writes.load(Ordering::Relaxed)
    }

    /// Bursts read so far on this connection.
    pub(super) fn reads(&self) -> u64 {
        // Relaxed: a statistic.
        self.reads.load(Ordering::Relaxed)
    }

    /// Counts a burst that was read.
    pub(super) fn count_read(&self) {
        // Relaxed: a statistic.
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self, piece: Piece) -> Result<Submitted, Refused> {
        if let Piece::Bytes { bytes, .. } = &piece {
            self.count(bytes.len());
        }
        self.inbox.push(piece);
        let mut outcome = Ok(Submitted::Settled);
        let entered = self.gate.enter(|pending| {
            self.turn(pending, Push::Later, &mut outcome);
            true
        });
        debug_assert_ne!(entered, Entered::More, "turns take everything");
        outcome
    }

    fn count(&self, more: usize) {
        // Relaxed: see `backlog`.
        self.backlog.fetch_add(more, Ordering::Relaxed);
    }

    /// Takes in what others left and writes if that is due. `outcome` tells of all turns of one
    /// entry: a failure stays one, and what an earlier turn left is left until it is written.
    fn turn(&self, pending: &mut Pending, push: Push, outcome: &mut Result<Submitted, Refused>) {
        let push = push.max(self.take_inbox(pending));
        let reads = self.reads();
        if pending.failed.is_none() && pending.is_due(push, reads) {
            let before = pending.len();
            pending.write();
            if push == Push::Soon {
                // The answer to a pause (Now) is not yet what was sent because of the burst.
                pending.reads = reads;
            }
            // Relaxed, both: counts.
            self.backlog.fetch_sub(before - pending.len(), Ordering::Relaxed);
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(kind) = pending.failed {
            // Nobody will ever write it.
            self.clear(pending);
            *outcome = Err(Refused::Failed(kind));
        }
        if let Ok(submitted) = outcome {
            let waits = push > Push::Later || *submitted == Submitted::Left;
            let left = waits && pending.len() > 0;
            *submitted = if left { Submitted::Left } else { Submitted::Settled };
        }
    }
}

impl Output {
    /// Takes in what others left; says how urgent it is.
    fn take_inbox(&self, pending: &mut Pending) -> Push {
        let mut most = Push::Later;
        while let Some(piece) = self.inbox.pop() {
            match piece {
                Piece::Bytes { epoch, bytes, push } if epoch == pending.epoch => {
                    pending.settle_body();
                    pending.buffer.extend_from_slice(&bytes);
                    most = most.max(push);
                }
                // Relaxed: see `backlog`.
                Piece::Bytes { bytes, .. } => {
                    self.backlog.fetch_sub(bytes.len(), Ordering::Relaxed);
                }
                Piece::Link { epoch, wire } => {
                    self.clear(pending);
                    (pending.epoch, pending.wire, pending.failed) = (epoch, wire, None);
                }
            }
        }
        most
    }

    fn clear(&self, pending: &mut Pending) {
        // Relaxed: see `backlog`.
        self.backlog.fetch_sub(pending.len(), Ordering::Relaxed);
        pending.buffer = BytesMut::new();
        pending.body = Bytes::new();
    }
}

impl Pending {
    fn len(&self) -> usize {
        self.buffer.len() + self.body.len()
    }

    /// Takes a large body to be written from where it is.
    fn add_body(&mut self, body: Option<Bytes>) {
        if let Some(body) = body {
            self.settle_body();
            self.body = body;
        }
    }

    /// Copies a body that is still waiting, because something else must go behind it.
    fn settle_body(&mut self) {
        if !self.body.is_empty() {
            self.buffer.extend_from_slice(&std::mem::take(&mut self.body));
        }
    }

    fn is_due(&self, push: Push, reads: u64) -> bool {
        if self.len() == 0 {
            return false;
        }
        match push {
            Push::Now => true,
            Push::Later => self.len() >= WRITE_LATER_BYTES,
            Push::Soon => {
                // What is sent after something was received is likely to be waited for.
                self.len() >= WRITE_BYTES
                    || self.reads != reads
                    || self
                        .last_write
                        .is_none_or(|last| clock::now().saturating_duration_since(last) > SETTLED)
            }
        }
    }

    fn write(&mut self) {
        while self.len() > 0 {
            match self.wire.send(&self.buffer, &self.body) {
                Ok(0) => break,
                Ok(sent) => {
                    let head = sent.min(self.buffer.len());
                    self.buffer.advance(head);
                    self.body.advance(sent - head);
                }
                Err(error) => {
                    self.failed = Some(error.kind());
                    break;
                }
            }
        }
        self.last_write = Some(clock::now());
        if self.len() == 0 {
            self.body = Bytes::new();
            if self.buffer.capacity() > BUFFER_BYTES_KEPT {
                self.buffer = BytesMut::new();
            }
        }
    }
}
