//! What `tidegate admin` can be told.
#![allow(clippy::doc_markdown, reason = "read on a terminal, where backticks are only noise")]

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::arguments::duration;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate admin list destinations
  tidegate admin create queue orders --set messages_max=10000
  tidegate admin query queue orders
  tidegate admin list connections --json | jq 'select(.user == \"guest\")'
  tidegate admin destroy connection 1275541431691713280
  tidegate admin update broker --set log_dead_messages=true
  tidegate admin shutdown --yes

Each verb has a --help of its own with more of them.

The address is that of the port mapper, and the user one with the role admin.
What destroys or empties something asks first on a terminal; elsewhere it needs
--yes. With --json a list is one object a line, a query one object, and a
change one that says what was done.")]
pub(in crate::cli) struct AdminArguments {
    /// Address of the broker: mq://HOST:PORT/admin asks its port mapper,
    /// mqtcp://HOST:PORT/admin goes to the service itself
    #[arg(
        short,
        long,
        global = true,
        value_name = "ADDRESS",
        default_value = "mq://localhost:7676/admin"
    )]
    pub(super) address: String,

    /// User to log in as, one with the role admin
    #[arg(long, global = true, value_name = "NAME", default_value = "admin")]
    pub(super) user: String,

    /// Password; TIDEGATE_PASSWORD in the environment is not seen by other users [default: admin]
    #[arg(long, global = true, value_name = "PASSWORD")]
    pub(super) password: Option<String>,

    /// Give up if the broker takes longer for one answer
    #[arg(
        short,
        long,
        global = true,
        value_name = "TIME",
        default_value = "30s",
        value_parser = duration
    )]
    pub(super) timeout: Duration,

    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub(super) json: bool,

    /// Do not ask before something is destroyed
    #[arg(short, long, global = true)]
    pub(super) yes: bool,

    #[command(subcommand)]
    pub(super) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Print what there is, one line each
    List(ListArguments),
    /// Print everything about one thing
    Query(QueryArguments),
    #[command(flatten)]
    Change(Change),
}

#[derive(Debug, Subcommand)]
pub(super) enum Change {
    /// Make a destination that stays
    #[command(after_help = "\
Examples:
  tidegate admin create queue orders
  tidegate admin create queue news --set limit_behavior=REMOVE_OLDEST \\
    --set messages_max=1000
  tidegate admin create topic prices --set shared_consumers_max=4

What --set takes is what stands in the settings file for a destination of its
own: `tidegate broker --settings` lists it as destination.NAME.")]
    Create(CreateArguments),
    /// Change a destination, or settings of the broker
    #[command(after_help = "\
Examples:
  tidegate admin update queue orders --set messages_max=-1
  tidegate admin update broker --set autocreate_queue=false

Changes of one call are all made, or none. Most settings of the broker take
effect at its start only; those that may change are autocreate_queue,
autocreate_topic, autocreate_reap_time, log_dead_messages, dmq.truncate_body,
messages_max, total_bytes_max, and what destinations get that are made from now
on (destination.NAME, queue.NAME, topic.NAME).")]
    Update(UpdateArguments),
    /// Take all messages out of a destination or durable subscription that wait
    #[command(after_help = "\
Examples:
  tidegate admin purge queue mq.sys.dmq --yes
  tidegate admin purge durable prices-of-today --client-id shop

Messages that are with consumers, delivered and not acknowledged, stay.")]
    Purge(PurgeArguments),
    /// Hold back a destination's consumers, producers or both
    #[command(after_help = "\
Examples:
  tidegate admin pause queue orders
  tidegate admin pause topic prices --only consumers
  tidegate admin pause all --only producers

Consumers that are held back get nothing. Producers that are held back get no
more credit: those that obey flow control stop once they have used up theirs.")]
    Pause(PauseArguments),
    /// Let a destination's consumers and producers go on
    Resume(ResumeArguments),
    /// End something for good
    #[command(after_help = "\
Examples:
  tidegate admin destroy queue orders
  tidegate admin destroy connection 1275541431691713280 --yes
  tidegate admin destroy durable prices-of-today --client-id shop

A destination goes with its messages. The client of a connection is told, and
what it had not acknowledged goes to others. The client of a consumer or
producer is not told: the consumer gets nothing more, what the producer sends is
taken as before.")]
    Destroy(DestroyArguments),
    /// Carry out a prepared transaction
    Commit(TransactionArguments),
    /// Undo a transaction
    Rollback(TransactionArguments),
    /// End the broker in order
    Shutdown,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate admin list destinations
  tidegate admin list consumers --queue orders
  tidegate admin list destinations --json | jq 'select(.messages > 1000)'")]
pub(super) struct ListArguments {
    pub(super) what: Listed,

