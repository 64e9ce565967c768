//! What the demo shows: how things stand at one moment, and what came of it all.

use std::time::Instant;

use crate::cli::round_trip::Times;

/// How things stand at one moment.
pub(super) struct Look {
    pub(super) at: Instant,
    /// Messages in the queue: not delivered, or delivered and not acknowledged.
    pub(super) waiting: u64,
    pub(super) fast: Seen,
    pub(super) slow: Seen,
    pub(super) sent: u64,
    pub(super) fast_received: u64,
    pub(super) slow_received: u64,
    /// Messages in the slow consumer's own buffer.
    pub(super) slow_buffered: u64,
    pub(super) round_trips: String,
}

/// A consumer, as the broker sees it.
pub(super) struct Seen {
    /// Messages it may still get; `None` is no limit.
    pub(super) credit: Option<u32>,
    /// Messages it got and has not acknowledged.
    pub(super) unacknowledged: u64,
}

impl Look {
    /// Rows of the live display.
    pub(super) const ROWS: usize = 6;

    /// For a display that is drawn over and over, in 60 columns or, `narrow`, in 20.
    pub(super) fn rows(&self, before: &Self, narrow: bool) -> Vec<String> {
        if narrow { self.narrow_rows(before) } else { self.wide_rows(before) }
    }

    fn narrow_rows(&self, before: &Self) -> Vec<String> {
        let rates = self.rates(before);
        vec![
            format!("sent {}/s", rates.sent),
            format!("fast {}/s", rates.fast),
            format!("  credit {}", credit(&self.fast)),
            format!("slow {}/s", rates.slow),
            format!("  credit {}", credit(&self.slow)),
            format!("queue {}", self.waiting),
        ]
    }

    fn wide_rows(&self, before: &Self) -> Vec<String> {
        let row = |name: &str, rate: u64, total: u64, rest: String| {
            format!("{name:<9} {rate:>8} {total:>9}  {rest}")
        };
        let seen = |seen: &Seen| format!("{:>6} {:>6}", credit(seen), seen.unacknowledged);
        let rates = self.rates(before);
        vec![
            format!("{:<9} {:>8} {:>9}  {:>6} {:>6}", "", "msg/s", "total", "credit", "holds"),
            row("producer", rates.sent, self.sent, String::new()),
            row("fast", rates.fast, self.fast_received, seen(&self.fast)),
            row("slow", rates.slow, self.slow_received, seen(&self.slow)),
            format!(
                "queue     {} messages, slow has {} buffered",
                self.waiting, self.slow_buffered
            ),
            format!("round trip {}", self.round_trips),
        ]
    }

    /// For a file or a pipe.
    pub(super) fn line(&self, before: &Self) -> String {
        let rates = self.rates(before);
        format!(
            "sent {}/s; fast {}/s credit {} holds {}; slow {}/s credit {} holds {}, buffered {}; \
             queue {}; round trip {}",
            rates.sent,
            rates.fast,
            credit(&self.fast),
            self.fast.unacknowledged,
            rates.slow,
            credit(&self.slow),
            self.slow.unacknowledged,
            self.slow_buffered,
            self.waiting,
            self.round_trips
        )
    }

    fn rates(&self, before: &Self) -> Rates {
        let milliseconds = (self.at - before.at).as_millis().max(1);
        let rate = |now: u64, then: u64| {
            u64::try_from(u128::from(now - then) * 1000 / milliseconds).unwrap_or(u64::MAX)
        };
        Rates {
            sent: rate(self.sent, before.sent),
            fast: rate(self.fast_received, before.fast_received),
            slow: rate(self.slow_received, before.slow_received),
        }
    }
}

struct Rates {
    sent: u64,
    fast: u64,
    slow: u64,
}

fn credit(seen: &Seen) -> String {
    seen.credit.map_or_else(|| "any".to_owned(), |credit| credit.to_string())
}

/// What all looks together say.
#[derive(Default)]
pub(super) struct Report {
    looks: u64,
    looks_without_credit: u64,
    buffered_max: u64,
    waiting_max: u64,
}

/// What came of it.
pub(super) struct Totals {
    pub(super) sent: u64,
    pub(super) fast_received: u64,
    pub(super) slow_received: u64,
    /// Messages back in the queue when both consumers were gone.
    pub(super) left: u64,
    pub(super) round_trips: Times,
    pub(super) deliveries: Times,
}

impl Report {
    pub(super) fn add(&mut self, look: &Look) {
        self.looks += 1;
        self.looks_without_credit += u64::from(look.slow.credit == Some(0));
        self.buffered_max = self.buffered_max.max(look.slow_buffered);
        self.waiting_max = self.waiting_max.max(look.waiting);
    }

    pub(super) fn summary(&self, totals: &Totals, window: u32) -> Vec<String> {
        let mut lines = vec![
            format!("sent {} messages", totals.sent),
            format!(
                "received {} by the fast consumer, {} by the slow one; {} left in the queue",
                totals.fast_received, totals.slow_received, totals.left
            ),
            format!(
                "the slow consumer had no credit in {} of {} looks, and never more than {} of {} \
                 messages in its buffer",
                self.looks_without_credit, self.looks, self.buffered_max, window
            ),
            format!("at most {} messages were in the queue", self.waiting_max),
        ];
        let times = [
            ("send to receive, fast consumer", &totals.deliveries),
            ("round trips beside it", &totals.round_trips),
        ];
        for (name, times) in times {
            lines.push(format!("{name}: {} measured", times.count()));
            lines.extend(times.lines().map(|line| format!("  {line}")));
        }
        lines
    }

    /// Whether the demo showed what it is for. A demo that goes wrong must not end well.
    pub(super) fn verdict(&self, totals: &Totals, window: u32) -> Result<(), String> {
        let accounted = totals.fast_received + totals.slow_received + totals.left;
        if accounted != totals.sent {
            return Err(format!("{} messages sent, {accounted} accounted for", totals.sent));
        }
        if self.buffered_max > u64::from(window) {
            let most = self.buffered_max;
            return Err(format!("the slow consumer was given {most} messages, over its window"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(left: u64) -> Totals {
        Totals {
            sent: 100,
            fast_received: 80,
            slow_received: 10,
            left,
            round_trips: Times::new(),
            deliveries: Times::new(),
        }
    }

    #[test]
    fn messages_that_are_unaccounted_for_are_a_failure() {
        let report = Report::default();
        assert_eq!(report.verdict(&totals(10), 5), Ok(()));
        assert!(report.verdict(&totals(9), 5).is_err());
        assert!(report.verdict(&totals(11), 5).is_err());
    }

    #[test]
    fn more_than_the_window_is_a_failure() {
        let report = Report { buffered_max: 6, ..Report::default() };
        assert!(report.verdict(&totals(10), 5).is_err());
        assert_eq!(report.verdict(&totals(10), 6), Ok(()));
    }
}
