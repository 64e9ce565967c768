//! `throttle/channel.rs`, `throttle/digest.rs`: the states form one line, whoever changes them at the same time.

use std::time::Duration;

use loom::sync::Arc;
use loom::thread;
use tidegate::throttle::{Admission, ChannelSettings, Indication, StressPolicy, Throttle};

use crate::support::{Canary, Evidence, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("snapshot.update", "throttle::one_indication_of_a_burst_is_heard"),
    canary("snapshot.update", "throttle::every_change_is_made_from_the_current_state"),
    canary("snapshot.exchange", "throttle::a_job_sees_what_led_to_its_generation"),
    canary("digest.look", "throttle::who_reads_a_new_digest_finds_its_state"),
    canary("digest.exchange", "throttle::who_reads_a_new_digest_finds_its_state"),
    canary("digest.first", "throttle::the_digest_never_goes_back_and_ends_at_the_newest_state"),
    canary("digest.again", "throttle::the_digest_never_goes_back_and_ends_at_the_newest_state"),
];

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn throttle() -> Throttle {
    Throttle::new(StressPolicy::default(), ChannelSettings::new(10, 7).unwrap())
}

#[test]
fn one_indication_of_a_burst_is_heard() {
    model("one_indication_of_a_burst_is_heard", || {
        let throttle = Arc::new(throttle());
        let other = Arc::clone(&throttle);
        let thread = thread::spawn(move || other.stress(s(1)));
        let heard = [throttle.stress(s(1)), thread.join().unwrap()]
            .iter()
            .filter(|indication| matches!(indication, Indication::Raised(_)))
            .count();
        assert_eq!(heard, 1);
        let state = throttle.state();
        assert_eq!((state.depth(), state.job_limit(), state.generation()), (50, 5, 1));
    });
}

#[test]
fn every_change_is_made_from_the_current_state() {
    model("every_change_is_made_from_the_current_state", || {
        let throttle = Arc::new(throttle());
        assert!(matches!(throttle.stress(s(0)), Indication::Raised(_)));
        let other = Arc::clone(&throttle);
        // A step back is due, and the next indication comes.
        let thread = thread::spawn(move || other.tick(s(120)));
        let raised = match throttle.stress(s(120)) {
            Indication::Raised(change) => change,
            other => panic!("outside the blackout, and {other:?}"),
        };
        let state = throttle.state();
        if let Some(lowered) = thread.join().unwrap() {
            assert_eq!((raised.before, raised.after), (lowered.after, state));
            assert_eq!((state.depth(), state.generation()), (50, 3));
        } else {
            assert_eq!((state.depth(), state.generation()), (250, 2));
        }
    });
}

#[test]
fn a_job_sees_what_led_to_its_generation() {
    model("a_job_sees_what_led_to_its_generation", || {
        let shared = Arc::new((throttle(), Evidence::new()));
        let job = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            if job.0.read(|state| state.generation()) == 1 {
                assert_eq!(job.1.find(), 1);
            }
        });
        shared.1.leave(1);
        assert!(matches!(shared.0.stress(s(1)), Indication::Raised(_)));
        thread.join().unwrap();
    });
}

#[test]
fn processed_messages_are_counted_once_each() {
    model("processed_messages_are_counted_once_each", || {
        let throttle = Arc::new(throttle());
        for now in [0, 60] {
            assert!(matches!(throttle.stress(s(now)), Indication::Raised(_)));
        }
        assert!(throttle.tick(s(180)).is_some());
        let other = Arc::clone(&throttle);
        let thread = thread::spawn(move || other.processed(5000));
        throttle.processed(5000);
        // Too early or in time, depending on who was first; but at the latest now.
        let early = throttle.tick(s(181));
        thread.join().unwrap();
        let late = throttle.tick(s(181));
        assert!(early.is_some() != late.is_some());
        assert_eq!(throttle.state().level(), 0);
    });
}

#[test]
fn who_reads_a_new_digest_finds_its_state() {
    model("who_reads_a_new_digest_finds_its_state", || {
        let shared = Arc::new((throttle(), Evidence::new()));
        let job = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            if job.0.wanted(1000) == 5 {
                assert_eq!(job.0.state().generation(), 1);
                assert_eq!(job.1.find(), 1);
                assert_eq!(job.0.admit(0), Admission::Leave);
            }
        });
        shared.1.leave(1);
        assert!(matches!(shared.0.stress(s(1)), Indication::Raised(_)));
        thread.join().unwrap();
    });
}

#[test]
fn a_job_told_to_leave_finds_the_new_state() {
    model("a_job_told_to_leave_finds_the_new_state", || {
        let shared = Arc::new(throttle());
        let job = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            if job.admit(0) == Admission::Leave {
                let generation = job.state().generation();
                assert_eq!(generation, 1);
                // Its successor is not sent away by a digest that is still the old one.
                assert_eq!(job.admit(generation), Admission::GoOn);
            }
            if job.state().generation() == 1 {
                assert_eq!(job.admit(1), Admission::GoOn);
            }
        });
        assert!(matches!(shared.stress(s(1)), Indication::Raised(_)));
        assert_eq!(shared.admit(0), Admission::Leave);
        thread.join().unwrap();
    });
}

#[test]
fn the_digest_never_goes_back_and_ends_at_the_newest_state() {
    model("the_digest_never_goes_back_and_ends_at_the_newest_state", || {
        let throttle = Arc::new(throttle());
        let other = Arc::clone(&throttle);
        let thread = thread::spawn(move || other.stress(s(0)));
        if let Indication::Raised(change) = throttle.stress(s(60)) {
            // The other one was before this, or came to nothing: nothing newer will be.
            assert_eq!(throttle.wanted(1000), change.after.wanted(1000));
        }
        let _indication = thread.join().unwrap();
        let state = throttle.state();
        assert_eq!(throttle.wanted(1000), state.wanted(1000));
        assert_eq!(throttle.admit(state.generation()), Admission::GoOn);
    });
}
