//! What changes something: checked here as far as possible, asked about if it destroys, and done.

use std::io::{self, BufRead as _, IsTerminal as _};

use serde_json::json;
use tidegate::broker::{Attributes, BrokerConfig};
use tidegate::message::DestinationKind::{self, Queue, Topic};
use tidegate::wire::Value;
use tidegate::wire::java::JavaObject;

use crate::cli::failure::{Failure, with_causes};
use crate::cli::output::{Output, complain};

use super::arguments::{
    AdminArguments, Change, Created, Destroyed, Durable, NamedChanges, PauseArguments, Paused,
    Purged, Side, TransactionArguments, Updated,
};
use super::rows::print_row;
use super::session::{Administration, Properties, Request, destination, table};

/// Does one thing that changes something; what was done, for people.
pub(super) fn run(
    change: &Change,
    arguments: &AdminArguments,
    output: &mut Output,
) -> Result<(), Failure> {
    // What is wrong with the arguments is said before anybody is asked or called.
    let work = Work::plan(change)?;
    let mut admin = Administration::connect(arguments)?;
    if let Some(danger) = &work.danger {
        let more = danger.what_is_there(&mut admin)?;
        confirm(&format!("{}{more}", work.what), arguments.yes)?;
    }
    let properties: Properties<'_> = &work.properties;
    let body = work
        .body
        .as_ref()
        .map(|entries| table(entries.iter().map(|(name, text)| (name.as_str(), text.as_str()))));
    admin.ask(work.request, properties, body.as_ref())?;
    if arguments.json {
        return print_row(vec![("done".to_owned(), json!(work.what))], true, output);
    }
    output.foreign_line(&format!("done: {}", work.what))
}

