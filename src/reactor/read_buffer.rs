//! The buffer a loop reads into.

use std::io;

use bytes::{Bytes, BytesMut};

use super::Transport;

/// Most bytes of one read.
const READ_BYTES: usize = 256 * 1024;
/// Below this much room a fresh buffer is taken, so that reads stay large.
const ROOM_BYTES_MIN: usize = 64 * 1024;

/// One buffer for all connections of a loop. What was read is split off the front and shared; an
/// idle connection holds none of it.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    bytes: BytesMut,
}

impl ReadBuffer {
    /// Reads once. Returns what came and whether the transport may have more: a short read means
    /// that it has not.
    ///
    /// # Errors
    /// What the transport says; `UnexpectedEof` at its end.
    pub fn read(&mut self, transport: &dyn Transport) -> io::Result<(Bytes, bool)> {
        if self.bytes.len() < ROOM_BYTES_MIN {
            // Keeps the memory if nobody shares it any more, takes new memory if somebody does.
            self.bytes.clear();
            self.bytes.reserve(READ_BYTES);
            self.bytes.resize(READ_BYTES, 0);
        }
        let room = self.bytes.len();
        let count = transport.read(&mut self.bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok((self.bytes.split_to(count).freeze(), count == room))
    }
}
