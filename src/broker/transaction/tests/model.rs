//! Random commands from several connections, against a plain model.
//!
//! The model knows the protocol's table, whose a transaction is, and the order of what waits. It
//! follows the replies: each must be one that the table gives at that point, and what is put in,
//! dropped, held and settled before it must be exactly what belongs to that.

mod steps;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use proptest::prelude::*;

use self::steps::{Ask, Step, steps};
use super::{ends, recover, rollback, start, stored_at_once, with, xid};
use crate::{
    broker::transaction::{Effect, Limits, Outcome, Table, TxCommand, TxReply, Verdict},
    proto::transaction::{
        Association, AutoRollback, Ending, Start, Target, TransactionRequest, XaFlags,
    },
    wire::{Status, java},
};

const LIMITS: Limits = Limits { open_max: 6, waiting_max: 2, ..Limits::new(4, 4) };

const STARTED: u8 = 1;
const FAILED: u8 = 2;
const PREPARED: u8 = 5;
const COMMITTED: u8 = 6;
const ROLLED_BACK: u8 = 7;
const TIMED_OUT: u8 = 8;

/// What was asked, or happened, and waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Ask(u32, Ask),
    Admin(u32, Verdict),
    SessionGone(u32),
    ConnectionGone(u32),
    Expired,
}

#[derive(Debug)]
struct Tx {
    start: Start,
    owner: Option<i64>,
    state: u8,
    ends_at: Option<i64>,
    sent: Vec<(u8, u32)>,
    parts: Vec<u8>,
    acknowledged: usize,
    /// Acknowledgements on their way: the ticket, the reply, and whether it counts.
    expected: Vec<(i64, Option<u32>, bool)>,
    turns: VecDeque<Turn>,
    held: bool,
}

impl Tx {
    fn is_over(&self) -> bool {
        self.state >= COMMITTED
    }
    fn is_open_to(&self, connection: i64) -> bool {
        self.start.xid.is_some() || self.owner.is_none_or(|owner| owner == connection)
    }
    fn unsettled(&self) -> usize {
        self.expected.iter().filter(|(.., counts)| *counts).count()
    }
    fn takes_work(&self) -> bool {
        self.state == STARTED && self.turns.is_empty()
    }
    fn spoil(&mut self) {
        if self.turns.is_empty() {
            self.fail();
        }
    }
    fn fail(&mut self) {
        if [1, 3, 4].contains(&self.state) {
            self.state = FAILED;
        }
    }

    /// The table of the protocol.
    fn reached(&self, ask: Ask) -> Option<u8> {
        let local = self.start.xid.is_none();
        let (from, to): (&[u8], u8) = match ask {
            Ask::Join => (&[1, 4], STARTED),
            Ask::Resume => (&[3, 1], STARTED),
            Ask::Suspend => (&[1, 3], 3),
            Ask::Fail => (&[1, 3], FAILED),
            Ask::End => (&[1, 3], 4),
            Ask::Peek => return (!self.is_over()).then_some(self.state),
            Ask::Prepare => (&[4, 5], PREPARED),
            Ask::OnePhase if !local => (&[4, 6], COMMITTED),
            Ask::OnePhase | Ask::Commit | Ask::CommitNext if local => (&[1, 5, 6], COMMITTED),
            Ask::OnePhase | Ask::Commit | Ask::CommitNext => (&[5, 6], COMMITTED),
            Ask::Rollback | Ask::Redeliver if local => (&[1, 2, 3, 4, 5, 7], ROLLED_BACK),
            Ask::Rollback | Ask::Redeliver => (&[2, 3, 4, 5, 7], ROLLED_BACK),
        };
        from.contains(&self.state).then_some(to)
    }
}

/// Requests that are answered at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtOnce {
    Status(i32),
    Verify(i64),
    Scan,
    /// Whoever left hears that all is carried out.
    Parted,
}

