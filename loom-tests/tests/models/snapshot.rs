//! `sync/snapshot.rs`: the contract that its users may rely on (S1), over the model's stand-in.
//!
//! The same contract is stressed over the real one by the tests of `throttle`.

use loom::sync::Arc;
use loom::thread;
use tidegate::internals::sync::Snapshot;

use crate::support::{Canary, Evidence, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("snapshot.publish", "snapshot::a_read_sees_what_led_to_its_value"),
    canary("snapshot.read", "snapshot::a_read_sees_what_led_to_its_value"),
    canary("snapshot.update", "snapshot::concurrent_updates_lose_nothing"),
];

#[test]
fn a_read_sees_what_led_to_its_value() {
    model("a_read_sees_what_led_to_its_value", || {
        let shared = Arc::new((Snapshot::new(0), Evidence::new()));
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            writer.1.leave(1);
            writer.0.publish(1);
        });
        if shared.0.read(|value| *value) == 1 {
            assert_eq!(shared.1.find(), 1);
        }
        thread.join().unwrap();
    });
}

#[test]
fn reads_of_one_thread_never_go_back() {
    model("reads_of_one_thread_never_go_back", || {
        let shared = Arc::new(Snapshot::new(0));
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            writer.publish(1);
            writer.publish(2);
        });
        let first = shared.read(|value| *value);
        let second = *shared.load_full();
        assert!(second >= first, "{first}, then {second}");
        thread.join().unwrap();
        assert_eq!(*shared.load_full(), 2);
    });
}

#[test]
fn concurrent_updates_lose_nothing() {
    model("concurrent_updates_lose_nothing", || {
        let shared = Arc::new(Snapshot::new(0));
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            other.update(|value| Some(value + 1));
        });
        let (before, after) = shared.update(|value| Some(value + 1));
        assert_eq!(*after.unwrap(), *before + 1);
        thread.join().unwrap();
        assert_eq!(*shared.load_full(), 2);
    });
}
