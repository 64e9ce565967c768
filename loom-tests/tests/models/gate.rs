//! `sync/gate.rs`: work announced is seen (G1), one runner at a time (G2).

use loom::sync::Arc;
use loom::thread;
use tidegate::internals::sync::{AtomicBool, Entered, Gate, Inbox, Ordering};

use crate::support::{Canary, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("gate.enter", "gate::gate_loses_no_work"),
    canary("gate.again", "gate::gate_loses_no_work"),
    canary("gate.leave", "gate::gate_has_one_runner"),
    canary("gate.resume", "gate::a_bounded_run_loses_no_work"),
];

/// Work for two callers: a flag each, which proves nothing by itself (it is relaxed).
struct Office {
    gate: Gate<[bool; 2]>,
    work: [AtomicBool; 2],
}

impl Office {
    fn new() -> Self {
        Self { gate: Gate::new([false; 2]), work: [AtomicBool::new(false), AtomicBool::new(false)] }
    }

    /// Leaves work and enters; `bounded` runs stop after each look and are resumed.
    fn enter(&self, caller: usize, bounded: bool) {
        // Relaxed: the edge of the gate must make this visible to the run that comes after.
        self.work[caller].store(true, Ordering::Relaxed);
        let mut entered = self.gate.enter(|done| {
            self.look(done);
            !bounded
        });
        while entered == Entered::More {
            entered = self.gate.resume(|done| {
                self.look(done);
                true
            });
        }
    }

    fn look(&self, done: &mut [bool; 2]) {
        for (work, done) in self.work.iter().zip(done) {
            *done |= work.load(Ordering::Relaxed);
        }
    }

    /// Everything that was announced has been seen, once everybody is out.
    fn check(&self) {
        let mut seen = [false; 2];
        let entered = self.gate.enter(|done| {
            seen = *done;
            true
        });
        assert_eq!(entered, Entered::Done, "somebody is still inside");
        assert_eq!(seen, [true; 2], "work was lost");
    }
}

#[test]
fn gate_loses_no_work() {
    model("gate_loses_no_work", || {
        let office = Arc::new(Office::new());
        let other = Arc::clone(&office);
        let thread = thread::spawn(move || other.enter(1, false));
        office.enter(0, false);
        thread.join().unwrap();
        office.check();
    });
}

#[test]
fn a_bounded_run_loses_no_work() {
    model("a_bounded_run_loses_no_work", || {
        let office = Arc::new(Office::new());
        let other = Arc::clone(&office);
        let thread = thread::spawn(move || other.enter(1, false));
        office.enter(0, true);
        thread.join().unwrap();
        office.check();
    });
}

#[test]
fn work_in_an_inbox_is_done_once_by_whoever_is_inside() {
    // As a destination is used: an inbox beside the gate, three callers, one of them bounded.
    model("work_in_an_inbox_is_done_once_by_whoever_is_inside", || {
        let shared = Arc::new((Gate::new(Vec::new()), Inbox::new()));
        let enter = |shared: &(Gate<Vec<u32>>, Inbox<u32>), work: u32, bounded: bool| {
            shared.1.push(work);
            let mut entered = shared.0.enter(|done| {
                while let Some(work) = shared.1.pop() {
                    done.push(work);
                    if bounded {
                        return false;
                    }
                }
                true
            });
            while entered == Entered::More {
                entered = shared.0.resume(|done| {
                    done.extend(std::iter::from_fn(|| shared.1.pop()));
                    true
                });
            }
        };
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || enter(&other, 1, true));
        enter(&shared, 2, false);
        thread.join().unwrap();
        let entered = shared.0.enter(|done| {
            done.sort_unstable();
            assert_eq!(*done, [1, 2]);
            true
        });
        assert_eq!(entered, Entered::Done);
    });
}

#[test]
fn gate_has_one_runner() {
    // The gate's own cell is the evidence: loom ends the model if two runs touch it unordered.
    model("gate_has_one_runner", || {
        let gate = Arc::new(Gate::new(0));
        let threads = [(); 2].map(|()| {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                let _entered = gate.enter(|runs| {
                    *runs += 1;
                    true
                });
            })
        });
        let _entered = gate.enter(|runs| {
            *runs += 1;
            true
        });
        for thread in threads {
            thread.join().unwrap();
        }
        let entered = gate.enter(|runs| {
            assert!((1..=3).contains(runs), "{runs} runs for three announcements");
            true
        });
        assert_eq!(entered, Entered::Done);
    });
}
