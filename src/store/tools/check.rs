//! Whether everything in a store is what was written, and belongs to something.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    super::{
        MessageStore, Outcome, StoreError,
        record::{
            CopyRecord, DestinationRecord, FORMAT, MessageRecord, Record, SubscriptionRecord,
            TransactionRecord, place,
        },
    },
    Progress, read_all,
};
use crate::message::DestinationKind;

/// Problems that are told one by one; of more, only the number is.
const PROBLEMS_MAX: usize = 1000;

/// What a check has found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// How the store was found.
    pub outcome: Outcome,
    /// Entries that were looked at.
    pub entries: u64,
    /// What is wrong, up to a thousand of it.
    pub problems: Vec<Problem>,
    /// How many more problems there are.
    pub more_problems: u64,
    /// What belongs to nobody. A broker removes or ignores it; nothing is lost.
    pub leftovers: Vec<Leftover>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Where.
    pub place: String,
    /// What.
    pub reason: String,
}

/// Entries of one kind that belong to nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leftover {
    /// Of which kind.
    pub what: &'static str,
    /// How many.
    pub count: u64,
    /// Where the first one is.
    pub first: String,
}

/// Reads all of a store, decodes every entry and follows every reference.
///
/// Memory: some ten bytes for each message of a topic and each count of deliveries.
///
/// # Errors
/// If the store cannot be read for another reason than what is in it.
pub fn check(
    store: &mut dyn MessageStore,
    progress: Progress<'_>,
) -> Result<CheckReport, StoreError> {
    let recovery = store.recover()?;
    let mut checker = Checker::default();
    let outcome = recovery.outcome.clone();
    let read = read_all(recovery, progress, |entry| {
        checker.entries += 1;
        checker.at = (place(entry.space, &entry.key), entry.key.len());
        match Record::decode(entry) {
            Ok(record) => checker.take(record),
            Err(StoreError::Corrupt { place, reason }) => checker.problem(place, reason),
            Err(error) => return Err(error),
        }
        Ok(())
    });
    match read {
        Ok(()) => Ok(checker.finish(outcome)),
        Err(StoreError::Corrupt { place, reason }) => {
            checker.problem(place, format!("{reason}; what follows could not be read"));
            Ok(checker.report(outcome))
        }
        Err(error) => Err(error),
    }
}

/// A queue or subscription, and a message of it.
type Held = (u64, u64);

#[derive(Default)]
struct Checker {
    entries: u64,
    /// Where the entry is that is looked at.
    at: (String, usize),
    problems: Vec<Problem>,
    more_problems: u64,
    leftovers: BTreeMap<&'static str, Leftover>,
    has_format: bool,
    destinations: HashMap<u64, DestinationKind>,
    names: HashSet<(DestinationKind, String)>,
    subscriptions: HashSet<u64>,
    /// What prepared transactions consume and counts belong to, until it has been seen.
    consumed: HashMap<Held, u64>,
    counted: HashSet<Held>,
    /// Messages of topics in their order, and whether somebody has a copy.
    of_topics: Vec<(Held, bool)>,
    greatest_sequence: u64,
    greatest_id: u64,
    /// Batch, sequence and id of the latest batch.
    given: Option<(u64, u64, u64)>,
}

