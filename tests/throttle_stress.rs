//! Throttling on real threads: one line of states, seen in order by every reader.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test program")]

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tidegate::throttle::{
    ChannelSettings, Indication, StressPolicy, StressSettings, Throttle, ThrottleState,
};

fn policy() -> StressPolicy {
    let mut settings = StressSettings::default();
    settings.blackout(Duration::ZERO).stress_time(Duration::from_millis(1)).jobs(1);
    settings.build().unwrap()
}

#[test]
fn states_form_one_line_and_readers_never_go_back() {
    const STEPS: u64 = 20_000;
    let throttle = Arc::new(Throttle::new(policy(), ChannelSettings::new(10, 9).unwrap()));
    let (changed, changes) = mpsc::channel();
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let (throttle, changed) = (Arc::clone(&throttle), changed.clone());
            thread::spawn(move || {
                for step in 0..STEPS {
                    // Each has a time of its own, so they disagree about it all along.
                    let now = Duration::from_millis(step * 3 + writer);
                    let change = if (step + writer) % 3 == 0 {
                        throttle.tick(now)
                    } else {
                        match throttle.stress(now) {
                            Indication::Raised(change) => Some(change),
                            _ => None,
                        }
                    };
                    if let Some(change) = change {
                        changed.send((change.before, change.after)).unwrap();
                    }
                    throttle.processed(1);
                }
            })
        })
        .collect();
    drop(changed);
    let reader = {
        let throttle = Arc::clone(&throttle);
        thread::spawn(move || {
            let mut last = throttle.state();
            loop {
                let state = throttle.state();
                check(&state);
                assert!(state.generation() >= last.generation(), "a read went back");
                last = state;
                // The writers drop their ends when they are done.
                if Arc::strong_count(&throttle) <= 2 {
                    return;
                }
                thread::yield_now();
            }
        })
    };
    for writer in writers {
        writer.join().unwrap();
    }
    reader.join().unwrap();
    let mut line: Vec<_> = changes.into_iter().collect();
    line.sort_unstable_by_key(|(_, after)| after.generation());
    assert!(!line.is_empty());
    let mut depth_and_limit = (10, 9);
    for (number, (before, after)) in (1_u64..).zip(&line) {
        assert_eq!(after.generation(), number, "a change was lost, or made twice");
        assert_eq!(before.generation() + 1, number);
        assert_eq!((before.depth(), before.job_limit()), depth_and_limit);
        depth_and_limit = (after.depth(), after.job_limit());
    }
    let state = throttle.state();
    assert_eq!((state.depth(), state.job_limit()), depth_and_limit);
}

/// What holds for every state, so also for a torn one if there were any.
fn check(state: &ThrottleState) {
    assert!((10..=134_217_727).contains(&state.depth()));
    assert!((1..=9).contains(&state.job_limit()));
    assert_eq!(state.level() == 0, state.depth() == 10 && state.job_limit() == 9);
}