/// One request that changes something.
struct Work {
    request: Request,
    properties: Vec<(&'static str, Value)>,
    body: Option<Vec<(String, String)>>,
    /// What it does, in a few words.
    what: String,
    danger: Option<Danger>,
}

/// What is lost, as far as it is worth a look before.
enum Danger {
    /// The messages of a destination.
    Messages(DestinationKind, String),
    /// Nothing that could be counted.
    Other,
}

impl Danger {
    /// What is there to be lost.
    fn what_is_there(&self, admin: &mut Administration) -> Result<String, Failure> {
        let Self::Messages(kind, name) = self else { return Ok(String::new()) };
        let asked = [
            ("JMQCommand", "query".into()),
            ("JMQTargetType", kind.to_string().into()),
            ("JMQTarget", name.as_str().into()),
        ];
        let found = admin.object(Request::Debug, &asked)?;
        let count = |entry: &str, one: &str| {
            let number = found.root.entry(entry).and_then(JavaObject::number).unwrap_or(0);
            if number == 1 { format!("1 {one}") } else { format!("{number} {entry}") }
        };
        let (messages, consumers) = (count("messages", "message"), count("consumers", "consumer"));
        Ok(format!(", which has {messages} and {consumers}"))
    }
}

impl Work {
    fn new(
        request: Request,
        properties: impl Into<Vec<(&'static str, Value)>>,
        what: String,
    ) -> Self {
        Self { request, properties: properties.into(), body: None, what, danger: None }
    }

    fn destroys(mut self, danger: Danger) -> Self {
        self.danger = Some(danger);
        self
    }

    fn plan(verb: &Change) -> Result<Self, Failure> {
        Ok(match verb {
            Change::Create(arguments) => match &arguments.what {
                Created::Queue(new) => create(Queue, new)?,
                Created::Topic(new) => create(Topic, new)?,
            },
            Change::Update(arguments) => match &arguments.what {
                Updated::Queue(change) => update(Queue, change)?,
                Updated::Topic(change) => update(Topic, change)?,
                Updated::Broker(changes) => {
                    let body = settings(&changes.set)?;
                    let what = format!("update broker: {}", changes.set.join(", "));
                    Self { body: Some(body), ..Self::new(Request::UpdateBroker, [], what) }
                }
            },
            Change::Purge(arguments) => match &arguments.what {
                Purged::Queue(one) => purge(Queue, &one.name),
                Purged::Topic(one) => purge(Topic, &one.name),
                Purged::Durable(one) => {
                    let what = format!("purge durable {}", one.name);
                    Self::new(Request::PurgeDurable, durable(one), what).destroys(Danger::Other)
                }
            },
            Change::Pause(arguments) => pause(arguments),
            Change::Resume(arguments) => {
                let (properties, what) = places(&arguments.what);
                Self::new(Request::Resume, properties, format!("resume {what}"))
            }
            Change::Destroy(arguments) => destroy(&arguments.what),
            Change::Commit(one) => decide(Request::CommitTransaction, one, "commit"),
            Change::Rollback(one) => decide(Request::RollbackTransaction, one, "roll back"),
            Change::Shutdown => {
                let what = "shut down the broker".to_owned();
                Self::new(Request::Shutdown, [], what).destroys(Danger::Other)
            }
        })
    }
}

fn create(kind: DestinationKind, new: &NamedChanges) -> Result<Work, Failure> {
    let mut body = attributes(&new.changes.set)?;
    body.push(("name".to_owned(), new.name.clone()));
    body.push(("type".to_owned(), kind.to_string()));
    let what = format!("create {kind} {}", new.name);
    Ok(Work { body: Some(body), ..Work::new(Request::CreateDestination, [], what) })
}

fn update(kind: DestinationKind, change: &NamedChanges) -> Result<Work, Failure> {
    let body = attributes(&change.changes.set)?;
    if body.is_empty() {
        return Err(nothing_to_change());
    }
    let what = format!("update {kind} {}: {}", change.name, change.changes.set.join(", "));
    let properties = destination(kind, &change.name);
    Ok(Work { body: Some(body), ..Work::new(Request::UpdateDestination, properties, what) })
}

fn purge(kind: DestinationKind, name: &str) -> Work {
    let what = format!("purge {kind} {name}");
    Work::new(Request::PurgeDestination, destination(kind, name), what)
        .destroys(Danger::Messages(kind, name.to_owned()))
}

fn pause(arguments: &PauseArguments) -> Work {
    let (mut properties, what) = places(&arguments.what);
    let (state, whom) = match arguments.only {
        Some(Side::Consumers) => (1, " for consumers"),
        Some(Side::Producers) => (2, " for producers"),
        None => (3, ""),
    };
    properties.push(("JMQDestState", Value::Int(state)));
    Work::new(Request::Pause, properties, format!("pause {what}{whom}"))
}

fn places(what: &Paused) -> (Vec<(&'static str, Value)>, String) {
    let mut properties = vec![("JMQPauseTarget", "JMQDestination".into())];
    let what = match what {
        Paused::Queue(one) => {
            properties.extend(destination(Queue, &one.name));
            format!("queue {}", one.name)
        }
        Paused::Topic(one) => {
            properties.extend(destination(Topic, &one.name));
            format!("topic {}", one.name)
        }
        Paused::All => "all destinations".to_owned(),
    };
    (properties, what)
}

fn destroy(what: &Destroyed) -> Work {
    let of_destination = |kind, name: &str| {
        let what = format!("destroy {kind} {name}");
        Work::new(Request::DestroyDestination, destination(kind, name), what)
            .destroys(Danger::Messages(kind, name.to_owned()))
    };
    let by_debug = |kind: &'static str, id: i64| {
        let properties = [
            ("JMQCommand", "destroy".into()),
            ("JMQTargetType", kind.into()),
            ("JMQTarget", id.to_string().into()),
        ];
        Work::new(Request::Debug, properties, format!("destroy {kind} {id}"))
            .destroys(Danger::Other)
    };
    match what {
        Destroyed::Queue(one) => of_destination(Queue, &one.name),
        Destroyed::Topic(one) => of_destination(Topic, &one.name),
        Destroyed::Connection(one) => {
            let properties = [("JMQConnectionID", Value::Long(one.id))];
            let what = format!("destroy connection {}", one.id);
            Work::new(Request::DestroyConnection, properties, what).destroys(Danger::Other)
        }
        Destroyed::Consumer(one) => by_debug("consumer", one.id),
        Destroyed::Producer(one) => by_debug("producer", one.id),
        Destroyed::Durable(one) => {
            let what = format!("destroy durable {}", one.name);
            Work::new(Request::DestroyDurable, durable(one), what).destroys(Danger::Other)
        }
    }
}

fn decide(request: Request, one: &TransactionArguments, verb: &str) -> Work {
    let properties = [("JMQTransactionID", Value::Long(one.id))];
    Work::new(request, properties, format!("{verb} transaction {}", one.id)).destroys(Danger::Other)
}

fn durable(one: &Durable) -> Vec<(&'static str, Value)> {
    let mut properties = vec![("JMQDurableName", one.name.as_str().into())];
    if let Some(id) = &one.client_id {
        properties.push(("JMQClientID", id.as_str().into()));
    }
    properties
}

/// Names and values, each checked: the broker would refuse them in the same words, but later.
fn attributes(set: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let mut tried = Attributes::administered();
    assignments(set, |name, value| tried.set(name, value))
}

fn settings(set: &[String]) -> Result<Vec<(String, String)>, Failure> {
    if set.is_empty() {
        return Err(nothing_to_change());
    }
    let mut tried = BrokerConfig::default();
    assignments(set, |name, value| tried.set(name, value))
}

fn nothing_to_change() -> Failure {
    Failure::Usage("nothing to change; say what with --set NAME=VALUE".to_owned())
}

fn assignments<E: std::error::Error>(
    set: &[String],
    mut check: impl FnMut(&str, &str) -> Result<(), E>,
) -> Result<Vec<(String, String)>, Failure> {
    let read = |assignment: &String| {
        let Some((name, value)) = assignment.split_once('=') else {
            return Err(Failure::Usage(format!("--set {assignment}: it takes NAME=VALUE")));
        };
        check(name, value).map_err(|error| Failure::Usage(with_causes(&error)))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    set.iter().map(read).collect()
}

/// Asks whether to go on, on a terminal; elsewhere only `--yes` is a yes.
fn confirm(what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        let reason = format!("{what}: add --yes to do it, as there is nobody here to ask");
        return Err(Failure::Usage(reason));
    }
    complain(&format!("{what}? Type yes to do it."));
    let mut said = String::new();
    let read = io::stdin().lock().read_line(&mut said);
    read.map_err(|error| Failure::new("cannot read the answer", &error))?;
    if matches!(said.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Failure::Failed(format!("not done: {what}")))
}
