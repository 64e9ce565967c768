//! `tidegate store`: looks into a store that no broker uses, and carries it elsewhere.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal as _, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value as Json, json};
use tidegate::store::tools::{
    self, CheckReport, DestinationStats, ExportError, ImportError, StoreStats,
};
use tidegate::store::{FjallSettings, FjallStore, MessageStore as _, Outcome, StoreError};

use super::arguments::{
    StoreArguments, StoreExportArguments, StoreImportArguments, StoreReadArguments, StoreVerb,
};
use super::failure::Failure;
use super::output::{Align, Column, Output, complain};

/// How often progress is told where no bar can be drawn.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// Does what was asked for.
pub(super) fn run(arguments: &StoreArguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.verb {
        StoreVerb::Check(arguments) => check(arguments, output),
        StoreVerb::Stats(arguments) => stats(arguments, output),
        StoreVerb::Export(arguments) => export(arguments, output),
        StoreVerb::Import(arguments) => import(arguments, output),
    }
}

fn check(arguments: &StoreReadArguments, output: &mut Output) -> Result<(), Failure> {
    let mut store = open(&arguments.directory)?;
    let mut seen = Seen::new("checked");
    let report = tools::check(&mut store, &mut |count, of| seen.show(count, of));
    drop(seen);
    let report = report.map_err(failure)?;
    if arguments.json {
        output.foreign_line(&report_json(&store.describe(), &report).to_string())?;
    } else {
        print_report(&store.describe(), &report, output)?;
    }
    if report.is_sound() {
        return Ok(());
    }
    let count = report.problems.len() as u64 + report.more_problems;
    let what = if count == 1 { "something is".to_owned() } else { format!("{count} things are") };
    Err(Failure::Corrupt(format!("{what} wrong in {}", store.describe())))
}

fn print_report(store: &str, report: &CheckReport, output: &mut Output) -> Result<(), Failure> {
    for problem in &report.problems {
        output.foreign_line(&format!("wrong: {}: {}", problem.place, problem.reason))?;
    }
    if report.more_problems > 0 {
        output.line(&format!("wrong: {} more", report.more_problems))?;
    }
    for one in &report.leftovers {
        let (count, what, first) = (one.count, one.what, &one.first);
        output.line(&format!("left over: {count} {what}, the first at {first}"))?;
    }
    if let Outcome::TornTailDropped { what } = &report.outcome {
        output.foreign_line(&format!("dropped, never acknowledged: {what}"))?;
    }
    let verdict = if report.is_sound() { "sound" } else { "not sound" };
    output.foreign_line(&format!("{verdict}: {store}, {} entries", report.entries))
}

fn report_json(store: &str, report: &CheckReport) -> Json {
    let problem = |one: &tools::Problem| json!({ "place": one.place, "reason": one.reason });
    let leftover =
        |one: &tools::Leftover| json!({ "what": one.what, "count": one.count, "first": one.first });
    json!({
        "store": store,
        "sound": report.is_sound(),
        "entries": report.entries,
        "dropped": dropped(&report.outcome),
        "problems": report.problems.iter().map(problem).collect::<Vec<_>>(),
        "more_problems": report.more_problems,
        "leftovers": report.leftovers.iter().map(leftover).collect::<Vec<_>>(),
    })
}

/// What was dropped because it had not been written to its end.
fn dropped(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::TornTailDropped { what } => Some(what),
        _ => None,
    }
}

fn stats(arguments: &StoreReadArguments, output: &mut Output) -> Result<(), Failure> {
    let mut store = open(&arguments.directory)?;
    let mut seen = Seen::new("counted");
    let stats = tools::stats(&mut store, &mut |count, of| seen.show(count, of));
    drop(seen);
    let stats = stats.map_err(failure)?;
    if arguments.json {
        return output.foreign_line(&stats_json(&store.describe(), &stats).to_string());
    }
    print_stats(&store.describe(), &stats, output)
}

