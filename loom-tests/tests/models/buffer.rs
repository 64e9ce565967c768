//! `flow/buffer.rs`: every pause ends with exactly one resume, and who sends it sees everything.

use loom::sync::Arc;
use loom::thread;
use tidegate::flow::{Buffer, BufferSettings, Credit, Resume, Window};
use tidegate::internals::sync::{AtomicU32, Ordering};

use crate::support::{Canary, Evidence, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("buffer.look", "buffer::a_pause_ends_once_while_settings_change"),
    canary("buffer.epoch", "buffer::a_pause_ends_once_while_settings_change"),
    canary("buffer.bytes_first", "buffer::a_pause_ends_once_with_a_byte_budget"),
    canary("buffer.change", "buffer::resumer_sees_what_was_consumed"),
];

fn settings(limit: u32, threshold: u8) -> BufferSettings {
    BufferSettings::consumer(Credit::Limited(limit), threshold).unwrap()
}

/// A paused buffer with two messages.
fn paused(settings: BufferSettings) -> Buffer {
    let buffer = Buffer::new(settings);
    assert_eq!(buffer.delivered_sized(false, 10), None);
    assert_eq!(buffer.delivered_sized(true, 10), None);
    buffer
}

fn one(resumes: impl IntoIterator<Item = Option<Resume>>) -> Resume {
    let mut resumes = resumes.into_iter().flatten();
    let resume = resumes.next().expect("the pause never ended");
    assert_eq!(resumes.next(), None, "the pause ended twice");
    resume
}

#[test]
fn two_consumers_end_a_pause_once() {
    model("two_consumers_end_a_pause_once", || {
        let buffer = Arc::new(paused(settings(2, 0)));
        let other = Arc::clone(&buffer);
        let thread = thread::spawn(move || other.consumed());
        let here = buffer.consumed();
        let resume = one([here, thread.join().unwrap()]);
        assert_eq!(resume.size, 2);
        assert_eq!(buffer.buffered(), 0);
    });
}

#[test]
fn delivery_of_the_last_and_consumption_end_a_pause_once() {
    model("delivery_of_the_last_and_consumption_end_a_pause_once", || {
        let buffer = Arc::new(Buffer::new(settings(2, 50)));
        assert_eq!(buffer.delivered(false), None);
        let other = Arc::clone(&buffer);
        let thread = thread::spawn(move || other.delivered(true));
        let here = buffer.consumed();
        let resume = one([here, thread.join().unwrap()]);
        assert_eq!(resume.size, 1);
        assert!(!buffer.is_paused());
    });
}

#[test]
fn recover_ends_a_pause_once() {
    model("recover_ends_a_pause_once", || {
        let buffer = Arc::new(Buffer::new(settings(1, 0)));
        let other = Arc::clone(&buffer);
        let thread = thread::spawn(move || other.delivered(true));
        let here = buffer.reset();
        let there = thread.join().unwrap();
        // Either the message came first and went back with the others, or it is still buffered.
        let rest = buffer.consumed();
        assert_eq!(one([here, there, rest]).size, 1);
    });
}

#[test]
fn a_pause_ends_once_while_settings_change() {
    model("a_pause_ends_once_while_settings_change", || {
        let buffer = Arc::new(paused(settings(2, 0)));
        let other = Arc::clone(&buffer);
        let thread = thread::spawn(move || other.set(settings(3, 50)));
        let here = buffer.consumed();
        assert_eq!(one([here, thread.join().unwrap()]).size, 2);
    });
}

#[test]
fn a_pause_ends_once_with_a_byte_budget() {
    model("a_pause_ends_once_with_a_byte_budget", || {
        // The mark is two messages and ten bytes: the bytes decide.
        let buffer = Arc::new(paused(settings(4, 50).with_bytes(20)));
        let other = Arc::clone(&buffer);
        let thread = thread::spawn(move || other.delivered_sized(false, 10));
        let here = buffer.discarded_sized(1, 10);
        let there = thread.join().unwrap();
        assert_eq!(buffer.buffered_bytes(), 20);
        let rest = buffer.discarded_sized(1, 10);
        assert_eq!(one([here, there, rest]).size, 3);
    });
}

#[test]
fn resumer_sees_what_was_consumed() {
    model("resumer_sees_what_was_consumed", || {
        let shared = Arc::new((paused(settings(2, 0)), [Evidence::new(), Evidence::new()]));
        let consume = |shared: &(Buffer, [Evidence; 2]), who: usize| {
            shared.1[who].leave(1);
            if shared.0.consumed().is_some() {
                assert_eq!(shared.1.each_ref().map(Evidence::find), [1, 1]);
            }
        };
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || consume(&other, 1));
        consume(&shared, 0);
        thread.join().unwrap();
    });
}

#[test]
fn delivery_and_two_consumers_end_a_pause_once() {
    model("delivery_and_two_consumers_end_a_pause_once", || {
        let buffer = Arc::new(Buffer::new(settings(3, 34)));
        for _ in 0..2 {
            assert_eq!(buffer.delivered(false), None);
        }
        let consumers = [(); 2].map(|()| {
            let buffer = Arc::clone(&buffer);
            thread::spawn(move || buffer.consumed())
        });
        let here = buffer.delivered(true);
        let [first, second] = consumers.map(|consumer| consumer.join().unwrap());
        let resume = one([here, first, second]);
        assert_eq!((resume.size, buffer.buffered()), (2, 1));
    });
}

#[test]
fn a_whole_window_goes_round_without_a_stall() {
    // The socket's thread delivers what the window allows; the application consumes. Whoever gets
    // a resume hands it to the window, as the peer would.
    model("a_whole_window_goes_round_without_a_stall", || {
        let shared = Arc::new((
            Window::new(Credit::Limited(2)),
            Buffer::new(settings(2, 50)),
            AtomicU32::new(0),
        ));
        let deliver = |shared: &(Window, Buffer, AtomicU32)| {
            if let Some(taken) = shared.0.try_take() {
                let resume = shared.1.delivered(taken.last());
                assert!(shared.1.buffered() <= 2, "more than was asked for");
                // Release: the message is there before the application can take it.
                shared.2.fetch_add(1, Ordering::Release);
                if let Some(resume) = resume {
                    assert!(shared.0.resume(Credit::Limited(resume.size)).was_paused);
                }
            }
        };
        let other = Arc::clone(&shared);
        let application = thread::spawn(move || {
            if other.2.load(Ordering::Acquire) > 0 {
                if let Some(resume) = other.1.consumed() {
                    assert!(other.0.resume(Credit::Limited(resume.size)).was_paused);
                }
                return 1;
            }
            0
        });
        for _ in 0..3 {
            deliver(&shared);
        }
        let consumed = application.join().unwrap();
        let (window, buffer, delivered) = &*shared;
        assert_eq!(buffer.buffered() + consumed, delivered.load(Ordering::Relaxed));
        // No stall: either the sender may go on, or consuming the rest lets it.
        let mut resumes = 0;
        for _ in 0..buffer.buffered() {
            resumes += u32::from(buffer.consumed().is_some());
        }
        assert_eq!(resumes, u32::from(window.is_paused()));
    });
}
