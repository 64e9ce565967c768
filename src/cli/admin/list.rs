//! Lists of what there is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use tidegate::message::DestinationKind;
use tidegate::wire::Value;
use tidegate::wire::java::{JavaDocument, JavaObject};

use crate::cli::failure::Failure;
use crate::cli::output::{
    Align::{Left, Right},
    Output,
};

use super::arguments::{ListArguments, Listed};
use super::rows::{Row, Shown, get, print_rows, rename, row, rows, value_of};
use super::session::{Administration, Request, destination};

const DESTINATIONS: &[Shown] = &[
    ("NAME", "name", Left),
    ("KIND", "kind", Left),
    ("STATE", "state", Left),
    ("MESSAGES", "messages", Right),
    ("BYTES", "bytes", Right),
    ("PRODUCERS", "producers", Right),
    ("CONSUMERS", "consumers", Right),
    ("ORIGIN", "origin", Left),
];

const CONNECTIONS: &[Shown] = &[
    ("ID", "id", Left),
    ("USER", "user", Left),
    ("CLIENT-ID", "client_id", Left),
    ("HOST", "host", Left),
    ("PORT", "port", Right),
    ("SERVICE", "service", Left),
    ("PRODUCERS", "producers", Right),
    ("CONSUMERS", "consumers", Right),
    ("CLIENT", "client", Left),
];

const CONSUMERS: &[Shown] = &[
    ("ID", "id", Left),
    ("KIND", "kind", Left),
    ("DESTINATION", "destination", Left),
    ("CONNECTION", "connection", Left),
    ("USER", "user", Left),
    ("WINDOW", "window", Right),
    ("UNACKNOWLEDGED", "unacknowledged", Right),
    ("DELIVERED", "delivered", Right),
    ("SUBSCRIPTION", "subscription", Left),
    ("SELECTOR", "selector", Left),
];

const PRODUCERS: &[Shown] = &[
    ("ID", "id", Left),
    ("KIND", "kind", Left),
    ("DESTINATION", "destination", Left),
    ("CONNECTION", "connection", Left),
    ("USER", "user", Left),
    ("HOST", "host", Left),
];

const DURABLES: &[Shown] = &[
    ("NAME", "name", Left),
    ("CLIENT-ID", "client_id", Left),
    ("TOPIC", "topic", Left),
    ("MESSAGES", "messages", Right),
    ("BYTES", "bytes", Right),
    ("CONSUMERS", "consumers", Right),
];

const TRANSACTIONS: &[Shown] = &[
    ("ID", "id", Left),
    ("STATE", "state", Left),
    ("USER", "user", Left),
    ("CONNECTION", "connection", Left),
    ("MESSAGES", "messages", Right),
    ("ACKNOWLEDGEMENTS", "acknowledgements", Right),
    ("AGE", "age", Right),
    ("XID", "xid", Left),
];

const SERVICES: &[Shown] = &[
    ("NAME", "name", Left),
    ("TYPE", "type", Left),
    ("HOST", "host", Left),
    ("PORT", "port", Right),
    ("CONNECTIONS", "connections", Right),
];

/// The broker's names for values, and those printed.
const NAMES: &[(&str, &str)] = &[
    ("cxnid", "connection"),
    ("clientid", "client_id"),
    ("clientplatform", "client"),
    ("nproducers", "producers"),
    ("nconsumers", "consumers"),
    ("nconnections", "connections"),
    ("nmessages", "messages"),
    ("nbytes", "bytes"),
    ("nmsgs", "messages"),
    ("nacks", "acknowledgements"),
    ("nolocal", "no_local"),
    ("txnid", "id"),
];