struct World {
    table: Table<u8, u32, u32>,
    now: i64,
    last_id: i64,
    /// The connections there are now, and how many there were.
    connections: [i64; 3],
    made: i64,
    numbers: u32,
    txs: BTreeMap<i64, Tx>,
    /// Replies that are due, and what is known about them.
    due: HashMap<u32, Option<i64>>,
    at_once: HashMap<u32, AtOnce>,
    /// Which transaction each message was sent in.
    messages: HashMap<u32, i64>,
    /// Messages put in or dropped.
    gone: HashSet<u32>,
    /// Ticks that were asked for.
    wakes: BTreeSet<i64>,
    /// Effects that no reply has explained yet.
    loose: Vec<Effect<u8, u32, u32>>,
}

impl World {
    fn new() -> Self {
        Self {
            table: Table::new(LIMITS),
            now: 0,
            last_id: 0,
            connections: [1, 2, 3],
            made: 3,
            numbers: 0,
            txs: BTreeMap::new(),
            due: HashMap::new(),
            at_once: HashMap::new(),
            messages: HashMap::new(),
            gone: HashSet::new(),
            wakes: BTreeSet::new(),
            loose: Vec::new(),
        }
    }

    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// The id of a transaction that there was, counted from the last one; or one never given.
    fn chosen(&self, on: usize) -> i64 {
        self.txs.keys().rev().nth(on).copied().unwrap_or(i64::MAX)
    }

    fn open(&self) -> usize {
        self.txs.values().filter(|tx| !tx.is_over()).count()
    }

    /// The transaction that is meant: an open one with this XID, else the last that had it.
    fn meant(&self, target: &Target) -> Option<i64> {
        let matches = |(id, tx): &(&i64, &Tx)| {
            target.said_id().is_none_or(|said| said == **id)
                && target.said_xid().is_none_or(|said| Some(*said) == tx.start.xid)
        };
        let mut found: Vec<(&i64, &Tx)> = self.txs.iter().filter(matches).collect();
        found.sort_by_key(|(id, tx)| (!tx.is_over(), **id));
        found.last().map(|(id, _)| **id)
    }

    fn handle(&mut self, command: TxCommand<u8, u32, u32>) {
        let mut out = Vec::new();
        let last_id = &mut self.last_id;
        let mut new_id = || {
            *last_id += 1;
            *last_id
        };
        self.table.handle(command, self.now, &mut new_id, &mut out);
        let out: Vec<_> = out.into_iter().flat_map(stored_at_once).collect();
        for effect in out {
            match effect {
                Effect::Reply { to, reply } => self.replied(to, &reply),
                Effect::WakeAt(at) => {
                    self.wakes.insert(at);
                }
                other => self.loose.push(other),
            }
        }
        // What happened without a reply.
        let ids: Vec<i64> = self.txs.keys().copied().collect();
        for id in ids {
            if self.txs[&id].unsettled() == 0 {
                self.take_silent_turns(id);
                assert_eq!(self.txs[&id].turns, [], "transaction {id} waits for nothing");
            }
        }
        assert_eq!(self.loose, [], "nothing explains these");
        self.check_indexes();
    }

    fn check_indexes(&self) {
        let open = &self.table.open;
        assert_eq!(open.len(), self.open());
        for (owner, ids) in &self.table.by_connection {
            assert!(ids.iter().all(|id| open[id].owner == Some(*owner)));
        }
        let named = open.iter().filter_map(|(id, open)| Some((open.start.xid?, *id))).collect();
        assert_eq!(self.table.by_xid, named);
        let first = open.values().filter_map(|open| open.ends_at).min();
        let woken = |at| self.wakes.first().is_some_and(|&wake| wake <= at);
        assert!(first.is_none_or(woken), "nothing ends what ends at {first:?}");
    }

    fn replied(&mut self, to: u32, reply: &TxReply) {
        let id = self.due.remove(&to).unwrap_or_else(|| panic!("{to} is answered twice"));
        assert_eq!(reply.reason.is_some(), !reply.status.is_ok());
        match self.at_once.remove(&to) {
            Some(AtOnce::Parted) => return self.parted(to),
            Some(known) => return self.replied_at_once(known, reply),
            None => {}
        }
        let id = id.expect("a transaction is known");
        self.take_silent_turns(id);
        let turn = self.tx(id).turns.pop_front();
        let status = match turn {
            Some(Turn::Ask(asked, ask)) if asked == to => self.asked(id, ask, reply),
            Some(Turn::Admin(asked, verdict)) if asked == to => self.decided(id, verdict),
            other => panic!("{to} is answered when it is the turn of {other:?}"),
        };
        assert_eq!(reply.status.0, status, "{turn:?} of {:?}", self.txs[&id]);
        assert_eq!(reply.transaction, Some(id));
    }

