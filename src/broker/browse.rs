//! Looking at a queue's messages without taking them.
//!
//! A browser first gets the ids of what is there, then asks for messages by id. Both are searches
//! through all that is in the queue, so they are done a part at a time, between deliveries.
//!
//! # Source
//! The wire protocol: BROWSE and DELIVER. What is on its way to consumers and not acknowledged is
//! still in the queue, and is shown.

use std::collections::HashMap;

use crate::{
    selector::Selector,
    sync::Arc,
    wire::{MessageId, Status},
};

use super::{
    backlog::{Cursor, Place, Stop},
    command::Reply,
    dispatch::{SHARED, State},
    output::{Outgoing, Receiver},
    stored::Stored,
    turn::Turn,
};

/// A search through the messages of a queue.
#[derive(Debug)]
pub(super) struct Job {
    reply: Reply,
    /// How far it has come; `None` before it has looked at what is in flight.
    cursor: Option<Cursor>,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Every message a selector takes, or every one.
    Ids { browser: i64, selector: Option<Selector>, found: Vec<(Place, MessageId)> },
    /// These messages, each with its place in the request.
    Messages { browser: i64, wanted: HashMap<MessageId, usize>, found: Vec<(usize, Arc<Stored>)> },
}

impl Job {
    /// Finds the ids of what a selector takes.
    pub(super) const fn ids(browser: i64, selector: Option<Selector>, reply: Reply) -> Self {
        let what = What::Ids { browser, selector, found: Vec::new() };
        Self { reply, cursor: None, what }
    }

    /// Finds messages by their ids.
    pub(super) fn messages(
        browser: i64,
        ids: impl Iterator<Item = MessageId>,
        reply: Reply,
    ) -> Self {
        let wanted = ids.zip(0..).collect();
        let what = What::Messages { browser, wanted, found: Vec::new() };
        Self { reply, cursor: None, what }
    }

    /// Goes on with it until it is done and answered, or has to stop.
    pub(super) fn run(&mut self, state: &State, left: &mut usize, turn: &mut Turn<'_>) -> Stop {
        let now = turn.wall_ms;
        let what = &mut self.what;
        let cursor = self.cursor.get_or_insert_with(|| {
            // Bounded by the credit of consumers, and must be seen at one instant.
            for entry in state.subscribers.values().flat_map(|one| one.in_flight.entries()) {
                what.look(Place::of(entry), &entry.message, now);
            }
            Cursor::default()
        });
        let stop = state.subscriptions.get(&SHARED).map_or(Stop::Done, |queue| {
            queue.backlog.walk(cursor, left, now, |place, message| what.look(place, message, now))
        });
        if stop == Stop::Done {
            self.what.answer(&self.reply, turn);
        }
        stop
    }
}

impl What {
    /// Looks at one message; `false` once nothing more is sought.
    fn look(&mut self, place: Place, message: &Arc<Stored>, now: i64) -> bool {
        if message.is_expired(now) {
            return true;
        }
        let id = message.packet.header().id;
        match self {
            Self::Ids { selector, found, .. } => {
                if selector.as_ref().is_none_or(|selector| selector.matches(&message.packet)) {
                    found.push((place, id));
                }
                true
            }
            Self::Messages { wanted, found, .. } => {
                if let Some(at) = wanted.remove(&id) {
                    found.push((at, Arc::clone(message)));
                }
                !wanted.is_empty()
            }
        }
    }

    fn answer(&mut self, reply: &Reply, turn: &mut Turn<'_>) {
        match self {
            Self::Ids { browser, found, .. } => {
                found.sort_unstable_by_key(|(place, _)| place.rank());
                // One that came back while it was looked for was seen twice.
                found.dedup();
                let body: Vec<u8> = found.iter().flat_map(|(_, id)| id.encode()).collect();
                let packet = reply.to.with(Status::OK).long("JMQConsumerID", *browser).body(body);
                turn.send_packet(&reply.output, packet);
            }
            Self::Messages { browser, found, .. } => {
                if found.is_empty() {
                    if reply.to.wanted {
                        let reason = "none of these is here any more";
                        reply.refuse(Status::NOT_FOUND, reason, turn);
                    }
                    return;
                }
                found.sort_unstable_by_key(|&(at, _)| at);
                if reply.to.wanted {
                    reply.send(Status::OK, turn);
                }
                turn.touch_output(&reply.output);
                let last = found.len() - 1;
                let show = |(at, (_, message))| {
                    let to = Receiver::Browser { id: *browser, last: at == last };
                    Outgoing { message, to }
                };
                reply.output.push(found.drain(..).enumerate().map(show).collect());
            }
        }
    }
}
