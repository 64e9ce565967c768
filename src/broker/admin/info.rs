//! Destinations as the reference's tools know them: objects of their class `DestinationInfo`.
//!
//! # Source
//! The wire protocol: admin protocol. A change that such an object asks for has a mask that says
//! which of its fields count.

use std::borrow::Cow;

use crate::{
    flow::Credit,
    wire::java::{JavaClass, JavaDocument, JavaField, JavaObject, JavaValue},
};

use super::super::{
    attributes::{Attributes, LimitBehavior},
    destination::{Destination, Kind, Origin},
};

/// The class's version.
const UID: u64 = 7_043_096_792_121_903_858;

const fn field(kind: u8, name: &'static str, signature: &'static str) -> JavaField {
    JavaField { kind, name: Cow::Borrowed(name), signature: Cow::Borrowed(signature) }
}

const fn number(name: &'static str) -> JavaField {
    field(b'I', name, "")
}

const fn long(name: &'static str) -> JavaField {
    field(b'J', name, "")
}

const fn switch(name: &'static str) -> JavaField {
    field(b'Z', name, "")
}

/// Its public fields in the order in which Java writes them.
const FIELDS: &[JavaField] = &[
    switch("autocreated"),
    number("destCDP"),
    number("destLimitBehavior"),
    number("destScope"),
    number("destState"),
    number("fulltype"),
    number("maxActiveConsumers"),
    number("maxFailoverConsumers"),
    long("maxMessageBytes"),
    long("maxMessageSize"),
    number("maxMessages"),
    number("maxNumSharedConsumers"),
    number("maxPrefetch"),
    number("maxProducers"),
    number("nConsumers"),
    long("nInDelayMessageBytes"),
    number("nInDelayMessages"),
    long("nMessageBytes"),
    number("nMessages"),
    number("nProducers"),
    long("nRemoteMessageBytes"),
    number("nRemoteMessages"),
    long("nTxnMessageBytes"),
    number("nTxnMessages"),
    number("nUnackMessages"),
    number("naConsumers"),
    number("nfConsumers"),
    switch("reloadXMLSchemaOnFailure"),
    number("sharedConsumerFlowLimit"),
    number("type"),
    switch("useDMQ"),
    switch("validateXMLSchemaEnabled"),
    field(b'L', "XMLSchemaUriList", "Ljava/lang/String;"),
    field(b'L', "consumerWildcards", "Ljava/util/Hashtable;"),
    field(b'L', "name", "Ljava/lang/String;"),
    field(b'L', "producerWildcards", "Ljava/util/Hashtable;"),
];

/// The class.
pub(super) const CLASS: JavaClass = JavaClass {
    name: Cow::Borrowed("com.sun.messaging.jmq.util.admin.DestinationInfo"),
    uid: UID,
    fields: Cow::Borrowed(FIELDS),
};

/// What is counted of a destination and of what hangs on it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    pub messages: u64,
    pub bytes: u64,
    pub delayed: u64,
    pub unacknowledged: u64,
    pub producers: u32,
    pub consumers: usize,
    pub active_consumers: usize,
    /// 0 running, 1 consumers paused, 2 producers paused, 3 both.
    pub state: u32,
}

