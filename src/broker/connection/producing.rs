//! Producers and their messages.

use crate::{
    proto::broker_in::{DestinationMask, ReplyTo},
    sync::Arc,
    wire::{Flags, Packet, PacketBuilder, Status},
};

use super::{
    super::{
        command::{Command, Reply},
        destination::{Kind, STORED_CLEAR},
        stored::Stored,
        turn::Turn,
    },
    Connection, Refusal, connection_credit, room,
};

impl Connection {
    pub(super) fn add_producer(
        &mut self,
        to: &ReplyTo,
        name: &str,
        mask: DestinationMask,
        session: Option<i64>,
        turn: &Turn<'_>,
    ) -> Result<PacketBuilder, Refusal> {
        room(self.producers.len(), "producers")?;
        if let Some(session) = session.filter(|session| !self.sessions.contains_key(session)) {
            return Err((Status::ERROR, format!("there is no session {session}")));
        }
        let destination = self.destination(name, mask, turn.shared)?;
        let id = turn.next_id();
        let (batch, _) = destination.limits.producer_credit();
        let reply = to
            .with(Status::OK)
            .long("JMQProducerID", id)
            .string("JMQDestinationID", &destination.uid())
            .long("JMQBytes", -1)
            .int("JMQSize", batch);
        self.producers.insert(id, (session, destination));
        Ok(reply)
    }

    pub(super) fn message(
        &mut self,
        to: &ReplyTo,
        packet: Packet,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let flags = packet.header().flags;
        let kind = if flags.contains(Flags::QUEUE) { Kind::Queue } else { Kind::Topic };
        let variable = packet.variable().map_err(|error| (Status::ERROR, error.to_string()))?;
        if let Some(id) = variable.transaction_id.filter(|&id| id != 0) {
            return Err((Status::ERROR, format!("Unknown transaction {id}")));
        }
        let name =
            variable.destination.ok_or_else(|| (Status::ERROR, "no destination".to_owned()))?;
        let destination = match &self.last {
            Some(last) if last.kind == kind && last.name.as_bytes() == name => Arc::clone(last),
            _ => {
                let name = variable.destination_text().unwrap_or_default();
                let found = turn
                    .shared
                    .registry
                    .find(kind, &name)
                    .ok_or_else(|| (Status::ERROR, format!("Unknown Destination:{name}")))?;
                self.last = Some(Arc::clone(&found));
                found
            }
        };
        if flags.contains(Flags::FLOW_PAUSED) {
            turn.send_packet(&self.output, connection_credit(turn.shared));
        }
        let credit = variable
            .producer_id
            .filter(|_| flags.contains(Flags::CONSUMER_FLOW))
            .map(|producer| (Arc::clone(&self.output), producer));
        let reply = to.wanted.then(|| Reply { output: Arc::clone(&self.output), to: *to });
        let message = Stored { packet: packet.without_flags(STORED_CLEAR), connection_id: self.id };
        let message = Arc::new(message);
        turn.send(&destination, Command::Produce { message, reply, credit });
        Ok(())
    }
}
