//! A socket as the lean clients use it, and what has arrived on it.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    ops::Range,
    str, thread,
};

use tidegate::wire::{Flags, HEADER_LEN, PacketType};

/// Most bytes of one read.
const READ_BYTES: usize = 256 * 1024;

/// What somebody does who has nothing to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Sleeps in the system call.
    Block,
    /// Tries again, and yields in between.
    Spin,
}

impl Wait {
    /// Its name among the settings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Spin => "spin",
        }
    }
}

impl str::FromStr for Wait {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Self::Block, Self::Spin].into_iter().find(|wait| wait.name() == name).ok_or(())
    }
}

/// A stream of bytes with a way to wait for it.
pub(crate) struct Link(TcpStream);

impl Link {
    pub(crate) fn new(stream: TcpStream, wait: Wait) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(None).unwrap();
        stream.set_nonblocking(wait == Wait::Spin).unwrap();
        Self(stream)
    }

    /// Another handle of the same socket.
    pub(crate) fn share(&self) -> Self {
        Self(self.0.try_clone().unwrap())
    }

    /// Reads once; 0 at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> usize {
        loop {
            if let Some(count) = self.try_read(buffer) {
                return count;
            }
            thread::yield_now();
        }
    }

    /// Reads once, if there is something.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match self.0.read(buffer) {
            Ok(count) => Some(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            // The other end was stopped.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(0),
            Err(error) => panic!("{error}"),
        }
    }

    /// Writes all of it; `false` if the other end is gone.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match self.0.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return false,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
                Err(error) => panic!("{error}"),
            }
        }
        true
    }

    /// Reads exactly so much; `false` at the end.
    pub(crate) fn read_exact(&mut self, buffer: &mut [u8]) -> bool {
        let mut at = 0;
        while at < buffer.len() {
            match self.read(&mut buffer[at..]) {
                0 => return false,
                count => at += count,
            }
        }
        true
    }
}

/// Bytes that arrived, looked at packet by packet without taking any of them out.
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    /// Where the whole packets are.
    whole: Range<usize>,
    end: usize,
}

impl Incoming {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; READ_BYTES], whole: 0..0, end: 0 }
    }

    /// Forgets the packets that were there and reads once; `false` at the end of the stream.
    pub(crate) fn fill(&mut self, link: &mut Link) -> bool {
        self.bytes.copy_within(self.whole.end..self.end, 0);
        self.end -= self.whole.end;
        let count = link.read(&mut self.bytes[self.end..]);
        self.end += count;
        let mut whole = 0;
        while let Some(size) = self.size_at(whole).filter(|size| whole + size <= self.end) {
            whole += size;
        }
        self.whole = 0..whole;
        count > 0
    }

    /// The packets that have arrived whole.
    pub(crate) fn packets(&self) -> impl Iterator<Item = View<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let size = self.size_at(at).filter(|size| at + size <= self.whole.end)?;
            at += size;
            Some(View(&self.bytes[at - size..at]))
        })
    }

    /// The size of the packet that starts here.
    fn size_at(&self, at: usize) -> Option<usize> {
        let size = self.bytes[at..self.end].get(8..12)?;
        Some(u32::from_be_bytes(size.try_into().unwrap()) as usize)
    }
}

/// A packet where it lies.
#[derive(Clone, Copy)]
pub(crate) struct View<'a>(pub(crate) &'a [u8]);

impl<'a> View<'a> {
    pub(crate) fn kind(self) -> PacketType {
        PacketType(u16::from_be_bytes([self.0[6], self.0[7]]))
    }

    pub(crate) fn has(self, flag: Flags) -> bool {
        Flags::from_bits(u16::from_be_bytes([self.0[62], self.0[63]])).contains(flag)
    }

    /// The consumer it goes to, or the request it replies to.
    pub(crate) fn consumer(self) -> &'a [u8; 8] {
        self.0[64..HEADER_LEN].try_into().unwrap()
    }

    pub(crate) fn id(self) -> &'a [u8; 32] {
        self.0[20..52].try_into().unwrap()
    }
}
