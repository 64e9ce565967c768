//! Requests to a broker's administration, and its answers.

use std::time::Duration;

use bytes::Bytes;
use tidegate::client::{AcknowledgeMode, Connection, Requestor};
use tidegate::message::{Body, DeliveryMode, DestinationKind, Message};
use tidegate::wire::Value;
use tidegate::wire::java::{JavaDocument, JavaObject, TableClass, decode_object, encode_object};

use crate::cli::connect::{connect, impatient, password, queue, usage};
use crate::cli::failure::{Failure, with_causes};

use super::arguments::AdminArguments;

/// The queue for requests.
const ADMIN_QUEUE: &str = "__JMQAdmin";

/// Status of an answer that is none but good news.
const OK: i32 = 200;

/// Most values read out of one answer, fields counted: some hundred thousand destinations.
const ITEMS_MAX: usize = 1 << 23;

/// Numbers of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Request {
    CreateDestination = 10,
    DestroyDestination = 12,
    DestroyDurable = 14,
    GetConnections = 16,
    GetConsumers = 18,
    GetDestinations = 20,
    GetDurables = 22,
    GetServices = 26,
    Pause = 30,
    PurgeDestination = 32,
    Resume = 36,
    Shutdown = 38,
    UpdateDestination = 40,
    UpdateBroker = 56,
    GetTransactions = 60,
    CommitTransaction = 62,
    RollbackTransaction = 64,
    PurgeDurable = 66,
    DestroyConnection = 70,
    Debug = 72,
}

/// Properties of a request.
pub(super) type Properties<'a> = &'a [(&'a str, Value)];

/// A login to a broker's administration.
pub(super) struct Administration {
    requestor: Requestor,
    timeout: Duration,
    /// Ends with it.
    _connection: Connection,
}

impl Administration {
    /// Logs in.
    pub(super) fn connect(arguments: &AdminArguments) -> Result<Self, Failure> {
        let timeout = arguments.timeout;
        let mut factory = impatient(timeout);
        let password = password(arguments.password.as_deref(), "admin");
        factory.address_list(&arguments.address).map_err(usage)?;
        factory.credentials(&arguments.user, &password).map_err(usage)?;
        let connection = connect(&factory)?;
        let failed = |error| Failure::new("cannot ask the broker's administration", &error);
        let entrance = queue(ADMIN_QUEUE)?;
        let session = connection.create_session(AcknowledgeMode::DupsOk).map_err(failed)?;
        let mut requestor = Requestor::new(&session, &entrance).map_err(failed)?;
        requestor.producer().set_delivery_mode(DeliveryMode::NonPersistent);
        connection.start().map_err(failed)?;
        Ok(Self { requestor, timeout, _connection: connection })
    }

    /// Asks for something; the object in the answer, if there is one.
    pub(super) fn ask(
        &mut self,
        request: Request,
        properties: Properties<'_>,
        body: Option<&JavaObject>,
    ) -> Result<Option<JavaDocument>, Failure> {
        let failed = |error: &dyn std::error::Error| {
            Failure::Failed(format!("the broker's administration: {}", with_causes(error)))
        };
        let body = body.map_or_else(Bytes::new, |object| encode_object(&[], object));
        let mut message = Message::object(body);
        let mut set = |name: &str, value: Value| {
            message.set_property(name, value).map(drop).map_err(|error| failed(&error))
        };
        set("JMQMessageType", Value::Int(request as i32))?;
        for (name, value) in properties {
            set(name, value.clone())?;
        }
        let answer = self
            .requestor
            .request_timeout(message, self.timeout)
            .map_err(|error| failed(&error))?
            .ok_or_else(|| {
                Failure::TimedOut(format!("the broker did not answer within {:?}", self.timeout))
            })?;
        let status: Option<i32> =
            answer.property_as("JMQStatus").map_err(|error| failed(&error))?;
        if status != Some(OK) {
            let reason: Option<String> =
                answer.property_as("JMQErrorString").map_err(|error| failed(&error))?;
            let reason = reason.unwrap_or_else(|| "the broker does not say why".to_owned());
            let status = status.map_or_else(|| "no status".to_owned(), |code| code.to_string());
            return Err(Failure::Failed(format!("refused: {reason} ({status})")));
        }
        match answer.body().map_err(|error| failed(&error))? {
            Body::Object(bytes) if !bytes.is_empty() => {
                decode_object(&bytes, ITEMS_MAX).map(Some).map_err(|error| failed(&error))
            }
            _ => Ok(None),
        }
    }

    /// Asks for an object.
    pub(super) fn object(
        &mut self,
        request: Request,
        properties: Properties<'_>,
    ) -> Result<JavaDocument, Failure> {
        self.ask(request, properties, None)?
            .ok_or_else(|| Failure::Failed("the broker's answer is empty".to_owned()))
    }
}

/// The properties that name a destination.
pub(super) fn destination(kind: DestinationKind, name: &str) -> [(&'static str, Value); 2] {
    let mask = match kind {
        DestinationKind::Queue => 1,
        DestinationKind::Topic => 2,
    };
    [("JMQDestination", name.into()), ("JMQDestType", Value::Int(mask))]
}

/// A table of names and texts.
pub(super) fn table<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> JavaObject {
    let entries = entries.into_iter().map(|(name, text)| (name.to_owned(), text.into()));
    JavaObject::Table(TableClass::Hashtable, entries.collect())
}
