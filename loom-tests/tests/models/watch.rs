//! `sync/watch.rs`: no change is missed (V1), who is told finds what was prepared (V2).

use loom::{
    sync::{
        Arc, Notify,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};
use tidegate::internals::sync::Watch;

use crate::support::{Canary, Evidence, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("watch.arm", "watch::no_change_is_missed"),
    canary("watch.claim", "watch::no_change_is_missed"),
    canary("watch.ready", "watch::who_is_told_is_ready"),
    canary("watch.told", "watch::who_is_told_is_ready"),
];

#[test]
fn no_change_is_missed() {
    model("no_change_is_missed", || {
        let watch = Arc::new(Watch::new());
        let changed = Arc::new(AtomicBool::new(false));
        let told = Arc::new(Notify::new());
        let changer = {
            let (watch, changed, told) =
                (Arc::clone(&watch), Arc::clone(&changed), Arc::clone(&told));
            thread::spawn(move || {
                changed.store(true, Ordering::Relaxed);
                if watch.claim() {
                    told.notify();
                }
            })
        };
        // A change that is missed is a deadlock.
        watch.arm();
        if !changed.load(Ordering::Relaxed) {
            told.wait();
        }
        changer.join().unwrap();
    });
}

#[test]
fn one_of_two_tells() {
    model("one_of_two_tells", || {
        let watch = Arc::new(Watch::new());
        let told = Arc::new(AtomicUsize::new(0));
        watch.arm();
        let tell = |watch: &Watch, told: &AtomicUsize| {
            if watch.claim() {
                told.fetch_add(1, Ordering::Relaxed);
            }
        };
        let other = {
            let (watch, told) = (Arc::clone(&watch), Arc::clone(&told));
            thread::spawn(move || tell(&watch, &told))
        };
        tell(&watch, &told);
        other.join().unwrap();
        assert_eq!(told.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn who_is_told_is_ready() {
    model("who_is_told_is_ready", || {
        let watch = Arc::new(Watch::new());
        let bell = Arc::new(Evidence::new());
        let changer = {
            let (watch, bell) = (Arc::clone(&watch), Arc::clone(&bell));
            thread::spawn(move || {
                if watch.claim() {
                    assert_eq!(bell.find(), 7);
                }
            })
        };
        bell.leave(7);
        watch.arm();
        changer.join().unwrap();
    });
}
