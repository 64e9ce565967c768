//! The transactions of a broker as a state machine: commands in, effects out. No clock, no lock.
//!
//! A transaction collects the messages sent in it and remembers where something was acknowledged
//! in it. Destinations know nothing of what it sent until it is committed; what was acknowledged
//! they keep under its id, until they are told how it ended.
//!
//! # Invariants
//! - Every request, send and acknowledgement that wants a reply gets exactly one.
//! - A message handed in leaves exactly once: put in by a commit, or dropped.
//! - Every destination where a transaction acknowledged something is told its end exactly once.
//! - A request about a transaction waits until the acknowledgements before it are carried out, and
//!   is carried out after the requests that wait already. So a COMMIT never overtakes them.
//! - Who has left is told so once what it leaves behind is undone or held. So what it had
//!   acknowledged is back in its place before what it had not.
//! - What was refused without anybody hearing of it is never committed around: the transaction
//!   fails, and can only be rolled back.
//!
//! # Whose it is
//! A local transaction may be named by the connection it was started on; for all others it does
//! not exist. A branch with an XID may be named by every connection, as transaction managers do. A
//! prepared local transaction whose connection has ended may be named by everybody, so that a
//! client that lost its connection in the middle of a commit can finish it.
//!
//! # Source
//! The wire protocol: transactions; redelivery rules; which packets are lost in a reconnect. Where
//! it says nothing or names only what was seen once, and what is done here:
//! - COMMIT of a local transaction that failed was once answered with success, with nothing done.
//!   That tells an application that its work is safe when it is gone: here it is refused (412,
//!   `JMQPrepareStateFAILED`) and the transaction rolled back.
//! - Too many acknowledgements are refused with 414, and like any failed acknowledgement they mark
//!   the transaction as failed. Too many messages are refused with 414; whoever hears that may
//!   still commit the others.
//! - A transaction that ended stays known for a while: committing it again says what happened to
//!   it. Only its last thousand neighbours are remembered, see `limits.rs`.
//! - A transaction that is never to be rolled back by itself owns what it acknowledged from the
//!   moment on at which its connection or session ends.

mod command;
mod finished;
mod open;
mod state;
mod work;

use std::collections::{HashMap, hash_map::Entry};

use bytes::Bytes;

pub(super) use self::finished::Finished;
pub(super) use self::{
    command::{Change, Effect, Listed, Outcome, Promise, TxCommand, TxReply, Verdict},
    state::State,
};
use self::{
    finished::Memory,
    open::{Loss, Open, Parting, Waiting},
    state::{Operation, next},
};
use super::limits;
use crate::{
    proto::transaction::{
        Association, AutoRollback, Ending, Rollback, Start, Target, TransactionRequest, XaFlags,
        Xid,
    },
    sync::Plain,
    wire::Status,
};

/// How much transactions may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Transactions that are not over.
    pub(super) open_max: usize,
    /// Messages sent in one of them.
    pub(super) messages_max: usize,
    /// Messages acknowledged in one of them.
    pub(super) acknowledgements_max: usize,
    /// Requests that wait for the acknowledgements of one of them.
    pub(super) waiting_max: usize,
    /// Transactions remembered after their end.
    pub(super) remembered_max: usize,
}

impl Limits {
    /// What a broker allows, with these limits of one transaction.
    pub(super) const fn new(messages_max: usize, acknowledgements_max: usize) -> Self {
        Self {
            open_max: limits::TRANSACTIONS_MAX,
            messages_max,
            acknowledgements_max,
            waiting_max: limits::TRANSACTION_WAITING_MAX,
            remembered_max: limits::TRANSACTIONS_REMEMBERED_MAX,
        }
    }
}

/// All transactions of a broker.
///
/// `D` names a destination, `M` is a message it has made room for, `R` is where a reply goes.
#[derive(Debug)]
pub(super) struct Table<D, M, R> {
    limits: Limits,
    open: HashMap<i64, Open<D, M, R>>,
    by_xid: HashMap<Xid, i64>,
    /// What was started on each connection that lives.
    by_connection: HashMap<i64, Vec<i64>>,
    /// Who has left, by number, until that is carried out.
    partings: HashMap<i64, Parting<R>>,
    finished: Memory,
    /// The earliest tick that is on its way.
    wakes_at: Option<i64>,
}

