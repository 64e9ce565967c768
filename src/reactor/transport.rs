//! Byte streams under a connection.

use std::{
    fmt,
    io::{self, IoSlice, Write},
    net::Shutdown,
};

use bytes::BytesMut;
use mio::net::TcpStream;
use socket2::SockRef;

use super::calls;
use crate::in_process::ServerEnd;

/// A non-blocking byte stream. Its reading half is used by the loop that owns the connection, its
/// writing half by whoever is inside the connection's output gate.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Reads what is there behind what is in the buffer, as far as it has room; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is there yet; anything else ends the connection.
    fn read(&self, buffer: &mut BytesMut) -> io::Result<usize>;

    /// Writes as much as fits.
    ///
    /// # Errors
    /// `WouldBlock` if nothing fits now; anything else ends the connection.
    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends the writing half; the peer reads what was written, then the end.
    fn finish(&self);

    /// Ends both halves at once; whoever reads here finds the end.
    fn abort(&self);
}

/// TCP.
#[derive(Debug)]
pub struct Tcp(TcpStream);

impl Tcp {
    /// Wraps a stream that is registered with a poller.
    #[must_use]
    pub const fn new(stream: TcpStream) -> Self {
        Self(stream)
    }
}

impl Transport for Tcp {
    fn read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        let socket = SockRef::from(&self.0);
        let count = retry(|| socket.recv(buffer.spare_capacity_mut()))?;
        // SAFETY: the kernel has written `count` bytes to the spare capacity, from its start.
        #[allow(unsafe_code, reason = "the kernel fills memory that was not zeroed")]
        unsafe {
            buffer.set_len(buffer.len() + count);
        }
        Ok(count)
    }

    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        retry(|| (&self.0).write_vectored(slices))
    }

    fn finish(&self) {
        // The peer may be gone already; then there is nobody to tell.
        drop(self.0.shutdown(Shutdown::Write));
    }

    fn abort(&self) {
        drop(self.0.shutdown(Shutdown::Both));
    }
}

/// Pipes to a client in this process.
impl Transport for ServerEnd {
    fn read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        Self::read(self, buffer)
    }

    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write(slices.iter().map(|slice| &**slice))
    }

    fn finish(&self) {
        Self::finish(self);
    }

    fn abort(&self) {
        self.close();
    }
}

fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        calls::count();
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
