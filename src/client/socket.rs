//! What a client's bytes go through: a socket, blocking, with flags where a call must not block; or
//! pipes to a broker in the same process.
//!
//! A wait for input is one `recv`, bounded by the socket's receive timeout, which is changed only
//! when a deadline asks for another one. Writing never blocks; a writer that finds the socket full
//! waits in [`Wire::wait_ready`], for both directions, so that two sides that fill each other's
//! buffers cannot stop each other.

use std::{
    io::{self, IoSlice},
    net::{Shutdown, SocketAddr},
    time::Duration,
};

use bytes::BytesMut;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{clock, in_process};
use crate::in_process::ClientEnd;

/// The longest single wait for input. Conditions that no packet announces are seen that late.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);

/// How to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Only what is there.
    Poll,
    /// Until something comes, for so long at most.
    For(Duration),
}

/// The way to one broker.
#[derive(Debug)]
pub(super) enum Wire {
    /// A connected socket.
    Socket(Socket),
    /// Pipes within this process.
    InProcess(ClientEnd),
}

/// The receive timeout the socket has, so that it is set only when another one is needed.
#[derive(Debug)]
pub(super) struct ReadTimeout(Duration);

/// What is possible now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) input: bool,
}

impl Wire {
    /// Connects, within `timeout` if there is one.
    pub(super) fn connect(
        address: SocketAddr,
        timeout: Option<Duration>,
    ) -> io::Result<(Self, ReadTimeout)> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        let target = SockAddr::from(address);
        match timeout {
            Some(timeout) => socket.connect_timeout(&target, timeout)?,
            None => socket.connect(&target)?,
        }
        socket.set_tcp_nodelay(true)?;
        socket.set_read_timeout(Some(HEARTBEAT))?;
        Ok((Self::Socket(socket), ReadTimeout(HEARTBEAT)))
    }

    /// Over pipes.
    pub(super) const fn in_process(end: ClientEnd) -> (Self, ReadTimeout) {
        (Self::InProcess(end), ReadTimeout(HEARTBEAT))
    }

    /// Where this end is; within a process an address that stands for it.
    pub(super) fn local_address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Self::Socket(socket) => Ok(socket.local_addr()?.as_socket()),
            Self::InProcess(end) => Ok(Some(in_process::local_address(end.number()))),
        }
    }

    /// Reads once behind what is in `buffer`, into the room it has. `None` if nothing came in
    /// time, `Some(0)` at the end of the stream.
    pub(super) fn receive(
        &self,
        buffer: &mut BytesMut,
        wait: Wait,
        timeout: &mut ReadTimeout,
    ) -> io::Result<Option<usize>> {
        match self {
            Self::Socket(socket) => receive(socket, buffer, wait, timeout),
            Self::InProcess(end) => {
                let mut got = end.read(buffer);
                if let (None, Wait::For(longest)) = (got, wait) {
                    end.wait_for_input(clock::now() + longest.min(HEARTBEAT));
                    got = end.read(buffer);
                }
                Ok(got)
            }
        }
    }

    /// Writes what is taken now; 0 if nothing is.
    pub(super) fn send(&self, head: &[u8], tail: &[u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => send(socket, head, tail),
            Self::InProcess(end) => end.write(head, tail),
        }
    }

    /// Waits until output is taken, or there is input if `for_input`, for `longest` at most.
    pub(super) fn wait_ready(&self, for_input: bool, longest: Duration) -> io::Result<Ready> {
        match self {
            Self::Socket(socket) => wait_ready(socket, for_input, longest),
            Self::InProcess(end) => {
                end.wait_for_room(for_input, clock::now() + longest);
                Ok(Ready { input: end.has_input() })
            }
        }
    }

    /// Ends both directions; whoever reads sees the end of the stream.
    pub(super) fn shut_down(&self) {
        match self {
            // An error means that it is not connected any more, which is what was wanted.
            Self::Socket(socket) => drop(socket.shutdown(Shutdown::Both)),
            Self::InProcess(end) => end.close(),
        }
    }
}

fn receive(
    socket: &Socket,
    buffer: &mut BytesMut,
    wait: Wait,
    timeout: &mut ReadTimeout,
) -> io::Result<Option<usize>> {
    let flags = match wait {
        Wait::Poll => libc::MSG_DONTWAIT,
        Wait::For(longest) => {
            let longest = longest.min(HEARTBEAT);
            if timeout.0 > longest || timeout.0 < longest / 2 {
                // A little less than asked for, so that the same wish, which is a few
                // microseconds less each time, need not change it again. The caller looks
                // again anyway. 0 would be no timeout at all.
                let wanted = if longest == HEARTBEAT { longest } else { longest / 8 * 7 };
                timeout.0 = wanted.max(Duration::from_millis(1));
                socket.set_read_timeout(Some(timeout.0))?;
            }
            0
        }
    };
    match socket.recv_with_flags(buffer.spare_capacity_mut(), flags) {
        Ok(len) => {
            let filled = buffer.len() + len;
            // SAFETY: `recv` has written the first `len` bytes of the spare capacity, which
            // begins at the buffer's length and is at least that long.
            #[allow(unsafe_code, reason = "the kernel fills memory that was not zeroed")]
            unsafe {
                buffer.set_len(filled);
            }
            Ok(Some(len))
        }
        Err(error) if is_nothing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn send(socket: &Socket, head: &[u8], tail: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let sent = if tail.is_empty() {
        socket.send_with_flags(head, flags)
    } else {
        let both = [IoSlice::new(head), IoSlice::new(tail)];
        socket.send_vectored_with_flags(&both, flags)
    };
    match sent {
        Err(error) if is_nothing(&error) => Ok(0),
        sent => sent,
    }
}

fn wait_ready(socket: &Socket, for_input: bool, longest: Duration) -> io::Result<Ready> {
    let input = if for_input { libc::POLLIN } else { 0 };
    let mut polled = libc::pollfd {
        fd: std::os::fd::AsRawFd::as_raw_fd(socket),
        events: libc::POLLOUT | input,
        revents: 0,
    };
    let millis = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX).max(1);
    // SAFETY: the pointer is to one `pollfd` that lives across the call, and the count is 1.
    #[allow(unsafe_code, reason = "no safe wrapper of poll is at hand")]
    let count = unsafe { libc::poll(&raw mut polled, 1, millis) };
    if count < 0 {
        let error = io::Error::last_os_error();
        return if is_nothing(&error) { Ok(Ready { input: false }) } else { Err(error) };
    }
    let ended = libc::POLLHUP | libc::POLLERR;
    Ok(Ready { input: polled.revents & (libc::POLLIN | ended) != 0 })
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
