//! What waits to be written, and who writes it.
//!
//! A sender writes its packet into the front of an [`Outlet`], where it goes to the socket from, and,
//! if that is due, has the front written whole. Who finds the front taken leaves its packet, and the
//! one inside takes it along; who finds somebody writing leaves the next write to that one. So
//! nobody waits for a lock, packets of a thread keep their order, and the bytes of many packets go
//! out in one write.
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
//! - Bytes leave in the order in which their packets came in.
//! - After a failed write nothing more is written, until there is a new link.
//!
//! # Ordering
//! The outlet's edges; the counts decide nothing by themselves.

use std::{io, time::Instant};

use bytes::{Buf as _, Bytes, BytesMut};

use super::{clock, epoch::Epoch, socket::Wire};
use crate::sync::{Arc, AtomicU64, AtomicUsize, Back, Front, Ordering, Outlet, Queue};

/// Bytes at which a message's sender writes.
const WRITE_BYTES: usize = 32 * 1024;
/// Bytes at which an acknowledgement's sender writes.
const WRITE_LATER_BYTES: usize = 64 * 1024;
/// Senders wait while more bytes than this are unwritten.
const BACKLOG_BYTES_MAX: usize = 1024 * 1024;
/// A message before which nothing waits is written at once if the last write is so long ago, in
/// nanoseconds.
const SETTLED_LONE: u64 = 20_000;
/// With others before it, if it is so long ago: longer than [`WRITE_BYTES`] take somebody who sends
/// one message of 1 KiB after the other.
const SETTLED: u64 = 60_000;
/// Bodies from here on are written from where they are, smaller ones are copied together.
pub(super) const SHARED_BODY_BYTES: usize = 32 * 1024;
/// A buffer larger than this is given back when it is empty.
const BUFFER_BYTES_KEPT: usize = 256 * 1024;
/// Buffers for packets that are left, and how large one may be that is kept.
const PIECES_KEPT: usize = 16;
const PIECE_BYTES_KEPT: usize = 16 * 1024;

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

/// The output half of a connection.
#[derive(Debug)]
pub(super) struct Output {
    outlet: Outlet<Waiting>,
    counts: Arc<Counts>,
    /// Buffers for packets that are left, so that not each needs a new one.
    spare: Arc<Queue<BytesMut>>,
}

/// What everybody may look at.
#[derive(Debug)]
struct Counts {
    begun: Instant,
    /// When something was last written, in nanoseconds since the beginning; 0 for never.
    last_write: AtomicU64,
    /// Bytes that are not written yet.
    backlog: AtomicUsize,
    writes: AtomicU64,
    /// Bursts that were read on the same connection.
    reads: AtomicU64,
}

/// What somebody left who found the front taken.
#[derive(Debug)]
enum Piece {
    Bytes { epoch: Epoch, bytes: BytesMut, push: Push },
    Link { epoch: Epoch, wire: Arc<Wire> },
    Call,
}

/// The front: what is not handed to the writer yet.
#[derive(Debug)]
struct Waiting {
    counts: Arc<Counts>,
    spare: Arc<Queue<BytesMut>>,
    /// The link that it is meant for.
    epoch: Epoch,
    wire: Arc<Wire>,
    buffer: BytesMut,
    /// A large body that follows the buffer.
    body: Bytes,
    /// How urgent what came since the last look is.
    asked: Push,
    /// Nothing waited before the last packet.
    lone: bool,
    /// Bursts that had been read when a message was last written at once.
    reads: u64,
}

/// The back: what is being written.
#[derive(Debug)]
struct Writer {
    counts: Arc<Counts>,
    epoch: Epoch,
    wire: Arc<Wire>,
    buffer: BytesMut,
    body: Bytes,
    failed: Option<io::ErrorKind>,
}

impl Output {
    /// An output to this link, the first of its connection.
    pub(super) fn new(wire: Arc<Wire>) -> Self {
        let counts = Arc::new(Counts {
            begun: clock::now(),
            last_write: AtomicU64::new(0),
            backlog: AtomicUsize::new(0),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        });
        let spare = Arc::new(Queue::new(PIECES_KEPT));
        let waiting = Waiting {
            counts: Arc::clone(&counts),
            spare: Arc::clone(&spare),
            epoch: Epoch::FIRST,
            wire: Arc::clone(&wire),
            buffer: BytesMut::new(),
            body: Bytes::new(),
            asked: Push::Later,
            lone: true,
            reads: 0,
        };
        let writer = Writer {
            counts: Arc::clone(&counts),
            epoch: Epoch::FIRST,
            wire,
            buffer: BytesMut::new(),
            body: Bytes::new(),
            failed: None,
        };
        Self { outlet: Outlet::new(waiting, writer), counts, spare }
    }

