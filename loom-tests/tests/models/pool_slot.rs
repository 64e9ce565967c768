//! `pool/slot.rs` and `pool/table.rs`: what a slot's steps carry (P1 to P4), that one caller gets
//! each of them, and the laws of the table.

use loom::sync::Arc;
use loom::thread;
use tidegate::internals::pool::{
    Assigned, Left, Place, Released, Settled, Slot, State, Surplus, Table, Word,
};

use crate::support::{Canary, Evidence, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("slot.join", "pool_slot::joined_connection_is_visible"),
    canary("slot.opened", "pool_slot::joined_connection_is_visible"),
    canary("slot.leave", "pool_slot::closed_once"),
    canary("slot.emptied", "pool_slot::reopened_seat_is_empty"),
    canary("slot.reserve", "pool_slot::reopened_seat_is_empty"),
    canary("slot.park", "pool_slot::attempt_is_handed_on"),
    canary("slot.take_over", "pool_slot::attempt_is_handed_on"),
    canary("slot.shut", "pool_slot::shutdown_or_the_last_session_closes"),
    canary("floor.clear", "pool_slot::floor_sees_what_became_available"),
    canary("floor.second_look", "pool_slot::floor_is_never_too_high"),
    canary("floor.left", "pool_slot::floor_is_never_too_high"),
    canary("table.choice", "pool_slot::two_sessions_share_evenly"),
    canary("table.surplus", "pool_slot::releases_keep_the_minimum"),
];

/// An open slot with `usage` sessions.
fn open(usage: u64) -> Slot {
    let slot = Slot::new();
    assert!(slot.reserve(slot.peek()));
    assert_eq!(slot.opened(usage), Settled::Done);
    slot
}

/// A table whose slots are open with these numbers of sessions.
fn table<const N: usize>(open_min: usize, usage: [u64; N]) -> Table {
    let table = Table::new(N, open_min);
    for (index, usage) in usage.into_iter().enumerate() {
        let slot = table.slot(index);
        assert!(slot.reserve(slot.peek()));
        table.count_opened();
        assert_eq!(slot.opened(usage), Settled::Done);
    }
    table
}

fn place(index: usize) -> Place {
    Place { index, generation: 0 }
}

#[test]
fn joined_connection_is_visible() {
    model("joined_connection_is_visible", || {
        let shared = Arc::new((Slot::new(), Evidence::new()));
        let session = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let (slot, seat) = &*session;
            let seen = slot.peek();
            if Word::rank_is_joinable(seen.rank()) && slot.join(seen) {
                assert_eq!(seat.find(), 7);
            }
        });
        let (slot, seat) = &*shared;
        assert!(slot.reserve(slot.peek()));
        seat.leave(7);
        assert_eq!(slot.opened(0), Settled::Done);
        thread.join().unwrap();
    });
}

#[test]
fn closed_once() {
    model("closed_once", || {
        let shared = Arc::new((open(2), [Evidence::new(), Evidence::new()]));
        let session = |number: usize| {
            let shared = Arc::clone(&shared);
            move || {
                let (slot, used) = &*shared;
                used[number].leave(1);
                match slot.leave(0, Surplus::Yes) {
                    Left::Retired => {
                        // The closer has seen everybody's use.
                        assert_eq!(used[0].find() + used[1].find(), 2);
                        slot.emptied();
                        1
                    }
                    Left::Stays(_) => 0,
                    Left::Stale => panic!("nobody condemned it"),
                }
            }
        };
        let thread = thread::spawn(session(0));
        let closed = session(1)() + thread.join().unwrap();
        assert_eq!(closed, 1);
        assert_eq!((shared.0.peek().state(), shared.0.peek().generation()), (State::Empty, 1));
    });
}

#[test]
fn reopened_seat_is_empty() {
    model("reopened_seat_is_empty", || {
        let shared = Arc::new((open(1), Evidence::new()));
        let driver = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let (slot, seat) = &*driver;
            let seen = slot.peek();
            if seen.is_vacant() && slot.reserve(seen) {
                assert_eq!(seat.find(), 1);
                seat.leave(2);
            }
        });
        let (slot, seat) = &*shared;
        assert_eq!(slot.leave(0, Surplus::Yes), Left::Retired);
        seat.leave(1);
        slot.emptied();
        thread.join().unwrap();
    });
}

#[test]
fn attempt_is_handed_on() {
    model("attempt_is_handed_on", || {
        let shared = Arc::new((Slot::new(), Evidence::new()));
        let next = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let (slot, attempt) = &*next;
            let seen = slot.peek();
            if seen.is_dormant() && slot.take_over(seen) {
                assert_eq!(attempt.find(), 3);
            }
        });
        let (slot, attempt) = &*shared;
        assert!(slot.reserve(slot.peek()));
        attempt.leave(3);
        assert_eq!(slot.park(), Settled::Done);
        thread.join().unwrap();
    });
}

#[test]
fn shutdown_or_the_last_session_closes() {
    model("shutdown_or_the_last_session_closes", || {
        let shared = Arc::new((open(1), Evidence::new()));
        let session = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let (slot, used) = &*session;
            used.leave(1);
            u32::from(slot.leave(0, Surplus::No) == Left::Retired)
        });
        let (slot, used) = &*shared;
        let by_shutdown = slot.shut();
        if by_shutdown {
            assert_eq!(used.find(), 1);
        }
        let closed = thread.join().unwrap() + u32::from(by_shutdown);
        assert_eq!(closed, 1);
        assert!(!slot.shut(), "a second shutdown finds nothing");
    });
}