/// What carrying out a command needs besides the table.
struct Context<'a, D, M, R> {
    wall_ms: i64,
    new_id: &'a mut dyn FnMut() -> i64,
    out: &'a mut Vec<Effect<D, M, R>>,
}

impl<D, M, R> Context<'_, D, M, R> {
    fn reply(&mut self, to: R, reply: TxReply) {
        self.out.push(Effect::Reply { to, reply });
    }
}

impl<D: Clone + PartialEq, M: Clone, R> Table<D, M, R> {
    /// None yet.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            open: HashMap::new(),
            by_xid: HashMap::new(),
            by_connection: HashMap::new(),
            partings: HashMap::new(),
            finished: Memory::new(limits.remembered_max),
            wakes_at: None,
        }
    }

    /// A prepared transaction is there again; it holds something at these destinations.
    pub(super) fn restore(&mut self, promise: Promise<D, M>, parts: Vec<D>) {
        let Promise { id, start, created_ms, user, one_phase, produced, stored } = promise;
        let mut open = Open::new(0, user, &start, created_ms);
        open.state = State::Prepared;
        open.owner = None;
        open.ends_at = None;
        open.held = true;
        open.one_phase = one_phase;
        open.produced = produced;
        open.acknowledgements = stored.len();
        open.stored = stored;
        open.parts = parts;
        if let Some(xid) = open.start.xid {
            self.by_xid.insert(xid, id);
        }
        self.open.insert(id, open);
    }

    /// A transaction that has ended is known again.
    pub(super) fn remember(&mut self, finished: Finished) {
        self.finished.push(finished);
    }

    /// Carries out one command. Effects are appended, to be carried out in their order. `wall_ms`
    /// is the time since 1970; `new_id` gives a positive number that was never given before.
    pub(super) fn handle(
        &mut self,
        command: TxCommand<D, M, R>,
        wall_ms: i64,
        new_id: &mut dyn FnMut() -> i64,
        out: &mut Vec<Effect<D, M, R>>,
    ) {
        let cx = &mut Context { wall_ms, new_id, out };
        match command {
            TxCommand::Request { connection, user, request, reply } => {
                self.request(connection, user, request, reply, cx);
            }
            TxCommand::Produce { id, connection, destination, message, is_copy, reply } => {
                self.produce((id, is_copy), connection, (destination, message), reply, cx);
            }
            TxCommand::Refused { id, connection } => {
                if let Some(open) = self.open_to(id, connection) {
                    open.spoil();
                }
            }
            TxCommand::Expect { id, ticket, connection, parts, messages, reply } => {
                self.expect((id, ticket), connection, parts, messages, reply, cx);
            }
            TxCommand::Consumed { id, ticket, status, stored } => {
                self.consumed((id, ticket), (status, stored), cx);
            }
            TxCommand::Doubtful { id } => self.finished.forget(id),
            TxCommand::SessionEnded { connection, session, then } => {
                let mut ids = self.by_connection.get(&connection).cloned().unwrap_or_default();
                ids.retain(|id| {
                    self.open.get(id).is_some_and(|open| open.start.session == Some(session))
                });
                self.part(ids, Loss::Session, then, cx);
            }
            TxCommand::ConnectionEnded { connection, then } => {
                let ids = self.by_connection.remove(&connection).unwrap_or_default();
                self.part(ids, Loss::Connection, then, cx);
            }
            TxCommand::Tick { at } => self.tick(at, cx),
            TxCommand::Admin { id, verdict, reply } => {
                self.submit(id, Waiting::Admin { verdict, reply }, cx);
            }
            TxCommand::List(reply) => {
                let mut transactions: Vec<Listed> =
                    self.open.iter().map(|(&id, open)| open.listed(id)).collect();
                transactions.sort_unstable_by_key(|listed| listed.id);
                cx.out.push(Effect::List { to: reply, transactions });
            }
        }
    }

    fn request(
        &mut self,
        connection: i64,
        user: Option<Plain<str>>,
        request: TransactionRequest,
        reply: R,
        cx: &mut Context<'_, D, M, R>,
    ) {
        let target = match &request {
            TransactionRequest::Start(start) => match (start.association, start.xid) {
                (Association::Join | Association::Resume, Some(xid)) => Target::xid(xid, None),
                _ => return self.start(connection, user, start, reply, cx),
            },
            TransactionRequest::Recover(flags) => return cx.reply(reply, self.recover(*flags)),
            TransactionRequest::Verify(target) => {
                return cx.reply(reply, self.verify(connection, target));
            }
            TransactionRequest::End { target, .. }
            | TransactionRequest::Prepare { target, .. }
            | TransactionRequest::Commit { target, .. }
            | TransactionRequest::Rollback(Rollback { target, .. }) => *target,
        };
        match self.find(connection, &target) {
            Some(id) => self.submit(id, Waiting::Request { connection, request, reply }, cx),
            None => {
                let answer = self.answer_late(connection, &target, &request);
                cx.reply(reply, answer);
            }
        }
    }

    fn start(
        &mut self,
        connection: i64,
        user: Option<Plain<str>>,
        start: &Start,
        reply: R,
        cx: &mut Context<'_, D, M, R>,
    ) {
        if let Some(xid) = start.xid.filter(|xid| self.by_xid.contains_key(xid)) {
            let reason = format!("XID {xid} is in use already");
            return cx.reply(reply, TxReply::refuse(Status::CONFLICT, None, reason));
        }
        if self.open.len() >= self.limits.open_max {
            let reason = format!(
                "{} transactions are open, which is the most; end some of them",
                self.open.len()
            );
            return cx.reply(reply, TxReply::refuse(Status::RESOURCE_FULL, None, reason));
        }
        let open = Open::new(connection, user, start, cx.wall_ms);
        match self.insert(connection, open, cx) {
            Ok(id) => cx.reply(reply, TxReply::done(id)),
            Err(refused) => cx.reply(reply, refused),
        }
    }

    fn insert(
        &mut self,
        connection: i64,
        mut open: Open<D, M, R>,
        cx: &mut Context<'_, D, M, R>,
    ) -> Result<i64, TxReply> {
        open.state = next(State::Created, Operation::Start).map_err(|refusal| {
            TxReply::refuse(Status::PRECONDITION_FAILED, None, refusal.to_string())
        })?;
        let id = (cx.new_id)();
        if let Some(xid) = open.start.xid {
            self.by_xid.insert(xid, id);
        }
        self.by_connection.entry(connection).or_default().push(id);
        self.wake_for(open.ends_at, cx);
        self.open.insert(id, open);
        Ok(id)
    }

    /// The open transaction with this id, if this connection may name it.
    fn open_to(&mut self, id: i64, connection: i64) -> Option<&mut Open<D, M, R>> {
        self.open.get_mut(&id).filter(|open| open.is_open_to(connection))
    }

    /// The open transaction that is meant, if this connection may name it.
    fn find(&self, connection: i64, target: &Target) -> Option<i64> {
        let id = match target.said_xid() {
            Some(xid) => *self.by_xid.get(xid)?,
            None => target.said_id()?,
        };
        let is_meant = target.said_id().is_none_or(|said| said == id);
        let open = self.open.get(&id).filter(|_| is_meant)?;
        open.is_open_to(connection).then_some(id)
    }

    /// Carries something out, once everything before it has been.
    fn submit(&mut self, id: i64, waiting: Waiting<R>, cx: &mut Context<'_, D, M, R>) {
        let waiting_max = self.limits.waiting_max;
        match self.open.get_mut(&id) {
            Some(open) if !open.is_busy() => self.carry(id, waiting, cx),
            Some(open) => match waiting {
                Waiting::Request { reply, .. } | Waiting::Admin { reply, .. }
                    if open.waiting.len() >= waiting_max =>
                {
                    let reason =
                        format!("{waiting_max} requests wait for transaction {id} already");
                    cx.reply(reply, TxReply::refuse(Status::RESOURCE_FULL, Some(id), reason));
                }
                waiting => open.waiting.push_back(waiting),
            },
            None => self.late(id, waiting, cx),
        }
    }

    fn carry(&mut self, id: i64, waiting: Waiting<R>, cx: &mut Context<'_, D, M, R>) {
        let Some(open) = self.open.get_mut(&id) else { return self.late(id, waiting, cx) };
        match waiting {
            Waiting::Request { connection, request, reply } => {
                self.carry_request(id, connection, &request, reply, cx);
            }
            Waiting::Admin { verdict: Verdict::Commit, reply } if open.state != State::Prepared => {
                let reason = format!("transaction {id} is {}, not prepared", open.state);
                let refused = TxReply::refuse(Status::PRECONDITION_FAILED, Some(id), reason);
                cx.reply(reply, refused);
            }
            Waiting::Admin { verdict, reply } => {
                let (state, outcome) = match verdict {
                    Verdict::Commit => (State::Committed, Outcome::Commit),
                    Verdict::Rollback => (State::RolledBack, Outcome::undone(open.held)),
                };
                self.finish(id, state, outcome, Some((reply, TxReply::done(id))), cx);
            }
            Waiting::Abandoned(loss, parting) => {
                let stays = match open.start.auto_rollback {
                    AutoRollback::All => false,
                    AutoRollback::NotPrepared => open.state == State::Prepared,
                    AutoRollback::Never => true,
                };
                if stays {
                    open.start.session = None;
                    open.owner = open.owner.filter(|_| loss == Loss::Session);
                    open.hold(id, cx.out);
                } else {
                    // The consumers are gone or going: what they had goes back.
                    self.finish(id, State::RolledBack, Outcome::undone(true), None, cx);
                }
                self.parted(parting, cx);
            }
            Waiting::Expired => {
                if open.state != State::Prepared {
                    let outcome = Outcome::undone(open.held);
                    self.finish(id, State::TimedOut, outcome, None, cx);
                }
            }
        }
    }

    fn carry_request(
        &mut self,
        id: i64,
        connection: i64,
        request: &TransactionRequest,
        reply: R,
        cx: &mut Context<'_, D, M, R>,
    ) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let Some(operation) = operation(request, open.start.xid.is_some(), open.one_phase) else {
            // Whoever only asks whether it is there has the answer.
            return cx.reply(reply, TxReply::done(id));
        };
        match next(open.state, operation) {
            Ok(State::Committed) => self.commit(id, connection, request, reply, cx),
            Ok(State::RolledBack) => {
                let outcome = match request {
                    TransactionRequest::Rollback(wish) => Outcome::Rollback {
                        // What no consumer owns any more, none can have redelivered.
                        redeliver: wish.redeliver || open.held,
                        seen: wish.seen,
                        max_rollbacks: wish.max_rollbacks,
                        dead_on_max: wish.dead_on_max,
                    },
                    _ => Outcome::undone(open.held),
                };
                let answer = Some((reply, TxReply::done(id)));
                self.finish(id, State::RolledBack, outcome, answer, cx);
            }
            Ok(state) => {
                open.state = state;
                if state == State::Prepared {
                    open.ends_at = None;
                }
                let TransactionRequest::Prepare { one_phase, .. } = *request else {
                    return cx.reply(reply, TxReply::done(id));
                };
                open.one_phase |= one_phase;
                let mut then = Vec::new();
                open.hold(id, &mut then);
                then.push(Effect::Reply { to: reply, reply: TxReply::done(id) });
                let change = Change::Prepared(Box::new(open.promise(id)));
                cx.out.push(Effect::Durably { change, then });
            }
            Err(refusal) => {
                let failed = open.state == State::Failed;
                let mut reason = format!("transaction {id}: {refusal}");
                let is_over = failed && operation == Operation::CommitLocal;
                if is_over {
                    reason.push_str("; it was rolled back");
                }
                let answer = TxReply {
                    failed,
                    ..TxReply::refuse(Status::PRECONDITION_FAILED, Some(id), reason)
                };
                if is_over {
                    let outcome = Outcome::undone(open.held);
                    self.finish(id, State::RolledBack, outcome, Some((reply, answer)), cx);
                } else {
                    cx.reply(reply, answer);
                }
            }
        }
    }

    fn commit(
        &mut self,
        id: i64,
        connection: i64,
        request: &TransactionRequest,
        reply: R,
        cx: &mut Context<'_, D, M, R>,
    ) {
        let wants_next = matches!(request, TransactionRequest::Commit { start_next: true, .. });
        // A branch's next needs a name, and a session that ended has no next.
        let next = self.open.get(&id).filter(|open| {
            wants_next
                && open.start.xid.is_none()
                && open.owner == Some(connection)
                && !open.waiting.iter().any(|waiting| matches!(waiting, Waiting::Abandoned(..)))
        });
        let next =
            next.map(|open| Open::new(connection, open.user.clone(), &open.start, cx.wall_ms));
        let next = next.and_then(|open| self.insert(connection, open, cx).ok());
        let answer = TxReply { next, ..TxReply::done(id) };
        self.finish(id, State::Committed, Outcome::Commit, Some((reply, answer)), cx);
    }

    /// Ends a transaction, answers whoever did that, and then those who came too late for it.
    fn finish(
        &mut self,
        id: i64,
        state: State,
        outcome: Outcome,
        answer: Option<(R, TxReply)>,
        cx: &mut Context<'_, D, M, R>,
    ) {
        let Some(mut open) = self.open.remove(&id) else { return };
        let before = cx.out.len();
        if let Some(xid) = open.start.xid {
            self.by_xid.remove(&xid);
        }
        if let Some(started) = open.owner.and_then(|owner| self.by_connection.get_mut(&owner)) {
            started.retain(|&other| other != id);
        }
        self.finished.push(Finished { id, xid: open.start.xid, owner: open.owner, state });
        let (was_prepared, committed) = (open.state == State::Prepared, outcome == Outcome::Commit);
        open.end(id, outcome, cx.out);
        if let Some((to, reply)) = answer {
            cx.reply(to, reply);
        }
        for waiting in open.waiting {
            self.late(id, waiting, cx);
        }
        if was_prepared || committed {
            let then = cx.out.split_off(before);
            let (xid, stored) = (open.start.xid, open.stored);
            let change = Change::Ended { id, xid, was_prepared, committed, stored };
            cx.out.push(Effect::Durably { change, then });
        }
    }

    /// Whether carrying out a request about a transaction changes anything that is stored, as
    /// `is_stored` says of what it sent.
    pub(super) fn changes_store(
        &self,
        connection: i64,
        request: &TransactionRequest,
        is_stored: impl Fn(&D, &M) -> bool,
    ) -> bool {
        let (TransactionRequest::Prepare { target, .. }
        | TransactionRequest::Commit { target, .. }
        | TransactionRequest::Rollback(Rollback { target, .. })) = request
        else {
            return false;
        };
        let open = self.find(connection, target).and_then(|id| self.open.get(&id));
        let is_undone = matches!(request, TransactionRequest::Rollback(_));
        open.is_some_and(|open| {
            let has_any = || open.produced.iter().any(|(at, message)| is_stored(at, message));
            open.state == State::Prepared || !is_undone && (!open.stored.is_empty() || has_any())
        })
    }

    /// Answers somebody whose transaction has ended while they waited.
    fn late(&mut self, id: i64, waiting: Waiting<R>, cx: &mut Context<'_, D, M, R>) {
        match waiting {
            Waiting::Request { connection, request, reply } => {
                let answer = self.answer_late(connection, &Target::id(id), &request);
                cx.reply(reply, answer);
            }
            Waiting::Admin { reply, .. } => {
                let answer = match self.finished.by_id(id) {
                    Some(finished) => {
                        let reason = format!("transaction {id} is {} already", finished.state);
                        TxReply::refuse(Status::PRECONDITION_FAILED, Some(id), reason)
                    }
                    None => unknown(&Target::id(id)),
                };
                cx.reply(reply, answer);
            }
            Waiting::Abandoned(_, parting) => self.parted(parting, cx),
            Waiting::Expired => {}
        }
    }

    /// Whoever started these transactions has ended.
    fn part(&mut self, ids: Vec<i64>, loss: Loss, then: R, cx: &mut Context<'_, D, M, R>) {
        let parting = (cx.new_id)();
        self.partings.insert(parting, Parting { left: ids.len() + 1, then });
        for id in ids {
            self.submit(id, Waiting::Abandoned(loss, parting), cx);
        }
        self.parted(parting, cx);
    }

    /// One transaction of a parting is done with.
    fn parted(&mut self, parting: i64, cx: &mut Context<'_, D, M, R>) {
        let Entry::Occupied(mut one) = self.partings.entry(parting) else { return };
        one.get_mut().left -= 1;
        if one.get().left == 0 {
            let Parting { then, .. } = one.remove();
            cx.reply(then, TxReply::bare(Status::OK));
        }
    }

    /// The answer about a transaction that is not open: what became of it, if that is remembered.
    fn answer_late(
        &self,
        connection: i64,
        target: &Target,
        request: &TransactionRequest,
    ) -> TxReply {
        let Some(finished) = self.finished.find(connection, target) else {
            return unknown(target);
        };
        let id = finished.id;
        let Some(operation) = operation(request, finished.xid.is_some(), false) else {
            return unknown(target);
        };
        match next(finished.state, operation) {
            Ok(_) => TxReply::done(id),
            Err(refusal) => {
                let reason = format!("transaction {id}: {refusal}");
                TxReply::refuse(Status::PRECONDITION_FAILED, Some(id), reason)
            }
        }
    }

    fn recover(&self, flags: XaFlags) -> TxReply {
        let mut prepared: Vec<(i64, Xid)> = Vec::new();
        if flags.contains(XaFlags::START_SCAN) {
            let all = self.open.iter().filter(|(_, open)| open.state == State::Prepared);
            prepared.extend(all.filter_map(|(&id, open)| Some((id, open.start.xid?))));
            prepared.sort_unstable_by_key(|&(id, _)| id);
        }
        let body: Vec<u8> = prepared.iter().flat_map(|(_, xid)| xid.encode()).collect();
        let quantity = i32::try_from(prepared.len()).unwrap_or(i32::MAX);
        TxReply { quantity: Some(quantity), body: Bytes::from(body), ..TxReply::bare(Status::OK) }
    }

    fn verify(&self, connection: i64, target: &Target) -> TxReply {
        let found = self.find(connection, target).and_then(|id| Some((id, self.open.get(&id)?)));
        match found {
            Some((_, open)) if open.state == State::Prepared => {
                TxReply { body: open.described(), ..TxReply::bare(Status::OK) }
            }
            Some((id, _)) => {
                let reason = format!("transaction {id} is not prepared");
                TxReply::refuse(Status::NOT_FOUND, Some(id), reason)
            }
            None => unknown(target),
        }
    }

    /// Has a tick sent when this lifetime is over, if none comes before.
    fn wake_for(&mut self, ends_at: Option<i64>, cx: &mut Context<'_, D, M, R>) {
        let Some(at) = ends_at.filter(|&at| self.wakes_at.is_none_or(|set| at < set)) else {
            return;
        };
        self.wakes_at = Some(at);
        cx.out.push(Effect::WakeAt(at));
    }

    fn tick(&mut self, at: i64, cx: &mut Context<'_, D, M, R>) {
        // Whoever carries this out may have looked at the clock a moment before the sender did.
        let now = cx.wall_ms.max(at);
        let ends = |open: &Open<D, M, R>| open.ends_at.is_some_and(|ends_at| ends_at <= now);
        let mut over: Vec<i64> =
            self.open.iter().filter(|(_, open)| ends(open)).map(|(&id, _)| id).collect();
        over.sort_unstable();
        for id in over {
            if let Some(open) = self.open.get_mut(&id) {
                // Once is enough, even if it has to wait.
                open.ends_at = None;
            }
            self.submit(id, Waiting::Expired, cx);
        }
        if self.wakes_at.is_some_and(|set| set <= at) {
            self.wakes_at = None;
        }
        let next = self.open.values().filter_map(|open| open.ends_at).min();
        self.wake_for(next, cx);
    }
}

