//! What may happen to transactions, at random.

use proptest::prelude::*;

use crate::{broker::transaction::Verdict, proto::transaction::AutoRollback};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Join,
    Resume,
    Suspend,
    Fail,
    End,
    Peek,
    Prepare,
    Commit,
    CommitNext,
    OnePhase,
    Rollback,
    Redeliver,
}

/// One step; connections, transactions and messages are chosen from those there are.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Start {
        by: usize,
        session: i64,
        xid: Option<u8>,
        auto: AutoRollback,
        lifetime: Option<u64>,
    },
    Ask {
        by: usize,
        on: usize,
        ask: Ask,
        by_xid: bool,
    },
    Verify {
        by: usize,
        on: usize,
    },
    Scan {
        by: usize,
    },
    Send {
        by: usize,
        on: usize,
        to: u8,
        told: bool,
    },
    Unheard {
        by: usize,
        on: usize,
    },
    /// `early`: it is carried out, so, before the table knows of it.
    Acknowledge {
        by: usize,
        on: usize,
        parts: Vec<u8>,
        told: bool,
        early: Option<bool>,
    },
    Consumed {
        nth: usize,
        which: usize,
        ok: bool,
    },
    SessionEnds {
        by: usize,
        session: i64,
    },
    ConnectionEnds {
        by: usize,
    },
    Admin {
        on: usize,
        verdict: Verdict,
    },
    Tick {
        ms: i64,
    },
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let by = || 0..3_usize;
    // Mostly the last one, so that one gets somewhere.
    let on = || prop_oneof![5 => Just(0), 2 => Just(1), 1 => 2..8_usize];
    let auto = prop_oneof![
        6 => Just(AutoRollback::NotPrepared),
        1 => Just(AutoRollback::All),
        1 => Just(AutoRollback::Never),
    ];
    let ask = prop::sample::select(vec![
        Ask::Join,
        Ask::Resume,
        Ask::Suspend,
        Ask::Fail,
        Ask::End,
        Ask::End,
        Ask::End,
        Ask::Peek,
        Ask::Prepare,
        Ask::Prepare,
        Ask::Commit,
        Ask::Commit,
        Ask::CommitNext,
        Ask::OnePhase,
        Ask::Rollback,
        Ask::Redeliver,
    ]);
    let early = prop::option::weighted(0.2, prop::bool::weighted(0.9));
    let step = prop_oneof![
        4 => (by(), 0..2_i64, prop::option::of(0..3_u8), auto, prop::option::weighted(0.2, 1..9_u64))
            .prop_map(|(by, session, xid, auto, lifetime)| {
                Step::Start { by, session, xid, auto, lifetime }
            }),
        9 => (by(), on(), ask, any::<bool>())
            .prop_map(|(by, on, ask, by_xid)| Step::Ask { by, on, ask, by_xid }),
        1 => (by(), on()).prop_map(|(by, on)| Step::Verify { by, on }),
        1 => by().prop_map(|by| Step::Scan { by }),
        5 => (by(), on(), 0..3_u8, any::<bool>())
            .prop_map(|(by, on, to, told)| Step::Send { by, on, to, told }),
        1 => (by(), on()).prop_map(|(by, on)| Step::Unheard { by, on }),
        5 => (by(), on(), prop::collection::vec(0..3_u8, 0..3), any::<bool>(), early)
            .prop_map(|(by, on, parts, told, early)| {
                Step::Acknowledge { by, on, parts, told, early }
            }),
        8 => (0..4_usize, 0..4_usize, prop::bool::weighted(0.9))
            .prop_map(|(nth, which, ok)| Step::Consumed { nth, which, ok }),
        1 => (by(), 0..2_i64).prop_map(|(by, session)| Step::SessionEnds { by, session }),
        1 => by().prop_map(|by| Step::ConnectionEnds { by }),
        1 => (on(), prop::sample::select(vec![Verdict::Commit, Verdict::Rollback]))
            .prop_map(|(on, verdict)| Step::Admin { on, verdict }),
        1 => (0..5_i64).prop_map(|ms| Step::Tick { ms }),
    ];
    prop::collection::vec(step, 1..80)
}
