//! Connections before they are served: where from, and how they are watched.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use mio::net::TcpStream;

use crate::{
    in_process::{Bell, Door, InProcess, ServerEnd},
    reactor::{Io, Tcp, Transport},
    sync::{Arc, Plain},
};

use super::{
    connections::Home,
    server::{LoopMailbox, Mail},
};

/// Where a connection's client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerAddress {
    /// Behind a socket.
    Tcp(SocketAddr),
    /// In this process, with the number of the connection there.
    InProcess(u32),
}

impl PeerAddress {
    /// The address that decides who may log in. This process is on this machine.
    pub(super) const fn ip(self) -> IpAddr {
        match self {
            Self::Tcp(address) => address.ip(),
            Self::InProcess(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// The host as administrators see it.
    pub(super) fn host(self) -> String {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().to_string(),
            Self::InProcess(_) => "in-process".to_owned(),
        }
    }

    /// The port as administrators see it; within this process the connection's number.
    pub(super) fn port(self) -> i32 {
        match self {
            Self::Tcp(address) => address.port().into(),
            Self::InProcess(number) => number.cast_signed(),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::InProcess(number) => write!(f, "in-process:{number}"),
        }
    }
}

/// A connection that was accepted.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A socket, and whose.
    Tcp(TcpStream, SocketAddr),
    /// Two pipes.
    InProcess(ServerEnd),
}

impl Arrival {
    /// Where from.
    pub(super) fn peer(&self) -> PeerAddress {
        match self {
            Self::Tcp(_, peer) => PeerAddress::Tcp(*peer),
            Self::InProcess(end) => PeerAddress::InProcess(end.number()),
        }
    }

    /// Watches it from here on. Who is not told of the first input by the poller reads without.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn watch(self, io: &Io, home: &Home) -> io::Result<Watched> {
        // Through a plain box, as the facade's pointer may not be able to turn into a trait object.
        let (transport, is_polled): (Box<dyn Transport>, _) = match self {
            Self::Tcp(mut stream, _) => {
                io.register(&mut stream, home.key)?;
                stream.set_nodelay(true)?;
                (Box::new(Tcp::new(stream)), true)
            }
            Self::InProcess(end) => {
                end.set_bell(Plain::new(LoopBell(home.clone())));
                (Box::new(end), false)
            }
        };
        Ok(Watched { transport: Arc::from(transport), is_polled })
    }
}

/// A connection whose loop learns of what happens on it.
#[derive(Debug)]
pub(super) struct Watched {
    /// Its bytes.
    pub transport: Arc<dyn Transport>,
    /// Whether the poller says when there is input; else it comes as mail, and is read until there
    /// is none.
    pub is_polled: bool,
}

/// Rings at the loop that serves a connection.
struct LoopBell(Home);

impl Bell for LoopBell {
    fn input(&self) {
        self.0.mailbox.send(Mail::Input(self.0.key));
    }

    fn room(&self) {
        self.0.mailbox.send(Mail::Room(self.0.key));
    }
}

/// Leads to the loop that accepts.
struct LoopDoor(LoopMailbox);

impl Door for LoopDoor {
    fn enter(&self, end: ServerEnd) {
        self.0.send(Mail::Enter(end));
    }
}

/// The way in without sockets.
pub(super) fn in_process(accepts: LoopMailbox) -> InProcess {
    InProcess::new(Plain::new(LoopDoor(accepts)))
}

#[cfg(test)]
mod tests {
    use super::PeerAddress;

    #[test]
    fn a_peer_in_this_process_is_named_so_and_counts_as_local() {
        let peer = PeerAddress::InProcess(7);
        assert!(peer.ip().is_loopback());
        assert_eq!((peer.host().as_str(), peer.port()), ("in-process", 7));
        assert_eq!(peer.to_string(), "in-process:7");
        let mapped = PeerAddress::Tcp("[::ffff:10.0.0.1]:5".parse().unwrap());
        assert_eq!((mapped.host().as_str(), mapped.port()), ("10.0.0.1", 5));
    }
}
