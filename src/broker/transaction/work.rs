//! Work done in a transaction: what is sent and what is acknowledged.

use crate::wire::Status;

use super::{super::persist::StoredKey, Context, Effect, Table, TxReply, open::Expected};

impl<D: Clone + PartialEq, M: Clone, R> Table<D, M, R> {
    pub(super) fn produce(
        &mut self,
        (id, is_copy): (i64, bool),
        connection: i64,
        (destination, message): (D, M),
        reply: Option<R>,
        cx: &mut Context<'_, D, M, R>,
    ) {
        let messages_max = self.limits.messages_max;
        let refused = match self.open_to(id, connection) {
            None => Some((Status::ERROR, format!("Unknown transaction {id}"))),
            Some(open) => {
                let refused = match open.closed_to_work(id) {
                    Some(reason) => Some((Status::ERROR, reason)),
                    None if open.produced.len() >= messages_max => Some((
                        Status::RESOURCE_FULL,
                        format!("transaction {id} has {messages_max} messages, which is the most"),
                    )),
                    None => None,
                };
                if refused.is_none() {
                    open.produced.push((destination, message));
                    if let Some(to) = reply {
                        cx.reply(to, TxReply::bare(Status::OK));
                    }
                    return;
                }
                if reply.is_none() || is_copy {
                    open.spoil();
                }
                refused
            }
        };
        cx.out.push(Effect::Drop(message, destination));
        if let (Some(to), Some((status, reason))) = (reply, refused) {
            cx.reply(to, TxReply::refuse(status, None, reason));
        }
    }

    pub(super) fn expect(
        &mut self,
        (id, ticket): (i64, i64),
        connection: i64,
        parts: Vec<D>,
        messages: usize,
        reply: Option<R>,
        cx: &mut Context<'_, D, M, R>,
    ) {
        let most = self.limits.acknowledgements_max;
        let unknown = (Status::NOT_FOUND, format!("Unknown transaction {id}"));
        let mut refused = Some(unknown);
        if let Some(open) = self.open.get_mut(&id) {
            let is_its = open.is_open_to(connection);
            if is_its {
                refused = if let Some(reason) = open.closed_to_work(id) {
                    Some((Status::PRECONDITION_FAILED, reason))
                } else if open.acknowledgements.saturating_add(messages) > most {
                    let reason =
                        format!("transaction {id} acknowledges {most} messages at the most");
                    Some((Status::RESOURCE_FULL, reason))
                } else {
                    None
                };
            }
            if refused.is_none() {
                open.acknowledgements += messages;
                for part in parts {
                    if !open.parts.contains(&part) {
                        open.parts.push(part);
                    }
                }
                open.unsettled += 1;
                open.expected.push_back((ticket, Expected::Counted(reply)));
                return self.catch_up(id, ticket, cx);
            }
            open.expected.push_back((ticket, Expected::Refused));
            if is_its {
                open.spoil();
            }
        }
        let let_go = |destination| Effect::LetGo { destination, id, ticket };
        cx.out.extend(parts.into_iter().map(let_go));
        self.catch_up(id, ticket, cx);
        if let (Some(to), Some((status, reason))) = (reply, refused) {
            cx.reply(to, TxReply::refuse(status, None, reason));
        }
    }

    pub(super) fn consumed(
        &mut self,
        (id, ticket): (i64, i64),
        (status, stored): (Status, Vec<StoredKey>),
        cx: &mut Context<'_, D, M, R>,
    ) {
        // What was refused may be carried out after its transaction has ended.
        let Some(open) = self.open.get_mut(&id) else { return };
        let reply = match open.expected(ticket) {
            Some(Expected::Counted(reply)) => reply,
            Some(Expected::Refused) => return,
            None => return open.early.push((ticket, status, stored)),
        };
        open.unsettled -= 1;
        open.stored.extend(stored);
        if !status.is_ok() {
            open.fail();
        }
        if let Some(to) = reply {
            let reason = (!status.is_ok()).then(|| {
                format!("an acknowledgement failed: transaction {id} can only be rolled back")
            });
            cx.reply(to, TxReply { reason, ..TxReply::bare(status) });
        }
        while let Some(open) = self.open.get_mut(&id).filter(|open| open.unsettled == 0) {
            let Some(waiting) = open.waiting.pop_front() else { return };
            self.carry(id, waiting, cx);
        }
    }

    /// Takes what was carried out before it was expected.
    fn catch_up(&mut self, id: i64, ticket: i64, cx: &mut Context<'_, D, M, R>) {
        let Some(open) = self.open.get_mut(&id) else { return };
        if let Some(at) = open.early.iter().position(|(own, ..)| *own == ticket) {
            let (_, status, stored) = open.early.swap_remove(at);
            self.consumed((id, ticket), (status, stored), cx);
        }
    }
}
