//! What the program can be told, and the help that teaches it.
#![allow(clippy::doc_markdown, reason = "read on a terminal, where backticks are only noise")]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::admin::AdminArguments;

/// A message broker that presses back, and tools to try it.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    after_help = "\
Try it:
  tidegate demo
  tidegate broker &
  echo hello | tidegate send greetings
  tidegate receive greetings --count 1

Exit codes:
  0  all went well, or the reader of the output had enough
  1  something failed; standard error says what
  2  an argument or a setting is not right; nothing was started
  3  --timeout was over before all was done
  4  a store is not as it was written
  5  a store is in use by another process, or was taken over by one

Output is plain text when it does not go to a terminal. NO_COLOR and
TERM=dumb are obeyed; COLUMNS sets the width."
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a broker until SIGINT or SIGTERM
    Broker(BrokerArguments),
    /// Send messages to a queue, one for each line of input
    Send(SendArguments),
    /// Receive messages from a queue
    Receive(ReceiveArguments),
    /// Measure round trips through a broker
    Ping(PingArguments),
    /// Look into a running broker, and change it
    Admin(AdminArguments),
    /// Check, count, export or import a store that no broker uses
    Store(StoreArguments),
    /// Watch credit hold back a slow consumer, all in one process
    Demo(DemoArguments),
    /// Print captured packets as text
    Dump(DumpArguments),
    /// Print the attributes of a client, what they are for and what they are set to
    Attributes(AttributesArguments),
}

/// How to reach the broker.
#[derive(Debug, Args)]
pub(super) struct ConnectionArguments {
    /// Addresses of brokers, with commas between them: mq://HOST:PORT/jms asks a port mapper,
    /// mqtcp://HOST:PORT/jms goes to the service itself [default: mq://localhost:7676/jms]
    #[arg(short, long, value_name = "ADDRESS")]
    pub(super) address: Option<String>,

    /// User to log in as [default: guest]
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,

    /// Password; TIDEGATE_PASSWORD in the environment is not seen by other users [default: guest]
    #[arg(long, value_name = "PASSWORD")]
    pub(super) password: Option<String>,

    #[command(flatten)]
    pub(super) attributes: AttributeArguments,
}

/// Attributes of the client, beside those that have an option of their own.
#[derive(Debug, Args)]
pub(super) struct AttributeArguments {
    /// Any attribute of the client, as in imqReconnectEnabled=true; can be given several times;
    /// variables of these names are taken from the environment; `tidegate attributes` lists them
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) set: Vec<String>,

    /// Java properties file with attributes of the client; what is said on the command line wins
    #[arg(long, value_name = "FILE")]
    pub(super) properties: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate broker
  tidegate broker --listen 0.0.0.0:7676 --jms 0.0.0.0:7677
  tidegate broker --config broker.toml --loops 4

Prints one line for each address it listens at, as in
  port mapper 127.0.0.1:7676
  service jms 127.0.0.1:41234
  service admin 127.0.0.1:41235
then where persistent messages are stored and what was found there, and then `ready`.
With --data they are stored in that directory, and one that was acknowledged is synced
to the disk; without it all messages are kept in memory only.
With store.postgres in the settings file they are stored in that database, which
brokers may share: with --standby one waits until the other is gone, and then takes
over with all its messages. One that was taken over ends with 5.
--settings lists what can stand in the file. Attributes of destinations stand there
as [destination] for all that are made on first use, [queue] and [topic] for those of
one kind, [dmq] for the dead message queue, [queues.NAME] and [topics.NAME] for one
that is there from the start.
SIGINT and SIGTERM stop it in order: clients are told, then it ends with 0.
So does `tidegate admin shutdown`.")]
pub(super) struct BrokerArguments {
    /// Settings file (TOML); what is said on the command line wins
    #[arg(short, long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Address of the port mapper, where clients ask first; port 0 takes a free one
    /// [default: 127.0.0.1:7676]
    #[arg(short, long, value_name = "HOST:PORT")]
    pub(super) listen: Option<String>,

    /// Address of the message service [default: 127.0.0.1:0, a free port]
    #[arg(short, long, value_name = "HOST:PORT")]
    pub(super) jms: Option<String>,

    /// Address of the service for administrators [default: 127.0.0.1:0, a free port]
    #[arg(short, long, value_name = "HOST:PORT")]
    pub(super) admin: Option<String>,

    /// Directory for persistent messages and the user file, made if it is missing, and locked
    /// against a second broker
    #[arg(short, long, value_name = "DIR")]
    pub(super) data: Option<String>,

    /// If another broker has the database of store.postgres, wait until it is gone, and listen
    /// only then
    #[arg(long)]
    pub(super) standby: bool,

    /// Event loops [default: 2, or 1 on a single core]
    #[arg(long, value_name = "N")]
    pub(super) loops: Option<String>,

    /// Any setting by its name in the file, as in destination.messages_max=1000;
    /// can be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) set: Vec<String>,

