//! Requests, read.

use std::borrow::Cow;

use crate::{
    message::DestinationKind,
    wire::{
        Packet, PropertyError, PropertyTable, Status, decode_text,
        java::{JavaDocument, decode_object},
    },
};

use super::{super::destination::Kind, Refused};

/// Most values in the body of a request, fields counted.
const BODY_ITEMS_MAX: usize = 1 << 16;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    CreateDestination,
    DestroyDestination,
    DestroyDurable,
    GetConnections,
    GetConsumers,
    GetDestinations,
    GetDurables,
    GetServices,
    Hello,
    Pause,
    PurgeDestination,
    Resume,
    Shutdown,
    UpdateDestination,
    GetMetrics,
    GetBrokerProperties,
    UpdateBrokerProperties,
    GetTransactions,
    CommitTransaction,
    RollbackTransaction,
    PurgeDurable,
    DestroyConnection,
    Debug,
    /// A known command that this broker does not carry out, and why.
    Unserved(&'static str),
}

impl Number {
    /// What a number asks for; `None` for those that mean nothing.
    pub(super) const fn known(number: i32) -> Option<Self> {
        const LOG: &str = "the log of this broker is where its process writes it";
        const ALONE: &str = "this broker is alone, and part of no cluster";
        const CLIENT: &str = "messages are looked at and taken by browsing and consuming";
        Some(match number {
            10 => Self::CreateDestination,
            12 => Self::DestroyDestination,
            14 => Self::DestroyDurable,
            16 => Self::GetConnections,
            18 => Self::GetConsumers,
            20 => Self::GetDestinations,
            22 => Self::GetDurables,
            24 | 44 => Self::Unserved(LOG),
            26 => Self::GetServices,
            28 => Self::Hello,
            30 => Self::Pause,
            32 => Self::PurgeDestination,
            34 => Self::Unserved("whoever started this broker starts it again; ask for a shutdown"),
            36 => Self::Resume,
            38 => Self::Shutdown,
            40 => Self::UpdateDestination,
            46 => Self::Unserved("services are set up by the settings at the start"),
            52 => Self::GetMetrics,
            54 => Self::GetBrokerProperties,
            56 => Self::UpdateBrokerProperties,
            58 | 76 | 78 | 94 | 96 | 98 => Self::Unserved(ALONE),
            60 => Self::GetTransactions,
            62 => Self::CommitTransaction,
            64 => Self::RollbackTransaction,
            66 => Self::PurgeDurable,
            68 => Self::Unserved("destinations have no files to be made smaller"),
            70 => Self::DestroyConnection,
            72 => Self::Debug,
            74 | 82 => Self::Unserved("set connections_max at the start to keep clients out"),
            80 => Self::Unserved("there is no Java management interface"),
            84 => Self::Unserved("counters count from the start of the broker"),
            86 | 88 | 90 => Self::Unserved(CLIENT),
            92 => Self::Unserved("nothing is written later than it is acknowledged"),
            _ => return None,
        })
    }
}

/// A request, as its message has it.
#[derive(Debug)]
pub(super) struct AdminRequest<'a> {
    /// What it asks for.
    pub number: i32,
    /// Where the answer goes.
    pub reply_to: Option<(Kind, String)>,
    table: PropertyTable<'a>,
    packet: &'a Packet,
}

impl<'a> AdminRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// [`PropertyError`] if its properties cannot be read or its number is not there.
    pub(super) fn read(packet: &'a Packet) -> Result<Self, PropertyError> {
        let table = packet.properties()?;
        let name = "JMQMessageType";
        let number = table.int(name)?.ok_or(PropertyError::Missing { name })?;
        let variable = packet.variable().unwrap_or_default();
        let reply_to = variable.reply_to.and_then(decode_text).map(|name| {
            // Only the class tells a queue from a topic.
            let class = variable.reply_to_class.unwrap_or_default();
            let is_topic = class.windows(5).any(|word| word == b"Topic");
            (if is_topic { Kind::Topic } else { Kind::Queue }, name.into_owned())
        });
        Ok(Self { number, reply_to, table, packet })
    }

    /// A string property.
    pub(super) fn string(&self, name: &'static str) -> Result<Option<String>, Refused> {
        self.table.string(name).map(|text| text.map(Cow::into_owned)).map_err(bad)
    }

    /// A string property that must be there.
    pub(super) fn wanted_string(&self, name: &'static str) -> Result<String, Refused> {
        self.string(name)?.ok_or_else(|| bad(PropertyError::Missing { name }))
    }

    /// An int property.
    pub(super) fn int(&self, name: &'static str) -> Result<Option<i32>, Refused> {
        self.table.int(name).map_err(bad)
    }

    /// A long property.
    pub(super) fn long(&self, name: &'static str) -> Result<Option<i64>, Refused> {
        self.table.long(name).map_err(bad)
    }

    /// A long property that must be there.
    pub(super) fn wanted_long(&self, name: &'static str) -> Result<i64, Refused> {
        self.long(name)?.ok_or_else(|| bad(PropertyError::Missing { name }))
    }

    /// Whether a boolean property is there and true.
    pub(super) fn is(&self, name: &'static str) -> Result<bool, Refused> {
        self.table.boolean(name).map(|value| value.unwrap_or(false)).map_err(bad)
    }

    /// The destination that `JMQDestination` and `JMQDestType` name, if they do.
    pub(super) fn destination(&self) -> Result<Option<(Kind, String)>, Refused> {
        let Some(name) = self.string("JMQDestination")? else { return Ok(None) };
        let name_of_kind = "JMQDestType";
        let kind = self.int(name_of_kind)?.and_then(kind_of);
        let kind = kind.ok_or_else(|| bad(PropertyError::Missing { name: name_of_kind }))?;
        Ok(Some((kind, name)))
    }

    /// The same where one must be named.
    pub(super) fn wanted_destination(&self) -> Result<(Kind, String), Refused> {
        self.destination()?.ok_or_else(|| bad(PropertyError::Missing { name: "JMQDestination" }))
    }

    /// The id of something that `JMQTarget` names.
    pub(super) fn target_id(&self) -> Result<i64, Refused> {
        let text = self.wanted_string("JMQTarget")?;
        text.trim().parse().map_err(|_| {
            (Status::BAD_REQUEST, format!("JMQTarget {text:?} is no id, which is a whole number"))
        })
    }

    /// The object in the body.
    pub(super) fn body(&self) -> Result<JavaDocument, Refused> {
        decode_object(&self.packet.body(), BODY_ITEMS_MAX)
            .map_err(|error| (Status::BAD_REQUEST, format!("the body cannot be read: {error}")))
    }
}

