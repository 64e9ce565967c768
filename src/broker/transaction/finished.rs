//! The last transactions that ended.
//!
//! A client whose reply was lost asks again, and a client that commits a transaction which the
//! broker has undone by itself must hear why. Only so many are remembered; older ones are unknown.

use std::collections::VecDeque;

use crate::proto::transaction::{Target, Xid};

use super::State;

/// A transaction that has ended.
#[derive(Debug, Clone, Copy)]
pub(in crate::broker) struct Finished {
    pub(in crate::broker) id: i64,
    pub(in crate::broker) xid: Option<Xid>,
    /// The connection that may ask about a local one; none if anybody may.
    pub(in crate::broker) owner: Option<i64>,
    pub(in crate::broker) state: State,
}

/// A memory of transactions that have ended.
///
/// Shape: at most `max` of them, oldest first. They are looked for only if no open transaction is
/// meant, so a walk is good enough.
#[derive(Debug)]
pub(super) struct Memory {
    last: VecDeque<Finished>,
    max: usize,
}

impl Memory {
    pub(super) const fn new(max: usize) -> Self {
        Self { last: VecDeque::new(), max }
    }

    pub(super) fn push(&mut self, finished: Finished) {
        self.last.push_back(finished);
        if self.last.len() > self.max {
            self.last.pop_front();
        }
    }

    /// What became of the one with this id is not known any more.
    pub(super) fn forget(&mut self, id: i64) {
        self.last.retain(|finished| finished.id != id);
    }

    /// The last one with this name that this connection may ask about.
    pub(super) fn find(&self, connection: i64, target: &Target) -> Option<&Finished> {
        self.last.iter().rev().find(|finished| {
            let is_its =
                finished.xid.is_some() || finished.owner.is_none_or(|owner| owner == connection);
            is_its
                && target.said_id().is_none_or(|id| id == finished.id)
                && target.said_xid().is_none_or(|xid| Some(xid) == finished.xid.as_ref())
        })
    }

    /// The one with this id, whoever asks.
    pub(super) fn by_id(&self, id: i64) -> Option<&Finished> {
        self.last.iter().rev().find(|finished| finished.id == id)
    }
}
