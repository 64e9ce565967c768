//! What an application does, an operation at a time.

use std::time::Duration;

use super::{
    hostile::{Hostile, Order},
    reached::ClientReached,
};
use crate::{
    client::{
        AcknowledgeMode, Connection, ConnectionFactory, Consumer, ConsumerOptions, Producer,
        Session, XaCommit, XaEnd, XaResource, XaSession, XaStart,
    },
    in_process::InProcess,
    message::{DeliveryMode, Destination, DestinationKind, Message},
    proto::transaction::Xid,
    sync::{AtomicU64, Ordering, Plain},
};

/// Most of each kind at one time.
const EACH_MAX: usize = 4;
/// The longest wait for a message that may not come.
const SHORT: Duration = Duration::from_millis(1);

/// `None` if there was nothing to do it with.
type Outcome = Option<Result<(), String>>;

/// One operation: its name, and how to do it.
type Operation = (&'static str, fn(&mut World, u8) -> Outcome);

/// All operations. Where one is chosen, the byte beside it says with what and how.
pub(super) const OPERATIONS: [Operation; 34] = [
    ("connect", World::connect),
    ("create_session", World::create_session),
    ("create_consumer", World::create_consumer),
    ("create_producer", World::create_producer),
    ("start", |world, _| done(world.connection.as_ref()?.start())),
    ("stop", |world, _| done(world.connection.as_ref()?.stop())),
    ("broker_speaks", World::listen),
    ("broker_speaks_again", World::listen),
    ("receive", World::receive),
    ("try_receive", World::try_receive),
    ("send", World::send),
    ("send_async", World::send_async),
    ("acknowledge", |world, way| done(pick(&world.sessions, way)?.acknowledge())),
    ("acknowledge_message", World::acknowledge_message),
    ("commit", |world, way| done(pick(&world.sessions, way)?.commit())),
    ("rollback", |world, way| done(pick(&world.sessions, way)?.rollback())),
    ("recover", |world, way| done(pick(&world.sessions, way)?.recover())),
    ("browse", World::browse),
    ("set_listener", World::set_listener),
    ("set_client_id", World::set_client_id),
    ("unsubscribe", |world, way| done(pick(&world.sessions, way)?.unsubscribe("d"))),
    ("create_temporary", World::create_temporary),
    ("delete_temporary", World::delete_temporary),
    ("close_consumer", |world, way| done(take(&mut world.consumers, way)?.close())),
    ("close_producer", |world, way| done(take(&mut world.producers, way)?.close())),
    ("close_session", |world, way| done(take(&mut world.sessions, way)?.close())),
    ("create_xa_session", World::create_xa_session),
    ("branch_start", World::branch_start),
    ("branch_end", World::branch_end),
    ("branch_settle", World::branch_settle),
    ("branch_recover", |world, way| done(world.resource(way)?.recover())),
    ("drop_something", World::drop_something),
    ("close_connection", World::close_connection),
    ("drop_connection", World::drop_connection),
];

/// Operations without an outcome.
pub(super) const NEVER_FAIL: [&str; 4] =
    ["broker_speaks", "broker_speaks_again", "drop_something", "drop_connection"];

/// An application and what it has.
pub(super) struct World {
    factory: ConnectionFactory,
    way: InProcess,
    hostile: Plain<Hostile>,
    connection: Option<Connection>,
    sessions: Vec<Session>,
    consumers: Vec<Consumer>,
    producers: Vec<Producer>,
    /// What was received last.
    messages: Vec<Message>,
    temporaries: Vec<Destination>,
    xa: Vec<XaSession>,
    /// Asynchronous sends that were accepted, and completions that ran.
    accepted: u64,
    completed: Plain<AtomicU64>,
    reached: ClientReached,
}

fn pick<T>(from: &[T], way: u8) -> Option<&T> {
    from.get(usize::from(way) % from.len().max(1))
}

fn take<T>(from: &mut Vec<T>, way: u8) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(usize::from(way) % from.len()))
}

/// An error must be able to say what it is.
fn done<T, E: std::error::Error>(result: Result<T, E>) -> Outcome {
    let Err(error) = result else { return Some(Ok(())) };
    let text = error.to_string();
    assert!(!text.is_empty(), "an error says something: {error:?}");
    Some(Err(text))
}

/// Keeps what was made, if there is a place for it.
fn keep<T, E: std::error::Error>(place: &mut Vec<T>, made: Result<T, E>) -> Outcome {
    done(made.map(|made| {
        if place.len() >= EACH_MAX {
            place.remove(0);
        }
        place.push(made);
    }))
}

/// Looks at all of a message; whatever is in it, this works or says why not.
fn look_at(message: &Message) {
    let _text = message.body_text().map_err(|error| error.to_string());
    let _body = message.body().map_err(|error| error.to_string());
    let _bytes = message.body_bytes().map_err(|error| error.to_string());
    let _all = message.properties().map_err(|error| error.to_string());
    let _one = message.property("n").map_err(|error| error.to_string());
    let _names = (message.correlation_id(), message.message_type(), message.message_id());
    let _shown = format!("{message:?}");
}

