//! The pool against a model that is too simple to be wrong, and under threads.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test program")]
#![allow(clippy::disallowed_methods, reason = "a test's deadlines are real time")]

mod pool_support;

use std::sync::atomic::Ordering;
use std::thread;

use pool_support::{Fake, Plan, pool};
use proptest::prelude::{Strategy, prop_oneof};
use proptest::proptest;
use tidegate::pool::{AcquireError, Authenticated, BorrowedLease, OperationError};

#[derive(Debug, Clone)]
enum Step {
    Login,
    FailedLogin,
    Authenticate,
    Logout(usize),
    Operate(usize),
    Break(usize),
    Renew(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::strategy::Just(Step::Login),
        1 => proptest::strategy::Just(Step::FailedLogin),
        1 => proptest::strategy::Just(Step::Authenticate),
        4 => (0_usize..64).prop_map(Step::Logout),
        2 => (0_usize..64).prop_map(Step::Operate),
        1 => (0_usize..64).prop_map(Step::Break),
        1 => (0_usize..64).prop_map(Step::Renew),
    ]
}

/// Sessions per connection; `None` where there is none. And the rules of the source in a few lines.
struct Model {
    usage: Vec<Option<usize>>,
    min: usize,
}

impl Model {
    fn open(&self) -> usize {
        self.usage.iter().flatten().count()
    }

    /// Checks that a session may have been given `place`, and counts it.
    fn login(&mut self, place: usize) {
        let least = self.usage.iter().flatten().min().copied();
        match (self.usage[place], least) {
            (Some(0), _) => {}
            (None, least) => assert_ne!(least, Some(0), "a new one, though one was unused"),
            (Some(usage), least) => {
                assert_eq!(self.open(), self.usage.len(), "shared, though there was room");
                assert_eq!(Some(usage), least, "not the one with the fewest sessions");
            }
        }
        *self.usage[place].get_or_insert(0) += 1;
    }

    fn logout(&mut self, place: usize) {
        let surplus = self.open() > self.min;
        let usage = self.usage[place].as_mut().expect("a session is on an open connection");
        *usage -= 1;
        if *usage == 0 && surplus {
            self.usage[place] = None;
        }
    }
}

/// A session of the model: its lease, and its place if its connection did not break.
struct Session<'p> {
    lease: BorrowedLease<'p, Fake>,
    place: Option<usize>,
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    #[test]
    fn any_sequence_of_sessions_follows_the_rules(
        max in 1_u8..6,
        min in 1_u8..6,
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let min = min.min(max);
        let (pool, record) = pool(i64::from(max), i64::from(min));
        let mut model = Model { usage: vec![None; usize::from(max)], min: usize::from(min) };
        let mut sessions: Vec<Session<'_>> = Vec::new();
        for step in steps {
            match step {
                Step::Login => {
                    let lease = pool.acquire().unwrap();
                    let place = lease.connection();
                    model.login(place.unwrap());
                    sessions.push(Session { lease, place });
                }
                Step::FailedLogin => {
                    let would_connect = model.usage.iter().flatten().all(|usage| *usage > 0)
                        && model.open() < usize::from(max);
                    if would_connect {
                        record.next(Plan::Refuse);
                        let result = pool.acquire();
                        assert!(matches!(result, Err(AcquireError::Connect(_))));
                    }
                }
                Step::Authenticate => {
                    let joined = pool
                        .authenticate(|| Ok::<_, std::convert::Infallible>(
                            pool_support::Connection::new(&record),
                        ))
                        .unwrap();
                    let room = model.usage.iter().position(Option::is_none);
                    assert_eq!(joined == Authenticated::Joined, room.is_some());
                    if let Some(place) = room {
                        model.usage[place] = Some(0);
                    }
                }
                Step::Logout(which) if !sessions.is_empty() => {
                    let session = sessions.swap_remove(which % sessions.len());
                    if let Some(place) = session.place {
                        model.logout(place);
                    }
                }
                Step::Operate(which) if !sessions.is_empty() => {
                    let which = which % sessions.len();
                    let session = &mut sessions[which];
                    assert_eq!(session.lease.is_broken(), session.place.is_none());
                    match session.lease.begin() {
                        Ok(_operation) => assert!(session.place.is_some()),
                        Err(error) => {
                            assert_eq!((error, session.place), (OperationError::Broken, None));
                        }
                    }
                }
                Step::Break(which) if !sessions.is_empty() => {
                    let which = which % sessions.len();
                    if let Some(place) = sessions[which].place {
                        sessions[which].lease.begin().unwrap().condemn();
                        model.usage[place] = None;
                        for session in &mut sessions {
                            session.place = session.place.filter(|other| *other != place);
                        }
                    }
                }
                Step::Renew(which) if !sessions.is_empty() => {
                    let which = which % sessions.len();
                    let session = &mut sessions[which];
                    session.lease.renew().unwrap();
                    if session.place.is_none() {
                        session.place = session.lease.connection();
                        model.login(session.place.unwrap());
                    }
                }
                _ => {}
            }
            assert_eq!(pool.usage(), model.usage);
            assert_eq!(record.live(), model.open());
            assert_eq!(pool.counts().sessions, model.usage.iter().flatten().sum::<usize>());
        }
        drop(sessions);
        pool.shutdown();
        assert_eq!((record.live(), pool.counts().open), (0, 0));
    }
}

/// Threads that come, work, break things and go; the laws hold throughout and at the end.
#[test]
fn threads_never_exceed_the_maximum_nor_leave_a_count() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 4_000;
    let (max, min) = (4, 2);
    let (pool, record) = pool(max, min);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (pool, record) = (&pool, &record);
            scope.spawn(move || {
                let mut random = 0x9E37_79B9_u64.wrapping_mul(number as u64 + 1) | 1;
                for round in 0..ROUNDS {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let mut session = pool.acquire().unwrap();
                    for _ in 0..random % 3 {
                        let told = match session.begin() {
                            Ok(mut operation) => {
                                operation.inside += 1;
                                assert_eq!(operation.inside, 1, "two operations at a time");
                                operation.inside -= 1;
                                if random.is_multiple_of(97) {
                                    operation.condemn();
                                }
                                None
                            }
                            Err(error) => Some(error),
                        };
                        if let Some(error) = told {
                            assert_eq!(error, OperationError::Broken);
                            session.renew().unwrap();
                        }
                    }
                    if round.is_multiple_of(16) {
                        assert!(record.live() <= 4);
                        thread::yield_now();
                    }
                }
            });
        }
    });
    assert!(record.live_max.load(Ordering::SeqCst) <= 4);
    let counts = pool.counts();
    assert_eq!((counts.sessions, counts.waiting, counts.connecting, counts.closing), (0, 0, 0, 0));
    assert_eq!(counts.open, record.live());
    pool.shutdown();
    assert_eq!(record.opened(), record.closed());
}

/// Without breakage, releases never bring the open connections under the minimum.
#[test]
fn releases_of_many_threads_keep_the_minimum_and_only_the_minimum() {
    let (pool, record) = pool(6, 3);
    for _ in 0..300 {
        let sessions: Vec<_> = (0..6).map(|_| pool.acquire_owned().unwrap()).collect();
        assert_eq!(record.live(), 6);
        let together = std::sync::Barrier::new(6);
        thread::scope(|scope| {
            for session in sessions {
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    drop(session);
                });
            }
        });
        assert_eq!((record.live(), pool.counts().open, pool.counts().sessions), (3, 3, 0));
    }
}
