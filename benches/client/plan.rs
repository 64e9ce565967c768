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
    /// Whether each row only runs, and says that it did.
    pub(crate) is_test: bool,
    filter: Option<String>,
}

impl Plan {
    /// Reads the command line. Words with dashes that are not known are for other benches.
    pub(crate) fn from_arguments(arguments: impl Iterator<Item = String>) -> Self {
        let arguments: Vec<String> = arguments.collect();
        let has = |name: &str| arguments.iter().any(|argument| argument == name);
        let millis = Duration::from_millis;
        let (rounds, warm, window) = match (has("--test"), has("--quick")) {
            (true, _) => (1, millis(1), millis(20)),
            (_, true) => (3, millis(150), millis(300)),
            _ => (5, millis(300), millis(1000)),
        };
        Self {
            rounds,
            warm,
            window,
            is_test: has("--test"),
            filter: arguments.into_iter().find(|argument| !argument.starts_with('-')),
        }
    }

    /// Whether this row is wanted.
    pub(crate) fn wants(&self, row: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| row.contains(filter.as_str()))
    }
}