    fn replied_at_once(&mut self, known: AtOnce, reply: &TxReply) {
        match known {
            AtOnce::Status(status) => assert_eq!(reply.status.0, status, "{reply:?}"),
            AtOnce::Verify(id) => {
                let is_prepared = self.txs[&id].state == PREPARED;
                assert_eq!(reply.status.is_ok(), is_prepared);
                assert_eq!(java::decode_hashtable(&reply.body).is_ok(), is_prepared);
            }
            AtOnce::Scan => {
                let prepared = self.txs.values().filter(|tx| tx.state == PREPARED);
                let xids: Vec<u8> =
                    prepared.filter_map(|tx| tx.start.xid).flat_map(|xid| xid.encode()).collect();
                assert_eq!(reply.body, xids);
            }
            AtOnce::Parted => unreachable!(),
        }
    }

    /// Nothing of this parting may be left to do.
    fn parted(&mut self, to: u32) {
        let ids: Vec<i64> = self.txs.keys().copied().collect();
        for id in ids {
            let left = [Turn::SessionGone(to), Turn::ConnectionGone(to)];
            // What comes behind it may be told later than this.
            while self.txs[&id].unsettled() == 0
                && self.txs[&id].turns.iter().any(|turn| left.contains(turn))
                && self.take_silent_turn(id)
            {}
            assert!(!self.txs[&id].turns.iter().any(|turn| left.contains(turn)), "{id} is left");
        }
    }

    fn tx(&mut self, id: i64) -> &mut Tx {
        self.txs.get_mut(&id).expect("it was started")
    }

    /// One request was carried out or refused; the status it must have.
    fn asked(&mut self, id: i64, ask: Ask, reply: &TxReply) -> i32 {
        let was = self.txs[&id].state;
        let local = self.txs[&id].start.xid.is_none();
        let Some(state) = self.txs[&id].reached(ask) else {
            let commits = [Ask::Commit, Ask::CommitNext, Ask::OnePhase].contains(&ask);
            assert_eq!(reply.failed, was == FAILED);
            if was == FAILED && local && commits {
                self.ended(id, ROLLED_BACK, false);
            }
            return if self.txs[&id].is_over() && ask == Ask::Peek { 404 } else { 412 };
        };
        if was < COMMITTED && state >= COMMITTED {
            self.ended(id, state, ask == Ask::Redeliver);
        } else if state == PREPARED && was != PREPARED {
            self.tx(id).state = state;
            self.held(id);
        } else {
            self.tx(id).state = state;
        }
        let (owner, start) = (self.txs[&id].owner, self.txs[&id].start.clone());
        if let Some(next) = reply.next {
            assert!(ask == Ask::CommitNext && was < COMMITTED && local);
            self.started(next, owner.expect("its session lives"), start);
        }
        200
    }

    fn decided(&mut self, id: i64, verdict: Verdict) -> i32 {
        match (self.txs[&id].state, verdict) {
            (COMMITTED.., _) => return 412,
            (PREPARED, Verdict::Commit) => self.ended(id, COMMITTED, false),
            (_, Verdict::Commit) => return 412,
            (_, Verdict::Rollback) => self.ended(id, ROLLED_BACK, false),
        }
        200
    }

    /// Turns nobody hears of, up to the next one somebody does.
    fn take_silent_turns(&mut self, id: i64) {
        while self.take_silent_turn(id) {}
    }

