//! What administrators ask for, and the answers.
//!
//! On the `admin` service, messages to the queue `__JMQAdmin` are requests. They are never stored:
//! the connection that reads one has it carried out here, and the answer goes to the destination
//! that the request names, behind all that follows from it. Numbers, properties and bodies are those
//! of the reference's own tools as far as they are known; what they have no command for goes through
//! `DEBUG`.
//!
//! # Source
//! The wire protocol: admin protocol.

mod answer;
mod broker;
mod clients;
mod destinations;
mod durables;
mod info;
mod request;
mod survey;
mod transactions;

pub(super) use survey::Work;

use crate::{
    proto::broker_in::DestinationMask,
    sync::Arc,
    wire::{Packet, Status},
};

use self::{
    answer::{Answer, Caller},
    request::{AdminRequest, Number},
};
use super::{
    attributes::Attributes,
    destination::{Destination, Kind, Origin},
    turn::Turn,
};

/// The queue for requests.
pub(super) const ADMIN_QUEUE: &str = "__JMQAdmin";

/// What a client is told about that queue: a queue, made by the broker, for administrators, of this
/// broker alone.
pub(super) const ADMIN_QUEUE_MASK: i32 = DestinationMask::QUEUE | 0x20 | 0x80 | 0x2000;

/// A request that is refused: with which status, and why.
type Refused = (Status, String);

/// What becomes of a request at once: its answer, or nothing yet.
type Outcome = Result<Option<Answer>, Refused>;

/// What producers register with where they send requests. Nothing is ever put into it.
pub(super) fn entrance() -> Arc<Destination> {
    let attributes = Attributes::administered();
    Arc::new(Destination::new(ADMIN_QUEUE, Kind::Queue, Origin::Administered, attributes))
}

/// Carries out a request.
pub(super) fn receive(packet: &Packet, connection: i64, turn: &mut Turn<'_>) {
    let request = match AdminRequest::read(packet) {
        Ok(request) => request,
        Err(error) => {
            return tracing::warn!(connection, %error, "a request to the administration cannot be read");
        }
    };
    let Some(number) = Number::known(request.number) else {
        return tracing::warn!(
            connection,
            number = request.number,
            "an unknown request to the administration"
        );
    };
    let caller = Caller::new(&request, connection);
    tracing::debug!(connection, ?number, "administration");
    match carry_out(number, &request, &caller, turn) {
        Ok(None) => {}
        Ok(Some(answer)) => caller.answer(answer, turn),
        Err((status, reason)) => caller.answer(Answer::refusal(status, reason), turn),
    }
}

fn carry_out(
    number: Number,
    request: &AdminRequest<'_>,
    caller: &Caller,
    turn: &mut Turn<'_>,
) -> Outcome {
    match number {
        Number::CreateDestination => destinations::create(request, caller, turn),
        Number::DestroyDestination => destinations::destroy(request, caller, turn),
        Number::GetDestinations => destinations::list(request, turn),
        Number::Pause => destinations::pause(request, caller, turn),
        Number::Resume => destinations::resume(request, caller, turn),
        Number::PurgeDestination => destinations::purge(request, caller, turn),
        Number::UpdateDestination => destinations::update(request, caller, turn),
        Number::GetConnections => clients::connections(request, caller, turn),
        Number::DestroyConnection => clients::destroy_connection(request, caller, turn),
        Number::GetConsumers => clients::consumers(request, turn),
        Number::GetDurables => durables::list(request, turn),
        Number::DestroyDurable => durables::destroy(request, caller, turn),
        Number::PurgeDurable => durables::purge(request, caller, turn),
        Number::GetTransactions => transactions::list(request, caller, turn),
        Number::CommitTransaction | Number::RollbackTransaction => {
            transactions::decide(number, request, caller, turn)
        }
        Number::Hello => Ok(Some(broker::hello(turn))),
        Number::GetServices => broker::services(request, turn),
        Number::GetMetrics => broker::metrics(request, turn),
        Number::GetBrokerProperties => Ok(Some(broker::properties(turn))),
        Number::UpdateBrokerProperties => broker::update(request, turn),
        Number::Shutdown => broker::shut_down(request, caller, turn),
        Number::Debug => debug(request, caller, turn),
        Number::Unserved(why) => Err((Status::NOT_IMPLEMENTED, why.into())),
    }
}

/// What the table of commands lacks: `JMQCommand` says what to do, `JMQTargetType` with what kind of
/// thing, `JMQTarget` with which one.
fn debug(request: &AdminRequest<'_>, caller: &Caller, turn: &mut Turn<'_>) -> Outcome {
    let command = request.wanted_string("JMQCommand")?;
    let kind = request.wanted_string("JMQTargetType")?;
    match (command.as_str(), kind.as_str()) {
        ("query", "queue" | "topic") => destinations::query(request, &kind, turn),
        ("query", "broker") => Ok(Some(broker::query(turn))),
        ("query", "connection") => clients::query_connection(request, caller, turn),
        ("query", "durable") => durables::query(request, turn),
        ("list", "producers") => clients::producers(request, caller, turn),
        ("destroy", "producer") => clients::destroy_producer(request, caller, turn),
        ("destroy", "consumer") => clients::destroy_consumer(request, caller, turn),
        _ => {
            let reason = format!(
                "there is nothing to {command:?} of type {kind:?}; query takes queue, topic, \
                 broker, connection and durable, list takes producers, destroy takes producer and \
                 consumer"
            );
            Err((Status::BAD_REQUEST, reason))
        }
    }
}