/// A destination as an object of that class, which is the first of its document.
pub(super) fn object(destination: &Destination, load: Load) -> JavaObject {
    let attributes = destination.attributes();
    let value = |field: &JavaField| -> JavaObject {
        match &*field.name {
            "autocreated" => (destination.origin == Origin::AutoCreated).into(),
            "destCDP" => i32::from(attributes.local_delivery_preferred).into(),
            "destLimitBehavior" => attributes.limit_behavior.to_wire().into(),
            "destScope" => i32::from(attributes.local_only).into(),
            "destState" => int(u64::from(load.state)),
            "fulltype" => full_mask(destination).into(),
            "maxActiveConsumers" => heads(attributes.active_consumers_max),
            "maxFailoverConsumers" => heads(attributes.backup_consumers_max),
            "maxMessageBytes" => size(attributes.total_bytes_max),
            "maxMessageSize" => size(attributes.message_bytes_max),
            "maxMessages" => match attributes.messages_max {
                u64::MAX => (-1_i32).into(),
                limit => int(limit),
            },
            "maxNumSharedConsumers" => heads(attributes.shared_consumers_max),
            "maxPrefetch" => attributes.consumer_flow_limit.to_wire().into(),
            "maxProducers" => heads(attributes.producers_max),
            "nConsumers" => int(load.consumers as u64),
            "nInDelayMessages" => int(load.delayed),
            "nMessageBytes" => size(load.bytes),
            "nMessages" => int(load.messages),
            "nProducers" => int(u64::from(load.producers)),
            "nUnackMessages" => int(load.unacknowledged),
            "naConsumers" => int(load.active_consumers as u64),
            "nfConsumers" => int(load.consumers.saturating_sub(load.active_consumers) as u64),
            "reloadXMLSchemaOnFailure" => attributes.reload_xml_schema.into(),
            "sharedConsumerFlowLimit" => attributes.shared_consumer_flow_limit.to_wire().into(),
            "type" => mask_of(destination.kind).into(),
            "useDMQ" => attributes.use_dmq.into(),
            "validateXMLSchemaEnabled" => attributes.validate_xml_schema.into(),
            "XMLSchemaUriList" => match &attributes.xml_schema_uri_list {
                Some(list) => list.as_str().into(),
                None => JavaObject::NULL,
            },
            "name" => (*destination.name).into(),
            // What a broker that is alone does not have.
            _ if field.kind == b'L' => JavaObject::NULL,
            _ if field.kind == b'J' => 0_i64.into(),
            _ => 0_i32.into(),
        }
    };
    JavaObject::Record(0, CLASS.fields.iter().map(value).collect())
}

/// The bits that say what a destination is.
pub(super) fn full_mask(destination: &Destination) -> i32 {
    let origin = match destination.origin {
        Origin::AutoCreated => 0x20,
        Origin::Temporary(_) => 0x10,
        Origin::Dead => 0x1000,
        Origin::Administered | Origin::Subscription => 0,
    };
    mask_of(destination.kind) | origin
}

const fn mask_of(kind: Kind) -> i32 {
    match kind {
        Kind::Queue => 1,
        Kind::Topic => 2,
    }
}

/// What a change is about, and each attribute with its new value, as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub kind: Option<Kind>,
    pub name: Option<String>,
    pub attributes: Vec<(String, String)>,
}

/// A field that may be changed: its bit in the mask, its name, and that of the attribute.
const CHANGEABLE: [(i64, &str, &str); 14] = [
    (0x4, "maxMessages", "messages_max"),
    (0x8, "maxMessageBytes", "total_bytes_max"),
    (0x10, "maxMessageSize", "message_bytes_max"),
    (0x20, "destScope", "local_only"),
    (0x40, "destLimitBehavior", "limit_behavior"),
    (0x80, "maxPrefetch", "consumer_flow_limit"),
    (0x100, "destCDP", "local_delivery_preferred"),
    (0x200, "maxActiveConsumers", "active_consumers_max"),
    (0x400, "maxFailoverConsumers", "backup_consumers_max"),
    (0x800, "maxProducers", "producers_max"),
    (0x1000, "maxNumSharedConsumers", "shared_consumers_max"),
    (0x2000, "sharedConsumerFlowLimit", "shared_consumer_flow_limit"),
    (0x4000, "useDMQ", "use_dmq"),
    (0x8000, "validateXMLSchemaEnabled", "validate_xml_schema"),
];

/// The list of schemas has a bit; that they are read anew goes with it.
const SCHEMAS: i64 = 0x1_0000;

