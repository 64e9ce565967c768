//! Room for a message: limits, and what gives way at them.

use crate::{sync::Arc, wire::Status};

use super::{
    attributes::{Attributes, LimitBehavior},
    backlog::Item,
    dead::DeadReason,
    destination::Destination,
    dispatch::{Part, SHARED, State},
    stored::{Known, Stored},
    turn::Turn,
};

/// A message that is refused: with which status, and why.
pub(super) type Refused = (Status, String);

/// What a destination holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub messages: u64,
    pub bytes: u64,
}

impl Held {
    const fn fits(self, attributes: &Attributes, bytes: u64) -> bool {
        self.messages < attributes.messages_max
            // The limit holds for what is stored with the new message counted in.
            && self.bytes.saturating_add(bytes) <= attributes.total_bytes_max
    }
}

/// Whether a message of so many bytes may come to a destination that holds this much.
///
/// # Errors
/// What its producer is told.
pub(super) fn check(
    attributes: &Attributes,
    name: &str,
    held: Held,
    bytes: u64,
) -> Result<(), Refused> {
    let max = attributes.message_bytes_max;
    if bytes > max {
        let reason = format!("{bytes} bytes are over the limit of {max} for {name}");
        return Err((Status::ENTITY_TOO_LARGE, reason));
    }
    match attributes.limit_behavior {
        LimitBehavior::FlowControl => Ok(()),
        LimitBehavior::RejectNewest if !held.fits(attributes, bytes) => {
            let Held { messages, bytes } = held;
            let reason = format!("{name} is full with {messages} messages of {bytes} bytes");
            Err((Status::RESOURCE_FULL, reason))
        }
        // What can never fit must not cost the others their place.
        _ if bytes > attributes.total_bytes_max => {
            let max = attributes.total_bytes_max;
            let reason = format!("{bytes} bytes are more than all {max} that {name} may hold");
            Err((Status::RESOURCE_FULL, reason))
        }
        _ => Ok(()),
    }
}

/// What is said of a destination that is not there.
pub(super) fn unknown(name: &str) -> Refused {
    (Status::ERROR, format!("Unknown Destination:{name}"))
}

impl Destination {
    /// Makes room for a message. `promised`: its transaction was told that there is.
    pub(super) fn make_room(
        &self,
        state: &mut State,
        message: &Arc<Stored>,
        promised: bool,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refused> {
        let name = &self.name;
        if state.destroyed {
            return Err(unknown(name));
        }
        let bytes = message.bytes();
        if !promised {
            if state.knows(message) {
                return Err((Status::NOT_MODIFIED, format!("{name} has this message already")));
            }
            let held = self.with_reserved(state.messages, state.bytes);
            check(&state.attributes, name, held, bytes)?;
            turn.shared.has_room_for(bytes)?;
        }
        let reason = match state.attributes.limit_behavior {
            LimitBehavior::RemoveOldest => DeadReason::Oldest,
            LimitBehavior::RemoveLowPriority => DeadReason::LowPriority,
            LimitBehavior::RejectNewest | LimitBehavior::FlowControl => return Ok(()),
        };
        loop {
            // What transactions have sent makes room for itself when it comes.
            let held = Held { messages: state.messages, bytes: state.bytes };
            if held.fits(&state.attributes, bytes) {
                return Ok(());
            }
            if !state.evict(reason, turn) {
                if promised {
                    return Ok(());
                }
                let reason = format!("{name} is full, and nothing of it waits for a consumer");
                return Err((Status::RESOURCE_FULL, reason));
            }
        }
    }
}

impl State {
    /// Takes one message away, the oldest, or the oldest of the lowest priority; `false` if none
    /// waits.
    fn evict(&mut self, reason: DeadReason, turn: &mut Turn<'_>) -> bool {
        let by_priority = matches!(reason, DeadReason::LowPriority);
        if self.part != Part::Topic {
            let Some(one) = self.subscriptions.get_mut(&SHARED) else { return false };
            let place = if by_priority { one.backlog.lowest() } else { one.backlog.oldest() };
            let Some(item) = place.and_then(|place| one.backlog.take(place)) else { return false };
            self.die_anywhere(item, reason, turn);
            return true;
        }
        loop {
            let all = &mut self.arrivals;
            let place = if by_priority { all.lowest() } else { all.oldest() };
            let Some(item) = place.and_then(|place| all.take(place)) else { return false };
            // Its subscriptions drop it when they come to it.
            let Known { share: Some(share), bytes, .. } = item.known() else { continue };
            // The store has it until it is buried.
            let is_away = matches!(item, Item::Away(_));
            let holds = if is_away { share.retain() } else { share.is_held() };
            if holds && share.give_up() {
                self.count_out(bytes);
                match item {
                    Item::Here(entry) => self.dead.push((entry, reason)),
                    Item::Away(stub) => self.die_away(stub, reason, turn),
                }
                return true;
            }
            if holds && is_away {
                self.let_go(item.known(), turn);
            }
        }
    }
}
