//! A stream of bytes from one thread to another, of bounded size.
//!
//! ```text
//!            read                    written
//!  ...freed   |  bytes on their way   |   free...
//!  -----------+-----------------------+----------->  positions, counted up for ever
//! ```
//!
//! The writer copies in behind `written` and moves it; the reader copies out behind `read` and
//! moves that. Nobody waits: a full pipe takes nothing, an empty one gives nothing. Who wants to
//! be told of room or of input has a [`Watch`](super::Watch) or a [`Signal`](super::Signal)
//! beside the pipe.
//!
//! # Invariants
//! - `read` ≤ `written` ≤ `read` + the capacity.
//! - The writer touches free places only, the reader the others only.
//! - One thread at a time writes, and one reads: each end is behind a gate.
//! - The end is seen behind the last byte.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | P1 | store of `written` | load of `written` | the bytes | `bytes_arrive_in_order` |
//! | P2 | store of `read` | load of `read` | the places are free | `bytes_arrive_in_order` |
//! | P3 | store of `closed` | load of `closed` | all that was written before | `the_end_comes_last` |
//!
//! # Source
//! Lamport's queue of one producer and one consumer, with each side's last look at the other kept
//! (`FastForward`, `MCRingBuffer`), so that a core asks for the other's line only when it must.

use std::mem::MaybeUninit;

use super::{AtomicBool, AtomicUsize, CachePadded, Gate, Ordering, UnsafeCell, edge, sized};

/// Bytes of a block. A model sees each access to a block, so there each byte is one.
const BLOCK: usize = sized(4096, 1);
/// Blocks of a pipe.
const BLOCKS: usize = sized(32, 2);
/// Bytes that a pipe holds; a power of two, as positions wrap.
const CAPACITY: usize = BLOCK * BLOCKS;
/// A pipe with so many free bytes has room worth telling of.
const ROOM: usize = CAPACITY / 2;

type Block = [MaybeUninit<u8>; BLOCK];

/// A pipe. See the module's text.
///
/// Shape: a ring of 128 KiB, two positions, a flag.
#[derive(Debug)]
pub struct Pipe {
    blocks: Box<[UnsafeCell<Block>]>,
    closed: AtomicBool,
    written: CachePadded<AtomicUsize>,
    read: CachePadded<AtomicUsize>,
    writer: CachePadded<Gate<Position>>,
    reader: CachePadded<Gate<Position>>,
}

/// Where one end is, and where it last saw the other.
#[derive(Debug, Default)]
struct Position {
    own: usize,
    other: usize,
}

/// The pipe is closed: nothing more goes in or, behind the last byte, comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "it says one thing")]
pub struct Closed;

// SAFETY: a place of a block is accessed by the one writer while it is free and by the one reader
// while it is not; P1 and P2 order the two, the gates keep each of them one.
#[allow(unsafe_code, reason = "the positions say whose each byte is")]
unsafe impl Sync for Pipe {}

impl Default for Pipe {
    fn default() -> Self {
        Self::new()
    }
}

impl Pipe {
    /// An empty pipe. Its memory is touched when bytes first go through it.
    #[must_use]
    pub fn new() -> Self {
        let block = |_| UnsafeCell::new([MaybeUninit::uninit(); BLOCK]);
        Self {
            blocks: (0..BLOCKS).map(block).collect(),
            closed: AtomicBool::new(false),
            written: CachePadded::new(AtomicUsize::new(0)),
            read: CachePadded::new(AtomicUsize::new(0)),
            writer: CachePadded::new(Gate::new(Position::default())),
            reader: CachePadded::new(Gate::new(Position::default())),
        }
    }

