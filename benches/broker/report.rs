//! Medians, ratios and verdicts.

/// What a ratio is to be.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("at least {least}"),
            Self::AtMost(most) => format!("at most {most}"),
        }
    }
}

/// Runs each contender in each round, by turns.
pub(crate) fn rounds<T, const N: usize>(
    count: usize,
    contenders: [&dyn Fn() -> T; N],
) -> [Vec<T>; N] {
    let mut runs = [const { Vec::new() }; N];
    for _ in 0..count {
        for (runs, contender) in runs.iter_mut().zip(contenders) {
            runs.push(contender());
        }
    }
    runs
}

/// Middle of several numbers; of two, the upper one.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The median of what this takes from each run.
pub(crate) fn median_of<T>(runs: &[T], of: impl Fn(&T) -> f64) -> f64 {
    median(&runs.iter().map(of).collect::<Vec<_>>())
}

/// Prints the median of the ratios of runs that belong together, the least and the largest of
/// them, and whether it is what it should be.
pub(crate) fn judge<T>(what: &str, ours: &[T], theirs: &[T], of: impl Fn(&T) -> f64, goal: Goal) {
    let pairs = ours.iter().zip(theirs);
    let mut ratios: Vec<f64> = pairs.map(|(ours, theirs)| of(ours) / of(theirs)).collect();
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    verdict(what, median(&ratios), &format!(" ({least:.2}–{most:.2})"), goal);
}

/// Prints a number, and whether it is what it should be.
pub(crate) fn verdict(what: &str, number: f64, spread: &str, goal: Goal) {
    let met = if goal.is_met(number) { "" } else { "   MISSED" };
    println!("  {what:<44} {number:.2}{spread}, {}{met}", goal.text());
}
