//! Destinations a client makes sure of, looks for, looks into and destroys.

use bytes::Bytes;

use crate::{
    proto::broker_in::{DestinationMask, ReplyTo},
    selector::Selector,
    sync::Arc,
    wire::{Flags, MessageId, PacketBuilder, Status},
};

use super::{
    super::{
        admin,
        attributes::Attributes,
        browse::Job,
        command::{Command, Rare, Reply},
        connections::Service,
        destination::{Destination, Kind, Origin},
        limits::{BROWSERS_MAX, DESTINATION_NAME_BYTES_MAX},
        shared::Shared,
        turn::Turn,
        wildcard::{self, NameKind, Pattern},
    },
    Connection, Refusal,
};

/// What a name stands for.
#[derive(Debug)]
pub(super) enum Named {
    /// One destination.
    One(Arc<Destination>),
    /// All topics that fit.
    Many(Pattern),
}

impl Connection {
    /// Whether this is the queue where administrators leave their requests, seen from here.
    pub(super) fn is_entrance(&self, kind: Kind, name: &str) -> bool {
        self.info.service == Service::Admin && kind == Kind::Queue && name == admin::ADMIN_QUEUE
    }

    pub(super) fn create_destination(
        &mut self,
        to: &ReplyTo,
        name: &str,
        mask: DestinationMask,
        turn: &mut Turn<'_>,
    ) -> Result<PacketBuilder, Refusal> {
        let mask_told =
            if self.is_entrance(kind_of(mask), name) { admin::ADMIN_QUEUE_MASK } else { mask.0 };
        let reply = to.with(Status::OK).int("JMQDestType", mask_told).string("JMQDestUID", name);
        let (reply, attributes) = match self.named(name, mask, turn)? {
            Named::One(found) => (reply, found.attributes()),
            Named::Many(_) => {
                let attributes = turn.shared.live.read(|live| live.topic.clone());
                (reply.flags(Flags::WILDCARD), Arc::new(attributes))
            }
        };
        let reply = reply
            .boolean("JMQValidateXMLSchema", attributes.validate_xml_schema)
            .boolean("JMQReloadXMLSchemaOnFailure", attributes.reload_xml_schema);
        Ok(match &attributes.xml_schema_uri_list {
            Some(list) => reply.string("JMQXMLSchemaURIList", list),
            None => reply,
        })
    }

    /// What a name stands for; the destination is made if that is allowed.
    pub(super) fn named(
        &mut self,
        name: &str,
        mask: DestinationMask,
        turn: &mut Turn<'_>,
    ) -> Result<Named, Refusal> {
        let kind = kind_of(mask);
        let shared = turn.shared;
        if self.is_entrance(kind, name) {
            return Ok(Named::One(Arc::clone(&shared.entrance)));
        }
        if let Some(found) = shared.registry.find(kind, name) {
            if mask.is_temporary() && found.is_temporary() && found.adopt(self.id) {
                // It waited for its client to come back.
                self.temporary.push(Arc::clone(&found));
            }
            return Ok(Named::One(found));
        }
        if name.len() > DESTINATION_NAME_BYTES_MAX {
            let reason = format!("the name is longer than {DESTINATION_NAME_BYTES_MAX} bytes");
            return Err((Status::BAD_REQUEST, reason));
        }
        if let Some(pattern) = pattern(kind, name)? {
            return Ok(Named::Many(pattern));
        }
        if name.starts_with("mq.") {
            let status = if kind == Kind::Queue { Status::ERROR } else { Status::BAD_REQUEST };
            return Err((status, format!("{name}: names from 'mq.' on are reserved")));
        }
        let (origin, attributes) = new_destination(kind, shared);
        let origin = if mask.is_temporary() { Some(Origin::Temporary(self.id)) } else { origin };
        let Some(origin) = origin else {
            return Err((Status::NOT_FOUND, format!("{name} does not exist")));
        };
        let made = shared.registry.ensure(kind, name, origin, || attributes);
        let (made, is_new) =
            made.ok_or_else(|| (Status::RESOURCE_FULL, "too many destinations".to_owned()))?;
        if is_new {
            shared.subscriptions.attach_to(&made, turn);
            if mask.is_temporary() {
                self.temporary.push(Arc::clone(&made));
            } else {
                // It begins to wait for its first user, who may never come.
                turn.send(&made, Rare::command(|_, _, _| ()));
            }
        }
        Ok(Named::One(made))
    }

    /// What the destination of a message is: nothing is made for it.
    pub(super) fn existing(
        &mut self,
        kind: Kind,
        name: &str,
        turn: &Turn<'_>,
    ) -> Result<Named, Refusal> {
        if let Some(found) = turn.shared.registry.find(kind, name) {
            self.last = Some(Arc::clone(&found));
            return Ok(Named::One(found));
        }
        if kind == Kind::Topic
            && let Some(pattern) = pattern(kind, name)?
        {
            return Ok(Named::Many(pattern));
        }
        Err((Status::ERROR, format!("Unknown Destination:{name}")))
    }