impl Checker {
    fn problem(&mut self, place: String, reason: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem { place, reason });
        } else {
            self.more_problems += 1;
        }
    }

    /// Something is wrong with the entry that is looked at.
    fn problem_here(&mut self, reason: String) {
        self.problem(self.at.0.clone(), reason);
    }

    fn leftover(&mut self, what: &'static str, place: String) {
        let one = Leftover { what, count: 0, first: place };
        self.leftovers.entry(what).or_insert(one).count += 1;
    }

    fn leftover_here(&mut self, what: &'static str) {
        self.leftover(what, self.at.0.clone());
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Format(format) => {
                self.has_format = true;
                if format != FORMAT {
                    self.problem_here(format!("it is {format}, and this program knows {FORMAT}"));
                }
            }
            Record::Destination(record) => self.destination(record),
            Record::Subscription(record) => self.subscription(&record),
            Record::Transaction(record) => self.transaction(&record),
            Record::Delivered(record) => {
                let queue = self.destinations.contains_key(&record.place);
                if !queue && !self.subscriptions.contains(&record.place) {
                    self.leftover_here("marks of deliveries of nothing that is there");
                }
            }
            Record::Deliveries(record) => {
                self.counted.insert((record.place, record.sequence));
            }
            Record::Message(record) => self.message(&record),
            Record::Copy(record) => self.copy(record),
            Record::Recent(_, record) => {
                let given = (record.batch, record.sequence, record.place);
                self.given = self.given.max(Some(given));
            }
        }
    }

    fn destination(&mut self, record: DestinationRecord) {
        self.greatest_id = self.greatest_id.max(record.id);
        self.destinations.insert(record.id, record.kind);
        let named = format!("there is another {} named {}", record.kind, record.name);
        if !self.names.insert((record.kind, record.name)) {
            self.problem_here(named);
        }
    }

    fn subscription(&mut self, record: &SubscriptionRecord) {
        self.greatest_id = self.greatest_id.max(record.id);
        self.subscriptions.insert(record.id);
        if self.destinations.contains_key(&record.id) {
            self.problem_here("a destination has the same id".into());
        }
    }

    fn transaction(&mut self, record: &TransactionRecord) {
        for (destination, _) in &record.messages {
            if !self.destinations.contains_key(destination) {
                self.leftover_here("prepared sends to a destination that is not there");
            }
        }
        for held in &record.consumed {
            if let Some(other) = self.consumed.insert(*held, record.id) {
                let (place, sequence) = held;
                let what = format!("transaction {other} consumes {place}/{sequence} as well");
                self.problem_here(what);
            }
        }
    }

    fn message(&mut self, record: &MessageRecord) {
        self.greatest_sequence = self.greatest_sequence.max(record.sequence);
        let held = (record.destination, record.sequence);
        if !record.packet.header().packet_type.is_message() {
            let what = record.packet.header().packet_type;
            self.problem_here(format!("it is a packet of type {what} and no message"));
        }
        if self.destinations.get(&record.destination) == Some(&DestinationKind::Queue) {
            self.seen(held);
        } else {
            // A destination that is not there may have been a topic; subscriptions keep its messages.
            self.of_topics.push((held, false));
        }
    }

    fn copy(&mut self, record: CopyRecord) {
        if !self.subscriptions.contains(&record.subscription) {
            self.leftover_here("copies of no subscription");
            return;
        }
        let message = (record.topic, record.sequence);
        match self.of_topics.binary_search_by_key(&message, |(held, _)| *held) {
            Ok(at) => self.of_topics[at].1 = true,
            Err(_) => return self.leftover_here("copies of no message"),
        }
        self.seen((record.subscription, record.sequence));
    }

    fn seen(&mut self, held: Held) {
        self.counted.remove(&held);
        self.consumed.remove(&held);
    }

    fn finish(mut self, outcome: Outcome) -> CheckReport {
        let show = |(place, sequence): Held| format!("{place}/{sequence}");
        for (held, has_copy) in std::mem::take(&mut self.of_topics) {
            if !has_copy {
                self.leftover("messages nobody has a copy of", format!("messages {}", show(held)));
            }
        }
        let mut counted: Vec<_> = self.counted.drain().collect();
        counted.sort_unstable();
        for held in counted {
            self.leftover("counts of no message", format!("deliveries {}", show(held)));
        }
        let mut consumed: Vec<_> = self.consumed.drain().collect();
        consumed.sort_unstable();
        for (held, id) in consumed {
            let first = format!("transactions {id} of {}", show(held));
            self.leftover("prepared acknowledgements of no message", first);
        }
        if self.entries > 0 && !self.has_format {
            let reason = "it is not there, so something was not finished, an import perhaps";
            self.problem("about \"format\"".into(), reason.into());
        }
        if let Some((batch, sequence, id)) = self.given {
            let greatest =
                [("sequence", self.greatest_sequence, sequence), ("id", self.greatest_id, id)];
            for (what, found, given) in
                greatest.into_iter().filter(|(_, found, given)| found > given)
            {
                let reason = format!("its last {what} is {given}, and there is {found}");
                self.problem(format!("recent, batch {batch}"), reason);
            }
        }
        self.report(outcome)
    }

    fn report(self, outcome: Outcome) -> CheckReport {
        CheckReport {
            outcome,
            entries: self.entries,
            problems: self.problems,
            more_problems: self.more_problems,
            leftovers: self.leftovers.into_values().collect(),
        }
    }
}