    /// Adds what `put` writes for the link of `epoch`, and writes to the socket if that is due.
    /// `put` may return a large body that follows; it is not called for a link that is gone.
    ///
    /// # Errors
    /// [`Refused`]. What was left to somebody else is dropped if its link is gone by then: whoever
    /// waits for an answer sees that by the epoch.
    pub(super) fn submit(
        &self,
        epoch: Epoch,
        push: Push,
        put: impl FnOnce(&mut BytesMut) -> Option<Bytes>,
    ) -> Result<Submitted, Refused> {
        let (mut stale, mut seen) = (false, None);
        let add = |waiting: Option<&mut Waiting>| match waiting {
            Some(waiting) if waiting.epoch == epoch => {
                self.count(waiting.add(push, put));
                None
            }
            Some(_) => {
                stale = true;
                None
            }
            None => {
                let mut bytes = self.spare.pop().unwrap_or_default();
                if let Some(body) = put(&mut bytes) {
                    bytes.extend_from_slice(&body);
                }
                self.count(bytes.len());
                Some(Piece::Bytes { epoch, bytes, push })
            }
        };
        let due = self.outlet.send(add, |writer| seen = Some(writer.outcome(epoch)));
        match seen {
            _ if stale => Err(Refused::Stale),
            Some(outcome) => outcome,
            None if due || push == Push::Later => Ok(Submitted::Settled),
            None => Ok(Submitted::Left),
        }
    }

    /// Writes everything that waits, as far as the socket takes it.
    ///
    /// # Errors
    /// [`Refused::Failed`], as of [`submit`](Self::submit), if the link of `epoch` failed.
    pub(super) fn flush(&self, epoch: Epoch) -> Result<(), Refused> {
        let mut seen = Ok(Submitted::Settled);
        if self.backlog() > 0 {
            self.outlet.write(|writer| seen = writer.outcome(epoch));
        }
        seen.map(|_submitted| ())
    }

    /// Goes on with another link; what was not written to the last one is dropped.
    pub(super) fn relink(&self, epoch: Epoch, wire: Arc<Wire>) {
        let add = |waiting: Option<&mut Waiting>| match waiting {
            Some(waiting) => {
                waiting.relink(epoch, wire);
                None
            }
            None => Some(Piece::Link { epoch, wire }),
        };
        // A failure is the next one's to see.
        self.outlet.send(add, |_writer| ());
    }

    /// Bytes that are not written yet.
    pub(super) fn backlog(&self) -> usize {
        // Relaxed: a count; the caller's own bytes are in it, which is all a flush needs.
        self.counts.backlog.load(Ordering::Relaxed)
    }

    /// Whether senders should wait for room.
    pub(super) fn is_full(&self) -> bool {
        self.backlog() > BACKLOG_BYTES_MAX
    }

    /// How often something was written; for idle times.
    pub(super) fn writes(&self) -> u64 {
        // Relaxed: a statistic.
        self.counts.writes.load(Ordering::Relaxed)
    }

    /// Bursts read so far on this connection.
    pub(super) fn reads(&self) -> u64 {
        // Relaxed: a statistic.
        self.counts.reads.load(Ordering::Relaxed)
    }

    /// Counts a burst that was read.
    pub(super) fn count_read(&self) {
        // Relaxed: a statistic.
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self, more: usize) {
        // Relaxed: see `backlog`.
        self.counts.backlog.fetch_add(more, Ordering::Relaxed);
    }
}

impl Counts {
    /// Nanoseconds since the beginning.
    fn now(&self) -> u64 {
        let passed = clock::now().saturating_duration_since(self.begun);
        u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
    }

