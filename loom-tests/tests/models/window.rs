//! `flow/window.rs`: never more taken than granted, one mark, one resumer, no lost wake.

use loom::sync::Arc;
use loom::thread;
use tidegate::flow::{Credit, Window};
use tidegate::internals::sync::{AtomicU32, Gate, Ordering};

use crate::support::{Canary, Evidence, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("window.look", "window::new_credit_brings_what_led_to_it"),
    canary("window.change", "window::new_credit_brings_what_led_to_it"),
    canary("window.change", "window::resumer_sees_the_takers_work"),
    canary("window.take", "window::resumer_sees_the_takers_work"),
    canary("gate.again", "window::no_lost_wake_between_resume_and_dispatch"),
];

#[test]
fn never_more_is_taken_than_granted() {
    model("never_more_is_taken_than_granted", || {
        let window = Arc::new(Window::new(Credit::Limited(3)));
        let take_two = |window: &Window| [window.try_take(), window.try_take()];
        let other = Arc::clone(&window);
        let thread = thread::spawn(move || take_two(&other));
        let mut taken = Vec::from(take_two(&window));
        taken.extend(thread.join().unwrap());
        let granted: Vec<_> = taken.into_iter().flatten().collect();
        assert_eq!(granted.len(), 3);
        assert_eq!(granted.iter().filter(|taken| taken.last()).count(), 1);
        assert!(window.is_paused());
    });
}

#[test]
fn taken_less_given_back_and_left_is_what_was_granted() {
    model("taken_less_given_back_and_left_is_what_was_granted", || {
        let window = Arc::new(Window::new(Credit::Limited(2)));
        let other = Arc::clone(&window);
        let thread = thread::spawn(move || {
            // Its packet is taken back out of the output.
            if let Some(taken) = other.try_take() {
                let _reopened = other.give_back(taken);
            }
        });
        let kept: Vec<_> = [window.try_take(), window.try_take()].into_iter().flatten().collect();
        thread.join().unwrap();
        let marked = kept.iter().any(|taken| taken.last());
        let left = window.left().unwrap();
        if window.is_paused() {
            // The mark is out. A credit given back beside it waits for the resume.
            assert!(marked, "paused, and no mark is out");
        } else {
            assert!(!marked, "a mark is out and the window is open");
            assert_eq!(kept.len() + usize::try_from(left).unwrap(), 2);
        }
    });
}

#[test]
fn one_resumer_learns_that_it_was_paused() {
    model("one_resumer_learns_that_it_was_paused", || {
        let window = Arc::new(Window::new(Credit::Limited(1)));
        assert!(window.try_take().unwrap().last());
        let other = Arc::clone(&window);
        let thread = thread::spawn(move || other.resume(Credit::Limited(1)).was_paused);
        let here = window.resume(Credit::Limited(1)).was_paused;
        assert!(here != thread.join().unwrap());
        assert_eq!(window.left(), Some(1));
    });
}

#[test]
fn new_credit_brings_what_led_to_it() {
    model("new_credit_brings_what_led_to_it", || {
        let shared = Arc::new((Window::new(Credit::Limited(0)), Evidence::new()));
        let other = Arc::clone(&shared);
        // The side that may do no more than look is the spawned one: loom remembers one access
        // per atomic, and the resumer's own look would hide that of a main thread.
        let thread = thread::spawn(move || {
            if other.0.try_take().is_some() {
                assert_eq!(other.1.find(), 1);
            }
        });
        shared.1.leave(1);
        assert!(shared.0.resume(Credit::Limited(1)).was_paused);
        thread.join().unwrap();
    });
}

#[test]
fn resumer_sees_the_takers_work() {
    model("resumer_sees_the_takers_work", || {
        let shared = Arc::new((Window::new(Credit::Limited(1)), Evidence::new()));
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            other.1.leave(1);
            let _taken = other.0.try_take();
        });
        if shared.0.resume(Credit::Limited(1)).was_paused {
            assert_eq!(shared.1.find(), 1);
        }
        thread.join().unwrap();
    });
}

#[test]
fn no_lost_wake_between_resume_and_dispatch() {
    // A destination with two messages and a consumer of one credit: whatever the resume meets,
    // both messages go out, because who opened the window enters the gate.
    model("no_lost_wake_between_resume_and_dispatch", || {
        struct Destination {
            gate: Gate<u32>,
            window: Window,
            sent: AtomicU32,
        }
        impl Destination {
            fn dispatch(&self) {
                let _entered = self.gate.enter(|waiting| {
                    while *waiting > 0 && self.window.try_take().is_some() {
                        *waiting -= 1;
                        // Relaxed: read when both threads have ended.
                        self.sent.fetch_add(1, Ordering::Relaxed);
                    }
                    true
                });
            }
        }
        let destination = Arc::new(Destination {
            gate: Gate::new(2),
            window: Window::new(Credit::Limited(1)),
            sent: AtomicU32::new(0),
        });
        destination.dispatch();
        assert!(destination.window.is_paused());
        let other = Arc::clone(&destination);
        let thread = thread::spawn(move || {
            if other.window.resume(Credit::Limited(1)).was_paused {
                other.dispatch();
            }
        });
        // Somebody else dispatches at the same time, and may find the window still paused.
        destination.dispatch();
        thread.join().unwrap();
        assert_eq!(destination.sent.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn takers_and_a_resumer_keep_the_books() {
    // Two takers and a client that asks for more when it sees the mark.
    model("takers_and_a_resumer_keep_the_books", || {
        let window = Arc::new(Window::new(Credit::Limited(1)));
        let takers = [(); 2].map(|()| {
            let window = Arc::clone(&window);
            thread::spawn(move || window.try_take())
        });
        let resumed = window.resume(Credit::Limited(2));
        let taken: Vec<_> = takers.into_iter().filter_map(|taker| taker.join().unwrap()).collect();
        let old = taken.iter().filter(|taken| taken.generation() == 0).count();
        let new = taken.len() - old;
        // Of each window, no more than was granted, and the books of the new one are right.
        assert!(old <= 1 && resumed.was_paused == (old == 1));
        assert_eq!(usize::try_from(window.left().unwrap()).unwrap() + new, 2);
        let marked = taken.iter().filter(|taken| taken.last()).count();
        assert_eq!(marked, old + usize::from(new == 2));
    });
}

#[test]
fn a_byte_budget_is_overdrawn_by_at_most_one_packet() {
    model("a_byte_budget_is_overdrawn_by_at_most_one_packet", || {
        let window = Arc::new(Window::with_bytes(Credit::Unlimited, 128));
        let other = Arc::clone(&window);
        let thread = thread::spawn(move || [other.try_take_sized(128), other.try_take_sized(64)]);
        let mut taken = Vec::from([window.try_take_sized(64), window.try_take_sized(64)]);
        taken.extend(thread.join().unwrap());
        let taken: Vec<_> = taken.into_iter().flatten().collect();
        assert!((1..=2).contains(&taken.len()), "{} packets", taken.len());
        assert_eq!(taken.iter().filter(|taken| taken.last()).count(), 1);
        assert_eq!(window.left_bytes(), Some(0));
    });
}
