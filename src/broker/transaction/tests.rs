//! What becomes of transactions, rule by rule.

use std::collections::VecDeque;

use super::{Effect, Limits, Outcome, State, Table, TxCommand, TxReply};
use crate::{
    proto::transaction::{
        Association, AutoRollback, Ending, Rollback, Start, Target, TransactionRequest, XaFlags,
        Xid,
    },
    wire::Status,
};

mod branches;
mod endings;
mod model;
mod work;

type Done = Effect<&'static str, u32, u32>;

const LIMITS: Limits =
    Limits { open_max: 8, waiting_max: 3, remembered_max: 4, ..Limits::new(3, 3) };

/// What is done by a store that is done with everything at once.
fn stored_at_once<D, M, R>(effect: Effect<D, M, R>) -> Vec<Effect<D, M, R>> {
    match effect {
        Effect::Durably { then, .. } => then,
        other => vec![other],
    }
}

/// A table, and the number of the next reply.
struct Bench {
    table: Table<&'static str, u32, u32>,
    now: i64,
    ids: i64,
    replies: u32,
    /// Of acknowledgements that are on their way.
    tickets: VecDeque<i64>,
}

impl Bench {
    fn new() -> Self {
        let table = Table::new(LIMITS);
        Self { table, now: 1_000, ids: 0, replies: 0, tickets: VecDeque::new() }
    }

    fn handle(&mut self, command: TxCommand<&'static str, u32, u32>) -> Vec<Done> {
        let mut out = Vec::new();
        let ids = &mut self.ids;
        let mut new_id = || {
            *ids += 1;
            *ids
        };
        self.table.handle(command, self.now, &mut new_id, &mut out);
        out.into_iter().flat_map(stored_at_once).collect()
    }

    fn number(&mut self) -> u32 {
        self.replies += 1;
        self.replies
    }

    fn ask(&mut self, connection: i64, request: TransactionRequest) -> Vec<Done> {
        let reply = self.number();
        self.handle(TxCommand::Request { connection, user: Some("guest".into()), request, reply })
    }

    /// What else is done, and the reply, of which there must be one, to this request.
    fn answered(&mut self, connection: i64, request: TransactionRequest) -> (Vec<Done>, TxReply) {
        let mut effects = self.ask(connection, request);
        let mut replies = Vec::new();
        effects.retain(|effect| match effect {
            Effect::Reply { to, reply } => {
                replies.push((*to, reply.clone()));
                false
            }
            _ => true,
        });
        let [(to, reply)] = &replies[..] else { panic!("{replies:?}") };
        assert_eq!(*to, self.replies);
        (effects, reply.clone())
    }

    fn reply(&mut self, connection: i64, request: TransactionRequest) -> TxReply {
        let (effects, reply) = self.answered(connection, request);
        assert_eq!(effects, []);
        reply
    }

    fn status(&mut self, connection: i64, request: TransactionRequest) -> i32 {
        self.answered(connection, request).1.status.0
    }

    fn local(&mut self, connection: i64, session: i64) -> i64 {
        let reply = self.reply(connection, start(session));
        assert_eq!(reply, TxReply::done(self.ids));
        self.ids
    }

    fn branch(&mut self, connection: i64, number: u8) -> i64 {
        let reply = self.reply(connection, branch(number, Association::New));
        assert_eq!(reply, TxReply::done(self.ids));
        self.ids
    }

    /// A prepared branch that sent 7 to `a` and acknowledged something at `b`.
    fn prepared(&mut self, connection: i64, number: u8) -> i64 {
        let id = self.branch(connection, number);
        assert_eq!(self.send(id, connection, 7), 200);
        self.acknowledge(id, connection, &["b"], Status::OK);
        assert_eq!(self.status(connection, end(number)), 200);
        let (effects, reply) = self.answered(connection, prepare(number));
        assert_eq!(effects, [Effect::Hold { destination: "b", id }]);
        assert_eq!(reply, TxReply::done(id));
        id
    }

    /// Sends to `a` and wants a reply.
    fn send(&mut self, id: i64, connection: i64, message: u32) -> i32 {
        let reply = Some(self.number());
        let produce =
            TxCommand::Produce { id, connection, destination: "a", message, is_copy: false, reply };
        let mut effects = self.handle(produce);
        let status = match effects.pop() {
            Some(Effect::Reply { reply, .. }) => reply.status.0,
            other => panic!("{other:?}"),
        };
        let dropped = [Effect::Drop(message, "a")];
        assert_eq!(effects, if status == 200 { &[][..] } else { &dropped[..] });
        status
    }

