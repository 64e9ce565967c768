//! One transaction that is not over.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{
    proto::transaction::{Start, TransactionRequest},
    sync::Plain,
    wire::{
        Status,
        java::{JavaValue, encode_hashtable},
    },
};

use super::{
    super::persist::StoredKey,
    State,
    command::{Effect, Listed, Outcome, Promise, Verdict},
};

/// An acknowledgement that its destinations are still carrying out.
#[derive(Debug)]
pub(super) enum Expected<R> {
    /// It belongs to the transaction; who hears of it.
    Counted(Option<R>),
    /// It was refused, and answered; only its `Consumed` is to come.
    Refused,
}

/// What waits until the acknowledgements before it are carried out.
#[derive(Debug)]
pub(super) enum Waiting<R> {
    Request {
        connection: i64,
        request: TransactionRequest,
        reply: R,
    },
    Admin {
        verdict: Verdict,
        reply: R,
    },
    /// Its session or its connection is gone, in the parting with this number.
    Abandoned(Loss, i64),
    /// Its lifetime is over.
    Expired,
}

/// A session or a connection that has ended, and waits for its transactions.
#[derive(Debug)]
pub(super) struct Parting<R> {
    /// How many are neither undone nor held yet, and one more while they are looked for.
    pub(super) left: usize,
    /// Told at the end.
    pub(super) then: R,
}

/// What a transaction has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    Session,
    Connection,
}

/// One open transaction.
#[derive(Debug)]
pub(super) struct Open<D, M, R> {
    pub(super) state: State,
    /// What it was started with; the session only if it ends with that.
    pub(super) start: Start,
    /// The connection it was started on, while that lives.
    pub(super) owner: Option<i64>,
    pub(super) user: Option<Plain<str>>,
    pub(super) created_ms: i64,
    /// When its lifetime is over, in milliseconds since 1970; `None` if it has none, if that is
    /// over, and once it is prepared: the promise holds.
    pub(super) ends_at: Option<i64>,
    /// What it acknowledged no longer belongs to the consumers.
    pub(super) held: bool,
    /// It was prepared as the first half of a one-phase commit.
    pub(super) one_phase: bool,
    pub(super) produced: Vec<(D, M)>,
    /// Where something was acknowledged in it, each destination once.
    pub(super) parts: Vec<D>,
    /// Messages acknowledged in it.
    pub(super) acknowledgements: usize,
    /// Which of them are stored.
    pub(super) stored: Vec<StoredKey>,
    /// By ticket, in the order they were sent.
    pub(super) expected: VecDeque<(i64, Expected<R>)>,
    /// Acknowledgements that were carried out before they were expected: their destinations were
    /// entered by another thread at once.
    pub(super) early: Vec<(i64, Status, Vec<StoredKey>)>,
    /// How many of `expected` belong to it.
    pub(super) unsettled: usize,
    pub(super) waiting: VecDeque<Waiting<R>>,
}

