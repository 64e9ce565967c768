//! `sync/pipe.rs`: bytes arrive in order through places that are used again (P1, P2), the end comes
//! behind them (P3). loom watches each place, so one that is touched unordered fails the model.

use loom::{sync::Arc, thread};
use tidegate::internals::sync::{Closed, Pipe, Signal};

use crate::support::{Canary, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("pipe.publish", "pipe::bytes_arrive_in_order"),
    canary("pipe.input", "pipe::bytes_arrive_in_order"),
    canary("pipe.free", "pipe::bytes_arrive_in_order"),
    canary("pipe.room", "pipe::bytes_arrive_in_order"),
    canary("pipe.close", "pipe::the_end_comes_last"),
    canary("pipe.end", "pipe::the_end_comes_last"),
];

/// Reads what is there.
fn read(pipe: &Pipe, into: &mut Vec<u8>) -> Result<usize, Closed> {
    pipe.read(usize::MAX, |piece| into.extend_from_slice(piece))
}

#[test]
fn bytes_arrive_in_order() {
    model("bytes_arrive_in_order", || {
        let pipe = Arc::new(Pipe::new());
        let writer = Arc::clone(&pipe);
        let thread = thread::spawn(move || {
            // Two fit; the third goes where the first was.
            assert_eq!(writer.write([&[1][..], &[2]]), Ok(2));
            while writer.write([&[3][..]]).unwrap() == 0 {
                thread::yield_now();
            }
        });
        let mut bytes = Vec::new();
        while bytes.len() < 3 {
            if read(&pipe, &mut bytes).unwrap() == 0 {
                thread::yield_now();
            }
        }
        thread.join().unwrap();
        assert_eq!(bytes, [1, 2, 3]);
    });
}

#[test]
fn the_end_comes_last() {
    model("the_end_comes_last", || {
        let pipe = Arc::new(Pipe::new());
        let reader = Arc::clone(&pipe);
        let thread = thread::spawn(move || {
            let mut bytes = Vec::new();
            // Whenever it looks: who sees the end has seen what came before.
            let ended = (0..2).any(|_| read(&reader, &mut bytes).is_err());
            assert!(!ended || bytes == [1], "the end overtook a byte");
        });
        assert_eq!(pipe.write([&[1][..]]), Ok(1));
        pipe.close();
        thread.join().unwrap();
    });
}

#[test]
fn a_sleeper_finds_input_and_room() {
    model("a_sleeper_finds_input_and_room", || {
        let pipe = Arc::new(Pipe::new());
        let signal = Arc::new(Signal::new());
        let other = {
            let (pipe, signal) = (Arc::clone(&pipe), Arc::clone(&signal));
            thread::spawn(move || {
                assert_eq!(pipe.write([&[1][..]]), Ok(1));
                signal.wake_all();
            })
        };
        // A wake that is lost is a deadlock.
        signal.sleep_unless(|| pipe.has_input(), None);
        let mut bytes = Vec::new();
        while read(&pipe, &mut bytes).unwrap() == 0 {
            thread::yield_now();
        }
        other.join().unwrap();

        assert_eq!(pipe.write([&[2][..], &[3]]), Ok(2));
        assert!(!pipe.has_room());
        let other = {
            let (pipe, signal) = (Arc::clone(&pipe), Arc::clone(&signal));
            thread::spawn(move || {
                assert_eq!(pipe.read(1, |piece| assert_eq!(piece, [2])), Ok(1));
                signal.wake_all();
            })
        };
        signal.sleep_unless(|| pipe.has_room(), None);
        assert_eq!(pipe.write([&[4][..]]), Ok(1));
        other.join().unwrap();
    });
}
