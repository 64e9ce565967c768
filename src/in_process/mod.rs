//! Connections within one process, without sockets: a pipe each way, and who is told of what.
//!
//! ```text
//!   ClientEnd                                                    ServerEnd
//!   write ----------------> [ pipe ] --------------------------> read
//!     |  tells of input, if the server watches for it: Bell         |
//!     |                                                             |  wakes whoever sleeps
//!   read <----------------- [ pipe ] <-------------------------- write
//! ```
//!
//! The client's threads sleep at a signal until there is input or room, as they would in a system
//! call. The server is an event loop: it is told through its bell, and only of what it watches for.
//! While both sides look by themselves, nobody is told anything.
//!
//! # Ordering
//! Pipes and watches say theirs. A sleeper at the signal looks once more behind the signal's own
//! fence, and whoever changed something wakes the signal behind the change.

mod client_end;
mod server_end;

use std::fmt;

pub(crate) use self::{client_end::ClientEnd, server_end::ServerEnd};
use crate::sync::{Arc, AtomicU32, Ordering, Pipe, Plain, Signal, Snapshot, Watch};

/// The way into an embedded broker without sockets.
///
/// Shape: a handle; clones lead to the same broker. It keeps nothing of the broker running: once
/// that has ended, connections through it are refused.
///
/// A connection has a ring of 128 KiB for each direction, which is also all that one side can be
/// ahead of the other before it has to wait. It has no descriptor and no thread of its own.
///
#[cfg_attr(all(feature = "client", feature = "broker"), doc = "```")]
#[cfg_attr(not(all(feature = "client", feature = "broker")), doc = "```ignore")]
/// use tidegate::{
///     broker::Broker,
///     client::{AcknowledgeMode, ConnectionFactory},
///     message::{Destination, Message},
/// };
///
/// let broker = Broker::builder().listen(([127, 0, 0, 1], 0).into()).start()?;
/// let connection = ConnectionFactory::new().create_connection_in_process(&broker.in_process())?;
/// let session = connection.create_session(AcknowledgeMode::Auto)?;
/// let queue = Destination::queue("orders")?;
/// session.create_producer(&queue)?.send(Message::text("three apples"))?;
/// let consumer = session.create_consumer(&queue)?;
/// connection.start()?;
/// let message = consumer.receive()?.expect("nobody closes the consumer");
/// assert_eq!(message.body_text()?.as_deref(), Some("three apples"));
/// connection.close()?;
/// broker.shutdown();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct InProcess {
    door: Plain<dyn Door>,
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").finish_non_exhaustive()
    }
}

/// Takes in connections: a broker.
pub(crate) trait Door: Send + Sync {
    /// Somebody connects. An end that is dropped refuses the connection.
    fn enter(&self, end: ServerEnd);
}

/// How a server is told of what it watches for.
pub(crate) trait Bell: Send + Sync {
    /// There is input or the end.
    fn input(&self);
    /// There is room again, or nobody reads any more.
    fn room(&self);
}

impl InProcess {
    /// A way through this door.
    pub(crate) fn new(door: Plain<dyn Door>) -> Self {
        Self { door }
    }

    /// Connects. Whether the broker takes the connection shows when something is read from it.
    pub(crate) fn connect(&self) -> ClientEnd {
        let link = Arc::new(Link::new());
        self.door.enter(ServerEnd::new(Arc::clone(&link)));
        ClientEnd::new(link)
    }
}

