//! Flow control on real threads: the laws of the models, over many more steps.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test program")]

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use tidegate::flow::{Buffer, BufferSettings, Credit, Window};

/// A stall shows as a wait that does not end; this ends it.
const DEADLINE: Duration = Duration::from_secs(30);

#[allow(clippy::disallowed_types, reason = "a test counts beside what it tests")]
type Count = std::sync::atomic::AtomicU64;

#[test]
fn takers_on_many_threads_never_take_more_than_granted() {
    const WINDOWS: u64 = 2_000;
    const SIZE: u32 = 7;
    let window = Arc::new(Window::new(Credit::Limited(SIZE)));
    let (marks, marked) = mpsc::channel();
    let takers: Vec<_> = (0..3)
        .map(|taker| {
            let (window, marks) = (Arc::clone(&window), marks.clone());
            thread::spawn(move || {
                let (mut kept, mut returned) = (0_u64, 0_u64);
                loop {
                    let Some(taken) = window.try_take() else {
                        thread::yield_now();
                        if window.left().is_none() {
                            return (kept, returned);
                        }
                        continue;
                    };
                    if window.left().is_none() {
                        return (kept, returned);
                    }
                    // One taker takes some packets back out of its output; never the marked one,
                    // which would open the window without the resumer.
                    if taker == 0 && !taken.last() && (kept + returned) % 5 == 0 {
                        assert!(!window.give_back(taken).was_paused);
                        returned += 1;
                    } else {
                        kept += 1;
                    }
                    if taken.last() {
                        marks.send(()).unwrap();
                    }
                }
            })
        })
        .collect();
    for number in 0..WINDOWS {
        marked.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("window {number} never ended"));
        assert!(marked.try_recv().is_err(), "two marks in window {number}");
        let last = number + 1 == WINDOWS;
        let size = if last { Credit::Unlimited } else { Credit::Limited(SIZE) };
        assert!(window.resume(size).was_paused, "window {number} was not paused");
    }
    let kept: u64 = takers.into_iter().map(|taker| taker.join().unwrap().0).sum();
    // A credit given back after the mark went out is lost with its window, so: at most.
    assert!(kept <= WINDOWS * u64::from(SIZE), "{kept} kept");
    assert!(kept >= WINDOWS, "each window had at least its mark");
}

#[test]
fn a_link_of_window_and_buffer_never_stalls_on_threads() {
    for (limit, threshold) in [(1, 0), (2, 100), (10, 50), (1000, 10)] {
        let messages = 50_000_u64;
        let settings = BufferSettings::consumer(Credit::Limited(limit), threshold).unwrap();
        let window = Arc::new(Window::new(Credit::Limited(limit)));
        let buffer = Arc::new(Buffer::new(settings));
        let resumes = Arc::new(Count::new(0));
        let (send, receive) = mpsc::channel();
        let (wake, woken) = mpsc::channel();
        let resume = {
            let (window, resumes) = (Arc::clone(&window), Arc::clone(&resumes));
            move |resume: Option<tidegate::flow::Resume>| {
                if let Some(resume) = resume {
                    assert!((1..=limit).contains(&resume.size));
                    resumes.fetch_add(1, Ordering::Relaxed);
                    assert!(window.resume(Credit::Limited(resume.size)).was_paused);
                    // Whoever opened the window restarts dispatch. The receiver may be done.
                    wake.send(()).ok();
                }
            }
        };
        let socket = {
            let (buffer, resume) = (Arc::clone(&buffer), resume.clone());
            thread::spawn(move || {
                let mut marks = 0_u64;
                let mut sent = 0;
                while sent < messages {
                    let Some(taken) = window.try_take() else {
                        woken.recv_timeout(DEADLINE).expect("the sender was never resumed");
                        continue;
                    };
                    marks += u64::from(taken.last());
                    // Counted in before the application can take it.
                    resume(buffer.delivered(taken.last()));
                    assert!(buffer.buffered() <= limit, "more than was asked for");
                    send.send(sent).unwrap();
                    sent += 1;
                }
                marks
            })
        };
        for expected in 0..messages {
            let message = receive.recv_timeout(DEADLINE).expect("the application waits in vain");
            assert_eq!(message, expected);
            resume(buffer.consumed());
        }
        let marks = socket.join().unwrap();
        assert_eq!(buffer.buffered(), 0);
        assert_eq!(resumes.load(Ordering::Relaxed), marks, "{limit} at {threshold} %");
    }
}

#[test]
fn consumers_on_many_threads_end_each_pause_once_while_settings_change() {
    const PAUSES: u32 = 2_000;
    const LIMIT: u32 = 4;
    let settings = |threshold| BufferSettings::consumer(Credit::Limited(LIMIT), threshold).unwrap();
    let buffer = Arc::new(Buffer::new(settings(50)));
    let resumed = Arc::new(Count::new(0));
    // All meet before and after each pause.
    let barrier = Arc::new(Barrier::new(4));
    let mut threads: Vec<_> = (0..2)
        .map(|_| {
            let (buffer, resumed) = (Arc::clone(&buffer), Arc::clone(&resumed));
            let barrier = Arc::clone(&barrier);
            thread::spawn(move || {
                for _ in 0..PAUSES {
                    barrier.wait();
                    for _ in 0..LIMIT / 2 {
                        let ended = u64::from(buffer.consumed().is_some());
                        resumed.fetch_add(ended, Ordering::Relaxed);
                    }
                    barrier.wait();
                }
            })
        })
        .collect();
    threads.push({
        let (buffer, resumed) = (Arc::clone(&buffer), Arc::clone(&resumed));
        let barrier = Arc::clone(&barrier);
        thread::spawn(move || {
            for pause in 0..PAUSES {
                barrier.wait();
                let threshold = if pause % 2 == 0 { 0 } else { 75 };
                let ended = u64::from(buffer.set(settings(threshold)).is_some());
                resumed.fetch_add(ended, Ordering::Relaxed);
                barrier.wait();
            }
        })
    });
    for pause in 1..=u64::from(PAUSES) {
        // Delivered while nobody consumes; with 75 % of 4 even the last is not due by itself.
        for message in 1..=LIMIT {
            assert_eq!(buffer.delivered(message == LIMIT), None);
        }
        barrier.wait();
        barrier.wait();
        assert_eq!(resumed.load(Ordering::Relaxed), pause, "not one resume for each pause");
        assert_eq!((buffer.buffered(), buffer.is_paused()), (0, false));
    }
    for thread in threads {
        thread.join().unwrap();
    }
}