fn destination(way: u8) -> Destination {
    let made = match way % 3 {
        0 => Destination::queue("a"),
        1 => Destination::queue("b"),
        _ => Destination::topic("t"),
    };
    made.expect("good names")
}

fn xid(way: u8) -> Xid {
    Xid::new(7, b"global", &[way % 2]).expect("short names fit")
}

impl World {
    pub(super) fn new(factory: ConnectionFactory, way: InProcess, hostile: Plain<Hostile>) -> Self {
        Self {
            factory,
            way,
            hostile,
            connection: None,
            sessions: Vec::new(),
            consumers: Vec::new(),
            producers: Vec::new(),
            messages: Vec::new(),
            temporaries: Vec::new(),
            xa: Vec::new(),
            accepted: 0,
            completed: Plain::new(AtomicU64::new(0)),
            reached: ClientReached::default(),
        }
    }

    /// Does one operation. Without a connection there is one to be made first.
    pub(super) fn run(&mut self, operation: usize, way: u8) {
        let operation = if self.connection.is_none() { 0 } else { operation };
        let (name, run) = OPERATIONS[operation];
        if let Some(outcome) = run(self, way) {
            self.reached.ended(name, outcome.is_ok());
        }
        let buffered: usize = self.consumers.iter().map(Consumer::buffered).sum();
        assert!(buffered as u64 <= self.hostile.said(), "{buffered} wait, fewer were said");
        // Relaxed: one that is counted later is not counted here.
        let completed = self.completed.load(Ordering::Relaxed);
        assert!(completed <= self.accepted, "a completion ran twice");
    }

    pub(super) fn finish(mut self) -> ClientReached {
        if let Some(connection) = &self.connection {
            let _closed = connection.close();
        }
        let reached = std::mem::take(&mut self.reached);
        self.drop_all();
        reached
    }

    fn drop_all(&mut self) {
        self.messages.clear();
        self.temporaries.clear();
        self.consumers.clear();
        self.producers.clear();
        self.xa.clear();
        self.sessions.clear();
        self.connection = None;
    }

    fn connect(&mut self, _: u8) -> Outcome {
        self.drop_all();
        let made = self.factory.create_connection_in_process(&self.way);
        done(made.map(|connection| self.connection = Some(connection)))
    }

    fn create_session(&mut self, way: u8) -> Outcome {
        let mode = [
            AcknowledgeMode::Auto,
            AcknowledgeMode::Client,
            AcknowledgeMode::DupsOk,
            AcknowledgeMode::Transacted,
            AcknowledgeMode::NoAcknowledge,
        ];
        let mode = mode[usize::from(way) % mode.len()];
        let made = self.connection.as_ref()?.create_session(mode);
        keep(&mut self.sessions, made)
    }

    fn create_consumer(&mut self, way: u8) -> Outcome {
        let session = pick(&self.sessions, way >> 4)?;
        let mut options = ConsumerOptions::new();
        match way % 8 {
            0 => drop(options.selector("n = 1")),
            1 => drop(options.durable("d")),
            2 => drop(options.shared("s")),
            3 => drop(options.shared_durable("sd")),
            4 => drop(options.no_local()),
            _ => {}
        }
        let at = if way % 8 < 5 { destination(2) } else { destination(way) };
        let made = session.create_consumer_with(&at, &options);
        keep(&mut self.consumers, made)
    }

    fn create_producer(&mut self, way: u8) -> Outcome {
        let session = pick(&self.sessions, way >> 4)?;
        let made = if way % 4 == 3 {
            session.create_anonymous_producer()
        } else {
            session.create_producer(&destination(way))
        };
        let made = made.map(|mut producer| {
            let persistent = way & 8 != 0;
            let mode =
                if persistent { DeliveryMode::Persistent } else { DeliveryMode::NonPersistent };
            producer.set_delivery_mode(mode);
            producer
        });
        keep(&mut self.producers, made)
    }

    /// The broker says something; the client reads it when it next has reason to.
    fn listen(&mut self, way: u8) -> Outcome {
        self.hostile.order(Order::Speak { what: way, way: way.wrapping_mul(37) });
        Some(Ok(()))
    }

    fn received<E: std::error::Error>(&mut self, got: Result<Option<Message>, E>) -> Outcome {
        let got = got.map(|message| {
            if let Some(message) = message {
                look_at(&message);
                if self.messages.len() >= EACH_MAX {
                    self.messages.remove(0);
                }
                self.messages.push(message);
            }
        });
        done(got)
    }

    fn receive(&mut self, way: u8) -> Outcome {
        let got = pick(&self.consumers, way)?.receive_timeout(SHORT);
        self.received(got)
    }

    fn try_receive(&mut self, way: u8) -> Outcome {
        let got = pick(&self.consumers, way)?.try_receive();
        self.received(got)
    }

