//! The client's end: blocking, as its sockets are.

use std::{
    io::{self, ErrorKind},
    time::Instant,
};

use bytes::BytesMut;

use super::Link;
use crate::sync::Arc;

/// The client's end of a connection. Its drop ends the connection.
#[derive(Debug)]
pub(crate) struct ClientEnd {
    link: Arc<Link>,
}

impl ClientEnd {
    pub(super) const fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    /// Tells connections within this process apart.
    pub(crate) fn number(&self) -> u32 {
        self.link.number
    }

    /// Reads behind what is in `buffer`, into the room it has. `None` if nothing is there,
    /// `Some(0)` at the end.
    pub(crate) fn read(&self, buffer: &mut BytesMut) -> Option<usize> {
        let room = buffer.capacity() - buffer.len();
        match self.link.to_client.read(room, |piece| buffer.extend_from_slice(piece)) {
            Ok(0) => None,
            Ok(count) => {
                self.link.tell_of_room();
                Some(count)
            }
            Err(_closed) => Some(0),
        }
    }

    /// Writes what fits; 0 if nothing does.
    pub(crate) fn write(&self, head: &[u8], tail: &[u8]) -> io::Result<usize> {
        let count = self.link.to_server.write([head, tail]).map_err(|_closed| broken())?;
        if count > 0 {
            self.link.tell_of_input();
        }
        Ok(count)
    }

    /// Sleeps until there is something to read.
    pub(crate) fn wait_for_input(&self, deadline: Instant) {
        self.link.client.sleep_unless(|| self.has_input(), Some(deadline));
    }

    /// Waits until there is room, or something to read if `for_input`.
    pub(crate) fn wait_for_room(&self, for_input: bool, deadline: Instant) {
        let ready = || self.link.to_server.has_room() || for_input && self.has_input();
        self.link.client.sleep_unless(ready, Some(deadline));
    }

    /// Whether there is something to read, the end included.
    pub(crate) fn has_input(&self) -> bool {
        self.link.to_client.has_input()
    }

    /// Ends both directions; both sides still read what was written. Any thread may.
    pub(crate) fn close(&self) {
        self.link.close();
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.close();
    }
}

fn broken() -> io::Error {
    io::Error::from(ErrorKind::BrokenPipe)
}
