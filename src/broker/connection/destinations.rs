//! Destinations a client makes sure of, looks for and destroys.

use crate::{
    proto::broker_in::{DestinationMask, ReplyTo},
    sync::Arc,
    wire::{PacketBuilder, Status},
};

use super::{
    super::{
        command::Command,
        destination::{Destination, Kind},
        limits::DESTINATION_NAME_BYTES_MAX,
        shared::Shared,
        turn::Turn,
    },
    Connection, Refusal,
};

impl Connection {
    pub(super) fn create_destination(
        &mut self,
        to: &ReplyTo,
        name: &str,
        mask: DestinationMask,
        shared: &Shared,
    ) -> Result<PacketBuilder, Refusal> {
        self.destination(name, mask, shared)?;
        Ok(to
            .with(Status::OK)
            .int("JMQDestType", mask.0)
            .string("JMQDestUID", name)
            .boolean("JMQValidateXMLSchema", false)
            .boolean("JMQReloadXMLSchemaOnFailure", false))
    }

    /// The destination, made if that is allowed.
    pub(super) fn destination(
        &mut self,
        name: &str,
        mask: DestinationMask,
        shared: &Shared,
    ) -> Result<Arc<Destination>, Refusal> {
        let kind = kind_of(mask);
        if let Some(found) = shared.registry.find(kind, name) {
            return Ok(found);
        }
        if name.len() > DESTINATION_NAME_BYTES_MAX {
            let reason = format!("the name is longer than {DESTINATION_NAME_BYTES_MAX} bytes");
            return Err((Status::BAD_REQUEST, reason));
        }
        if name.contains(['*', '>']) {
            return Err(match kind {
                Kind::Queue => {
                    (Status::UNSUPPORTED_TYPE, "a queue's name holds no wildcard".into())
                }
                Kind::Topic => (Status::NOT_IMPLEMENTED, "wildcard topics are not served".into()),
            });
        }
        if name.starts_with("mq.") {
            return Err((Status::ERROR, format!("{name}: names from 'mq.' on are reserved")));
        }
        let allowed = mask.is_temporary()
            || match kind {
                Kind::Queue => shared.config.autocreate_queue,
                Kind::Topic => shared.config.autocreate_topic,
            };
        if !allowed {
            return Err((Status::NOT_FOUND, format!("{name} does not exist")));
        }
        let owner = mask.is_temporary().then_some(self.id);
        let attributes = match kind {
            Kind::Queue => &shared.config.queue,
            Kind::Topic => &shared.config.topic,
        };
        let made = shared
            .registry
            .ensure(kind, name, owner, attributes.clone())
            .ok_or_else(|| (Status::RESOURCE_FULL, "too many destinations".to_owned()))?;
        if made.owner == Some(self.id) {
            self.temporary.push(Arc::clone(&made));
        }
        Ok(made)
    }

    pub(super) fn destroy_destination(
        &mut self,
        name: &str,
        mask: DestinationMask,
        turn: &mut Turn<'_>,
    ) {
        if let Some(gone) = turn.shared.registry.remove(kind_of(mask), name) {
            self.temporary.retain(|kept| !Arc::ptr_eq(kept, &gone));
            turn.send(&gone, Command::Destroy);
        }
    }
}

fn kind_of(mask: DestinationMask) -> Kind {
    if mask.is_queue() { Kind::Queue } else { Kind::Topic }
}

pub(super) fn verify_destination(
    to: &ReplyTo,
    name: &str,
    mask: DestinationMask,
    shared: &Shared,
) -> PacketBuilder {
    let kind = kind_of(mask);
    match shared.registry.find(kind, name) {
        Some(found) => {
            let temporary = if found.owner.is_some() { DestinationMask::TEMPORARY } else { 0 };
            let own = mask.0 & (DestinationMask::QUEUE | DestinationMask::TOPIC);
            to.with(Status::OK).int("JMQDestType", own | temporary)
        }
        None => {
            let can_create = match kind {
                Kind::Queue => shared.config.autocreate_queue,
                Kind::Topic => shared.config.autocreate_topic,
            };
            to.with(Status::NOT_FOUND).boolean("JMQCanCreate", can_create)
        }
    }
}