/// Number of the last connection of this process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// What the two ends share.
struct Link {
    /// Tells connections within this process apart.
    number: u32,
    to_server: Pipe,
    to_client: Pipe,
    /// Where the client's threads sleep.
    client: Signal,
    /// The server watches for input.
    input: Watch,
    /// The server watches for room.
    room: Watch,
    bell: Snapshot<Option<Plain<dyn Bell>>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Link {
    fn new() -> Self {
        Self {
            // Relaxed: only the number's uniqueness matters.
            number: NUMBER.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
            to_server: Pipe::new(),
            to_client: Pipe::new(),
            client: Signal::new(),
            input: Watch::new(),
            room: Watch::new(),
            bell: Snapshot::new(None),
        }
    }

    /// Something was written to the server, or ended.
    fn tell_of_input(&self) {
        if self.input.claim() {
            self.bell.read(|bell| bell.iter().for_each(|bell| bell.input()));
        }
    }

    /// Something was read from the server, or nobody reads any more.
    fn tell_of_room(&self) {
        if self.to_client.has_room() && self.room.claim() {
            self.bell.read(|bell| bell.iter().for_each(|bell| bell.room()));
        }
    }

    fn close(&self) {
        self.to_server.close();
        self.to_client.close();
        self.tell_of_input();
        self.tell_of_room();
        self.client.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use bytes::BytesMut;

    use super::{Bell, ClientEnd, Door, InProcess, ServerEnd};
    use crate::sync::{AtomicUsize, Inbox, Ordering, Plain};

    #[derive(Default)]
    struct Broker {
        entered: Inbox<ServerEnd>,
        input: AtomicUsize,
        room: AtomicUsize,
    }

    impl Door for Broker {
        fn enter(&self, end: ServerEnd) {
            self.entered.push(end);
        }
    }

    impl Bell for Broker {
        fn input(&self) {
            self.input.fetch_add(1, Ordering::Relaxed);
        }
        fn room(&self) {
            self.room.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Broker {
        fn rung(&self) -> (usize, usize) {
            (self.input.load(Ordering::Relaxed), self.room.load(Ordering::Relaxed))
        }
    }

    fn ends() -> (Plain<Broker>, ClientEnd, ServerEnd) {
        let broker = Plain::new(Broker::default());
        let door: Plain<Broker> = Plain::clone(&broker);
        let client = InProcess::new(door).connect();
        let server = broker.entered.pop().unwrap();
        let bell: Plain<Broker> = Plain::clone(&broker);
        server.set_bell(bell);
        (broker, client, server)
    }

    fn read(server: &ServerEnd) -> Result<Vec<u8>, ErrorKind> {
        let mut buffer = BytesMut::with_capacity(1024 * 1024);
        server.read(&mut buffer).map_err(|error| error.kind())?;
        Ok(buffer.to_vec())
    }

    #[test]
    fn a_server_is_told_once_and_only_of_what_it_found_missing() {
        let (broker, client, server) = ends();
        client.write(b"a", b"b").unwrap();
        assert_eq!(broker.rung(), (0, 0), "it has not looked yet");
        assert_eq!(read(&server).unwrap(), b"ab");
        client.write(b"c", b"").unwrap();
        assert_eq!(broker.rung(), (0, 0), "it may look again by itself");
        assert_eq!(read(&server).unwrap(), b"c");
        assert_eq!(read(&server), Err(ErrorKind::WouldBlock));
        client.write(b"d", b"").unwrap();
        client.write(b"e", b"").unwrap();
        assert_eq!(broker.rung(), (1, 0));
        assert_eq!(read(&server).unwrap(), b"de");
    }

    #[test]
    fn a_server_that_found_no_room_is_told_once_there_is_much() {
        let (broker, client, server) = ends();
        let large = vec![7; 1024 * 1024];
        let full = server.write([&large[..]].into_iter()).unwrap();
        assert!(full < large.len());
        let error = server.write([&large[..]].into_iter()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let mut few = BytesMut::with_capacity(full / 4);
        assert_eq!(client.read(&mut few), Some(full / 4));
        assert_eq!(broker.rung(), (0, 0), "not for a little");
        let mut rest = BytesMut::with_capacity(full);
        assert_eq!(client.read(&mut rest), Some(full - full / 4));
        assert_eq!(broker.rung(), (0, 1));
        assert_eq!(client.read(&mut rest), None);
    }

    #[test]
    fn the_end_of_either_side_is_told_and_what_was_written_arrives() {
        let (broker, client, server) = ends();
        assert_eq!(read(&server), Err(ErrorKind::WouldBlock));
        server.write([&b"bye"[..]].into_iter()).unwrap();
        client.write(b"gone", b"").unwrap();
        assert_eq!(read(&server).unwrap(), b"gone");
        assert_eq!(read(&server), Err(ErrorKind::WouldBlock));
        drop(client);
        assert_eq!(broker.rung(), (2, 0));
        assert_eq!(read(&server).unwrap(), b"");
        let error = server.write([&b"more"[..]].into_iter()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);

        let (_broker, client, server) = ends();
        server.write([&b"bye"[..]].into_iter()).unwrap();
        drop(server);
        let mut buffer = BytesMut::with_capacity(100);
        assert_eq!(client.read(&mut buffer), Some(3));
        assert_eq!(client.read(&mut buffer), Some(0));
        assert_eq!(client.write(b"x", b"").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
