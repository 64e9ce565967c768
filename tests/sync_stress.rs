//! What is built from the facade alone, on real threads: the laws of the models, over more steps.
#![cfg(feature = "unstable-internals")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test program")]

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tidegate::internals::sync::{
    AtomicBool, AtomicUsize, Entered, Gate, Inbox, Mailbox, Ordering, Queue, Snapshot, Wake,
};

/// A lost wake shows as a wait that does not end; this ends it.
const DEADLINE: Duration = Duration::from_secs(30);

#[test]
fn a_gate_does_all_work_once_and_in_the_order_of_each_caller() {
    const CALLERS: usize = 3;
    const WORKS: usize = 20_000;
    struct Shared {
        gate: Gate<Vec<Vec<usize>>>,
        inbox: Inbox<(usize, usize)>,
        inside: AtomicBool,
    }
    let shared = Arc::new(Shared {
        gate: Gate::new(vec![Vec::new(); CALLERS]),
        inbox: Inbox::new(),
        inside: AtomicBool::new(false),
    });
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let run = |done: &mut Vec<Vec<usize>>| {
                    assert!(!shared.inside.swap(true, Ordering::Relaxed), "two runners");
                    // A bounded run: at most four at a time.
                    let mut more = 4;
                    while more > 0 {
                        let Some((caller, work)) = shared.inbox.pop() else { break };
                        done[caller].push(work);
                        more -= 1;
                    }
                    shared.inside.store(false, Ordering::Relaxed);
                    more > 0
                };
                for work in 0..WORKS {
                    shared.inbox.push((caller, work));
                    let mut entered = shared.gate.enter(run);
                    while entered == Entered::More {
                        entered = shared.gate.resume(run);
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join().unwrap();
    }
    let expected: Vec<_> = (0..WORKS).collect();
    let entered = shared.gate.enter(|done| {
        for (caller, works) in done.iter().enumerate() {
            assert_eq!(works, &expected, "caller {caller}");
        }
        true
    });
    assert_eq!(entered, Entered::Done);
}

struct Bell {
    ring: mpsc::SyncSender<()>,
    rung: AtomicUsize,
}

impl Wake for Bell {
    fn wake(&self) {
        self.rung.fetch_add(1, Ordering::Relaxed);
        // A bell that is still ringing need not be rung.
        self.ring.try_send(()).ok();
    }
}

#[test]
fn a_mailbox_loses_no_wake_and_no_mail() {
    const SENDERS: usize = 2;
    const MAILS: usize = 30_000;
    let (ring, bell) = mpsc::sync_channel(1);
    let mailbox = Arc::new(Mailbox::new(Bell { ring, rung: AtomicUsize::new(0) }));
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || {
                for mail in 0..MAILS {
                    mailbox.send((sender, mail));
                    if mail % 64 == 0 {
                        // Lets the owner fall asleep now and then.
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut next = [0; SENDERS];
    let mut slept = 0;
    while next.iter().sum::<usize>() < SENDERS * MAILS {
        while let Some((sender, mail)) = mailbox.receive() {
            assert_eq!(mail, next[sender], "lost, doubled or out of order");
            next[sender] += 1;
        }
        if next.iter().sum::<usize>() < SENDERS * MAILS && mailbox.prepare_sleep() {
            slept += 1;
            bell.recv_timeout(DEADLINE).expect("nobody woke the owner");
            mailbox.awake();
        }
    }
    for sender in senders {
        sender.join().unwrap();
    }
    assert!(mailbox.receive().is_none());
    assert!(slept > 0, "the owner never slept, so nothing was tried");
}

#[test]
fn a_mailbox_wakes_nobody_who_is_awake() {
    let (ring, bell) = mpsc::sync_channel(1);
    let mailbox = Mailbox::new(Bell { ring, rung: AtomicUsize::new(0) });
    mailbox.send(1);
    assert!(!mailbox.prepare_sleep(), "there is mail");
    assert_eq!(mailbox.receive(), Some(1));
    assert!(bell.try_recv().is_err());
    assert!(mailbox.prepare_sleep());
    mailbox.send(2);
    mailbox.send(3);
    mailbox.nudge();
    assert!(bell.try_recv().is_ok());
    assert!(bell.try_recv().is_err(), "one burst woke twice");
}

#[test]
fn a_snapshot_keeps_its_contract() {
    const UPDATES: u64 = 20_000;
    // Two halves that always agree: a torn read would show.
    let snapshot = Arc::new(Snapshot::new((0_u64, 0_u64)));
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let snapshot = Arc::clone(&snapshot);
            thread::spawn(move || {
                for _ in 0..UPDATES {
                    let (before, after) = snapshot.update(|(a, b)| Some((a + 1, b + 1)));
                    assert_eq!(after.unwrap().0, before.0 + 1);
                }
            })
        })
        .collect();
    let reader = {
        let snapshot = Arc::clone(&snapshot);
        thread::spawn(move || {
            let mut last = 0;
            while last < 2 * UPDATES {
                let (a, b) = snapshot.read(|value| *value);
                assert_eq!(a, b, "torn");
                assert!(a >= last, "a read went back");
                last = a;
                assert!(snapshot.load_full().0 >= last);
            }
        })
    };
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(*snapshot.load_full(), (2 * UPDATES, 2 * UPDATES), "an update was lost");
    reader.join().unwrap();
    snapshot.publish((u64::MAX, 0));
    assert_eq!(snapshot.read(|value| value.0), u64::MAX);
    let (seen, left) = snapshot.update(|_| None);
    assert_eq!((seen.1, left), (0, None));
}

#[test]
fn a_queue_refuses_what_does_not_fit_and_gives_it_back() {
    let queue = Queue::new(2);
    assert_eq!((queue.push(1), queue.push(2), queue.push(3)), (Ok(()), Ok(()), Err(3)));
    assert_eq!((queue.len(), queue.is_empty()), (2, false));
    assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(1), Some(2), None));
    assert!(queue.is_empty());
}
