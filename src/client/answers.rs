//! The broker's word on acknowledgements whose senders did not wait for it.
//!
//! A future may be dropped wherever it waits, and what it holds would be lost. So a future that
//! receives waits for nothing once it has a message: it writes the acknowledgement and hands the
//! message out. The broker's word on it is awaited before the session's next message is handed to a
//! future, and before the transaction is committed, which is where a refusal is reported.

use super::{
    acks::{self, Answer, Block},
    clock,
    completion::Reply,
    consumer::ConsumerShared,
    core::{Core, check},
    error::RequestError,
    links::Command,
    session_state::SessionShared,
};
use crate::{
    sync::Inbox,
    wire::{Packet, PacketType},
};

/// Acknowledgements of one session that the broker has not answered.
///
/// Bounded by the futures that receive in the session at the same time.
#[derive(Debug, Default)]
pub(super) struct Answers {
    line: Inbox<Reply>,
}

impl Answers {
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Takes in what was answered: `None` while an answer is missing. A link that is gone answers
    /// no more; what was acknowledged there may come again, flagged, or its transaction is lost,
    /// which the session knows.
    pub(super) fn settle(&self, core: &Core) -> Option<Result<(), RequestError>> {
        while let Some(reply) = self.line.pop() {
            match reply.look(core) {
                Some(Some(packet)) => {
                    if let Err(error) = check(PacketType::ACKNOWLEDGE, packet) {
                        return Some(Err(error));
                    }
                }
                Some(None) => core.command(Command::ForgetReply(reply.id)),
                None => {
                    self.line.push(reply);
                    return None;
                }
            }
        }
        Some(Ok(()))
    }

    /// Waits for no answer any more.
    pub(super) fn forget(&self, core: &Core) {
        while let Some(reply) = self.line.pop() {
            core.command(Command::ForgetReply(reply.id));
        }
    }
}

impl SessionShared {
    /// As [`acknowledge_one`](Self::acknowledge_one), without waiting.
    pub(super) fn acknowledge_soon(
        &self,
        consumer: &ConsumerShared,
        packet: &Packet,
        block: Block,
        transaction: Option<i64>,
    ) {
        let core = &self.core;
        let reply_id = match self.note_acknowledgement(consumer, packet, block, transaction) {
            Answer::None => None,
            Answer::Awaited => {
                let reply = Reply::announce(core, block.epoch, &self.link.signal);
                let id = reply.id;
                self.link.answers.line.push(reply);
                Some(id)
            }
        };
        acks::send(core, block, transaction, reply_id);
        core.flush();
    }

    /// Waits for the broker's word on everything that was acknowledged.
    pub(super) fn await_answers(&self) -> Result<(), RequestError> {
        let answers = &self.link.answers;
        if answers.is_empty() {
            return Ok(());
        }
        let deadline = clock::deadline_after(self.core.settings.ack_timeout);
        let settled = self.core.wait(&self.link.signal, deadline, || answers.settle(&self.core))?;
        settled.unwrap_or_else(|| {
            answers.forget(&self.core);
            Err(self.core.timed_out(PacketType::ACKNOWLEDGE))
        })
    }
}