    /// So many bytes do not wait any more.
    fn count_off(&self, bytes: usize) {
        // Relaxed: see `backlog`.
        self.backlog.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Front for Waiting {
    type Piece = Piece;
    type Back = Writer;

    fn gather(&mut self, piece: Piece) {
        match piece {
            Piece::Bytes { epoch, mut bytes, push } => {
                if epoch == self.epoch {
                    self.add(push, |buffer| {
                        buffer.extend_from_slice(&bytes);
                        None
                    });
                } else {
                    self.counts.count_off(bytes.len());
                }
                if bytes.capacity() <= PIECE_BYTES_KEPT {
                    bytes.clear();
                    // With enough of them kept, this one goes.
                    drop(self.spare.push(bytes));
                }
            }
            Piece::Link { epoch, wire } => self.relink(epoch, wire),
            Piece::Call => self.asked = Push::Now,
        }
    }

    fn is_due(&mut self) -> bool {
        let len = self.len();
        match std::mem::replace(&mut self.asked, Push::Later) {
            Push::Now => len > 0,
            Push::Later => len >= WRITE_LATER_BYTES,
            Push::Soon => {
                // Relaxed: a statistic. What is sent after something was received is likely to be
                // waited for.
                let reads = self.counts.reads.load(Ordering::Relaxed);
                let due = len >= WRITE_BYTES || self.reads != reads || self.is_quiet();
                if due {
                    // The answer to a pause (Now) is not yet what was sent because of the burst.
                    self.reads = reads;
                }
                due
            }
        }
    }

    fn hand_over(&mut self, writer: &mut Writer) {
        if self.len() == 0 {
            return;
        }
        if writer.epoch != self.epoch {
            (writer.epoch, writer.wire) = (self.epoch, Arc::clone(&self.wire));
            writer.failed = None;
        }
        std::mem::swap(&mut self.buffer, &mut writer.buffer);
        writer.body = std::mem::take(&mut self.body);
    }

    fn call() -> Piece {
        Piece::Call
    }
}

impl Waiting {
    fn len(&self) -> usize {
        self.buffer.len() + self.body.len()
    }

    /// Adds a packet; returns how many bytes it has.
    fn add(&mut self, push: Push, put: impl FnOnce(&mut BytesMut) -> Option<Bytes>) -> usize {
        // A large body that something goes behind is copied after all.
        if !self.body.is_empty() {
            self.buffer.extend_from_slice(&std::mem::take(&mut self.body));
        }
        let before = self.buffer.len();
        self.lone = before == 0;
        self.body = put(&mut self.buffer).unwrap_or_default();
        self.asked = self.asked.max(push);
        self.len() - before
    }

    fn relink(&mut self, epoch: Epoch, wire: Arc<Wire>) {
        self.counts.count_off(self.len());
        self.buffer.clear();
        self.body = Bytes::new();
        (self.epoch, self.wire) = (epoch, wire);
    }

    /// Whether the last write is so long ago that a message should not wait for others.
    fn is_quiet(&self) -> bool {
        // Relaxed: a statistic.
        let last = self.counts.last_write.load(Ordering::Relaxed);
        let settled = if self.lone { SETTLED_LONE } else { SETTLED };
        last == 0 || self.counts.now().saturating_sub(last) > settled
    }
}

impl Back for Writer {
    fn write(&mut self) {
        let before = self.len();
        if before == 0 {
            return;
        }
        if self.failed.is_none() {
            self.send();
            // Relaxed, both: statistics.
            self.counts.writes.fetch_add(1, Ordering::Relaxed);
            self.counts.last_write.store(self.counts.now(), Ordering::Relaxed);
        }
        if self.failed.is_some() {
            // Nobody will ever write it.
            self.clear();
        }
        self.counts.count_off(before - self.len());
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Writer {
    fn len(&self) -> usize {
        self.buffer.len() + self.body.len()
    }

    fn send(&mut self) {
        while self.len() > 0 {
            match self.wire.send(&self.buffer, &self.body) {
                Ok(0) => return,
                // All at once, as nearly always: the buffer begins anew where it began.
                Ok(sent) if sent == self.len() => self.clear(),
                Ok(sent) => {
                    let head = sent.min(self.buffer.len());
                    self.buffer.advance(head);
                    self.body.advance(sent - head);
                }
                Err(error) => {
                    self.failed = Some(error.kind());
                    return;
                }
            }
        }
    }

    fn clear(&mut self) {
        self.body = Bytes::new();
        self.buffer.clear();
        if self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = BytesMut::new();
        }
    }

    /// How far the link of `epoch` got. What was left of the one before it fails, too, and says
    /// nothing about this one.
    fn outcome(&self, epoch: Epoch) -> Result<Submitted, Refused> {
        match self.failed {
            Some(_) if self.epoch != epoch => Ok(Submitted::Settled),
            Some(kind) => Err(Refused::Failed(kind)),
            None if self.is_empty() => Ok(Submitted::Settled),
            None => Ok(Submitted::Left),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::{Epoch, Output, Push, Refused, Submitted};
    use crate::{client::socket::Wire, sync::Arc};

    fn wire(listener: &TcpListener) -> Arc<Wire> {
        let (wire, _timeout) = Wire::connect(listener.local_addr().unwrap(), None).unwrap();
        Arc::new(wire)
    }

    #[test]
    fn what_was_left_of_a_lost_link_does_not_fail_the_next_one() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let first = wire(&listener);
        let output = Output::new(Arc::clone(&first));
        let send = |epoch, bytes: &[u8]| {
            output.submit(epoch, Push::Now, |buffer| {
                buffer.extend_from_slice(bytes);
                None
            })
        };
        // Nobody reads, so some of it is left in the writer.
        let many = vec![0; 64 * 1024];
        while send(Epoch::FIRST, &many) == Ok(Submitted::Settled) {}
        first.shut_down();
        let next = Epoch::FIRST.next().next();
        output.relink(next, wire(&listener));
        assert!(output.backlog() > 0);
        assert_eq!(output.flush(next), Ok(()));
        assert_eq!(output.backlog(), 0);
        assert_eq!(send(Epoch::FIRST, b"old"), Err(Refused::Stale));
        assert_eq!(send(next, b"new"), Ok(Submitted::Settled));
    }
}
