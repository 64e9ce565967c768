//! Sessions spread over few connections.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scenario.rs"]
mod scenario;

use std::{
    collections::HashSet,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use scenario::{DEADLINE, Stage, nothing, queue, send, text, wait_until};
use tidegate::{
    client::{
        AcknowledgeMode, ConnectionFactory, ReceiveError, SharedConnections, SharedSession,
        SharingError,
    },
    message::{DeliveryMode, Message},
    pool::{AcquireError, PoolSettings},
};

const AUTO: AcknowledgeMode = AcknowledgeMode::Auto;

fn shared(factory: ConnectionFactory, max: i64, min: i64) -> SharedConnections {
    let settings = PoolSettings::builder().max_shared(max).min_shared(min).build().unwrap();
    SharedConnections::new(factory, settings)
}

fn sessions(connections: &SharedConnections, count: usize) -> Vec<SharedSession> {
    (0..count).map(|_| connections.session(AUTO).unwrap()).collect()
}

/// Passes connections on to a broker until it cuts them all.
struct Cutter {
    address: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cutter {
    fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let open = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&open);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let broker = TcpStream::connect(&target).unwrap();
                for (from, to) in [(&client, &broker), (&broker, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || {
                        let mut buffer = [0; 16 * 1024];
                        while let Ok(len @ 1..) = from.read(&mut buffer) {
                            if to.write_all(&buffer[..len]).is_err() {
                                break;
                            }
                        }
                        let _ended = to.shutdown(Shutdown::Write);
                    });
                }
                all.lock().unwrap().push(client);
            }
        });
        Self { address, open }
    }

    fn factory(&self) -> ConnectionFactory {
        let mut factory = ConnectionFactory::new();
        factory.address_list(&format!("mqtcp://{}/jms", self.address)).unwrap();
        factory
    }

    fn cut_all(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            stream.shutdown(Shutdown::Both).unwrap();
        }
    }
}

#[test]
fn sessions_are_spread_evenly_and_give_their_places_back() {
    let stage = Stage::new();
    let connections = shared(stage.factory(), 3, 1);
    let mut all = sessions(&connections, 8);
    assert_eq!(connections.usage(), [Some(3), Some(3), Some(2)]);
    let places: HashSet<_> = all.iter().map(SharedSession::place).collect();
    assert_eq!(places.len(), 3);
    // Whoever comes next goes where fewest are.
    all.retain(|session| session.place() != Some(1));
    assert_eq!(connections.usage()[1], None, "it was above the minimum");
    all.extend(sessions(&connections, 2));
    assert_eq!(connections.usage(), [Some(3), Some(2), Some(2)]);
    for session in all {
        session.close().unwrap();
    }
    assert_eq!((connections.counts().open, connections.counts().sessions), (1, 0));
    let report = connections.shutdown();
    assert_eq!((report.closed, report.in_use), (1, 0));
    let none = connections.session(AUTO);
    assert!(matches!(none, Err(SharingError::Acquire(AcquireError::Shutdown))), "{none:?}");
}

#[test]
fn sessions_of_many_threads_work_over_two_connections() {
    let stage = Stage::new();
    let connections = shared(stage.factory(), 2, 2);
    let to = queue("sharing.threads");
    let counted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let (connections, to) = (&connections, &to);
                scope.spawn(move || {
                    let session = connections.session(AUTO).unwrap();
                    if n % 2 == 0 {
                        send(&session, to, 0..50, DeliveryMode::Persistent);
                        return 0;
                    }
                    let consumer = session.create_consumer(to).unwrap();
                    (0..50)
                        .filter(|_| consumer.receive_timeout(DEADLINE).unwrap().is_some())
                        .count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(counted, 200);
    let counts = connections.counts();
    assert_eq!((counts.open, counts.sessions), (2, 0));
}

#[test]
fn what_was_made_from_a_session_ends_with_it() {
    let stage = Stage::new();
    let connections = shared(stage.factory(), 1, 1);
    let to = queue("sharing.ends");
    let session = connections.session(AcknowledgeMode::Client).unwrap();
    let consumer = session.create_consumer(&to).unwrap();
    let producer = session.create_producer(&to).unwrap();
    producer.send(Message::text("m")).unwrap();
    assert!(consumer.receive_timeout(DEADLINE).unwrap().is_some());
    drop(session);
    assert!(consumer.receive().unwrap().is_none());
    assert!(producer.send(Message::text("too late")).is_err());
    // The connection lives on, and the message is there again.
    let session = connections.session(AUTO).unwrap();
    let again = session.create_consumer(&to).unwrap();
    let message = again.receive_timeout(DEADLINE).unwrap().unwrap();
    assert_eq!((text(&message).as_str(), message.is_redelivered()), ("m", true));
    nothing(&again);
}

#[test]
fn lost_connections_are_replaced_when_sessions_come() {
    let stage = Stage::new();
    let Some(broker) = stage.embedded() else { return };
    let cutter = Cutter::start(broker.jms_address().to_string());
    let connections = shared(cutter.factory(), 2, 2);
    let before = sessions(&connections, 4);
    let consumer = before[0].create_consumer(&queue("sharing.lost")).unwrap();
    cutter.cut_all();
    let told = consumer.receive();
    assert!(matches!(told, Err(ReceiveError::Connection(_))), "{told:?}");
    wait_until("all notice", || {
        before.iter().all(|session| session.create_producer(&queue("sharing.lost")).is_err())
    });
    // No session was dropped, so nobody has told the pool; it finds out by itself.
    let after = sessions(&connections, 2);
    for session in &after {
        let producer = session.create_producer(&queue("sharing.lost")).unwrap();
        producer.send(Message::text("m")).unwrap();
    }
    drop(before);
    assert_eq!(connections.counts().sessions, 2);
    let third = connections.session(AUTO).unwrap();
    assert!(third.create_producer(&queue("sharing.lost")).is_ok());
    drop(third);
    // Now the sessions go first.
    cutter.cut_all();
    wait_until("both notice", || {
        after.iter().all(|session| session.create_producer(&queue("sharing.lost")).is_err())
    });
    drop(after);
    assert_eq!(connections.usage()[0], None, "its last session has told");
    for session in sessions(&connections, 3) {
        assert!(session.create_producer(&queue("sharing.lost")).is_ok());
    }
}

#[test]
fn without_sharing_each_session_has_its_own_connection() {
    let stage = Stage::new();
    let connections = SharedConnections::new(stage.factory(), PoolSettings::default());
    let all = sessions(&connections, 3);
    assert_eq!((connections.counts().own, connections.usage().len()), (3, 0));
    assert!(all.iter().all(|session| session.place().is_none()));
    drop(all);
    assert_eq!(connections.counts().own, 0);
}

#[test]
fn a_broker_that_is_not_there_is_the_error_s_cause() {
    let mut factory = ConnectionFactory::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    factory.address_list(&format!("mqtcp://{free}/jms")).unwrap();
    factory.address_list_iterations(Some(1));
    let connections = shared(factory, 2, 1);
    let error = connections.session(AUTO).unwrap_err();
    assert!(matches!(error, SharingError::Acquire(AcquireError::Connect(_))), "{error:?}");
    assert_eq!(connections.counts().open, 0);
}
