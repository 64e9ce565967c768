//! `sync/helm.rs`: one driver at a time (H1), and while somebody stands by, somebody drives (H2).

use std::{future::Future, pin::Pin, task};

use loom::sync::Arc;
use loom::thread;
use tidegate::internals::sync::{AtomicBool, Helm, Ordering, Signal};

use crate::support::{Canary, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("gate.try", "helm::helm_has_one_driver"),
    canary("helm.stand_by", "helm::helm_is_taken_over"),
    canary("helm.pass_on", "helm::a_future_passes_its_call_on"),
];

/// A socket with one packet for each of two waiters, in an order that the model chooses.
struct Wire {
    helm: Helm<Vec<usize>>,
    arrived: [AtomicBool; 2],
    signals: [tidegate::internals::sync::Arc<Signal>; 2],
}

impl Wire {
    /// Packets for these waiters, the last one first.
    fn new(packets: &[usize]) -> Self {
        Self {
            helm: Helm::new(packets.to_vec()),
            arrived: [AtomicBool::new(false), AtomicBool::new(false)],
            signals: [(); 2].map(|()| tidegate::internals::sync::Arc::new(Signal::new())),
        }
    }

    /// Waits as a thread of the client does.
    fn wait(&self, me: usize) {
        // Relaxed: the signal's fences and the helm order what the flag stands for.
        let ready = || self.arrived[me].load(Ordering::Relaxed).then_some(());
        self.helm.wait(
            &self.signals[me],
            None,
            ready,
            |packets, ready| loop {
                if let Some(done) = ready() {
                    return done;
                }
                let packet = packets.pop().expect("who waits has a packet to come");
                self.arrived[packet].store(true, Ordering::Relaxed);
                self.signals[packet].wake_all();
            },
            || {},
        );
    }
}

#[test]
fn helm_has_one_driver() {
    // The helm's own cell is the evidence: loom ends the model if two drives are not ordered.
    model("helm_has_one_driver", || {
        let helm = Arc::new(Helm::new(0));
        let other = Arc::clone(&helm);
        let drive = |helm: &Helm<u32>| u32::from(helm.try_take(|count| *count += 1).is_some());
        let thread = thread::spawn(move || drive(&other));
        let mine = drive(&helm);
        let drives = mine + thread.join().unwrap();
        assert!(drives >= 1);
        assert_eq!(helm.try_take(|count| *count), Some(drives));
        assert!(!helm.is_taken());
    });
}

#[test]
fn helm_is_taken_over() {
    // The main thread's packet comes first, so whenever it drives it leaves the other's unread; if
    // the other sleeps then and is not called, the model ends in a deadlock.
    model("helm_is_taken_over", || {
        let wire = Arc::new(Wire::new(&[1, 0]));
        let other = Arc::clone(&wire);
        let thread = thread::spawn(move || other.wait(1));
        wire.wait(0);
        thread.join().unwrap();
        assert!(!wire.helm.is_taken());
    });
}

#[test]
fn each_waiter_gets_its_own_when_the_other_reads_it() {
    model("each_waiter_gets_its_own_when_the_other_reads_it", || {
        let wire = Arc::new(Wire::new(&[0, 1]));
        let other = Arc::clone(&wire);
        let thread = thread::spawn(move || other.wait(1));
        wire.wait(0);
        thread.join().unwrap();
        assert!(!wire.helm.is_taken());
    });
}

#[test]
fn a_future_passes_its_call_on() {
    // The future listens first, so that it is the one who is called when the main thread leaves.
    model("a_future_passes_its_call_on", || {
        let wire = Arc::new(Wire::new(&[1]));
        let mut called = wire.signals[1].listen();
        let other = Arc::clone(&wire);
        let thread = thread::spawn(move || other.wait(1));
        wire.helm.try_take(|_packets| ());
        let mut context = task::Context::from_waker(task::Waker::noop());
        if Pin::new(&mut called).poll(&mut context).is_pending() {
            // One that is dropped passes a call on by itself to another at its signal.
            drop(called);
        }
        wire.helm.hand_over();
        thread.join().unwrap();
    });
}
