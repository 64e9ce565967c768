//! Producers and their messages.

use crate::{
    proto::broker_in::{DestinationMask, ReplyTo},
    sync::Arc,
    wire::{Flags, Packet, Status},
};

use super::{
    super::{
        admin,
        command::{Command, Reply, Sender},
        coordinator::{Answer, Handle, Transact},
        destination::{Destination, Kind, STORED_CLEAR},
        stored::Stored,
        turn::Turn,
        wildcard::Pattern,
    },
    Connection, Named, Refusal, room,
};

/// Credit of a producer that nothing meters.
const UNLIMITED: i32 = -1;

/// What a message says of its way besides where it goes.
#[derive(Debug, Clone, Copy)]
struct Way {
    /// The transaction it is sent in, or 0.
    transaction: i64,
    /// The producer that used up its credit with it.
    used_up: Option<i64>,
    /// It is one of several, for as many topics.
    is_copy: bool,
}

/// A producer of a connection.
#[derive(Debug)]
pub(super) struct Producer {
    /// The session it ends with, if it has one.
    pub session: Option<i64>,
    /// Where it is registered; nowhere if it sends to a pattern.
    pub destination: Option<Arc<Destination>>,
}

impl Connection {
    pub(super) fn add_producer(
        &mut self,
        to: &ReplyTo,
        name: &str,
        mask: DestinationMask,
        session: Option<i64>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        room(self.producers.len(), "producers")?;
        if let Some(session) = session.filter(|session| !self.sessions.contains_key(session)) {
            return Err((Status::ERROR, format!("there is no session {session}")));
        }
        let id = turn.next_id();
        let destination = match self.named(name, mask, turn)? {
            Named::One(destination) => destination,
            Named::Many(pattern) => {
                let reply = to
                    .with(Status::OK)
                    .long("JMQProducerID", id)
                    .string("JMQDestinationID", &format!("T:{}", pattern.text()))
                    .long("JMQBytes", i64::from(UNLIMITED))
                    .int("JMQSize", UNLIMITED);
                if to.wanted {
                    turn.send_packet(&self.output, reply);
                }
                self.producers.insert(id, Producer { session, destination: None });
                turn.shared.memory.add_producers(1);
                return Ok(());
            }
        };
        if !destination.count_producer() {
            let most = destination.attributes().producers_max;
            return Err((Status::NOT_ALLOWED, format!("{name} has {most} producers, its most")));
        }
        turn.shared.memory.add_producers(1);
        let output = Arc::clone(&self.output);
        let reply = to.wanted.then_some(*to);
        turn.send(&destination, Command::AddProducer { id, output, reply });
        self.producers.insert(id, Producer { session, destination: Some(destination) });
        Ok(())
    }

    pub(super) fn delete_producer(&mut self, id: i64, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        let gone = self.producers.remove(&id);
        let gone = gone.ok_or_else(|| (Status::ERROR, format!("there is no producer {id}")))?;
        remove_producer(id, &gone, turn);
        Ok(())
    }

    pub(super) fn message(
        &mut self,
        to: &ReplyTo,
        packet: Packet,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let flags = packet.header().flags;
        if flags.contains(Flags::FLOW_PAUSED) {
            // Whatever becomes of the message: the client waits for this.
            turn.credit_connection(&self.output);
        }
        let kind = if flags.contains(Flags::QUEUE) { Kind::Queue } else { Kind::Topic };
        let variable = packet.variable().map_err(|error| (Status::ERROR, error.to_string()))?;
        let name =
            variable.destination.ok_or_else(|| (Status::ERROR, "no destination".to_owned()))?;
        let way = Way {
            transaction: variable.transaction_id.unwrap_or(0),
            used_up: variable.producer_id.filter(|_| flags.contains(Flags::CONSUMER_FLOW)),
            is_copy: false,
        };
        let due = variable.delivery_time.unwrap_or(0);
        let known = match &self.last {
            Some(last) if last.kind == kind && *last.name.as_bytes() == *name => {
                Some(Arc::clone(last)).filter(|last| !last.is_destroyed())
            }
            _ => None,
        };
        let destination = match known {
            Some(known) => Named::One(known),
            None => {
                let name = variable.destination_text().unwrap_or_default();
                if self.is_entrance(kind, &name) {
                    if to.wanted {
                        turn.send_packet(&self.output, to.with(Status::OK));
                    }
                    admin::receive(&packet, self.id, turn);
                    return Ok(());
                }
                let found = self.existing(kind, &name, turn);
                if found.is_err() {
                    self.credit_in_vain(way.used_up, turn);
                }
                found?
            }
        };
        let mut message = Stored::new(packet.without_flags(STORED_CLEAR), self.id);
        message.client_id.clone_from(&self.client_id);
        message.due = due;
        match destination {
            Named::One(destination) => {
                if kind == Kind::Topic {
                    message.share = Some(turn.spare().share_of(&destination));
                }
                let reply = to.wanted.then(|| Sender::One(self.reply(to)));
                self.send_one(&destination, message, reply, way, turn)
            }
            Named::Many(pattern) => self.send_many(to, &pattern, &message, way, turn),
        }
    }

