//! What is measured, and for how long.

use std::time::Duration;

/// One run of the program.
pub(crate) struct Plan {
    /// How often each row is measured; medians count.
    pub(crate) rounds: usize,
    /// How long before each measurement everything runs already.
    pub(crate) warm: Duration,
    /// How long each measurement takes.
    pub(crate) window: Duration,
    /// Messages to all subscribers of a topic.
    pub(crate) published: u32,
    /// Connections that are open at a time.
    pub(crate) connections: usize,
    /// Queues of the row with many.
    pub(crate) queues: usize,
    /// Messages that wait in the row with a crowded queue.
    pub(crate) waiting: usize,
    /// Whether each row only runs, and says that it did.
    pub(crate) is_test: bool,
    filter: Option<String>,
}

impl Plan {
    /// Reads the command line. Words with dashes that are not known are for other benches.
    pub(crate) fn from_arguments(arguments: impl Iterator<Item = String>) -> Self {
        let arguments: Vec<String> = arguments.collect();
        let has = |name: &str| arguments.iter().any(|argument| argument == name);
        let mut plan = Self {
            rounds: 5,
            warm: Duration::from_millis(300),
            window: Duration::from_secs(1),
            published: 1000,
            connections: 10_000,
            queues: 1000,
            waiting: 1_000_000,
            is_test: has("--test"),
            filter: arguments.iter().find(|argument| !argument.starts_with('-')).cloned(),
        };
        if has("--quick") {
            plan.rounds = 3;
            plan.warm = Duration::from_millis(150);
            plan.window = Duration::from_millis(300);
            (plan.published, plan.waiting) = (300, 100_000);
        }
        if plan.is_test {
            plan.rounds = 1;
            (plan.warm, plan.window) = (Duration::ZERO, Duration::from_millis(20));
            (plan.published, plan.connections, plan.queues) = (5, 100, 20);
            plan.waiting = 100;
        }
        plan
    }

    /// Whether this row is wanted.
    pub(crate) fn wants(&self, row: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| row.contains(filter.as_str()))
    }
}