    /// Copies in what fits of these pieces, one behind the other; how many bytes that were. 0 also
    /// if another thread is writing.
    ///
    /// # Errors
    /// [`Closed`] if the pipe is.
    pub fn write<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<usize, Closed> {
        let mut pieces = pieces.into_iter();
        let mut outcome = Ok(0);
        let _done = self.writer.try_enter(|writer| {
            // Relaxed: a guess; what is written into a pipe that closes is for nobody.
            if self.closed.load(Ordering::Relaxed) {
                outcome = Err(Closed);
                return true;
            }
            let before = writer.own;
            for piece in pieces.by_ref() {
                if self.copy_in(writer, piece) < piece.len() {
                    break;
                }
            }
            outcome = Ok(writer.own.wrapping_sub(before));
            // Release (P1): the bytes come before the position.
            let publish = edge("pipe.publish", Ordering::Release, Ordering::Relaxed);
            self.written.store(writer.own, publish);
            true
        });
        outcome
    }

    /// Takes out up to `most` bytes, a piece at a time; how many that were. 0 also if another
    /// thread is reading.
    ///
    /// # Errors
    /// [`Closed`] if the pipe is, and empty.
    pub fn read(&self, most: usize, mut take: impl FnMut(&[u8])) -> Result<usize, Closed> {
        let mut outcome = Ok(0);
        let _done = self.reader.try_enter(|reader| {
            // Acquire (P3): what was written before the end is seen by the next load.
            let closed = self.closed.load(edge("pipe.end", Ordering::Acquire, Ordering::Relaxed));
            // Acquire (P1): pairs with `write`.
            let input = edge("pipe.input", Ordering::Acquire, Ordering::Relaxed);
            reader.other = self.written.load(input);
            let count = reader.other.wrapping_sub(reader.own).min(most);
            if count == 0 {
                if closed && reader.other == reader.own {
                    outcome = Err(Closed);
                }
                return true;
            }
            self.copy_out(reader, count, &mut take);
            outcome = Ok(count);
            // Release (P2): the copies come before the places are free.
            let free = edge("pipe.free", Ordering::Release, Ordering::Relaxed);
            self.read.store(reader.own, free);
            true
        });
        outcome
    }

    /// Closes the pipe. Any thread may.
    pub fn close(&self) {
        // Release (P3): this thread's bytes come before the end.
        self.closed.store(true, edge("pipe.close", Ordering::Release, Ordering::Relaxed));
    }

    /// Whether a reader has something to look at, the end included.
    #[must_use]
    pub fn has_input(&self) -> bool {
        // Relaxed: who acts on it reads, which synchronizes; who sleeps on it has passed a fence.
        let read = self.read.load(Ordering::Relaxed);
        self.written.load(Ordering::Relaxed) != read || self.closed.load(Ordering::Relaxed)
    }