    /// The destination of a producer's last message is gone: the producer must not wait for ever.
    fn credit_in_vain(&self, producer: Option<i64>, turn: &mut Turn<'_>) {
        let Some(id) = producer else { return };
        let known = self.producers.get(&id).and_then(|one| one.destination.as_ref());
        if let Some(destination) = known {
            turn.send(destination, Command::UsedUp(id));
        }
    }

    fn reply(&self, to: &ReplyTo) -> Reply {
        Reply { output: Arc::clone(&self.output), to: *to }
    }

    fn send_one(
        &mut self,
        destination: &Arc<Destination>,
        mut message: Stored,
        reply: Option<Sender>,
        way: Way,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let Way { transaction, used_up, is_copy } = way;
        if transaction == 0 {
            let message = turn.spare().share(message);
            let command =
                Command::Produce { message, reply, used_up, reserved: false, instead_of: None };
            turn.send(destination, command);
            return Ok(());
        }
        self.transacts = true;
        if let Some(producer) = used_up {
            turn.send(destination, Command::UsedUp(producer));
        }
        let room = turn.shared.has_room_for(message.bytes());
        if let Err(refusal) = room.and_then(|()| destination.reserve(&message, &turn.shared.memory))
        {
            if reply.is_none() || is_copy {
                // Carried out without it, the transaction would be half of what was meant.
                turn.transact(Transact::Refused { id: transaction, connection: self.id });
            }
            return Err(refusal);
        }
        // It waits for the commit, and must not keep a whole read buffer with it.
        message.packet.unshare();
        turn.transact(Transact::Produce {
            id: transaction,
            connection: self.id,
            destination: Handle(Arc::clone(destination)),
            message: Arc::new(message),
            is_copy,
            reply: reply.and_then(Sender::alone).map(Answer::Client),
        });
        Ok(())
    }

    /// Sends to every topic that fits a pattern. The first copy keeps the message's id.
    fn send_many(
        &mut self,
        to: &ReplyTo,
        pattern: &Pattern,
        message: &Stored,
        way: Way,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let mut topics = turn.shared.registry.all();
        topics.retain(|one| one.is_public_topic() && pattern.matches(&one.name));
        let way = Way { used_up: None, is_copy: true, ..way };
        // A transaction that cannot take one copy takes none after it, so the last one knows.
        let teller = if way.transaction != 0 && to.wanted { topics.len() } else { 0 };
        let is_persistent = message.packet.header().flags.contains(Flags::PERSISTENT);
        let is_awaited = to.wanted && way.transaction == 0 && turn.shared.persist.is_some();
        let all = (is_awaited && is_persistent && !topics.is_empty())
            .then(|| Sender::of_copies(topics.len(), self.reply(to)));
        for (at, topic) in topics.iter().enumerate() {
            let packet = message.packet.clone();
            let packet = if at == 0 { packet } else { packet.with_id(turn.stamp()) };
            let mut copy = Stored::new(packet, self.id);
            copy.client_id.clone_from(&message.client_id);
            copy.due = message.due;
            copy.share = Some(turn.spare().share_of(topic));
            let last = (at + 1 == teller).then(|| Sender::One(self.reply(to)));
            let reply = all.clone().or(last);
            self.send_one(topic, copy, reply, way, turn)?;
        }
        if to.wanted && teller == 0 && all.is_none() {
            turn.send_packet(&self.output, to.with(Status::OK));
        }
        Ok(())
    }
}

/// A producer leaves its destination.
pub(super) fn remove_producer(id: i64, gone: &Producer, turn: &mut Turn<'_>) {
    turn.shared.memory.add_producers(-1);
    if let Some(destination) = &gone.destination {
        turn.send(destination, Command::RemoveProducer(id));
    }
}
