//! Work that only the owners of connections can do: each loop does its part.

use std::fmt;

use crate::sync::Plain;

use super::super::{connection::Connection, gather::Gather, server::Mail, turn::Turn};

/// Work for one loop, done on all its open connections in one go.
pub(in crate::broker) struct Work(Box<Inner>);

type Inner = dyn FnOnce(&mut [&mut Connection], &mut Turn<'_>) + Send + Sync;

impl Work {
    /// Does it.
    pub(in crate::broker) fn run(self, open: &mut [&mut Connection], turn: &mut Turn<'_>) {
        (self.0)(open, turn);
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

/// Asks every open connection, and then does something with all that is not nothing of what they
/// said, in no order.
pub(super) fn survey<T: Send + 'static>(
    turn: &mut Turn<'_>,
    ask: impl Fn(&mut Connection, &mut Turn<'_>) -> Option<T> + Send + Sync + 'static,
    finish: impl FnOnce(Vec<T>, &mut Turn<'_>) + Send + Sync + 'static,
) {
    let loops = turn.shared.loops();
    if loops.is_empty() {
        return finish(Vec::new(), turn);
    }
    let gather = Gather::new(loops.len(), finish);
    let ask = Plain::new(ask);
    for mailbox in loops.iter() {
        let (gather, ask) = (Plain::clone(&gather), Plain::clone(&ask));
        let work = move |open: &mut [&mut Connection], turn: &mut Turn<'_>| {
            let said = open.iter_mut().filter_map(|one| ask(one, turn)).collect();
            gather.add(said, turn);
        };
        mailbox.send(Mail::Work(Work(Box::new(work))));
    }
}
