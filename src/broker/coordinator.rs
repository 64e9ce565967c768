//! Where the broker's transactions meet its destinations.
//!
//! All transactions are one table behind one gate: whoever has something for it leaves that in the
//! inbox and enters, and carries out what comes of it on its own thread.
//!
//! # Invariants
//! - What a commit puts in is left with its destinations before the reply is left with its output.

mod steps;

use crate::sync::{Arc, Entered, Gate, Inbox};

use super::{
    command::{Command, Reply},
    destination::Destination,
    settle::Claim,
    stored::Stored,
    transaction::{Effect, Finished, Limits, Listed, Promise, Table, TxCommand, TxReply},
    turn::Turn,
};

/// Commands that one thread carries out before its own connections have their turn.
const WORK_MAX: usize = 2048;

/// A destination, equal to itself.
#[derive(Debug, Clone)]
pub(super) struct Handle(pub Arc<Destination>);

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Who hears of a transaction.
pub(super) enum Answer {
    /// A client.
    Client(Reply),
    /// Whoever asked within the broker.
    Asked(Box<Asked>),
}

type Asked = dyn FnOnce(Told, &mut Turn<'_>) + Send + Sync;

/// What somebody within the broker hears.
#[derive(Debug)]
pub(super) enum Told {
    /// What became of one transaction.
    Outcome(TxReply),
    /// All there are.
    List(Vec<Listed>),
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Client(_) => "Client",
            Self::Asked(_) => "Asked",
        })
    }
}

/// What the coordinator is told.
pub(super) type Transact = TxCommand<Handle, Arc<Stored>, Answer>;

type Transactions = Table<Handle, Arc<Stored>, Answer>;

type Done = Effect<Handle, Arc<Stored>, Answer>;

/// The transactions of a broker.
#[derive(Debug)]
pub(super) struct Coordinator {
    inbox: Inbox<Vec<Transact>>,
    gate: Gate<Transactions>,
}

impl Coordinator {
    /// No transactions yet.
    pub(super) fn new(limits: Limits) -> Self {
        Self { inbox: Inbox::new(), gate: Gate::new(Table::new(limits)) }
    }

    /// A prepared transaction is there again, before anybody is served.
    pub(super) fn restore(&self, promise: Promise<Handle, Arc<Stored>>, parts: Vec<Handle>) {
        self.prepare_table(|table| table.restore(promise, parts));
    }

    /// A transaction that has ended is known again, before anybody is served.
    pub(super) fn remember(&self, finished: Finished) {
        self.prepare_table(|table| table.remember(finished));
    }

    fn prepare_table(&self, change: impl FnOnce(&mut Transactions)) {
        let mut change = Some(change);
        let _entered = self.gate.enter(|table| {
            if let Some(change) = change.take() {
                change(table);
            }
            true
        });
    }

    /// Leaves work. The caller enters afterwards.
    pub(super) fn push(&self, commands: Vec<Transact>) {
        self.inbox.push(commands);
    }

    /// Carries out what lies in the inbox, up to a bound, or lets whoever is inside do so.
    pub(super) fn enter(&self, turn: &mut Turn<'_>) -> Entered {
        let mut left = WORK_MAX;
        self.gate.enter(|table| self.run(table, &mut left, turn))
    }

    /// Goes on after the bound.
    pub(super) fn resume(&self, turn: &mut Turn<'_>) -> Entered {
        let mut left = WORK_MAX;
        self.gate.resume(|table| self.run(table, &mut left, turn))
    }

    /// `false` if the bound was reached, though others may have left more meanwhile.
    fn run(&self, table: &mut Transactions, left: &mut usize, turn: &mut Turn<'_>) -> bool {
        let mut effects = Vec::new();
        while *left > 0 {
            let Some(commands) = self.inbox.pop() else { return true };
            *left = left.saturating_sub(commands.len());
            for command in commands {
                let Some(command) = refuse_unstored(table, command, turn) else { continue };
                let shared = turn.shared;
                let mut new_id = || shared.ids.next_id();
                table.handle(command, turn.wall_ms, &mut new_id, &mut effects);
                carry_out(effects.drain(..), turn);
            }
        }
        false
    }
}

/// Refuses what would change the store while that takes nothing; everything else comes back.
fn refuse_unstored(
    table: &Transactions,
    command: Transact,
    turn: &mut Turn<'_>,
) -> Option<Transact> {
    let refusal = turn.shared.persist.as_ref().and_then(|persist| persist.check().err());
    let Some((status, reason)) = refusal else { return Some(command) };
    match command {
        Transact::Request { connection, request, reply, .. }
            if table.changes_store(connection, &request, |at, message| {
                at.0.wants_stored(message, turn).is_some()
            }) =>
        {
            answer(reply, Told::Outcome(TxReply::refuse(status, None, reason)), turn);
            None
        }
        other => Some(other),
    }
}

fn carry_out(effects: impl IntoIterator<Item = Done>, turn: &mut Turn<'_>) {
    let mut bursts: Vec<(Arc<Destination>, Vec<Command>)> = Vec::new();
    let mut add = |to: Handle, command: Command, turn: &mut Turn<'_>| match bursts.last_mut() {
        Some((last, commands)) if Arc::ptr_eq(last, &to.0) => commands.push(command),
        _ => {
            for (to, commands) in bursts.drain(..) {
                turn.send_all_now(&to, commands);
            }
            bursts.push((to.0, vec![command]));
        }
    };
    let mut replies = Vec::new();
    for effect in effects {
        match effect {
            Effect::Durably { change, then } => steps::durably(change, then, turn),
            Effect::Reply { to, reply } => replies.push((to, Told::Outcome(reply))),
            Effect::List { to, transactions } => replies.push((to, Told::List(transactions))),
            Effect::Produce { destination, message } => {
                let command = Command::Produce {
                    message,
                    reply: None,
                    used_up: None,
                    reserved: true,
                    instead_of: None,
                };
                add(destination, command, turn);
            }
            Effect::Drop(message, destination) => {
                destination.0.unreserve(&message, &turn.shared.memory);
            }
            Effect::WakeAt(at) => turn.wake_transactions_at(at),
            Effect::Settle { destination, id, outcome } => {
                add(destination, Command::Settle { transaction: id, outcome }, turn);
            }
            Effect::LetGo { destination, id, ticket } => {
                let claim = Claim { transaction: id, ticket };
                add(destination, Command::Disclaim(claim), turn);
            }
            Effect::Hold { destination, id } => {
                add(destination, Command::Hold { transaction: id }, turn);
            }
        }
    }
    for (to, commands) in bursts {
        turn.send_all_now(&to, commands);
    }
    for (to, told) in replies {
        answer(to, told, turn);
    }
}

fn answer(to: Answer, told: Told, turn: &mut Turn<'_>) {
    match (to, told) {
        (Answer::Asked(answer), told) => answer(told, turn),
        (Answer::Client(to), Told::Outcome(reply)) if to.to.wanted => {
            let packet = reply.packet(&to.to);
            turn.send_packet(&to.output, packet);
        }
        (Answer::Client(_), _) => {}
    }
}
