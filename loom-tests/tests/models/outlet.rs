//! `sync/outlet.rs`: what is sent leaves once, in its thread's order, when it is due.

use std::sync::atomic::Ordering;

use loom::{sync::Arc, thread};
use tidegate::internals::sync::{Back, Front, Outlet};

use crate::support::{Canary, RealCount, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("outlet.announce", "outlet::nothing_is_lost_or_doubled"),
    canary("outlet.take", "outlet::nothing_is_lost_or_doubled"),
    canary("outlet.again", "outlet::nothing_is_lost_or_doubled"),
    canary("outlet.call", "outlet::what_is_due_does_not_wait_for_what_is_not"),
];

/// What was sent and is not handed over, and whether that is due. The gates' cells are the evidence
/// that one at a time is inside.
#[derive(Default)]
struct Waiting {
    numbers: Vec<u32>,
    is_due: bool,
}

/// What is being written, and what was.
#[derive(Default)]
struct Writer {
    handed: Vec<u32>,
    written: Vec<u32>,
    /// Not 0 once nothing is written any more: when the model looks at what was.
    ended: std::sync::Arc<RealCount>,
}

/// A number, and whether it is due.
type Piece = (Option<u32>, bool);

impl Front for Waiting {
    type Piece = Piece;
    type Back = Writer;

    fn gather(&mut self, (number, is_due): Piece) {
        self.numbers.extend(number);
        self.is_due |= is_due;
    }

    fn is_due(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }

    fn hand_over(&mut self, back: &mut Writer) {
        assert!(back.handed.is_empty());
        back.handed.append(&mut self.numbers);
    }

    fn call() -> Piece {
        (None, true)
    }
}

impl Back for Writer {
    fn write(&mut self) {
        if self.ended.load(Ordering::Relaxed) == 0 {
            self.written.append(&mut self.handed);
        }
    }

    fn is_empty(&self) -> bool {
        self.handed.is_empty()
    }
}

/// An outlet, and what ends its writing.
struct Line {
    outlet: Outlet<Waiting>,
    ended: std::sync::Arc<RealCount>,
}

impl Line {
    fn new() -> Arc<Self> {
        let writer = Writer::default();
        let ended = std::sync::Arc::clone(&writer.ended);
        Arc::new(Self { outlet: Outlet::new(Waiting::default(), writer), ended })
    }

    fn send(&self, number: u32, is_due: bool) {
        let piece = (Some(number), is_due);
        let add = |front: Option<&mut Waiting>| match front {
            Some(front) => {
                front.gather(piece);
                None
            }
            None => Some(piece),
        };
        self.outlet.send(add, |_| ());
    }

    /// What was written, once everybody is out.
    fn written(&self) -> Vec<u32> {
        self.ended.store(1, Ordering::Relaxed);
        let mut found = None;
        self.outlet.write(|back| found = Some(back.written.clone()));
        found.expect("nobody else is inside")
    }
}

#[test]
fn nothing_is_lost_or_doubled() {
    model("nothing_is_lost_or_doubled", || {
        let line = Line::new();
        let other = Arc::clone(&line);
        let thread = thread::spawn(move || (20..22).for_each(|n| other.send(n, true)));
        (10..12).for_each(|n| line.send(n, true));
        thread.join().unwrap();
        let written = line.written();
        assert_eq!(written.len(), 4, "{written:?}");
        for first in [10, 20] {
            let own: Vec<u32> = written.iter().copied().filter(|n| n / 10 * 10 == first).collect();
            assert_eq!(own, [first, first + 1], "a thread's order: {written:?}");
        }
    });
}

#[test]
fn a_flush_beside_a_sender_is_carried_out() {
    model("a_flush_beside_a_sender_is_carried_out", || {
        let line = Line::new();
        let other = Arc::clone(&line);
        let sender = thread::spawn(move || other.send(2, false));
        // As before a thread goes to sleep: what it left behind must not wait for it.
        line.send(1, false);
        line.outlet.write(|_| ());
        sender.join().unwrap();
        let written = line.written();
        assert!(written.contains(&1), "{written:?}");
    });
}

#[test]
fn what_is_due_does_not_wait_for_what_is_not() {
    model("what_is_due_does_not_wait_for_what_is_not", || {
        let line = Line::new();
        let threads = [(1, true), (2, false)].map(|(number, is_due)| {
            let line = Arc::clone(&line);
            thread::spawn(move || line.send(number, is_due))
        });
        line.send(3, true);
        for thread in threads {
            thread.join().unwrap();
        }
        let written = line.written();
        assert!(written.contains(&1) && written.contains(&3), "{written:?}");
    });
}
