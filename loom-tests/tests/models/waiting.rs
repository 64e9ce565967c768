//! `sync/waiting.rs`: nobody waits for a condition that holds (W1, W2).

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};
use tidegate::internals::sync::Waiting;

use crate::support::{Canary, canary, model};

pub const CANARIES: &[Canary] = &[canary("waiting.fence", "waiting::who_waits_is_found")];

#[test]
fn who_waits_is_found() {
    model("who_waits_is_found", || {
        let waiting: Arc<Waiting<u8>> = Arc::new(Waiting::default());
        let holds = Arc::new(AtomicBool::new(false));
        let found = Arc::new(AtomicUsize::new(0));
        let look = |waiting: &Waiting<u8>, holds: &AtomicBool, found: &AtomicUsize| {
            let taken = waiting.take_if(|| holds.load(Ordering::Relaxed));
            found.fetch_add(taken.len(), Ordering::Relaxed);
        };
        let waiter = {
            let (waiting, holds, found) =
                (Arc::clone(&waiting), Arc::clone(&holds), Arc::clone(&found));
            thread::spawn(move || {
                if holds.load(Ordering::Relaxed) {
                    found.fetch_add(1, Ordering::Relaxed);
                } else {
                    waiting.wait(7);
                    look(&waiting, &holds, &found);
                }
            })
        };
        holds.store(true, Ordering::Relaxed);
        look(&waiting, &holds, &found);
        waiter.join().unwrap();
        assert_eq!(found.load(Ordering::Relaxed), 1, "found by one of the two, once");
    });
}
