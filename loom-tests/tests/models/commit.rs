//! The way into the store: what two threads leave behind one gate, in the gate's order, reaches the
//! one that commits in that order, each unit once, and whoever waits for it hears of it.

use loom::sync::{Arc, Notify};
use loom::thread;
use tidegate::internals::sync::{AtomicU64, Entered, Gate, Inbox, Mailbox, Ordering, Wake};

use crate::support::{Canary, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("mailbox.look", "commit::units_are_committed_in_the_order_of_their_gate"),
    canary("gate.enter", "commit::units_are_committed_in_the_order_of_their_gate"),
];

struct Bell(Arc<Notify>);

impl Wake for Bell {
    fn wake(&self) {
        self.0.notify();
    }
}

/// A destination: what is left with it is numbered behind its gate, and goes on as a unit.
struct Place {
    inbox: Inbox<()>,
    gate: Gate<u64>,
    commits: Mailbox<u64, Bell>,
    /// What is stored, told by the committer.
    stored: AtomicU64,
}

impl Place {
    fn produce(&self) {
        self.inbox.push(());
        let entered = self.gate.enter(|last| {
            while self.inbox.pop().is_some() {
                *last += 1;
                self.commits.send(*last);
            }
            true
        });
        assert_ne!(entered, Entered::More);
    }
}

#[test]
fn units_are_committed_in_the_order_of_their_gate() {
    model("units_are_committed_in_the_order_of_their_gate", || {
        let bell = Arc::new(Notify::new());
        let place = Arc::new(Place {
            inbox: Inbox::new(),
            gate: Gate::new(0),
            commits: Mailbox::new(Bell(Arc::clone(&bell))),
            stored: AtomicU64::new(0),
        });
        let producer = Arc::clone(&place);
        let producer = thread::spawn(move || producer.produce());
        let committer = Arc::clone(&place);
        let committer = thread::spawn(move || {
            let mut committed = Vec::new();
            while committed.len() < 2 {
                while let Some(unit) = committer.commits.receive() {
                    committed.push(unit);
                    committer.stored.store(unit, Ordering::Relaxed);
                }
                if committed.len() < 2 && committer.commits.prepare_sleep() {
                    bell.wait();
                    committer.commits.awake();
                }
            }
            committed
        });
        place.produce();
        producer.join().unwrap();
        assert_eq!(committer.join().unwrap(), [1, 2]);
        assert_eq!(place.stored.load(Ordering::Relaxed), 2);
    });
}
