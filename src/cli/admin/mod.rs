//! `tidegate admin`: looks into a running broker, and changes it.

mod arguments;
mod change;
mod list;
mod rows;
mod session;

use serde_json::json;
use tidegate::wire::Value;

use self::arguments::{Queried, Verb};
use self::rows::{print_row, row};
use self::session::{Administration, Request};
use super::failure::Failure;
use super::output::Output;

pub(super) use self::arguments::AdminArguments;

/// Does what was asked for.
pub(super) fn run(arguments: &AdminArguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.verb {
        Verb::List(list) => {
            let mut admin = Administration::connect(arguments)?;
            list::run(list, arguments.json, &mut admin, output)
        }
        Verb::Query(query) => {
            let mut admin = Administration::connect(arguments)?;
            self::query(&query.what, arguments.json, &mut admin, output)
        }
        Verb::Change(change) => change::run(change, arguments, output),
    }
}

/// Prints everything about one thing.
fn query(
    what: &Queried,
    json: bool,
    admin: &mut Administration,
    output: &mut Output,
) -> Result<(), Failure> {
    let id;
    let (kind, target, more) = match what {
        Queried::Queue(one) => ("queue", one.name.as_str(), None),
        Queried::Topic(one) => ("topic", one.name.as_str(), None),
        Queried::Connection(one) => {
            id = one.id.to_string();
            ("connection", id.as_str(), None)
        }
        Queried::Durable(one) => ("durable", one.name.as_str(), one.client_id.as_deref()),
        Queried::Broker => ("broker", "", None),
    };
    let mut asked = vec![
        ("JMQCommand", Value::from("query")),
        ("JMQTargetType", kind.into()),
        ("JMQTarget", target.into()),
    ];
    if let Some(more) = more {
        asked.push(("JMQCommandArg", more.into()));
    }
    let found = admin.object(Request::Debug, &asked)?;
    let mut row = row(&found.root);
    list::rename_all(&mut row);
    if matches!(what, Queried::Connection(_)) {
        row.retain(|(name, _)| name != "connection");
        row.insert(0, ("id".to_owned(), json!(target.parse::<i64>().unwrap_or(0))));
    }
    print_row(row, json, output)
}