    pub(super) fn destroy_destination(
        &mut self,
        to: &ReplyTo,
        name: &str,
        mask: DestinationMask,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let reply = Reply { output: Arc::clone(&self.output), to: *to };
        if let Some(gone) = turn.shared.registry.find(kind_of(mask), name) {
            if gone.origin == Origin::Dead {
                return Err((Status::FORBIDDEN, format!("{name} stays as long as the broker")));
            }
            self.temporary.retain(|kept| !Arc::ptr_eq(kept, &gone));
            turn.shared.registry.remove(&gone);
            let destroy = Rare::command(move |at, state, turn| {
                at.destroy(state, turn);
                turn.after_stored(move |stored, turn| {
                    if reply.to.wanted {
                        reply.after(stored, turn);
                    }
                });
            });
            turn.send(&gone, destroy);
        } else if to.wanted {
            reply.send(Status::OK, turn);
        }
        Ok(())
    }

    pub(super) fn browse(
        &mut self,
        to: &ReplyTo,
        name: &str,
        mask: DestinationMask,
        selector: Option<&str>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let selector = parse(selector, turn.shared)?;
        let Some(queue) = turn.shared.registry.find(kind_of(mask), name) else {
            if to.wanted {
                turn.send_packet(&self.output, not_there(to, kind_of(mask), turn.shared));
            }
            return Ok(());
        };
        if queue.kind != Kind::Queue {
            return Err((Status::ERROR, format!("{name} is a topic; queues can be browsed")));
        }
        if !to.wanted {
            return Ok(());
        }
        let browser = turn.next_id();
        let reply = Reply { output: Arc::clone(&self.output), to: *to };
        turn.send(&queue, search(Job::ids(browser, selector, reply)));
        // No request ends a browser: the oldest is forgotten.
        self.browsers.truncate(BROWSERS_MAX - 1);
        self.browsers.push_front((browser, queue));
        Ok(())
    }

    pub(super) fn deliver(
        &self,
        to: &ReplyTo,
        browser: i64,
        ids: &Bytes,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let queue = self.browsers.iter().find(|(id, _)| *id == browser).map(|(_, queue)| queue);
        let queue =
            queue.ok_or_else(|| (Status::NOT_FOUND, format!("there is no browser {browser}")))?;
        let (ids, _) = ids.as_chunks::<{ MessageId::LEN }>();
        let reply = Reply { output: Arc::clone(&self.output), to: *to };
        let job = Job::messages(browser, ids.iter().map(MessageId::decode), reply);
        turn.send(queue, search(job));
        Ok(())
    }
}

/// Has a queue be searched.
fn search(job: Job) -> Command {
    Rare::command(move |_, state, _| state.jobs.push_back(job))
}

fn pattern(kind: Kind, name: &str) -> Result<Option<Pattern>, Refusal> {
    match (kind, wildcard::classify(name)) {
        (_, Ok(NameKind::Plain)) => Ok(None),
        (Kind::Queue, _) => {
            Err((Status::UNSUPPORTED_TYPE, format!("{name}: a queue's name holds no wildcard")))
        }
        (Kind::Topic, Ok(NameKind::Pattern(pattern))) => Ok(Some(pattern)),
        (Kind::Topic, Err(refusal)) => Err(refusal),
    }
}

/// How a destination of this kind is made on first use, if at all, and its attributes.
fn new_destination(kind: Kind, shared: &Shared) -> (Option<Origin>, Attributes) {
    let (allowed, attributes) = shared.live.read(|live| match kind {
        Kind::Queue => (live.autocreate_queue, live.queue.clone()),
        Kind::Topic => (live.autocreate_topic, live.topic.clone()),
    });
    (allowed.then_some(Origin::AutoCreated), attributes)
}

pub(super) fn kind_of(mask: DestinationMask) -> Kind {
    if mask.is_queue() { Kind::Queue } else { Kind::Topic }
}

/// Reads a selector.
pub(super) fn parse(selector: Option<&str>, shared: &Shared) -> Result<Option<Selector>, Refusal> {
    let parse = |text| Selector::parse(text, shared.config.selectors);
    selector
        .map(parse)
        .transpose()
        .map_err(|error| (Status::BAD_REQUEST, format!("bad selector, {error}")))
}

fn not_there(to: &ReplyTo, kind: Kind, shared: &Shared) -> PacketBuilder {
    let can_create = new_destination(kind, shared).0.is_some();
    to.with(Status::NOT_FOUND).boolean("JMQCanCreate", can_create)
}

pub(super) fn verify_destination(
    to: &ReplyTo,
    name: &str,
    mask: DestinationMask,
    selector: Option<&str>,
    shared: &Shared,
) -> Result<PacketBuilder, Refusal> {
    parse(selector, shared)?;
    let kind = kind_of(mask);
    let Some(found) = shared.registry.find(kind, name) else {
        return Ok(not_there(to, kind, shared));
    };
    let own = mask.0 & (DestinationMask::QUEUE | DestinationMask::TOPIC);
    let origin = match found.origin {
        Origin::Temporary(_) => DestinationMask::TEMPORARY,
        Origin::AutoCreated => DestinationMask::AUTO_CREATED,
        Origin::Dead => DestinationMask::DEAD,
        Origin::Administered | Origin::Subscription => 0,
    };
    Ok(to.with(Status::OK).int("JMQDestType", own | origin))
}
