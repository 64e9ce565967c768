//! What administrators see of a connection, and what they may end.

use crate::sync::Arc;

use super::{
    super::{
        command::Leave, connections::ConnectionInfo, consumer::Consumer, destination::Destination,
        turn::Turn,
    },
    Connection,
};

impl Connection {
    /// How others see it.
    pub(in crate::broker) const fn info(&self) -> &Arc<ConnectionInfo> {
        &self.info
    }

    /// Its producers, and where each is registered; nowhere if it sends to a pattern.
    pub(in crate::broker) fn producers(
        &self,
    ) -> impl Iterator<Item = (i64, Option<&Arc<Destination>>)> {
        self.producers.iter().map(|(id, producer)| (*id, producer.destination.as_ref()))
    }

    /// Its consumers that are not closed.
    pub(in crate::broker) fn consumers(&self) -> impl Iterator<Item = &Arc<Consumer>> {
        self.consumers.values().map(|(_, consumer)| consumer).filter(|one| !one.is_closed())
    }

    /// Ends a producer; `false` if it has none of this id. The client is not told: what it sends
    /// counts as sent without a producer.
    pub(in crate::broker) fn end_producer(&mut self, id: i64, turn: &mut Turn<'_>) -> bool {
        self.delete_producer(id, turn).is_ok()
    }

    /// Ends a consumer; `false` if it has none of this id. What it was sent and did not acknowledge
    /// goes back. The client is not told: it gets nothing more.
    pub(in crate::broker) fn end_consumer(&mut self, id: i64, turn: &mut Turn<'_>) -> bool {
        let is_open = self.consumers.get(&id).is_some_and(|(_, one)| !one.is_closed());
        let Some((_, consumer)) = is_open.then(|| self.consumers.remove(&id)).flatten() else {
            return false;
        };
        consumer.close();
        self.output.leave(consumer, Leave::Ended, None);
        turn.touch_output(&self.output);
        true
    }
}