    /// The next turn, if nobody hears of it; `false` if there is none.
    fn take_silent_turn(&mut self, id: i64) -> bool {
        let Some(&turn) = self.tx(id).turns.front() else { return false };
        if matches!(turn, Turn::Ask(..) | Turn::Admin(..)) {
            return false;
        }
        self.tx(id).turns.pop_front();
        let tx = self.tx(id);
        match turn {
            _ if tx.is_over() => {}
            Turn::Expired => {
                if tx.state != PREPARED {
                    self.ended(id, TIMED_OUT, false);
                }
            }
            _ => {
                let stays = match tx.start.auto_rollback {
                    AutoRollback::All => false,
                    AutoRollback::NotPrepared => tx.state == PREPARED,
                    AutoRollback::Never => true,
                };
                if !stays {
                    self.ended(id, ROLLED_BACK, true);
                    return true;
                }
                tx.start.session = None;
                if matches!(turn, Turn::ConnectionGone(_)) {
                    tx.owner = None;
                }
                if !tx.held {
                    self.held(id);
                }
            }
        }
        true
    }

    /// Everything it acknowledged is held now, and was not before.
    fn held(&mut self, id: i64) {
        let holds =
            self.explain(|effect| matches!(effect, Effect::Hold { id: of, .. } if *of == id));
        let tx = self.tx(id);
        let expected =
            if std::mem::replace(&mut tx.held, true) { Vec::new() } else { tx.parts.clone() };
        let expected: Vec<_> =
            expected.into_iter().map(|destination| Effect::Hold { destination, id }).collect();
        assert_eq!(holds, expected);
    }

    /// Everything in it went the way of this state, and all of it.
    fn ended(&mut self, id: i64, state: u8, redeliver: bool) {
        let messages = std::mem::take(&mut self.messages);
        let ends = self.explain(|effect| match effect {
            Effect::Produce { message, .. } | Effect::Drop(message, _) => messages[message] == id,
            Effect::Settle { id: of, .. } => *of == id,
            _ => false,
        });
        self.messages = messages;
        let tx = self.tx(id);
        assert_eq!(tx.unsettled(), 0, "{id} ends before its acknowledgements");
        assert!(!tx.is_over(), "{id} ends twice");
        tx.state = state;
        let outcome = if state == COMMITTED {
            Outcome::Commit
        } else {
            Outcome::undone(redeliver || tx.held)
        };
        let sent = std::mem::take(&mut tx.sent);
        let mut expected: Vec<Effect<u8, u32, u32>> = Vec::new();
        for &(destination, message) in &sent {
            expected.push(match outcome {
                Outcome::Commit => Effect::Produce { destination, message },
                Outcome::Rollback { .. } => Effect::Drop(message, destination),
            });
        }
        let parts = std::mem::take(&mut tx.parts);
        expected.extend(parts.into_iter().map(|destination| Effect::Settle {
            destination,
            id,
            outcome,
        }));
        assert_eq!(ends, expected);
        for (_, message) in sent {
            assert!(self.gone.insert(message), "message {message} leaves twice");
        }
    }

    /// Takes the effects like this.
    fn explain(
        &mut self,
        is_it: impl Fn(&Effect<u8, u32, u32>) -> bool,
    ) -> Vec<Effect<u8, u32, u32>> {
        let (explained, left) = std::mem::take(&mut self.loose).into_iter().partition(is_it);
        self.loose = left;
        explained
    }

    fn started(&mut self, id: i64, owner: i64, start: Start) {
        let lifetime = start.lifetime_ms;
        let tx = Tx {
            start,
            owner: Some(owner),
            state: STARTED,
            ends_at: lifetime.map(|ms| self.now.checked_add_unsigned(ms).unwrap()),
            sent: Vec::new(),
            parts: Vec::new(),
            acknowledged: 0,
            expected: Vec::new(),
            turns: VecDeque::new(),
            held: false,
        };
        assert!(self.txs.insert(id, tx).is_none());
    }

    fn request(&mut self, connection: i64, request: TransactionRequest, known: AtOnce) {
        let reply = self.number();
        self.due.insert(reply, None);
        self.at_once.insert(reply, known);
        self.handle(TxCommand::Request { connection, user: None, request, reply });
    }