fn print_stats(store: &str, stats: &StoreStats, output: &mut Output) -> Result<(), Failure> {
    output.foreign_line(&format!("{store}, last batch {}", stats.last_batch))?;
    if let Some(what) = dropped(&stats.outcome) {
        output.foreign_line(&format!("dropped, never acknowledged: {what}"))?;
    }
    let rows: Vec<_> = stats
        .spaces
        .iter()
        .map(|one| vec![one.space.to_string(), one.entries.to_string(), size(one.bytes)])
        .collect();
    titled(&["SPACE"], &["ENTRIES", "BYTES"], &rows, output)?;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let since = |time: Option<i64>| time.map(|ms| age(now_ms, ms)).unwrap_or_default();
    let rows: Vec<_> = stats
        .destinations
        .iter()
        .map(|one| {
            let (name, kind) = named(one);
            let messages = one.messages.to_string();
            let (oldest, newest) = (since(one.oldest_ms), since(one.newest_ms));
            vec![name, kind, messages, size(one.bytes), oldest, newest]
        })
        .collect();
    titled(&["DESTINATION", "KIND"], &["MESSAGES", "BYTES", "OLDEST", "NEWEST"], &rows, output)?;
    let rows: Vec<_> = stats
        .subscriptions
        .iter()
        .map(|one| {
            let client_id = one.client_id.clone().unwrap_or_default();
            vec![one.name.clone(), client_id, one.topic.clone(), one.messages.to_string()]
        })
        .collect();
    titled(&["SUBSCRIPTION", "CLIENT-ID", "TOPIC"], &["MESSAGES"], &rows, output)?;
    let rows: Vec<_> = stats
        .transactions
        .iter()
        .map(|one| {
            let (sends, consumes) = (one.sends.to_string(), one.consumes.to_string());
            vec![one.id.to_string(), sends, consumes, age(now_ms, one.created_ms)]
        })
        .collect();
    titled(&["PREPARED"], &["SENDS", "CONSUMES", "STARTED"], &rows, output)
}

/// A table below an empty line, if there is anything in it.
fn titled(
    words: &[&'static str],
    numbers: &[&'static str],
    rows: &[Vec<String>],
    output: &mut Output,
) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    let words = words.iter().map(|title| Column { title, align: Align::Left });
    let numbers = numbers.iter().map(|title| Column { title, align: Align::Right });
    output.line("")?;
    output.table(&words.chain(numbers).collect::<Vec<_>>(), rows)
}

/// Name and kind of a destination.
fn named(one: &DestinationStats) -> (String, String) {
    match &one.name {
        Some((kind, name)) => (name.clone(), kind.to_string()),
        None => (format!("(gone, id {})", one.id), String::new()),
    }
}

fn size(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

/// How long ago that was, in the largest unit that says something.
fn age(now_ms: u128, then_ms: i64) -> String {
    let ms = now_ms.saturating_sub(u128::try_from(then_ms).unwrap_or(0));
    let seconds = ms / 1000;
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

fn stats_json(store: &str, stats: &StoreStats) -> Json {
    let spaces = stats.spaces.iter().map(|one| {
        let counts = json!({ "entries": one.entries, "bytes": one.bytes });
        (one.space.to_string(), counts)
    });
    let destination = |one: &DestinationStats| {
        json!({
            "id": one.id,
            "kind": one.name.as_ref().map(|(kind, _)| kind.to_string()),
            "name": one.name.as_ref().map(|(_, name)| name),
            "messages": one.messages,
            "bytes": one.bytes,
            "oldest_ms": one.oldest_ms,
            "newest_ms": one.newest_ms,
        })
    };
    let subscription = |one: &tools::SubscriptionStats| {
        json!({
            "id": one.id,
            "client_id": one.client_id,
            "name": one.name,
            "topic": one.topic,
            "messages": one.messages,
        })
    };
    let transaction = |one: &tools::TransactionStats| {
        json!({
            "id": one.id,
            "created_ms": one.created_ms,
            "sends": one.sends,
            "consumes": one.consumes,
        })
    };
    json!({
        "store": store,
        "format": stats.format,
        "last_batch": stats.last_batch,
        "dropped": dropped(&stats.outcome),
        "spaces": spaces.collect::<serde_json::Map<_, _>>(),
        "destinations": stats.destinations.iter().map(destination).collect::<Vec<_>>(),
        "subscriptions": stats.subscriptions.iter().map(subscription).collect::<Vec<_>>(),
        "transactions": stats.transactions.iter().map(transaction).collect::<Vec<_>>(),
    })
}

fn export(arguments: &StoreExportArguments, output: &mut Output) -> Result<(), Failure> {
    let mut store = open(&arguments.directory)?;
    let mut file = arguments.output.as_deref().map(Output::file).transpose()?;
    let name =
        arguments.output.as_deref().map_or_else(|| "standard output".into(), Path::to_string_lossy);
    let mut lines = Lines { output: file.as_mut().unwrap_or(output), failure: None };
    let mut seen = Seen::new("exported");
    let exported = {
        let mut lines = BufWriter::new(&mut lines);
        tools::export(&mut store, &mut lines, &mut |count, of| seen.show(count, of))
    };
    drop(seen);
    match (exported, lines.failure) {
        (_, Some(failure)) => Err(failure),
        (Ok(count), None) => {
            if let Some(mut file) = file {
                file.finish()?;
                output.foreign_line(&format!("exported {count} records to {name}"))?;
            }
            Ok(())
        }
        (Err(ExportError::Store(error)), None) => Err(failure(error)),
        (Err(error), None) => Err(Failure::new(&format!("cannot write to {name}"), &error)),
    }
}

/// An output as something to write to, which keeps why it failed.
struct Lines<'a> {
    output: &'a mut Output,
    failure: Option<Failure>,
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.output.bytes(bytes);
        self.kept(written).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.output.flush();
        self.kept(flushed)
    }
}

impl Lines<'_> {
    fn kept(&mut self, result: Result<(), Failure>) -> io::Result<()> {
        result.map_err(|failure| {
            self.failure = Some(failure);
            io::Error::other("the output failed")
        })
    }
}