/// Reads a change out of an object of that class; why not, if it cannot.
pub(super) fn read(document: &JavaDocument) -> Result<Change, String> {
    let root = &document.root;
    let class = document.class_of(root).ok_or("the body is no DestinationInfo")?;
    if class.name != CLASS.name {
        return Err(format!("the body is a {}, no DestinationInfo", class.name));
    }
    let get = |name: &str| document.field(root, name);
    // The mask is the one field whose name is not known.
    let mask = class.fields.iter().find(|field| field.name.to_ascii_lowercase().contains("mask"));
    let mask = mask.and_then(|field| get(&field.name)?.number());
    let mask = mask.ok_or("the DestinationInfo does not say which of its fields count")?;
    let mut attributes = Vec::new();
    for (bit, name, attribute) in CHANGEABLE {
        if mask & bit == 0 {
            continue;
        }
        let value =
            get(name).and_then(JavaObject::value).ok_or_else(|| format!("{name} is missing"))?;
        attributes.push((attribute.to_owned(), text(attribute, value)));
    }
    if mask & SCHEMAS != 0 {
        let list = get("XMLSchemaUriList").and_then(JavaObject::text).unwrap_or_default();
        attributes.push(("xml_schema_uri_list".to_owned(), list.to_owned()));
        if let Some(JavaValue::Boolean(again)) =
            get("reloadXMLSchemaOnFailure").and_then(JavaObject::value)
        {
            attributes.push(("reload_xml_schema".to_owned(), again.to_string()));
        }
    }
    let kind = get("type").and_then(JavaObject::number).and_then(|mask| match mask & 3 {
        1 => Some(Kind::Queue),
        2 => Some(Kind::Topic),
        _ => None,
    });
    let name = get("name").and_then(JavaObject::text).map(str::to_owned);
    Ok(Change { kind, name, attributes })
}

/// The value of a field as the settings file would have it.
fn text(attribute: &str, value: &JavaValue) -> String {
    let number = JavaObject::from(value.clone()).number();
    match (attribute, number) {
        ("limit_behavior", Some(number)) => i32::try_from(number)
            .ok()
            .and_then(LimitBehavior::from_wire)
            .map_or_else(|| number.to_string(), |behavior| behavior.to_string()),
        ("local_only" | "local_delivery_preferred", Some(number)) => (number != 0).to_string(),
        // Where a limit is meant, the reference takes 0 for none as well.
        ("messages_max" | "total_bytes_max" | "message_bytes_max", Some(0)) => "-1".to_owned(),
        _ => value.to_string(),
    }
}

fn int(number: u64) -> JavaObject {
    i32::try_from(number).unwrap_or(i32::MAX).into()
}

fn size(bytes: u64) -> JavaObject {
    i64::try_from(bytes).unwrap_or(-1).into()
}

fn heads(limit: u32) -> JavaObject {
    i32::try_from(limit).unwrap_or(-1).into()
}

/// The attributes of a destination as values by name.
pub(super) fn attribute_values(
    attributes: &Attributes,
    kind: Kind,
) -> impl Iterator<Item = (String, JavaObject)> {
    attributes.texts(kind).map(|(name, text)| (name.to_owned(), typed(&text)))
}

/// A value as text, as what it is: a number, a switch or a text.
pub(super) fn typed(text: &str) -> JavaObject {
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    if let Ok(switch) = text.parse::<bool>() {
        return switch.into();
    }
    text.into()
}

/// A credit as a number, −1 for none.
pub(super) fn credit(credit: Credit) -> JavaObject {
    i64::from(credit.to_wire()).into()
}

#[cfg(test)]
mod tests {
    use super::{CLASS, Change, FIELDS, Load, field, object, read};
    use crate::{
        broker::{
            attributes::{Attributes, LimitBehavior},
            destination::{Destination, Kind, Origin},
        },
        wire::java::{JavaClass, JavaDocument, JavaObject, decode_object, encode_object},
    };

    #[test]
    fn fields_stand_in_javas_order() {
        let key = |field: &super::JavaField| (field.kind == b'L', field.name.clone().into_owned());
        let keys: Vec<_> = FIELDS.iter().map(key).collect();
        assert!(keys.is_sorted());
        assert_eq!(keys.len(), 36);
    }