/// Prints a list.
pub(super) fn run(
    arguments: &ListArguments,
    json: bool,
    admin: &mut Administration,
    output: &mut Output,
) -> Result<(), Failure> {
    let filter = filter(arguments)?;
    let filter = filter.as_ref().map_or(&[][..], |two| &two[..]);
    let plain = |object: JavaDocument| rows(&object.root);
    let (mut rows, shown) = match arguments.what {
        Listed::Destinations => {
            let found = admin.object(Request::GetDestinations, &[])?;
            (destinations(&found), DESTINATIONS)
        }
        Listed::Connections => {
            let mut found = plain(admin.object(Request::GetConnections, &[])?);
            found.iter_mut().for_each(|row| rename(row, "cxnid", "id"));
            (found, CONNECTIONS)
        }
        Listed::Consumers => {
            let mut found = plain(admin.object(Request::GetConsumers, filter)?);
            found.iter_mut().for_each(|row| rename(row, "type", "kind"));
            (found, CONSUMERS)
        }
        Listed::Producers => {
            let mut asked =
                vec![("JMQCommand", Value::from("list")), ("JMQTargetType", "producers".into())];
            asked.extend_from_slice(filter);
            let found = admin.object(Request::Debug, &asked)?;
            let entries = found.root.entries().unwrap_or_default();
            let mut found: Vec<Row> = entries.iter().map(|(_, one)| row(one)).collect();
            found.iter_mut().for_each(|row| rename(row, "type", "kind"));
            found.sort_by_key(|row| get(row, "id").and_then(Json::as_i64));
            (found, PRODUCERS)
        }
        Listed::Durables => {
            let topic = filter.first().map_or(&[][..], std::slice::from_ref);
            let mut found = plain(admin.object(Request::GetDurables, topic)?);
            found.iter_mut().for_each(|row| rename(row, "destination", "topic"));
            (found, DURABLES)
        }
        Listed::Transactions => {
            let mut found = plain(admin.object(Request::GetTransactions, &[])?);
            found.iter_mut().for_each(transaction);
            (found, TRANSACTIONS)
        }
        Listed::Services => (plain(admin.object(Request::GetServices, &[])?), SERVICES),
    };
    rows.iter_mut().for_each(rename_all);
    print_rows(rows, shown, json, output)
}

/// Gives values the names that are printed.
pub(super) fn rename_all(row: &mut Row) {
    NAMES.iter().for_each(|(theirs, ours)| rename(row, theirs, ours));
}

/// Which destination's things are meant, if any.
fn filter(arguments: &ListArguments) -> Result<Option<[(&'static str, Value); 2]>, Failure> {
    let fits = match arguments.what {
        Listed::Consumers | Listed::Producers => true,
        Listed::Durables => arguments.queue.is_none(),
        _ => arguments.queue.is_none() && arguments.topic.is_none(),
    };
    if !fits {
        let reason = "--queue goes with consumers and producers, --topic also with durables";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let queue = arguments.queue.as_ref().map(|name| destination(DestinationKind::Queue, name));
    let topic = arguments.topic.as_ref().map(|name| destination(DestinationKind::Topic, name));
    Ok(queue.or(topic))
}

/// Destinations out of the objects that describe them.
fn destinations(found: &JavaDocument) -> Vec<Row> {
    let one = |object: &JavaObject| -> Row {
        let field = |name: &str| found.field(object, name).map_or(Json::Null, value_of);
        let number = |name: &str| field(name).as_i64().unwrap_or(0);
        let kind = if number("type") & 1 == 1 { "queue" } else { "topic" };
        let state = match number("destState") {
            0 => "running",
            1 => "consumers paused",
            2 => "producers paused",
            _ => "paused",
        };
        let mask = number("fulltype");
        let origin = match (mask & 0x1000 != 0, mask & 0x10 != 0, mask & 0x20 != 0) {
            (true, ..) => "dead messages",
            (_, true, _) => "temporary",
            (.., true) => "auto-created",
            _ => "administered",
        };
        let row = [
            ("name", field("name")),
            ("kind", json!(kind)),
            ("state", json!(state)),
            ("messages", field("nMessages")),
            ("bytes", field("nMessageBytes")),
            ("unacknowledged", field("nUnackMessages")),
            ("delayed", field("nInDelayMessages")),
            ("producers", field("nProducers")),
            ("consumers", field("nConsumers")),
            ("origin", json!(origin)),
        ];
        row.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    };
    found.root.elements().unwrap_or_default().iter().map(one).collect()
}

/// The words for a transaction's state and age.
fn transaction(row: &mut Row) {
    let state = match get(row, "state").and_then(Json::as_i64) {
        Some(0) => "created",
        Some(1) => "started",
        Some(2) => "failed",
        Some(3) => "suspended",
        Some(4) => "ended",
        Some(5) => "prepared",
        Some(6) => "committed",
        Some(7) => "rolled back",
        _ => "unknown",
    };
    let started = get(row, "timestamp").and_then(Json::as_u64).unwrap_or(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let age = now.saturating_sub(Duration::from_millis(started)).as_secs();
    row.retain(|(name, _)| name != "state");
    rename(row, "timestamp", "started_ms");
    row.push(("state".to_owned(), json!(state)));
    row.push(("age".to_owned(), json!(format!("{age}s"))));
}