impl<D: Clone + PartialEq, M: Clone, R> Open<D, M, R> {
    /// One that was just created.
    pub(super) fn new(owner: i64, user: Option<Plain<str>>, start: &Start, wall_ms: i64) -> Self {
        let ends_with_session = start.xid.is_none() && !start.session_less;
        Self {
            state: State::Created,
            start: Start { session: start.session.filter(|_| ends_with_session), ..start.clone() },
            owner: Some(owner),
            user,
            created_ms: wall_ms,
            ends_at: start.lifetime_ms.map(|lifetime| wall_ms.saturating_add_unsigned(lifetime)),
            held: false,
            one_phase: false,
            produced: Vec::new(),
            parts: Vec::new(),
            acknowledgements: 0,
            stored: Vec::new(),
            expected: VecDeque::new(),
            early: Vec::new(),
            unsettled: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Whether this connection may name it: a branch is everybody's, and so is what a connection
    /// that is gone has left behind.
    pub(super) fn is_open_to(&self, connection: i64) -> bool {
        self.start.xid.is_some() || self.owner.is_none_or(|owner| owner == connection)
    }

    /// Whether requests about it must wait: acknowledgements or other requests come first.
    pub(super) fn is_busy(&self) -> bool {
        self.unsettled > 0 || !self.waiting.is_empty()
    }

    /// Why it takes neither messages nor acknowledgements, if so.
    pub(super) fn closed_to_work(&self, id: i64) -> Option<String> {
        if self.state != State::Started {
            return Some(format!("transaction {id} takes no more work: it is {}", self.state));
        }
        // Whatever waits was asked for before this.
        (!self.waiting.is_empty())
            .then(|| format!("transaction {id} takes no more work: a request about it came first"))
    }

    /// Takes out the acknowledgement that has this ticket.
    pub(super) fn expected(&mut self, ticket: i64) -> Option<Expected<R>> {
        // Nearly always the first.
        let at = self.expected.iter().position(|&(own, _)| own == ticket)?;
        self.expected.remove(at).map(|(_, expected)| expected)
    }

    /// Something in it went wrong: unless the promise was made already, it can only be rolled back.
    pub(super) const fn fail(&mut self) {
        if matches!(self.state, State::Started | State::Incomplete | State::Complete) {
            self.state = State::Failed;
        }
    }

    /// Work in it was refused, in a way that must not go unnoticed. What was asked for before that
    /// is carried out without it.
    pub(super) fn spoil(&mut self) {
        if self.waiting.is_empty() {
            self.fail();
        }
    }

    /// From here on it owns what it acknowledged.
    pub(super) fn hold(&mut self, id: i64, out: &mut Vec<Effect<D, M, R>>) {
        if std::mem::replace(&mut self.held, true) {
            return;
        }
        let parts = self.parts.iter().cloned();
        out.extend(parts.map(|destination| Effect::Hold { destination, id }));
    }

    /// Carries out what was sent, or drops it, and settles what was acknowledged.
    pub(super) fn end(&mut self, id: i64, outcome: Outcome, out: &mut Vec<Effect<D, M, R>>) {
        let produced = std::mem::take(&mut self.produced);
        out.extend(produced.into_iter().map(|(destination, message)| match outcome {
            Outcome::Commit => Effect::Produce { destination, message },
            Outcome::Rollback { .. } => Effect::Drop(message, destination),
        }));
        let parts = std::mem::take(&mut self.parts);
        out.extend(parts.into_iter().map(|destination| Effect::Settle {
            destination,
            id,
            outcome,
        }));
    }

    /// What it will do, as it is now.
    pub(super) fn promise(&self, id: i64) -> Promise<D, M> {
        Promise {
            id,
            start: self.start.clone(),
            created_ms: self.created_ms,
            user: self.user.clone(),
            one_phase: self.one_phase,
            produced: self.produced.clone(),
            stored: self.stored.clone(),
        }
    }

    pub(super) fn listed(&self, id: i64) -> Listed {
        Listed {
            id,
            xid: self.start.xid,
            state: self.state,
            connection: self.owner,
            user: self.user.clone(),
            created_ms: self.created_ms,
            messages: self.produced.len(),
            acknowledgements: self.acknowledgements,
        }
    }

    /// The table that says how a transaction is, for whoever verifies it.
    pub(super) fn described(&self) -> Bytes {
        let lifetime = self.start.lifetime_ms.and_then(|ms| i64::try_from(ms).ok()).unwrap_or(0);
        let mut entries = vec![
            // One more than everywhere else, says the protocol.
            ("State", JavaValue::Int(self.state as i32 + 1)),
            ("JMQAutoRollback", JavaValue::Int(self.start.auto_rollback as i32)),
            ("JMQSessionLess", JavaValue::Boolean(self.start.session_less)),
            ("JMQCreateTime", JavaValue::Long(self.created_ms)),
            ("JMQLifetime", JavaValue::Long(lifetime)),
        ];
        if let Some(xid) = &self.start.xid {
            entries.push(("JMQXid", JavaValue::String(xid.to_string())));
        }
        encode_hashtable(entries.iter().map(|(name, value)| (*name, value)))
    }
}