    /// A message, and where to: a producer may have no destination of its own. A broker that gives
    /// no credit is as one that is slow, so it gives some.
    fn outgoing(&self, way: u8) -> (Message, Destination) {
        self.hostile.order(Order::Grant);
        (Message::text("m".repeat(usize::from(way) * 20)), destination(way >> 2))
    }

    fn send(&mut self, way: u8) -> Outcome {
        let (message, to) = self.outgoing(way);
        let producer = pick(&self.producers, way)?;
        done(match producer.send(message) {
            Err(error) if way & 8 != 0 => producer.send_to(&to, error.into_inner()),
            outcome => outcome,
        })
    }

    fn send_async(&mut self, way: u8) -> Outcome {
        let (message, to) = self.outgoing(way);
        let producer = pick(&self.producers, way)?;
        // Counted first, as it may complete before the send returns.
        self.accepted += 1;
        let completed = Plain::clone(&self.completed);
        let completion = move |_outcome| {
            // Relaxed: a count.
            completed.fetch_add(1, Ordering::Relaxed);
        };
        done(producer.send_to_async(&to, message, completion))
    }

    fn acknowledge_message(&mut self, way: u8) -> Outcome {
        let (session, message) = (pick(&self.sessions, way >> 4)?, pick(&self.messages, way)?);
        done(session.acknowledge_message(message))
    }

    fn browse(&mut self, way: u8) -> Outcome {
        let session = pick(&self.sessions, way)?;
        let browser = match session.create_browser(&destination(way % 2), None) {
            Ok(browser) => browser,
            failed => return done(failed),
        };
        let messages = match browser.messages() {
            Ok(messages) => messages,
            failed => return done(failed.map(drop)),
        };
        for message in messages {
            match message {
                Ok(message) => look_at(&message),
                failed => return done(failed),
            }
        }
        Some(Ok(()))
    }

    fn set_listener(&mut self, way: u8) -> Outcome {
        let consumer = pick(&self.consumers, way)?;
        done(consumer.set_listener(|message| look_at(&message)))
    }

    fn set_client_id(&mut self, way: u8) -> Outcome {
        let id = ["c2", "${u}-c", ""][usize::from(way) % 3];
        done(self.connection.as_ref()?.set_client_id(id))
    }

    fn create_temporary(&mut self, way: u8) -> Outcome {
        let kind = if way & 1 == 0 { DestinationKind::Queue } else { DestinationKind::Topic };
        let made = pick(&self.sessions, way)?.create_temporary(kind);
        keep(&mut self.temporaries, made)
    }

    fn delete_temporary(&mut self, way: u8) -> Outcome {
        let gone = take(&mut self.temporaries, way)?;
        done(pick(&self.sessions, way)?.delete_temporary(&gone))
    }

    fn create_xa_session(&mut self, _: u8) -> Outcome {
        let made = self.connection.as_ref()?.create_xa_session();
        if let Ok(xa) = &made {
            // It sends and receives as others do.
            let _kept = keep::<_, std::fmt::Error>(&mut self.sessions, Ok(xa.session().clone()));
        }
        keep(&mut self.xa, made)
    }

    fn resource(&self, way: u8) -> Option<XaResource> {
        pick(&self.xa, way).map(XaSession::resource)
    }

    fn branch_start(&mut self, way: u8) -> Outcome {
        let how = [XaStart::New, XaStart::New, XaStart::Join, XaStart::Resume];
        done(self.resource(way)?.start(&xid(way), how[usize::from(way >> 2) % 4]))
    }

    fn branch_end(&mut self, way: u8) -> Outcome {
        let how = [XaEnd::Success, XaEnd::Success, XaEnd::Fail, XaEnd::Suspend];
        done(self.resource(way)?.end(&xid(way), how[usize::from(way >> 2) % 4]))
    }

    fn branch_settle(&mut self, way: u8) -> Outcome {
        let (resource, xid) = (self.resource(way)?, xid(way));
        match (way >> 2) % 5 {
            0 => done(resource.prepare(&xid)),
            1 => done(resource.commit(&xid, XaCommit::Prepared)),
            2 => done(resource.commit(&xid, XaCommit::OnePhase)),
            3 => done(resource.rollback(&xid)),
            _ => done(resource.forget(&xid)),
        }
    }

    fn drop_something(&mut self, way: u8) -> Outcome {
        match way % 4 {
            0 => drop(take(&mut self.consumers, way >> 2)?),
            1 => drop(take(&mut self.producers, way >> 2)?),
            2 => drop(take(&mut self.sessions, way >> 2)?),
            _ => drop(take(&mut self.xa, way >> 2)?),
        }
        Some(Ok(()))
    }

    fn close_connection(&mut self, way: u8) -> Outcome {
        let closed = done(self.connection.as_ref()?.close());
        // What is done with what is left of it fails.
        if way & 1 == 0 {
            self.drop_all();
        }
        closed
    }

    fn drop_connection(&mut self, _: u8) -> Outcome {
        self.drop_all();
        Some(Ok(()))
    }
}
