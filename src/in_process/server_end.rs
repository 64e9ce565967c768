//! The server's end: never blocking, told through a bell.

use std::{
    fmt,
    io::{self, ErrorKind},
};

use bytes::BytesMut;

use super::{Bell, Link};
use crate::sync::{Arc, Plain};

/// The server's end of a connection. Its drop ends the connection.
pub(crate) struct ServerEnd {
    link: Arc<Link>,
}

impl fmt::Debug for ServerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.link.fmt(f)
    }
}

impl ServerEnd {
    pub(super) const fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    /// Tells connections within this process apart.
    pub(crate) fn number(&self) -> u32 {
        self.link.number
    }

    /// Has this bell rung for what is watched for, from now on. Nothing is watched for before the
    /// first read.
    pub(crate) fn set_bell(&self, bell: Plain<dyn Bell>) {
        self.link.bell.publish(Some(bell));
    }

    /// Reads behind what is in `buffer`, into the room it has; 0 at the end. Who finds nothing is
    /// told of input.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is there.
    pub(crate) fn read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        if let Some(count) = self.take(buffer)? {
            return Ok(count);
        }
        self.link.input.arm();
        let count = self.take(buffer)?;
        if count.is_some() {
            self.link.input.disarm();
        }
        count.ok_or_else(|| ErrorKind::WouldBlock.into())
    }

    fn take(&self, buffer: &mut BytesMut) -> io::Result<Option<usize>> {
        let room = buffer.capacity() - buffer.len();
        match self.link.to_server.read(room, |piece| buffer.extend_from_slice(piece)) {
            Ok(0) => Ok(None),
            Ok(count) => {
                self.link.client.wake_all();
                Ok(Some(count))
            }
            Err(_closed) => Ok(Some(0)),
        }
    }

    /// Writes what fits. Who finds no room is told of it.
    ///
    /// # Errors
    /// `WouldBlock` if nothing fits, `BrokenPipe` if nobody reads any more.
    pub(crate) fn write<'a>(
        &self,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> io::Result<usize> {
        let mut count = self.put(pieces.clone())?;
        if count == 0 {
            self.link.room.arm();
            if self.link.to_client.has_room() {
                self.link.room.disarm();
                count = self.put(pieces)?;
            }
        }
        if count == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    fn put<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let broken = |_closed| io::Error::from(ErrorKind::BrokenPipe);
        let count = self.link.to_client.write(pieces).map_err(broken)?;
        if count > 0 {
            self.link.client.wake_all();
        }
        Ok(count)
    }

    /// Writes nothing more; the client reads what was written, then the end.
    pub(crate) fn finish(&self) {
        self.link.to_client.close();
        self.link.client.wake_all();
    }

    /// Ends both directions; whoever reads here is told, and finds the end.
    pub(crate) fn close(&self) {
        self.link.close();
    }
}

impl Drop for ServerEnd {
    fn drop(&mut self) {
        self.close();
    }
}
