//! The buffers a loop reads into.

use std::io;

use bytes::{Bytes, BytesMut};

use super::Transport;

/// Most bytes of one read.
const READ_BYTES: usize = 256 * 1024;
/// Below this much room another buffer is taken, so that reads stay large.
const ROOM_BYTES_MIN: usize = 64 * 1024;
/// Most buffers that may be held by what was read into them before that has to move out.
const HELD_MAX: usize = 64;
/// Most buffers that are kept though nothing holds them.
const FREE_MAX: usize = 16;

/// A few buffers for all connections of a loop. What was read is split off the front and shared; a
/// buffer that nobody shares any more is read into again. An idle connection holds none of it.
///
/// Whoever keeps what was read holds a whole buffer with it. That is cheaper than a copy for what
/// goes soon; so that nothing small holds much for long, what is kept is to move out of its buffer
/// while too many of them [are held](Self::is_crowded).
#[derive(Debug, Default)]
pub struct ReadBuffer {
    current: BytesMut,
    /// Whether `current` was ever anything but empty.
    has_memory: bool,
    used_up: Vec<BytesMut>,
    is_crowded: bool,
}

impl ReadBuffer {
    /// Reads once. Returns what came and whether the transport may have more: a short read means
    /// that it has not.
    ///
    /// # Errors
    /// What the transport says; `UnexpectedEof` at its end.
    pub fn read(&mut self, transport: &dyn Transport) -> io::Result<(Bytes, bool)> {
        if self.current.capacity() < ROOM_BYTES_MIN {
            self.take_another();
        }
        let room = self.current.capacity();
        let count = transport.read(&mut self.current)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok((self.current.split_to(count).freeze(), count == room))
    }

    /// Whether so many buffers are held that what is kept should be copied.
    #[must_use]
    pub const fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    fn take_another(&mut self) {
        let is_free = |one: &mut BytesMut| one.try_reclaim(READ_BYTES);
        let mut free = 0;
        self.used_up.retain_mut(|one| {
            free += usize::from(is_free(one));
            !is_free(one) || free <= FREE_MAX
        });
        self.is_crowded = free == 0 && self.used_up.len() >= HELD_MAX;
        if is_free(&mut self.current) {
            return;
        }
        let next = self.used_up.iter_mut().position(is_free);
        let next = next.map(|at| self.used_up.swap_remove(at)).unwrap_or_default();
        let used_up = std::mem::replace(&mut self.current, next);
        if std::mem::replace(&mut self.has_memory, true) && self.used_up.len() < HELD_MAX {
            self.used_up.push(used_up);
        }
        // Takes new memory unless this is one that nobody shares.
        self.current.reserve(READ_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, IoSlice};

    use bytes::BytesMut;

    use super::{FREE_MAX, HELD_MAX, READ_BYTES, ReadBuffer};
    use crate::reactor::Transport;

    /// Gives as many bytes as there is room for, up to a limit.
    #[derive(Debug)]
    struct Stream(usize);

    impl Transport for Stream {
        fn read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
            let count = self.0.min(buffer.capacity() - buffer.len());
            buffer.resize(buffer.len() + count, 7);
            Ok(count)
        }
        fn write_vectored(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
            Ok(0)
        }
        fn finish(&self) {}
        fn abort(&self) {}
    }

    #[test]
    fn memory_nobody_shares_is_read_into_again() {
        let mut buffer = ReadBuffer::default();
        let mut places = std::collections::HashSet::new();
        for _ in 0..1000 {
            let (bytes, more) = buffer.read(&Stream(READ_BYTES)).unwrap();
            assert!(more && bytes.len() >= READ_BYTES && bytes.iter().all(|&byte| byte == 7));
            places.insert(bytes.as_ptr() as usize);
        }
        assert!(places.len() <= 2, "{} buffers for one that is let go at once", places.len());
    }

    #[test]
    fn what_is_shared_stays_as_it_is_and_costs_new_memory() {
        let mut buffer = ReadBuffer::default();
        let mut kept: Vec<_> =
            (0..HELD_MAX + 2).map(|_| buffer.read(&Stream(READ_BYTES)).unwrap().0).collect();
        assert!(kept.iter().all(|bytes| bytes.iter().all(|&byte| byte == 7)));
        assert!(buffer.is_crowded() && buffer.used_up.len() == HELD_MAX);
        kept.remove(5);
        buffer.read(&Stream(READ_BYTES)).unwrap();
        assert!(!buffer.is_crowded(), "one is free again");
        drop(kept);
        buffer.read(&Stream(READ_BYTES)).unwrap();
        assert!(buffer.used_up.len() <= FREE_MAX, "{} are kept", buffer.used_up.len());
        let (short, more) = buffer.read(&Stream(10)).unwrap();
        assert_eq!((short.len(), more), (10, false));
        assert_eq!(buffer.read(&Stream(0)).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
