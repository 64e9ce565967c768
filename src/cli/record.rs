//! A message as one JSON object: what `receive --json` prints and `send --json` reads.

use serde_json::{Map, Value as Json, json};
use tidegate::message::{Body, BodyKind, DeliveryMode, Destination, MapBody, Message};

use super::value;

/// Fields a message to send may have.
const FIELDS: [&str; 9] = [
    "kind",
    "body",
    "properties",
    "correlation_id",
    "reply_to",
    "type",
    "priority",
    "time_to_live_ms",
    "delivery_mode",
];

/// Fields only a received message has; ignored when it is sent again.
const FIELDS_RECEIVED: [&str; 8] = [
    "id",
    "destination",
    "timestamp",
    "expiration",
    "delivery_time",
    "redelivered",
    "delivery_count",
    "problem",
];

/// A message to send, and what its sender must add.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) message: Message,
    /// Said by the record; otherwise the command line decides.
    pub(super) delivery_mode: Option<DeliveryMode>,
    /// Said by the record; otherwise it lives for ever.
    pub(super) time_to_live_ms: Option<u64>,
}

/// A received message. What of it cannot be read is named in `problem`.
pub(super) fn to_json(message: &Message) -> Json {
    let mut fields = Map::new();
    let mut problems = Vec::new();
    let mut set = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    match message.body() {
        Ok(body) => {
            set("kind", Some(json!(body.kind().to_string())));
            set("body", body_to_json(&body));
        }
        Err(error) => problems.push(super::failure::with_causes(&error)),
    }
    match message.properties() {
        Ok(table) => {
            let table: Map<String, Json> = table
                .iter()
                .map(|(name, value)| (name.to_owned(), value::property_to_json(value)))
                .collect();
            set("properties", (!table.is_empty()).then_some(Json::Object(table)));
        }
        Err(error) => problems.push(super::failure::with_causes(&error)),
    }
    set("id", message.message_id().map(Json::from));
    set("destination", message.destination().map(destination_to_json));
    set("reply_to", message.reply_to().map(destination_to_json));
    set("correlation_id", message.correlation_id().map(|id| json!(id)));
    set("type", message.message_type().map(|name| json!(name)));
    set("priority", Some(json!(message.priority())));
    set("delivery_mode", Some(json!(mode_name(message.delivery_mode()))));
    set("timestamp", message.timestamp().map(Json::from));
    set("expiration", Some(message.expiration()).filter(|&time| time != 0).map(Json::from));
    set("delivery_time", message.delivery_time().map(Json::from));
    set("redelivered", Some(json!(message.is_redelivered())));
    set("delivery_count", message.delivery_count().map(Json::from));
    set("problem", (!problems.is_empty()).then(|| json!(problems.join("; "))));
    Json::Object(fields)
}

/// The body of a message that is neither text nor bytes, for a line of output.
pub(super) fn body_to_json(body: &Body) -> Option<Json> {
    match body {
        Body::Text(text) => Some(json!(text)),
        Body::Bytes(bytes) | Body::Object(bytes) => Some(value::base64(bytes)),
        Body::Map(map) => Some(Json::Object(
            map.iter().map(|(name, item)| (name.to_owned(), value::to_json(item))).collect(),
        )),
        Body::Stream(items) => Some(Json::Array(items.iter().map(value::to_json).collect())),
        _ => None,
    }
}

/// A message to send from a line of input.
pub(super) fn from_json(line: &str) -> Result<Outgoing, String> {
    let json: Json = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let Json::Object(fields) = json else {
        return Err("a message is a JSON object, as in {\"body\": \"hello\"}".into());
    };
    if let Some(name) = fields
        .keys()
        .find(|name| !FIELDS.contains(&name.as_str()) && !FIELDS_RECEIVED.contains(&name.as_str()))
    {
        return Err(format!("no field {name:?}, there are {}", FIELDS.join(", ")));
    }
    let text = |name: &str| match fields.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.as_str())),
        Some(other) => Err(format!("field {name:?} must be text, not {other}")),
    };
    let body = body_from_json(text("kind")?, fields.get("body"))?;
    let mut message = Message::new(body);
    let wrong = |error: tidegate::message::MessageError| super::failure::with_causes(&error);
    match fields.get("properties") {
        None | Some(Json::Null) => {}
        Some(Json::Object(table)) => {
            for (name, json) in table {
                let value = value::property_from_json(json)
                    .map_err(|problem| format!("property {name:?}: {problem}"))?;
                message.set_property(name, value).map_err(wrong)?;
            }
        }
        Some(_) => return Err("field \"properties\" must be an object".into()),
    }
    message.set_correlation_id(text("correlation_id")?).map_err(wrong)?;
    message.set_message_type(text("type")?).map_err(wrong)?;
    message.set_reply_to(text("reply_to")?.map(destination_from_text).transpose()?);
    if let Some(json) = fields.get("priority") {
        let priority = json.as_u64().and_then(|number| u8::try_from(number).ok());
        let priority = priority.ok_or_else(|| format!("priority {json} is outside 0 to 9"))?;
        message.set_priority(priority).map_err(wrong)?;
    }
    let time_to_live_ms = match fields.get("time_to_live_ms") {
        None => None,
        Some(json) => Some(
            json.as_u64()
                .filter(|&ms| i64::try_from(ms).is_ok())
                .ok_or_else(|| format!("time_to_live_ms {json} is not a number of milliseconds"))?,
        ),
    };
    let delivery_mode = match text("delivery_mode")? {
        None => None,
        Some("persistent") => Some(DeliveryMode::Persistent),
        Some("non-persistent") => Some(DeliveryMode::NonPersistent),
        Some(other) => {
            return Err(format!(
                "delivery_mode {other:?} is neither persistent nor non-persistent"
            ));
        }
    };
    Ok(Outgoing { message, delivery_mode, time_to_live_ms })
}