    #[test]
    fn a_destination_is_described_in_its_fields() {
        let mut attributes = Attributes::administered();
        attributes.messages_max = 10;
        attributes.limit_behavior = LimitBehavior::FlowControl;
        let queue = Destination::new("q", Kind::Queue, Origin::AutoCreated, attributes);
        let load =
            Load { messages: 3, consumers: 2, active_consumers: 1, state: 2, ..Load::default() };
        let document =
            decode_object(&encode_object(&[CLASS], &object(&queue, load)), 1000).unwrap();
        for (name, value) in [
            ("name", JavaObject::from("q")),
            ("type", 1.into()),
            ("fulltype", 0x21.into()),
            ("autocreated", true.into()),
            ("maxMessages", 10.into()),
            ("maxMessageBytes", (-1_i64).into()),
            ("destLimitBehavior", 0.into()),
            ("nMessages", 3.into()),
            ("nfConsumers", 1.into()),
            ("destState", 2.into()),
            ("useDMQ", true.into()),
            ("XMLSchemaUriList", JavaObject::NULL),
            ("nTxnMessageBytes", 0_i64.into()),
        ] {
            assert_eq!(document.field(&document.root, name), Some(&value), "{name}");
        }
    }

    /// As the reference's class: with the mask, in a parent or of its own.
    fn with_mask(mask: i32, changes: &[(&str, JavaObject)]) -> JavaDocument {
        let queue =
            Destination::new("q", Kind::Queue, Origin::Administered, Attributes::administered());
        let JavaObject::Record(_, mut values) = object(&queue, Load::default()) else { panic!() };
        let mut fields = FIELDS.to_vec();
        for (name, value) in changes {
            let at = fields.iter().position(|field| field.name == *name).unwrap();
            values[at] = value.clone();
        }
        fields.insert(0, field(b'I', "updateMask", ""));
        values.insert(0, mask.into());
        let class = JavaClass { fields: fields.into(), ..CLASS };
        let bytes = encode_object(&[class], &JavaObject::Record(0, values));
        decode_object(&bytes, 1000).unwrap()
    }

    #[test]
    fn only_what_the_mask_names_is_changed() {
        let document = with_mask(
            0x4 | 0x40 | 0x4000 | 0x20 | 0x1_0000,
            &[
                ("maxMessages", 7.into()),
                ("destLimitBehavior", 3.into()),
                ("useDMQ", false.into()),
                ("maxProducers", 5.into()),
                ("destScope", 1.into()),
                ("XMLSchemaUriList", "a b".into()),
            ],
        );
        let wanted = [
            ("messages_max", "7"),
            ("local_only", "true"),
            ("limit_behavior", "REMOVE_LOW_PRIORITY"),
            ("use_dmq", "false"),
            ("xml_schema_uri_list", "a b"),
            ("reload_xml_schema", "false"),
        ];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            read(&document),
            Ok(Change {
                kind: Some(Kind::Queue),
                name: Some("q".into()),
                attributes: wanted.clone().into()
            })
        );
        let mut attributes = Attributes::auto_created();
        for (name, value) in wanted {
            attributes.set(&name, &value).unwrap();
        }
        assert_eq!(attributes.limit_behavior, LimitBehavior::RemoveLowPriority);
    }

    #[test]
    fn no_limit_is_said_in_two_ways() {
        for none in [0_i64, -1] {
            let document = with_mask(0x8, &[("maxMessageBytes", none.into())]);
            let change = read(&document).unwrap();
            assert_eq!(change.attributes, [("total_bytes_max".to_owned(), "-1".to_owned())]);
        }
    }

    #[test]
    fn an_object_that_does_not_say_what_counts_is_refused() {
        let queue =
            Destination::new("q", Kind::Queue, Origin::Administered, Attributes::administered());
        let bytes = encode_object(&[CLASS], &object(&queue, Load::default()));
        let error = read(&decode_object(&bytes, 1000).unwrap()).unwrap_err();
        assert!(error.contains("which of its fields count"), "{error}");
        let text = encode_object(&[], &"text".into());
        assert!(read(&decode_object(&text, 10).unwrap()).is_err());
        let other = JavaClass { name: "a.B".into(), ..CLASS };
        let bytes = encode_object(&[other], &object(&queue, Load::default()));
        assert!(read(&decode_object(&bytes, 1000).unwrap()).unwrap_err().contains("a.B"));
    }
}
