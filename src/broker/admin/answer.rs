//! Answers, and the way to whoever asked.

use bytes::Bytes;

use crate::{
    sync::Arc,
    wire::{
        Flags, PacketBuilder, PacketType, Padding, Status, Value, VariableHeader,
        java::{JavaClass, JavaObject, encode_object, encode_vector},
    },
};

use super::{
    super::{
        command::Rare,
        destination::{Destination, Kind},
        persist::refused,
        stored::{Share, Stored},
        turn::Turn,
    },
    request::AdminRequest,
};

/// Requests whose answers are text messages.
const ANSWERED_IN_TEXT: [i32; 2] = [24, 44];

/// What somebody who asked is told.
#[derive(Debug)]
pub(super) struct Answer {
    status: Status,
    error: Option<String>,
    properties: Vec<(&'static str, Value)>,
    body: Bytes,
}

impl Answer {
    /// It is done.
    pub(super) const fn done() -> Self {
        Self { status: Status::OK, error: None, properties: Vec::new(), body: Bytes::new() }
    }

    /// It is not done.
    pub(super) fn refusal(status: Status, reason: String) -> Self {
        Self { status, error: Some(reason), ..Self::done() }
    }

    /// An object without records in it.
    pub(super) fn object(object: &JavaObject) -> Self {
        Self { body: encode_object(&[], object), ..Self::done() }
    }

    /// A vector.
    pub(super) fn vector(
        classes: &[JavaClass],
        elements: impl ExactSizeIterator<Item = JavaObject>,
    ) -> Self {
        Self { body: encode_vector(classes, elements), ..Self::done() }
    }

    /// With one more property.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.properties.push((name, value.into()));
        self
    }
}

/// Whoever asked, and where they want the answer.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    number: i32,
    reply_to: Option<(Kind, String)>,
    /// Their connection.
    pub connection: i64,
}

impl Caller {
    /// Whoever sent this request.
    pub(super) fn new(request: &AdminRequest<'_>, connection: i64) -> Self {
        Self { number: request.number, reply_to: request.reply_to.clone(), connection }
    }

    /// Sends the answer.
    pub(super) fn answer(&self, answer: Answer, turn: &mut Turn<'_>) {
        self.answer_then(answer, turn, |_| {});
    }

    /// Sends the answer once all that was changed before is stored.
    pub(super) fn answer_stored(&self, answer: Answer, turn: &mut Turn<'_>) {
        let caller = self.clone();
        turn.after_stored(move |stored, turn| {
            let answer = match stored.map_err(|reason| refused(&reason)) {
                Ok(()) => answer,
                Err((status, reason)) => Answer::refusal(status, reason),
            };
            caller.answer(answer, turn);
        });
    }

    /// Sends the answer, and does something once it is on its way.
    pub(super) fn answer_then(
        &self,
        answer: Answer,
        turn: &mut Turn<'_>,
        then: impl FnOnce(&mut Turn<'_>) + Send + Sync + 'static,
    ) {
        let to = self.reply_to.as_ref();
        let Some(to) = to.and_then(|(kind, name)| turn.shared.registry.find(*kind, name)) else {
            // Whoever names no place for the answer does not want it.
            if let Some(error) = answer.error {
                tracing::warn!(number = self.number, error, "refused, and nobody is told");
            }
            return then(turn);
        };
        let message = self.message(&to, answer, turn);
        // Past the limits of the place: they are for what clients send each other.
        let put = Rare::command(move |_, state, turn| {
            if !state.destroyed {
                state.add(&message, turn);
            }
            then(turn);
        });
        turn.send(&to, put);
    }

    fn message(&self, to: &Arc<Destination>, answer: Answer, turn: &Turn<'_>) -> Arc<Stored> {
        let text = ANSWERED_IN_TEXT.contains(&self.number);
        let kind = if text { PacketType::TEXT_MESSAGE } else { PacketType::OBJECT_MESSAGE };
        let queue = if to.kind == Kind::Queue { Flags::QUEUE } else { Flags::empty() };
        let fields =
            VariableHeader { destination: Some(to.name.as_bytes()), ..VariableHeader::default() };
        let builder = PacketBuilder::new(kind);
        // The name came out of such a field, so it fits into one.
        let builder = builder.variable(&fields, Padding::Java);
        let mut builder = builder.unwrap_or_else(|_| PacketBuilder::new(kind));
        builder = builder
            .id(turn.stamp())
            .flags(queue)
            .int("JMQMessageType", self.number + 1)
            .int("JMQStatus", answer.status.0);
        if let Some(error) = &answer.error {
            builder = builder.string("JMQErrorString", error);
        }
        for (name, value) in answer.properties {
            builder = match value {
                Value::Int(number) => builder.int(name, number),
                Value::Long(number) => builder.long(name, number),
                Value::Boolean(value) => builder.boolean(name, value),
                other => builder.string(name, other.to_string().trim_matches('"')),
            };
        }
        let mut message = Stored::new(builder.body(answer.body).finish(), 0);
        if to.kind == Kind::Topic {
            message.share = Some(Arc::new(Share::of(to)));
        }
        Arc::new(message)
    }
}