    /// Of this queue only (consumers, producers)
    #[arg(long, value_name = "NAME", conflicts_with = "topic")]
    pub(super) queue: Option<String>,

    /// Of this topic only (consumers, producers, durables)
    #[arg(long, value_name = "NAME")]
    pub(super) topic: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Listed {
    /// Queues and topics
    Destinations,
    /// Clients that are connected
    Connections,
    /// Those who receive
    Consumers,
    /// Those who send
    Producers,
    /// Subscriptions that outlive their consumers
    Durables,
    /// Transactions that are open
    Transactions,
    /// What the broker listens for
    Services,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate admin query queue orders
  tidegate admin query broker --json | jq .memory_level")]
pub(super) struct QueryArguments {
    #[command(subcommand)]
    pub(super) what: Queried,
}

#[derive(Debug, Subcommand)]
pub(super) enum Queried {
    /// A queue: what is in it, and its attributes
    Queue(Named),
    /// A topic: what is in it, and its attributes
    Topic(Named),
    /// A connection, with its consumers and producers
    Connection(Numbered),
    /// A durable subscription
    Durable(Durable),
    /// The broker: counters and settings
    Broker,
}

#[derive(Debug, Args)]
pub(super) struct Named {
    /// Its name
    pub(super) name: String,
}

#[derive(Debug, Args)]
pub(super) struct Numbered {
    /// Its number, as a list has it
    pub(super) id: i64,
}

#[derive(Debug, Args)]
pub(super) struct Durable {
    /// Its name
    pub(super) name: String,

    /// Client id it belongs to
    #[arg(long, value_name = "ID")]
    pub(super) client_id: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Changes {
    /// An attribute and its value; can be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct NamedChanges {
    /// Its name
    pub(super) name: String,

    #[command(flatten)]
    pub(super) changes: Changes,
}

#[derive(Debug, Args)]
pub(super) struct CreateArguments {
    #[command(subcommand)]
    pub(super) what: Created,
}

#[derive(Debug, Subcommand)]
pub(super) enum Created {
    /// A queue
    Queue(NamedChanges),
    /// A topic
    Topic(NamedChanges),
}

#[derive(Debug, Args)]
pub(super) struct UpdateArguments {
    #[command(subcommand)]
    pub(super) what: Updated,
}

#[derive(Debug, Subcommand)]
pub(super) enum Updated {
    /// A queue
    Queue(NamedChanges),
    /// A topic
    Topic(NamedChanges),
    /// The broker itself
    Broker(Changes),
}

#[derive(Debug, Args)]
pub(super) struct PurgeArguments {
    #[command(subcommand)]
    pub(super) what: Purged,
}

#[derive(Debug, Subcommand)]
pub(super) enum Purged {
    /// A queue
    Queue(Named),
    /// A topic, with all its subscriptions
    Topic(Named),
    /// A durable subscription
    Durable(Durable),
}

#[derive(Debug, Args)]
pub(super) struct PauseArguments {
    #[command(subcommand)]
    pub(super) what: Paused,

    /// Hold back only these [default: both]
    #[arg(long, global = true, value_name = "WHOM")]
    pub(super) only: Option<Side>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Side {
    Consumers,
    Producers,
}

#[derive(Debug, Args)]
pub(super) struct ResumeArguments {
    #[command(subcommand)]
    pub(super) what: Paused,
}

#[derive(Debug, Subcommand)]
pub(super) enum Paused {
    /// A queue
    Queue(Named),
    /// A topic
    Topic(Named),
    /// Every queue and topic but temporary ones and that of dead messages
    All,
}

#[derive(Debug, Args)]
pub(super) struct DestroyArguments {
    #[command(subcommand)]
    pub(super) what: Destroyed,
}

#[derive(Debug, Subcommand)]
pub(super) enum Destroyed {
    /// A queue with its messages
    Queue(Named),
    /// A topic with its messages
    Topic(Named),
    /// A connection with everything on it
    Connection(Numbered),
    /// A consumer
    Consumer(Numbered),
    /// A producer
    Producer(Numbered),
    /// A durable subscription with its messages
    Durable(Durable),
}

#[derive(Debug, Args)]
pub(super) struct TransactionArguments {
    /// Its number, as `list transactions` has it
    pub(super) id: i64,
}