/// What a request asks of the transaction it names; `None` if it only asks whether it is there.
const fn operation(
    request: &TransactionRequest,
    is_branch: bool,
    is_half_done: bool,
) -> Option<Operation> {
    Some(match request {
        TransactionRequest::Start(start) => match start.association {
            Association::New => Operation::Start,
            Association::Join => Operation::Join,
            Association::Resume => Operation::Resume,
        },
        TransactionRequest::End { no_op: true, .. }
        | TransactionRequest::Recover(_)
        | TransactionRequest::Verify(_) => return None,
        TransactionRequest::End { ending, .. } => match ending {
            Ending::Success => Operation::End,
            Ending::Fail => Operation::Fail,
            Ending::Suspend => Operation::Suspend,
        },
        TransactionRequest::Prepare { .. } => Operation::Prepare,
        // The second half of a one-phase commit that was prepared as such.
        TransactionRequest::Commit { one_phase: true, .. } if is_branch && !is_half_done => {
            Operation::CommitOnePhase
        }
        TransactionRequest::Commit { .. } if is_branch => Operation::Commit,
        TransactionRequest::Commit { .. } => Operation::CommitLocal,
        TransactionRequest::Rollback(_) if is_branch => Operation::Rollback,
        TransactionRequest::Rollback(_) => Operation::RollbackLocal,
    })
}

fn unknown(target: &Target) -> TxReply {
    let reason = format!("Unknown transaction {target}");
    TxReply::refuse(Status::NOT_FOUND, target.said_id(), reason)
}

#[cfg(test)]
mod tests;