    /// Whether a writer should go on: much is free, or the pipe is closed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        // Acquire (P2): what was read had been written, so the next load is not behind this one.
        // Relaxed, the others: as in `has_input`.
        let read = self.read.load(edge("pipe.room", Ordering::Acquire, Ordering::Relaxed));
        let filled = self.written.load(Ordering::Relaxed).wrapping_sub(read);
        filled <= CAPACITY - ROOM || self.closed.load(Ordering::Relaxed)
    }

    fn copy_in(&self, writer: &mut Position, bytes: &[u8]) -> usize {
        let free = |writer: &Position| CAPACITY - writer.own.wrapping_sub(writer.other);
        if free(writer) < bytes.len() {
            // Acquire (P2): pairs with `read`; places that are free are not read any more.
            let room = edge("pipe.room", Ordering::Acquire, Ordering::Relaxed);
            writer.other = self.read.load(room);
        }
        let count = free(writer).min(bytes.len());
        let mut left = &bytes[..count];
        while !left.is_empty() {
            let (block, at) = self.place(writer.own);
            let (now, later) = left.split_at(left.len().min(BLOCK - at));
            block.with_mut(|block| {
                let to = block.cast::<u8>().wrapping_add(at);
                // SAFETY: the places are inside one block and free (P2), this is the one writer
                // (the gate), and no reference to a block is ever made.
                #[allow(unsafe_code, reason = "the reader may be in the same block")]
                unsafe {
                    to.copy_from_nonoverlapping(now.as_ptr(), now.len());
                }
            });
            writer.own = writer.own.wrapping_add(now.len());
            left = later;
        }
        count
    }

    fn copy_out(&self, reader: &mut Position, count: usize, take: &mut impl FnMut(&[u8])) {
        let mut left = count;
        while left > 0 {
            let (block, at) = self.place(reader.own);
            let now = left.min(BLOCK - at);
            block.with(|block| {
                let from = block.cast::<u8>().wrapping_add(at);
                // SAFETY: the places are inside one block and were written (P1); they stay as they
                // are until `read` is moved, behind this call, by this one reader (the gate).
                #[allow(unsafe_code, reason = "the writer may be in the same block")]
                let piece = unsafe { std::slice::from_raw_parts(from, now) };
                take(piece);
            });
            reader.own = reader.own.wrapping_add(now);
            left -= now;
        }
    }

    /// The block of a position, and where in it that is.
    fn place(&self, position: usize) -> (&UnsafeCell<Block>, usize) {
        let at = position % CAPACITY;
        (&self.blocks[at / BLOCK], at % BLOCK)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{CAPACITY, Closed, Pipe, ROOM};

    fn read(pipe: &Pipe, most: usize) -> Result<Vec<u8>, Closed> {
        let mut bytes = Vec::new();
        let count = pipe.read(most, |piece| bytes.extend_from_slice(piece))?;
        assert_eq!(count, bytes.len());
        Ok(bytes)
    }

    #[test]
    fn a_pipe_takes_its_capacity_and_not_a_byte_more() {
        let pipe = Pipe::new();
        let all: Vec<u8> =
            (0..CAPACITY + 1).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
        let (head, tail) = all.split_at(1000);
        assert_eq!(pipe.write([head, tail]), Ok(CAPACITY));
        assert_eq!(pipe.write([&[1][..]]), Ok(0));
        assert!(pipe.has_input() && !pipe.has_room());
        assert_eq!(read(&pipe, ROOM - 1).unwrap(), all[..ROOM - 1]);
        assert!(!pipe.has_room());
        assert_eq!(read(&pipe, 1).unwrap(), all[ROOM - 1..ROOM]);
        assert!(pipe.has_room());
        assert_eq!(read(&pipe, usize::MAX).unwrap(), all[ROOM..CAPACITY]);
        assert!(read(&pipe, usize::MAX).unwrap().is_empty());
        assert!(!pipe.has_input());
    }

    #[test]
    fn bytes_keep_their_order_round_and_round() {
        let pipe = Pipe::new();
        let (mut sent, mut got) = (0_u64, 0_u64);
        // Sizes that share no factor with a block's, so that every place is a border once.
        for round in 0..4000 {
            let piece: Vec<u8> = (0..round % 1021).flat_map(|n| (sent + n).to_le_bytes()).collect();
            assert_eq!(pipe.write([&piece[..]]), Ok(piece.len()));
            sent += round % 1021;
            let bytes = read(&pipe, usize::MAX).unwrap();
            for number in bytes.chunks(8) {
                assert_eq!(number, got.to_le_bytes());
                got += 1;
            }
        }
        assert_eq!(sent, got);
    }

    #[test]
    fn the_end_comes_behind_what_was_written() {
        let pipe = Pipe::new();
        pipe.write([&b"abc"[..]]).unwrap();
        pipe.close();
        assert_eq!(pipe.write([&b"d"[..]]), Err(Closed));
        assert_eq!(read(&pipe, 2).unwrap(), b"ab");
        assert_eq!(read(&pipe, 2).unwrap(), b"c");
        assert_eq!(read(&pipe, 2), Err(Closed));
        assert!(pipe.has_input() && pipe.has_room());
    }
}
