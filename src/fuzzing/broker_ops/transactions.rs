//! Transactions, local ones and branches, in any order of their steps.

use crate::{
    proto::transaction::XaFlags,
    wire::{PacketBuilder, PacketType},
};

use super::{Input, NAMES, World, blocks, client::Asked, within, xid};

/// Branches that are known by name.
const BRANCHES: usize = 3;

const ENDINGS: [PacketType; 4] = [
    PacketType::END_TRANSACTION,
    PacketType::PREPARE_TRANSACTION,
    PacketType::COMMIT_TRANSACTION,
    PacketType::ROLLBACK_TRANSACTION,
];

impl World {
    pub(super) fn start_transaction(&mut self, at: usize, input: &mut Input<'_>) {
        let start = PacketBuilder::new(PacketType::START_TRANSACTION);
        let choice = input.byte().unwrap_or(0);
        let start = if choice & 4 == 0 {
            let Some(session) = input.pick(&self.clients[at].sessions) else { return };
            start.long("JMQSessionID", session).int("JMQAutoRollback", 1 + i32::from(choice & 1))
        } else {
            let flags = [0, 0, XaFlags::JOIN.0, XaFlags::RESUME.0];
            start
                .int("JMQXAFlags", input.pick(&flags).unwrap_or(0))
                .int("JMQAutoRollback", 1 + i32::from(choice % 3))
                .body(xid(input.below(BRANCHES)).encode().to_vec())
        };
        let start = if choice & 8 != 0 { start.long("JMQLifetime", 5000) } else { start };
        self.ask(at, if choice & 16 != 0 { start.boolean("JMQSessionLess", true) } else { start });
    }

    /// Sends, acknowledges or redelivers in a transaction that may still be open.
    pub(super) fn work_in_transaction(&mut self, at: usize, input: &mut Input<'_>) {
        let recent = self.transactions.len().saturating_sub(8);
        let Some(transaction) = input.pick(&self.transactions[recent..]) else { return };
        match input.below(4) {
            0 | 1 => {
                let (name, kind) = input.pick(&NAMES).unwrap_or(NAMES[0]);
                let choice = input.byte().unwrap_or(0);
                let id = self.next_message();
                let message = Self::message(name, kind, choice, Some(transaction), None);
                let Some(message) = message else { return };
                // Whether it is ever there depends on how the transaction ends.
                self.ask_about(at, message.id(id), Asked::Send(id, false));
            }
            2 => {
                let chosen = self.choose(at, input);
                self.unsure.extend(chosen.iter().map(|&(_, id)| id));
                let packet = PacketBuilder::new(PacketType::ACKNOWLEDGE).body(blocks(&chosen));
                self.ask(at, within(transaction, packet));
                // They may be redelivered, or acknowledged after a rollback.
                self.clients[at].delivered.extend(chosen);
            }
            _ => {
                let chosen = self.choose(at, input);
                let packet = PacketBuilder::new(PacketType::REDELIVER)
                    .boolean("JMQSetRedelivered", input.below(2) == 0)
                    .body(blocks(&chosen));
                self.ask(at, within(transaction, packet));
            }
        }
    }

    /// A step as real clients take it, one packet or, of a branch, all up to that one.
    pub(super) fn end_transaction_plainly(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(kind) = input.pick(&ENDINGS) else { return };
        let choice = input.byte().unwrap_or(0);
        if choice & 1 == 0 {
            let recent = self.transactions.len().saturating_sub(2);
            let Some(id) = input.pick(&self.transactions[recent..]) else { return };
            let packet = PacketBuilder::new(kind).long("JMQTransactionID", id);
            return self.ask(at, packet.boolean("JMQRedeliver", choice & 2 != 0));
        }
        let branch = xid(input.below(BRANCHES)).encode().to_vec();
        for step in ENDINGS {
            // A rollback needs no promise, a commit does.
            let is_left_out = kind == PacketType::ROLLBACK_TRANSACTION
                && choice & 2 != 0
                && step == PacketType::PREPARE_TRANSACTION;
            let is_other_end = step == PacketType::COMMIT_TRANSACTION && step != kind;
            if is_left_out || is_other_end {
                continue;
            }
            let flags = if step == PacketType::END_TRANSACTION { XaFlags::SUCCESS.0 } else { 0 };
            let packet = PacketBuilder::new(step).int("JMQXAFlags", flags);
            self.ask(at, packet.boolean("JMQRedeliver", true).body(branch.clone()));
            if step == kind {
                break;
            }
        }
    }

    pub(super) fn end_transaction_strangely(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(kind) = input.pick(&ENDINGS) else { return };
        let packet = PacketBuilder::new(kind);
        let choice = input.byte().unwrap_or(0);
        let packet = if choice & 1 == 0 {
            let recent = self.transactions.len().saturating_sub(8);
            let Some(id) = input.pick(&self.transactions[recent..]) else { return };
            packet.long("JMQTransactionID", id)
        } else {
            packet.body(xid(input.below(BRANCHES)).encode().to_vec())
        };
        let flags = [XaFlags::SUCCESS.0, XaFlags::SUSPEND.0, XaFlags::FAIL.0, XaFlags::ONE_PHASE.0];
        let flags = input.pick(&flags).filter(|_| choice & 2 != 0);
        let packet =
            flags.into_iter().fold(packet, |packet, flags| packet.int("JMQXAFlags", flags));
        let switches = [
            (4, "JMQStartNextTransaction"),
            (8, "JMQRedeliver"),
            (16, "JMQXAOnePhase"),
            (32, "JMQDMQOnMaxRollbacks"),
            (64, "JMQNoOp"),
        ];
        let chosen = switches.into_iter().filter(|(bit, _)| choice & bit != 0);
        let packet = chosen.fold(packet, |packet, (_, name)| packet.boolean(name, true));
        let gives_up = choice & 128 != 0;
        self.may_be_gone |= gives_up;
        self.ask(at, if gives_up { packet.int("JMQMaxRollbacks", 2) } else { packet });
    }

    pub(super) fn look_at_transactions(&mut self, at: usize, input: &mut Input<'_>) {
        let packet = match input.below(3) {
            0 => PacketBuilder::new(PacketType::RECOVER_TRANSACTION)
                .int("JMQXAFlags", XaFlags::START_SCAN.0),
            1 => PacketBuilder::new(PacketType::VERIFY_TRANSACTION)
                .long("JMQTransactionID", 0)
                .body(xid(input.below(BRANCHES)).encode().to_vec()),
            _ => {
                let Some(id) = input.pick(&self.transactions) else { return };
                PacketBuilder::new(PacketType::VERIFY_TRANSACTION).long("JMQTransactionID", id)
            }
        };
        self.ask(at, packet);
    }

    /// Whatever was ever started is rolled back, if it is still open.
    pub(super) fn end_all_transactions(&mut self) {
        let fail = |packet: PacketBuilder| packet.int("JMQXAFlags", XaFlags::FAIL.0);
        for kind in [PacketType::END_TRANSACTION, PacketType::ROLLBACK_TRANSACTION] {
            for branch in 0..BRANCHES {
                let body = xid(branch).encode().to_vec();
                self.ask(0, fail(PacketBuilder::new(kind).body(body)));
            }
            for id in self.transactions.clone() {
                self.ask(0, fail(PacketBuilder::new(kind).long("JMQTransactionID", id)));
            }
        }
    }
}