fn import(arguments: &StoreImportArguments, output: &mut Output) -> Result<(), Failure> {
    let standard = arguments.file == Path::new("-");
    let name = if standard { "standard input".into() } else { arguments.file.to_string_lossy() };
    let mut input: Box<dyn BufRead> = if standard {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&arguments.file);
        Box::new(BufReader::new(
            file.map_err(|error| Failure::new(&format!("cannot read {name}"), &error))?,
        ))
    };
    let directory = &arguments.directory;
    let mut store = FjallStore::open(directory, FjallSettings::default()).map_err(failure)?;
    let mut seen = Seen::new("imported");
    let imported = tools::import(&mut store, &mut input, &mut |count, of| seen.show(count, of));
    drop(seen);
    let made = directory.join("messages");
    let unfinished = format!("the store is not complete, remove {}", made.display());
    let count = imported.map_err(|error| match error {
        ImportError::Store(error) => failure(error),
        error if error.is_of_input() => Failure::Failed(format!("{name}: {error}; {unfinished}")),
        error => Failure::new("nothing was imported", &error),
    })?;
    store.close().map_err(failure)?;
    output.foreign_line(&format!("imported {count} records into {}", store.describe()))
}

/// Opens a store that is there.
fn open(directory: &Path) -> Result<FjallStore, Failure> {
    if !directory.is_dir() {
        return Err(Failure::Usage(format!("{} is not a directory", directory.display())));
    }
    let mut settings = FjallSettings::default();
    settings.create = false;
    FjallStore::open(directory, settings).map_err(failure)
}

fn failure(error: StoreError) -> Failure {
    let text = error.to_string();
    match error {
        StoreError::Corrupt { .. } => Failure::Corrupt(text),
        StoreError::InUse { .. } => Failure::InUse(text),
        _ => Failure::Failed(text),
    }
}

/// How far it is, beside the results: a bar on a terminal, a line from time to time elsewhere.
pub(super) struct Seen {
    what: &'static str,
    bar: Option<ProgressBar>,
    told: Instant,
}

impl Seen {
    pub(super) fn new(what: &'static str) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr();
            let style = ProgressStyle::with_template("{msg} {human_pos} {wide_bar} {elapsed}");
            let bar = ProgressBar::with_draw_target(None, target).with_message(what);
            bar.with_style(style.expect("a valid template"))
        });
        Self { what, bar, told: Instant::now() }
    }

    pub(super) fn show(&mut self, count: u64, of: Option<u64>) {
        if let Some(bar) = &self.bar {
            if let Some(of) = of {
                bar.set_length(of.max(count));
            }
            bar.set_position(count);
        } else if self.told.elapsed() >= TOLD_EVERY {
            self.told = Instant::now();
            let of = of.map(|of| format!(" of about {of}")).unwrap_or_default();
            complain(&format!("{} {count}{of}", self.what));
        }
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_are_told_in_a_unit_that_says_something() {
        let ages = [500, 119_999, 120_000, 7_200_000, 172_800_000].map(|ms| age(ms + 7, 7));
        assert_eq!(ages, ["0 s ago", "119 s ago", "2 min ago", "2 h ago", "2 days ago"]);
        assert_eq!(age(5, 7), "0 s ago");
    }
}