    /// Hands in what waits for its turn, and says what is known about its reply.
    fn submit(&mut self, id: i64, reply: u32, turn: Turn) {
        self.due.insert(reply, Some(id));
        let tx = self.tx(id);
        let is_busy = !tx.is_over() && (tx.unsettled() > 0 || !tx.turns.is_empty());
        if is_busy && tx.turns.len() >= LIMITS.waiting_max {
            self.at_once.insert(reply, AtOnce::Status(414));
        } else {
            tx.turns.push_back(turn);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Start { by, session, xid: number, auto, lifetime } => {
                let connection = self.connections[by];
                let request = with(start(session), |start| {
                    start.xid = number.map(xid);
                    start.auto_rollback = auto;
                    start.lifetime_ms = lifetime;
                    start.session = start.session.filter(|_| number.is_none());
                });
                let TransactionRequest::Start(wish) = &request else { unreachable!() };
                let wish = wish.clone();
                let is_used = |tx: &Tx| !tx.is_over() && tx.start.xid == wish.xid;
                let status = if wish.xid.is_some() && self.txs.values().any(is_used) {
                    409
                } else if self.open() >= LIMITS.open_max {
                    414
                } else {
                    200
                };
                if status == 200 {
                    self.started(self.last_id + 1, connection, wish);
                }
                self.request(connection, request, AtOnce::Status(status));
            }
            Step::Ask { by, on, ask, by_xid } => self.ask(self.connections[by], on, ask, by_xid),
            Step::Verify { by, on } => {
                let (connection, id) = (self.connections[by], self.chosen(on));
                let is_seen = self.txs.get(&id).is_some_and(|tx| tx.is_open_to(connection));
                let known = if is_seen { AtOnce::Verify(id) } else { AtOnce::Status(404) };
                self.request(connection, TransactionRequest::Verify(Target::id(id)), known);
            }
            Step::Scan { by } => {
                let scan = recover(XaFlags::START_SCAN);
                self.request(self.connections[by], scan, AtOnce::Scan);
            }
            Step::Send { by, on, to, told } => self.send(self.connections[by], on, to, told),
            Step::Unheard { by, on } => {
                let (connection, id) = (self.connections[by], self.chosen(on));
                if let Some(tx) = self.txs.get_mut(&id).filter(|tx| tx.is_open_to(connection)) {
                    tx.spoil();
                }
                self.handle(TxCommand::Refused { id, connection });
            }
            Step::Acknowledge { by, on, parts, told, early } => {
                self.acknowledge(self.connections[by], on, parts, told, early);
            }
            Step::Consumed { nth, which, ok } => {
                let waiting = self.txs.iter().filter(|(_, tx)| !tx.expected.is_empty());
                let Some((id, tx)) = waiting.map(|(id, tx)| (*id, tx)).nth(nth) else { return };
                self.consumed(id, which % tx.expected.len(), ok);
            }
            Step::SessionEnds { by, session } => {
                let (connection, then) = (self.connections[by], self.leaver());
                for tx in self.txs.values_mut().filter(|tx| !tx.is_over()) {
                    if tx.owner == Some(connection) && tx.start.session == Some(session) {
                        tx.turns.push_back(Turn::SessionGone(then));
                    }
                }
                self.handle(TxCommand::SessionEnded { connection, session, then });
            }
            Step::ConnectionEnds { by } => {
                let (connection, then) = (self.connections[by], self.leaver());
                self.made += 1;
                self.connections[by] = self.made;
                for tx in self.txs.values_mut().filter(|tx| !tx.is_over()) {
                    if tx.owner == Some(connection) {
                        tx.turns.push_back(Turn::ConnectionGone(then));
                    }
                }
                self.handle(TxCommand::ConnectionEnded { connection, then });
            }
            Step::Admin { on, verdict } => {
                let (id, reply) = (self.chosen(on), self.number());
                if self.txs.contains_key(&id) {
                    self.submit(id, reply, Turn::Admin(reply, verdict));
                } else {
                    self.due.insert(reply, None);
                    self.at_once.insert(reply, AtOnce::Status(404));
                }
                self.handle(TxCommand::Admin { id, verdict, reply });
            }
            Step::Tick { ms } => {
                self.now += ms;
                for tx in self.txs.values_mut().filter(|tx| !tx.is_over()) {
                    if tx.ends_at.is_some_and(|at| at <= self.now) && tx.state != PREPARED {
                        tx.ends_at = None;
                        tx.turns.push_back(Turn::Expired);
                    }
                }
                while let Some(at) = self.wakes.first().copied().filter(|&at| at <= self.now) {
                    self.wakes.remove(&at);
                    self.handle(TxCommand::Tick { at });
                }
            }
        }
    }

