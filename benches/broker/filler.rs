//! Fills a queue and leaves it so.

use tidegate::wire::{Flags, PacketBuilder, PacketType};

use crate::{
    duty::Duty,
    lean::{AUTO, BATCH_BYTES, add_producer},
    raw::{self, QUEUE},
    stencil::{self, MESSAGE_BYTES},
    stream::log_in,
};

/// Leaves messages in a queue of its own, whatever credit it has, and stays.
pub(crate) fn filler(duty: &Duty) {
    let (mut raw, session) = log_in(duty, AUTO);
    let name = stencil::name(9);
    let (producer, _) = add_producer(&mut raw, session, &name, QUEUE);
    let mut message = stencil::message(&name, Flags::QUEUE, producer);
    let mut left: u32 = duty.setting("messages");
    let mut batch = Vec::with_capacity(BATCH_BYTES);
    while left > 0 {
        batch.clear();
        while left > 0 && batch.len() + MESSAGE_BYTES <= BATCH_BYTES {
            stencil::number(&mut message, left, false);
            batch.extend_from_slice(&message);
            left -= 1;
        }
        raw.send_bytes(&batch);
    }
    // Answered when all of them have been taken.
    let reply = raw.request(PacketBuilder::new(PacketType::PING));
    assert_eq!(raw::status(&reply), 200);
    duty.ready();
    duty.order();
}