#[test]
fn shutdown_and_the_driver_settle_who_closes() {
    model("shutdown_and_the_driver_settle_who_closes", || {
        let slot = Arc::new(Slot::new());
        assert!(slot.reserve(slot.peek()));
        let driver = Arc::clone(&slot);
        let thread = thread::spawn(move || match driver.opened(0) {
            // Nobody uses it: shutdown closes it, whenever it comes.
            Settled::Done => 0,
            Settled::Shut => 1,
        });
        let by_shutdown = u32::from(slot.shut());
        assert_eq!(thread.join().unwrap() + by_shutdown, 1);
    });
}

#[test]
fn a_condemned_connection_is_never_joined_and_its_counts_are_gone() {
    model("a_condemned_connection_is_never_joined", || {
        let slot = Arc::new(open(1));
        let other = Arc::clone(&slot);
        let thread = thread::spawn(move || {
            let seen = other.peek();
            let joined = Word::rank_is_joinable(seen.rank()) && other.join(seen);
            // Whoever joined in time leaves, and finds its count or finds it gone.
            joined.then(|| other.leave(0, Surplus::No))
        });
        let sessions = slot.condemn(0).expect("condemned once");
        let joined = thread.join().unwrap();
        match joined {
            None => assert_eq!(sessions, 1),
            Some(Left::Stale) => assert_eq!(sessions, 2),
            Some(Left::Stays(_)) => assert_eq!(sessions, 1),
            Some(Left::Retired) => panic!("the minimum was not exceeded"),
        }
        assert_eq!((slot.peek().state(), slot.peek().usage()), (State::Retiring, 0));
    });
}

#[test]
fn two_sessions_share_evenly() {
    model("two_sessions_share_evenly", || {
        let table = Arc::new(table(2, [1, 1]));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || other.assign_open());
        let mine = table.assign_open();
        let theirs = thread.join().unwrap();
        assert!(matches!((mine, theirs), (Assigned::Joined(_), Assigned::Joined(_))));
        // Joins only raise counts, so whoever comes second finds the other one lower.
        let usage = [0, 1].map(|index| table.slot(index).peek().usage());
        assert_eq!(usage, [2, 2]);
    });
}

#[test]
fn floor_is_never_too_high() {
    model("floor_is_never_too_high", || {
        // Three sessions each: who comes finds three and proposes that; who leaves makes it two.
        let table = Arc::new(table(2, [3, 3]));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            assert_eq!(other.release(place(1)), Released::Done);
        });
        let joined = table.assign_open();
        thread.join().unwrap();
        let usage = [0, 1].map(|index| table.slot(index).peek().usage());
        assert!(table.floor() <= usage[0].min(usage[1]), "{} of {usage:?}", table.floor());
        assert!(matches!(joined, Assigned::Joined(_)));
    });
}

#[test]
fn floor_sees_what_became_available() {
    model("floor_sees_what_became_available", || {
        let table = Arc::new(Table::new(2, 2));
        for index in [0, 1] {
            let slot = table.slot(index);
            assert!(slot.reserve(slot.peek()));
        }
        table.count_opened();
        assert_eq!(table.slot(0).opened(3), Settled::Done);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            other.count_opened();
            assert_eq!(other.slot(1).opened(1), Settled::Done);
            other.became_available();
        });
        let joined = table.assign_open();
        thread.join().unwrap();
        let usage = [0, 1].map(|index| table.slot(index).peek().usage());
        assert!(table.floor() <= usage[0].min(usage[1]), "{} of {usage:?}", table.floor());
        assert!(matches!(joined, Assigned::Joined(_)));
    });
}

#[test]
fn never_more_than_the_table_has() {
    model("never_more_than_the_table_has", || {
        let table = Arc::new(Table::new(1, 1));
        let session = |table: Arc<Table>| match table.assign() {
            Assigned::Reserved(place) => {
                table.count_opened();
                assert_eq!(table.slot(place.index).opened(1), Settled::Done);
                1
            }
            Assigned::Joined(_) | Assigned::Nothing => 0,
            other => panic!("{other:?}"),
        };
        let threads = [0, 1].map(|_| {
            let table = Arc::clone(&table);
            thread::spawn(move || session(table))
        });
        let opened: u32 = threads.map(|thread| thread.join().unwrap()).into_iter().sum();
        assert_eq!((opened, table.open()), (1, 1));
    });
}

#[test]
fn releases_keep_the_minimum() {
    model("releases_keep_the_minimum", || {
        let table = Arc::new(table(1, [1, 1]));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || release(&other, 0));
        let closed = release(&table, 1) + thread.join().unwrap();
        assert_eq!((closed, table.open()), (1, 1));
        let unused = [0, 1].map(|index| table.slot(index).peek().rank() == 0);
        assert!(unused[0] != unused[1], "one stays, without a user");
    });
}

#[test]
fn a_connection_that_is_closed_is_not_handed_out() {
    model("a_connection_that_is_closed_is_not_handed_out", || {
        let shared = Arc::new((table(1, [1, 1]), Evidence::new()));
        let leave = |table: &Table, closed: &Evidence| {
            if table.release(place(0)) == Released::Close {
                // Unordered with the look of a session that joined nevertheless.
                closed.leave(1);
                table.slot(0).emptied();
                return 1;
            }
            0
        };
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || leave(&other.0, &other.1));
        let (table, closed) = &*shared;
        let mut times = 0;
        if let Assigned::Joined(Place { index: 0, .. }) = table.assign_open() {
            assert_eq!(closed.find(), 0, "it was closed");
            times += leave(table, closed);
        }
        times += thread.join().unwrap();
        assert_eq!((times, table.open()), (1, 1));
    });
}

fn release(table: &Table, index: usize) -> u32 {
    match table.release(place(index)) {
        Released::Close => {
            table.slot(index).emptied();
            1
        }
        Released::Done | Released::Kept => 0,
    }
}