    /// Somebody who leaves, and is to be told about it.
    fn leaver(&mut self) -> u32 {
        let then = self.number();
        self.due.insert(then, None);
        self.at_once.insert(then, AtOnce::Parted);
        then
    }

    fn ask(&mut self, connection: i64, on: usize, ask: Ask, by_xid: bool) {
        let chosen = self.chosen(on);
        let xid = self.txs.get(&chosen).and_then(|tx| tx.start.xid);
        let target = match (xid, by_xid || [Ask::Join, Ask::Resume].contains(&ask)) {
            (Some(xid), true) => Target::xid(xid, None),
            _ => Target::id(chosen),
        };
        let association = |association| {
            target.said_xid().map(|&xid| {
                with(start(0), |start| {
                    start.session = None;
                    start.xid = Some(xid);
                    start.association = association;
                })
            })
        };
        let commit = |one_phase, start_next| {
            Some(TransactionRequest::Commit { target, one_phase, start_next })
        };
        let request = match ask {
            Ask::Join => association(Association::Join),
            Ask::Resume => association(Association::Resume),
            Ask::Suspend => Some(ends(target, Ending::Suspend)),
            Ask::Fail => Some(ends(target, Ending::Fail)),
            Ask::End => Some(ends(target, Ending::Success)),
            Ask::Peek => {
                Some(TransactionRequest::End { target, ending: Ending::Success, no_op: true })
            }
            Ask::Prepare => Some(TransactionRequest::Prepare { target, one_phase: false }),
            Ask::Commit => commit(false, false),
            Ask::CommitNext => commit(false, true),
            Ask::OnePhase => commit(true, false),
            Ask::Rollback => Some(rollback(target)),
            Ask::Redeliver => {
                let TransactionRequest::Rollback(mut wish) = rollback(target) else {
                    unreachable!()
                };
                wish.redeliver = true;
                Some(TransactionRequest::Rollback(wish))
            }
        };
        // A local transaction is not joined.
        let Some(request) = request else { return };
        let meant = self.meant(&target).filter(|id| self.txs[id].is_open_to(connection));
        // Whoever only asks about one that is over is told nothing but that.
        let meant = meant.filter(|id| ask != Ask::Peek || !self.txs[id].is_over());
        let Some(id) = meant else {
            return self.request(connection, request, AtOnce::Status(404));
        };
        let reply = self.number();
        self.submit(id, reply, Turn::Ask(reply, ask));
        self.handle(TxCommand::Request { connection, user: None, request, reply });
    }

    fn send(&mut self, connection: i64, on: usize, to: u8, told: bool) {
        let (id, message) = (self.chosen(on), self.number());
        self.messages.insert(message, id);
        let status = match self.txs.get_mut(&id).filter(|tx| tx.is_open_to(connection)) {
            Some(tx) if tx.takes_work() && tx.sent.len() < 4 => {
                tx.sent.push((to, message));
                200
            }
            Some(tx) => {
                let status = if tx.takes_work() { 414 } else { 500 };
                if !told {
                    tx.spoil();
                }
                status
            }
            None => 500,
        };
        let reply = told.then(|| self.number());
        if let Some(reply) = reply {
            self.due.insert(reply, None);
            self.at_once.insert(reply, AtOnce::Status(status));
        }
        let mut out = Vec::new();
        let produce =
            TxCommand::Produce { id, connection, destination: to, message, is_copy: false, reply };
        self.table.handle(produce, self.now, &mut || unreachable!(), &mut out);
        if status != 200 {
            assert_eq!(out.remove(0), Effect::Drop(message, to));
            assert!(self.gone.insert(message));
        }
        for effect in out {
            let Effect::Reply { to, reply } = effect else { panic!("{effect:?}") };
            self.replied(to, &reply);
        }
    }