    /// Print the names of all settings and what each takes, and start nothing
    #[arg(long)]
    pub(super) settings: bool,

    /// What to log to standard error
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Warn)]
    pub(super) log: LogLevel,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  printf 'one\\ntwo\\n' | tidegate send orders
  tidegate send orders --file picture.png
  tar c . | tidegate send backups --whole --persistent
  tidegate receive orders --json | tidegate send archive --json

A line is a text message without its line end, and must be UTF-8. --whole and
--file make one bytes message, whatever the bytes are. With --json each line is
an object such as
  {\"body\": \"hello\", \"properties\": {\"n\": 1}, \"priority\": 9}
with the fields kind (text, bytes, map, stream, object, plain), body,
properties, correlation_id, reply_to (\"queue:NAME\" or \"topic:NAME\"), type,
priority, time_to_live_ms and delivery_mode (persistent, non-persistent). Those
that only a received message has are ignored, so that what `receive --json`
prints can be sent again. Bytes are base64. A number is an int, a long if it does not fit, or
a double; {\"type\": \"short\", \"value\": 1} names another type.

Prints how many messages were sent once the broker has them all.")]
pub(super) struct SendArguments {
    /// Queue to send to
    pub(super) queue: String,

    #[command(flatten)]
    pub(super) connection: ConnectionArguments,

    /// Send this file as one bytes message
    #[arg(short, long, value_name = "PATH", conflicts_with_all = ["json", "count"])]
    pub(super) file: Option<PathBuf>,

    /// Send all of standard input as one bytes message
    #[arg(short, long, conflicts_with_all = ["json", "count", "file"])]
    pub(super) whole: bool,

    /// Read one JSON object for each message, and report in JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Send at most N messages and leave the rest of the input alone
    #[arg(short = 'n', long, value_name = "N")]
    pub(super) count: Option<u64>,

    /// Give up if connecting, or the broker's answer to one message, takes longer
    #[arg(short, long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(super) timeout: Duration,

    /// Wait until the broker has taken each message on (the default)
    #[arg(long, conflicts_with = "non_persistent")]
    pub(super) persistent: bool,

    /// Send without waiting for an answer to each message
    #[arg(long)]
    pub(super) non_persistent: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate receive orders
  tidegate receive orders --count 1 --timeout 5s
  tidegate receive pictures --count 1 --output picture.png
  tidegate receive orders --json | jq .properties

A text message is printed as a line. A bytes message is written as it is, with
nothing added. Other kinds are printed as one line of JSON. With --json every
message is one JSON object with its headers; `tidegate send --help` has the
fields. A message is acknowledged after it was written: if writing fails, it
goes back to the queue.

Without --count it runs until --timeout passes without a message, or for ever.
With --count, fewer messages until then end it with code 3.")]
pub(super) struct ReceiveArguments {
    /// Queue to receive from
    pub(super) queue: String,

    #[command(flatten)]
    pub(super) connection: ConnectionArguments,

    /// End after N messages
    #[arg(short = 'n', long, value_name = "N")]
    pub(super) count: Option<u64>,

    /// End after this long without a message; also the limit for connecting
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(super) timeout: Option<Duration>,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "PATH")]
    pub(super) output: Option<PathBuf>,

    /// Print one JSON object for each message
    #[arg(long)]
    pub(super) json: bool,

    /// Receive only messages that match, as in \"colour = 'red' AND n > 3\"
    #[arg(short, long, value_name = "EXPRESSION")]
    pub(super) selector: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate ping
  tidegate ping --count 100000 --size 1k
  tidegate ping --address mq://broker.example:7676/jms

Sends a message over one queue to an echo in this process, which answers over
another: two passages through the broker per round trip, one at a time. Prints a
line every second and percentiles at the end, in microseconds; Ctrl-C ends it
early with what it has.")]
pub(super) struct PingArguments {
    #[command(flatten)]
    pub(super) connection: ConnectionArguments,

    /// Round trips to measure
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) count: u64,

    /// Bytes in each message, as in 64 or 10k
    #[arg(short, long, value_name = "BYTES", default_value = "64", value_parser = message_bytes)]
    pub(super) size: usize,

    /// Give up if one round trip takes longer
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(super) timeout: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate store check data
  tidegate store export data | gzip > data.jsonl.gz
  gunzip < data.jsonl.gz | tidegate store import other -

DIR is what a broker was given with --data. A store in use is refused: stop the
broker first. Ends with 4 if something in a store is not as it was written, and
with 5 if the store is in use.")]
pub(super) struct StoreArguments {
    #[command(subcommand)]
    pub(super) verb: StoreVerb,
}

#[derive(Debug, Subcommand)]
pub(super) enum StoreVerb {
    /// Read everything, and say what is not as it was written
    #[command(after_help = "\
Reads every entry, compares its checksum and follows what it refers to. What is
wrong is told with its place. What is left over belongs to nobody, as a crash may
leave it; a broker removes it, and nothing is lost. With --json one object.")]
    Check(StoreReadArguments),
    /// Count what is there: by space, destination, subscription and transaction
    Stats(StoreReadArguments),
    /// Write all of it as JSON, one object a line
    #[command(after_help = "\
The first line says what it is, the last one how many lines of each kind there
are; without it the export is not complete. Everything stands there once: a
message with its header, its fields and properties in base64, and its body, as
text if it is some. Messages can be counted with
  tidegate store export data | jq -r '.message.of // empty' | sort | uniq -c")]
    Export(StoreExportArguments),
    /// Read what `export` wrote into a store that is not there yet or empty
    #[command(after_help = "\
Every line is checked; one that is missing, there twice or not understood ends it
with its number. Who leaves lines out on purpose changes the last line, which
counts them. What was imported until then is of no use and should be removed.")]
    Import(StoreImportArguments),
}

#[derive(Debug, Args)]
pub(super) struct StoreReadArguments {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct StoreExportArguments {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "PATH")]
    pub(super) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct StoreImportArguments {
    /// Directory of the store, made if it is missing
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,

    /// File to read; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(super) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate demo
  tidegate demo --seconds 3 --rate 50000 | tee demo.txt

Starts a broker on a free loopback port, and a producer, a fast and a slow
consumer of one queue as real clients. The slow one has as many messages as its
window allows and gets no more until it has worked some off; the fast one takes
the rest. Needs no network and no other program, and ends by itself.")]
pub(super) struct DemoArguments {
    /// How long it runs
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(super) seconds: u64,

    /// Messages the producer sends per second
    #[arg(short, long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(super) rate: u64,

    /// Window of each consumer: messages it may have that it has not worked off
    #[arg(short, long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub(super) window: u32,

    /// How long the slow consumer works on each message
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    pub(super) slow: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate dump capture.jsonl
  tidegate dump - < packets.bin

Reads a capture, one JSON object a line with the keys n, dir (c2b or b2c), conn,
ms, and type and hex of a packet or ev of an event, or raw packets back to back;
the first byte says which. Prints a line for each: number, direction, connection
and time where they are known, then the packet with its properties and body.")]
pub(super) struct DumpArguments {
    /// File to read; - is standard input
    pub(super) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate attributes
  tidegate attributes imqReconnectEnabled imqAddressList
  imqAckTimeout=5000 tidegate attributes --properties client.properties --json

Prints each attribute with its value, its default and what it takes; * marks a
value other than the default. A later source wins: the environment, where variables have
exactly these names, then --properties, then --set. Other commands take the
same, with two defaults of their own: they go through the addresses once
(imqAddressListIterations), and wait for connections and answers as long as
their --timeout says (imqSocketConnectTimeout, imqPortMapperSoTimeout,
imqAckTimeout). Passwords are printed as ***.

To a terminal the attributes are laid out for reading, elsewhere as a table.
With --json there is one object a line.")]
pub(super) struct AttributesArguments {
    /// Print only these
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,

    #[command(flatten)]
    pub(super) attributes: AttributeArguments,

    /// Print one JSON object for each attribute
    #[arg(long)]
    pub(super) json: bool,
}

/// Longest time that can be asked for: a year.
const TIME_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Reads `500ms`, `10s`, `2m`, `1h`; a bare number is seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const HOW: &str = "a time is a number with ms, s, m or h, as in 500ms or 2.5s";
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| HOW)?;
    let seconds = match unit.trim() {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(HOW.into()),
    };
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| HOW)?;
    if time > TIME_MAX || time.is_zero() {
        return Err("a time is over 0 and at most a year".into());
    }
    Ok(time)
}

/// Largest message `ping` sends, in bytes.
const PING_BYTES_MAX: usize = 16 << 20;

/// Reads `64`, `10k`, `2m`, with or without a `b` behind it.
fn message_bytes(text: &str) -> Result<usize, String> {
    const HOW: &str = "a size is a number of bytes, or with k or m, up to 16m";
    let lower = text.trim().to_ascii_lowercase();
    let end = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(end);
    let factor = match unit.trim() {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        _ => return Err(HOW.into()),
    };
    let number: usize = number.parse().map_err(|_| HOW)?;
    number.checked_mul(factor).filter(|&bytes| bytes <= PING_BYTES_MAX).ok_or_else(|| HOW.into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn arguments_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration(" 2 m "), Ok(Duration::from_secs(120)));
        assert_eq!(duration("2.5s"), Ok(Duration::from_millis(2500)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        for wrong in ["", "s", "-1s", "1d", "1e3", "0", "99999h", "1.2.3s", "nan"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(message_bytes("64"), Ok(64));
        assert_eq!(message_bytes("10 K"), Ok(10 * 1024));
        assert_eq!(message_bytes("2mb"), Ok(2 << 20));
        assert_eq!(message_bytes("16m"), Ok(PING_BYTES_MAX));
        for wrong in ["", "-1", "1e3", "17m", "99999999999999999999", "k"] {
            assert!(message_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
