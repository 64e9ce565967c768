//! `pool/turn.rs`: one operation at a time (T1), handed over to who waits (T2, T3), none lost.

use loom::sync::Arc;
use loom::thread;
use tidegate::internals::pool::{Granted, TurnQueue, Waiting};
use tidegate::internals::sync::block_on;

use crate::support::{Canary, Evidence, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("turn.take", "pool_turn::one_operation_at_a_time"),
    canary("turn.pass", "pool_turn::one_operation_at_a_time"),
    canary("turn.wait", "pool_turn::turn_is_handed_over"),
    canary("turn.announce", "pool_turn::turn_is_handed_over"),
    canary("turn.pass_on", "pool_turn::a_turn_that_came_to_nobody_carries_what_was_done"),
    canary("turn.granted", "pool_turn::turn_is_handed_over"),
    canary("turn.notify", "pool_turn::turn_is_handed_over"),
];

struct Connection {
    turn: TurnQueue,
    used: Evidence,
}

impl Connection {
    fn new() -> Self {
        Self { turn: TurnQueue::new(), used: Evidence::new() }
    }

    /// The caller has the turn: uses the connection as one that nobody else uses.
    fn operate(&self) {
        self.used.leave(self.used.find() + 1);
        self.turn.pass();
    }
}

fn wait(mut waiting: Waiting<'_>) {
    block_on(std::future::poll_fn(|context| waiting.poll(context)), None)
        .expect("without a deadline");
}

fn operation(connection: &Connection) {
    match connection.turn.request(8) {
        Granted::Now => {}
        Granted::Later(waiting) => wait(waiting),
        Granted::TooMany(waiting) => panic!("{waiting} of 8"),
    }
    connection.operate();
}

#[test]
fn one_operation_at_a_time() {
    model("one_operation_at_a_time", || {
        let connection = Arc::new(Connection::new());
        let other = Arc::clone(&connection);
        let thread = thread::spawn(move || {
            let mine = other.turn.take();
            if mine {
                other.operate();
            }
            u32::from(mine)
        });
        let mine = connection.turn.take();
        if mine {
            connection.operate();
        }
        let operations = thread.join().unwrap() + u32::from(mine);
        assert_eq!(connection.used.find(), operations);
        assert!(connection.turn.take(), "the turn is free again");
    });
}

#[test]
fn turn_is_handed_over() {
    model("turn_is_handed_over", || {
        let connection = Arc::new(Connection::new());
        let other = Arc::clone(&connection);
        let thread = thread::spawn(move || operation(&other));
        operation(&connection);
        thread.join().unwrap();
        assert_eq!(connection.used.find(), 2);
        assert!(connection.turn.take(), "the turn is free again");
    });
}

#[test]
fn three_sessions_each_have_their_turn() {
    model("three_sessions_each_have_their_turn", || {
        let connection = Arc::new(Connection::new());
        let threads = [0, 1].map(|_| {
            let connection = Arc::clone(&connection);
            thread::spawn(move || operation(&connection))
        });
        operation(&connection);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(connection.used.find(), 3);
    });
}

#[test]
fn a_place_given_up_loses_no_turn() {
    model("a_place_given_up_loses_no_turn", || {
        let connection = Arc::new(Connection::new());
        assert!(connection.turn.take());
        let impatient = Arc::clone(&connection);
        let thread = thread::spawn(move || match impatient.turn.request(8) {
            Granted::Now => impatient.operate(),
            Granted::Later(waiting) => drop(waiting),
            Granted::TooMany(waiting) => panic!("{waiting} of 8"),
        });
        connection.operate();
        operation(&connection);
        thread.join().unwrap();
        assert!(connection.turn.take(), "whoever gave up did not keep the turn");
        assert!(connection.used.find() >= 2);
    });
}

#[test]
fn a_turn_that_came_to_nobody_carries_what_was_done() {
    model("a_turn_that_came_to_nobody_carries_what_was_done", || {
        let connection = Arc::new(Connection::new());
        assert!(connection.turn.take());
        let impatient = Arc::clone(&connection);
        let impatient = thread::spawn(move || {
            if let Granted::Later(waiting) = impatient.turn.request(8) {
                drop(waiting);
            } else {
                impatient.turn.pass();
            }
        });
        let next = Arc::clone(&connection);
        let next = thread::spawn(move || {
            if next.turn.take() {
                next.operate();
            }
        });
        connection.operate();
        impatient.join().unwrap();
        next.join().unwrap();
        assert!(connection.turn.take());
    });
}

#[test]
fn turns_come_in_order_of_arrival() {
    model("turns_come_in_order_of_arrival", || {
        let connection = Arc::new(Connection::new());
        assert!(connection.turn.take());
        let holder = Arc::clone(&connection);
        let Granted::Later(first) = connection.turn.request(8) else { panic!("it is taken") };
        let Granted::Later(mut second) = connection.turn.request(8) else { panic!("it is taken") };
        let thread = thread::spawn(move || holder.operate());
        wait(first);
        assert_eq!(connection.used.find(), 1);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(second.poll(&mut context).is_pending(), "the first comes first");
        connection.operate();
        assert!(second.poll(&mut context).is_ready());
        connection.operate();
        thread.join().unwrap();
        assert_eq!(connection.used.find(), 3);
    });
}