/// The kind of destination in a type mask.
pub(super) const fn kind_of(mask: i32) -> Option<Kind> {
    match mask & 3 {
        1 => Some(Kind::Queue),
        2 => Some(Kind::Topic),
        _ => None,
    }
}

/// The kind of destination by its name, as tools write it.
pub(super) fn kind_named(name: &str) -> Option<Kind> {
    let is = |kind: DestinationKind| name.trim().eq_ignore_ascii_case(&kind.to_string());
    [Kind::Queue, Kind::Topic].into_iter().find(|&kind| is(kind))
}

fn bad(error: PropertyError) -> Refused {
    (Status::BAD_REQUEST, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{AdminRequest, Number, kind_named};
    use crate::{
        broker::destination::Kind,
        wire::{PacketBuilder, PacketType, Padding, Status, VariableHeader},
    };

    #[test]
    fn every_number_of_the_table_is_known_and_no_other() {
        for number in 0..110 {
            let in_table = number % 2 == 0 && (10..=98).contains(&number);
            let gaps = [42, 48, 50];
            let known = in_table && !gaps.contains(&number);
            assert_eq!(Number::known(number).is_some(), known, "{number}");
        }
    }

    #[test]
    fn a_request_says_where_its_answer_goes() {
        for (class, kind) in [
            ("com.sun.messaging.jmq.jmsclient.TemporaryQueueImpl", Kind::Queue),
            ("com.sun.messaging.BasicTopic", Kind::Topic),
            ("", Kind::Queue),
        ] {
            let fields = VariableHeader {
                reply_to: Some(b"r"),
                reply_to_class: Some(class.as_bytes()),
                ..VariableHeader::default()
            };
            let packet = PacketBuilder::new(PacketType::OBJECT_MESSAGE)
                .variable(&fields, Padding::Java)
                .unwrap()
                .int("JMQMessageType", 20)
                .string("JMQDestination", "q")
                .int("JMQDestType", 1)
                .finish();
            let request = AdminRequest::read(&packet).unwrap();
            assert_eq!((request.number, &request.reply_to), (20, &Some((kind, "r".into()))));
            assert_eq!(request.destination(), Ok(Some((Kind::Queue, "q".into()))));
        }
    }

    #[test]
    fn what_is_missing_or_of_another_type_is_named() {
        let nothing = PacketBuilder::new(PacketType::OBJECT_MESSAGE).finish();
        assert!(AdminRequest::read(&nothing).is_err());
        let packet = PacketBuilder::new(PacketType::OBJECT_MESSAGE)
            .int("JMQMessageType", 12)
            .string("JMQDestination", "q")
            .string("JMQTarget", "x")
            .int("JMQCommand", 1)
            .body("no java")
            .finish();
        let request = AdminRequest::read(&packet).unwrap();
        for (refused, part) in [
            (request.wanted_destination().map(drop), "JMQDestType"),
            (request.wanted_string("JMQCommand").map(drop), "JMQCommand"),
            (request.wanted_long("JMQTransactionID").map(drop), "JMQTransactionID"),
            (request.target_id().map(drop), "\"x\""),
            (request.body().map(drop), "the body cannot be read"),
        ] {
            let (status, reason) = refused.unwrap_err();
            assert_eq!(status, Status::BAD_REQUEST);
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn kinds_are_known_by_name() {
        assert_eq!(kind_named(" Queue"), Some(Kind::Queue));
        assert_eq!(kind_named("topic"), Some(Kind::Topic));
        assert_eq!(kind_named("queues"), None);
    }
}