fn body_from_json(kind: Option<&str>, body: Option<&Json>) -> Result<Body, String> {
    let kind = match kind {
        None | Some("text") => BodyKind::Text,
        Some("bytes") => BodyKind::Bytes,
        Some("map") => BodyKind::Map,
        Some("stream") => BodyKind::Stream,
        Some("object") => BodyKind::Object,
        Some("plain") => BodyKind::Plain,
        Some(other) => {
            let kinds = "text, bytes, map, stream, object, plain";
            return Err(format!("kind {other:?} is none of {kinds}"));
        }
    };
    let named = |name: &str, problem| format!("body value {name:?}: {problem}");
    Ok(match (kind, body) {
        (BodyKind::Plain, None | Some(Json::Null)) => Body::Plain,
        (BodyKind::Text, None | Some(Json::Null)) => Body::Text(None),
        (BodyKind::Text, Some(Json::String(text))) => Body::Text(Some(text.clone())),
        (BodyKind::Bytes, Some(Json::String(text))) => Body::Bytes(value::bytes(text)?.into()),
        (BodyKind::Object, Some(Json::String(text))) => Body::Object(value::bytes(text)?.into()),
        (BodyKind::Map, Some(Json::Object(entries))) => {
            let mut map = MapBody::new();
            for (name, json) in entries {
                map.set(name, value::from_json(json).map_err(|problem| named(name, problem))?);
            }
            Body::Map(map)
        }
        (BodyKind::Stream, Some(Json::Array(items))) => {
            let items: Result<Vec<_>, _> = items.iter().map(value::from_json).collect();
            Body::Stream(items?)
        }
        (kind, body) => {
            let body = body.map_or_else(|| "missing".to_owned(), Json::to_string);
            return Err(format!("body {body} does not suit the kind {kind}"));
        }
    })
}

fn destination_to_json(destination: &Destination) -> Json {
    json!(format!("{}:{}", destination.kind(), destination.name()))
}

fn destination_from_text(text: &str) -> Result<Destination, String> {
    let made = match text.split_once(':') {
        Some(("queue", name)) => Destination::queue(name),
        Some(("topic", name)) => Destination::topic(name),
        _ => return Err(format!("reply_to {text:?} is neither queue:NAME nor topic:NAME")),
    };
    made.map_err(|error| error.to_string())
}

fn mode_name(mode: DeliveryMode) -> &'static str {
    match mode {
        DeliveryMode::Persistent => "persistent",
        DeliveryMode::NonPersistent => "non-persistent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_sent_again() {
        let lines = [
            r#"{"body":"hello","priority":9,"properties":{"n":1,"s":"x"},"type":"order"}"#,
            r#"{"kind":"bytes","body":"AP8=","correlation_id":"it's","reply_to":"queue:a.b"}"#,
            r#"{"kind":"map","body":{"a":1,"b":{"type":"bytes","value":"AA=="}}}"#,
            r#"{"kind":"stream","body":[1,"two",null,3.5],"reply_to":"topic:t"}"#,
            r#"{"kind":"object","body":"rO0ABQ=="}"#,
            r#"{"kind":"plain"}"#,
        ];
        for line in lines {
            let first = to_json(&from_json(line).unwrap().message);
            let again = to_json(&from_json(&first.to_string()).unwrap().message);
            assert_eq!(first, again, "{line}");
            let asked: Json = serde_json::from_str(line).unwrap();
            for (name, value) in asked.as_object().unwrap() {
                assert_eq!(first.get(name), Some(value), "{line}");
            }
        }
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            (r#"{"bodi": "x"}"#, "bodi"),
            ("[1]", "JSON object"),
            ("{", "not JSON"),
            (r#"{"kind": "txt"}"#, "txt"),
            (r#"{"kind": "map", "body": "x"}"#, "map"),
            (r#"{"priority": 10}"#, "10"),
            (r#"{"priority": -1}"#, "-1"),
            (r#"{"time_to_live_ms": "soon"}"#, "soon"),
            (r#"{"delivery_mode": "durable"}"#, "durable"),
            (r#"{"reply_to": "orders"}"#, "orders"),
            (r#"{"properties": {"a": [1]}}"#, "\"a\""),
            (r#"{"properties": {"a b": 1}}"#, "a b"),
            (r#"{"kind": "bytes", "body": "?"}"#, "base64"),
        ];
        for (line, part) in cases {
            let problem = from_json(line).unwrap_err();
            assert!(problem.contains(part), "{line}: {problem}");
        }
    }
}