    fn acknowledge(
        &mut self,
        connection: i64,
        on: usize,
        parts: Vec<u8>,
        told: bool,
        early: Option<bool>,
    ) {
        let id = self.chosen(on);
        let ticket = i64::from(self.number());
        let reply = told.then(|| self.number());
        let of = |ok| if ok { Status::OK } else { Status::CONFLICT };
        if let Some(ok) = early {
            self.handle(TxCommand::Consumed { id, ticket, status: of(ok), stored: Vec::new() });
        }
        let open = self.txs.get_mut(&id).filter(|tx| !tx.is_over());
        let (status, let_go) = match open {
            None => (404, parts.clone()),
            Some(tx) => {
                let is_its = tx.is_open_to(connection);
                let fits = tx.acknowledged + parts.len() <= 4;
                if is_its && tx.takes_work() && fits {
                    tx.acknowledged += parts.len();
                    for part in &parts {
                        if !tx.parts.contains(part) {
                            tx.parts.push(*part);
                        }
                    }
                    match early {
                        None => tx.expected.push((ticket, reply, true)),
                        Some(true) => {}
                        Some(false) => tx.fail(),
                    }
                    (early.map_or(200, |ok| of(ok).0), Vec::new())
                } else {
                    let status = match (is_its, tx.takes_work()) {
                        (false, _) => 404,
                        (true, false) => 412,
                        (true, true) => 414,
                    };
                    if is_its {
                        tx.spoil();
                    }
                    if early.is_none() {
                        tx.expected.push((ticket, None, false));
                    }
                    (status, parts.clone())
                }
            }
        };
        if let Some(reply) = reply {
            self.due.insert(reply, Some(id));
            if status != 200 || early.is_some() {
                self.at_once.insert(reply, AtOnce::Status(status));
            }
        }
        let messages = parts.len();
        let mut out = Vec::new();
        let expect = TxCommand::Expect { id, ticket, connection, parts, messages, reply };
        self.table.handle(expect, self.now, &mut || unreachable!(), &mut out);
        for destination in let_go {
            assert_eq!(out.remove(0), Effect::LetGo { destination, id, ticket });
        }
        for effect in out {
            let Effect::Reply { to, reply } = effect else { panic!("{effect:?}") };
            self.replied(to, &reply);
        }
    }

    fn consumed(&mut self, id: i64, which: usize, ok: bool) {
        let status = if ok { Status::OK } else { Status::CONFLICT };
        let tx = self.tx(id);
        let (ticket, reply, counts) = tx.expected.remove(which);
        if counts {
            if !ok {
                tx.fail();
            }
            if let Some(reply) = reply {
                self.at_once.insert(reply, AtOnce::Status(status.0));
            }
        }
        self.handle(TxCommand::Consumed { id, ticket, status, stored: Vec::new() });
    }

    /// Everybody leaves, and somebody decides what is left.
    fn finish(&mut self) {
        loop {
            let waiting = self.txs.iter().find(|(_, tx)| !tx.expected.is_empty());
            let Some(id) = waiting.map(|(id, _)| *id) else { break };
            self.consumed(id, 0, true);
        }
        for by in 0..3 {
            self.take(Step::ConnectionEnds { by });
        }
        let left: Vec<i64> =
            self.txs.iter().filter(|(_, tx)| !tx.is_over()).map(|(id, _)| *id).collect();
        for (id, verdict) in
            left.into_iter().zip([Verdict::Commit, Verdict::Rollback].into_iter().cycle())
        {
            let state = self.txs[&id].state;
            let stays = self.txs[&id].start.auto_rollback == AutoRollback::Never;
            assert!(state == PREPARED || stays, "{id} outlives its connection in state {state}");
            for verdict in [verdict, Verdict::Rollback] {
                let reply = self.number();
                self.submit(id, reply, Turn::Admin(reply, verdict));
                self.handle(TxCommand::Admin { id, verdict, reply });
            }
        }
        assert!(self.due.is_empty(), "never answered: {:?}", self.due);
        let sent: HashSet<u32> = self.messages.keys().copied().collect();
        assert_eq!(self.gone, sent, "a message was lost");
        assert!(self.txs.values().all(|tx| tx.is_over() && tx.parts.is_empty()));
        assert!(self.table.open.is_empty() && self.table.by_xid.is_empty());
        assert!(self.table.by_connection.is_empty() && self.table.partings.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_clients_do_nothing_is_lost_doubled_or_left_unanswered(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.finish();
    }
}