    fn expect(&mut self, id: i64, connection: i64, parts: &[&'static str]) -> Vec<Done> {
        let reply = self.number();
        let (ticket, parts) = (i64::from(reply), parts.to_vec());
        self.tickets.push_back(ticket);
        let reply = Some(reply);
        self.handle(TxCommand::Expect { id, ticket, connection, parts, messages: 1, reply })
    }

    /// The last acknowledgement is undone there.
    fn let_go(&self, destination: &'static str, id: i64) -> Done {
        let ticket = *self.tickets.back().expect("one was sent");
        Effect::LetGo { destination, id, ticket }
    }

    /// The oldest acknowledgement that is on its way is carried out.
    fn consumed(&mut self, id: i64, status: Status) -> Vec<Done> {
        let ticket = self.tickets.pop_front().expect("one is on its way");
        self.handle(TxCommand::Consumed { id, ticket, status, stored: Vec::new() })
    }

    /// Acknowledges one message in all of these, which carry it out at once.
    fn acknowledge(&mut self, id: i64, connection: i64, parts: &[&'static str], status: Status) {
        assert_eq!(self.expect(id, connection, parts), []);
        let to = self.replies;
        let effects = self.consumed(id, status);
        let [Effect::Reply { to: told, reply }] = &effects[..] else { panic!("{effects:?}") };
        assert_eq!((*told, reply.status), (to, status));
    }

    /// A connection ends; what comes of it, but for the word that this is all.
    fn ended(&mut self, connection: i64) -> Vec<Done> {
        let then = self.number();
        let effects = self.handle(TxCommand::ConnectionEnded { connection, then });
        parted(effects, then)
    }

    /// The same of a session.
    fn session_ended(&mut self, connection: i64, session: i64) -> Vec<Done> {
        let then = self.number();
        let effects = self.handle(TxCommand::SessionEnded { connection, session, then });
        parted(effects, then)
    }

    fn states(&mut self) -> Vec<(i64, State)> {
        let reply = self.number();
        match &self.handle(TxCommand::List(reply))[..] {
            [Effect::List { to, transactions }] if *to == reply => {
                transactions.iter().map(|listed| (listed.id, listed.state)).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What was done before whoever left was told that this is all.
fn parted(mut effects: Vec<Done>, then: u32) -> Vec<Done> {
    let last = effects.pop();
    assert_eq!(last, Some(Effect::Reply { to: then, reply: TxReply::bare(Status::OK) }));
    effects
}

fn start(session: i64) -> TransactionRequest {
    TransactionRequest::Start(Start {
        session: Some(session),
        xid: None,
        association: Association::New,
        auto_rollback: AutoRollback::NotPrepared,
        lifetime_ms: None,
        session_less: false,
    })
}

fn with(request: TransactionRequest, change: impl FnOnce(&mut Start)) -> TransactionRequest {
    let TransactionRequest::Start(mut start) = request else { panic!("{request:?}") };
    change(&mut start);
    TransactionRequest::Start(start)
}

fn xid(number: u8) -> Xid {
    Xid::new(1, b"test", &[number]).unwrap()
}

fn named(number: u8) -> Target {
    Target::xid(xid(number), None)
}

fn branch(number: u8, association: Association) -> TransactionRequest {
    with(start(0), |start| {
        start.session = None;
        start.xid = Some(xid(number));
        start.association = association;
    })
}

fn end(number: u8) -> TransactionRequest {
    ends(named(number), Ending::Success)
}

fn ends(target: Target, ending: Ending) -> TransactionRequest {
    TransactionRequest::End { target, ending, no_op: false }
}

fn prepare(number: u8) -> TransactionRequest {
    TransactionRequest::Prepare { target: named(number), one_phase: false }
}

fn commit(target: Target) -> TransactionRequest {
    TransactionRequest::Commit { target, one_phase: false, start_next: false }
}

fn one_phase(number: u8) -> TransactionRequest {
    TransactionRequest::Commit { target: named(number), one_phase: true, start_next: false }
}

fn rollback(target: Target) -> TransactionRequest {
    TransactionRequest::Rollback(Rollback {
        target,
        redeliver: false,
        seen: true,
        max_rollbacks: None,
        dead_on_max: false,
    })
}

fn recover(flags: XaFlags) -> TransactionRequest {
    TransactionRequest::Recover(flags)
}

fn settled(destination: &'static str, id: i64, outcome: Outcome) -> Done {
    Effect::Settle { destination, id, outcome }
}
