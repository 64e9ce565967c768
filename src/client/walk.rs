//! Where to connect, in which order, and how long to rest meanwhile.
//!
//! One pass goes through all addresses; at each there is one attempt, and as many more as
//! `imqReconnectAttempts` says. Between any two attempts, also at different addresses, lies the
//! interval. An address that this build cannot use is tried once, so that the caller can tell why
//! it fails; as nothing will change there, it costs no rest and no later pass has it.
//!
//! # Source
//! The connection handling attributes of the Message Queue client runtime: the same walk makes the
//! first connection and restores a lost one. The latter rests first and begins where the lost
//! connection was.

use std::time::Duration;

use super::settings::{AddressListBehavior, Settings};

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Try an address.
    Try {
        /// Its place in [`Settings::address_list`].
        address: usize,
        /// The how-manieth attempt at it in this pass, from 1.
        attempt: u32,
        /// The how-manieth pass over the list, from 1.
        pass: u32,
    },
    /// Do nothing so long.
    Rest(Duration),
}

/// The steps of one connection, until one of the attempts works or there are no more.
#[derive(Debug)]
pub(super) struct Walk {
    order: Vec<Stop>,
    /// Passes over the list; `None` for no end.
    passes: Option<u32>,
    /// Attempts at one address after the first; `None` for no end.
    more_attempts: Option<u32>,
    interval: Duration,
    /// The next stop of the order.
    at: usize,
    /// The next attempt there.
    attempt: u32,
    pass: u32,
    rest_is_due: bool,
}

#[derive(Debug, Clone, Copy)]
struct Stop {
    address: usize,
    /// Whether this build can use it at all.
    is_usable: bool,
}

impl Walk {
    /// The walk to a first connection. `random` puts the addresses in order if that is random.
    pub(super) fn new(settings: &Settings, random: u64) -> Self {
        let addresses = settings.address_list();
        let mut order: Vec<_> = (0..addresses.len())
            .map(|at| Stop { address: at, is_usable: addresses[at].missing().is_none() })
            .collect();
        if settings.behavior == AddressListBehavior::Random {
            shuffle(&mut order, random);
        }
        Self {
            order,
            passes: settings.iterations,
            more_attempts: settings.attempts,
            interval: settings.interval,
            at: 0,
            attempt: 1,
            pass: 1,
            rest_is_due: false,
        }
    }

    /// The walk after the connection to the address at `lost` broke.
    pub(super) fn again(settings: &Settings, random: u64, lost: usize) -> Self {
        let mut walk = Self::new(settings, random);
        if let Some(at) = walk.order.iter().position(|stop| stop.address == lost) {
            walk.order[..=at].rotate_right(1);
        }
        walk.rest_is_due = true;
        walk
    }
}

impl Iterator for Walk {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.at == self.order.len() {
            self.order.retain(|stop| stop.is_usable);
            if self.order.is_empty() || self.passes.is_some_and(|most| self.pass >= most) {
                self.at = self.order.len();
                return None;
            }
            self.pass = self.pass.saturating_add(1);
            self.at = 0;
        }
        let stop = self.order[self.at];
        if stop.is_usable {
            if self.rest_is_due && !self.interval.is_zero() {
                self.rest_is_due = false;
                return Some(Step::Rest(self.interval));
            }
            self.rest_is_due = true;
        }
        let step = Step::Try { address: stop.address, attempt: self.attempt, pass: self.pass };
        if stop.is_usable && self.more_attempts.is_none_or(|more| self.attempt <= more) {
            self.attempt = self.attempt.saturating_add(1);
        } else {
            self.at += 1;
            self.attempt = 1;
        }
        Some(step)
    }
}

/// Any order, decided by `random` alone.
fn shuffle(order: &mut [Stop], mut random: u64) {
    for last in (1..order.len()).rev() {
        // SplitMix64: any seed, also 0, gives well-spread numbers.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let places = last as u64 + 1;
        let chosen = usize::try_from((mixed ^ (mixed >> 31)) % places).unwrap_or_default();
        order.swap(last, chosen);
    }
}

#[cfg(test)]
mod tests {
    use super::{Settings, Step, Walk};

    /// Settings from their values in the order list, behaviour, passes, attempts, interval.
    fn settings([list, behavior, passes, attempts, interval]: [&str; 5]) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in [
            ("imqAddressList", list),
            ("imqAddressListBehavior", behavior),
            ("imqAddressListIterations", passes),
            ("imqReconnectAttempts", attempts),
            ("imqReconnectInterval", interval),
        ] {
            settings.set(name, value).unwrap();
        }
        settings
    }

    /// The steps as text: the host's name for an attempt at it, a dot for a rest, a bar before
    /// the next pass, an asterisk if there are more than `most`.
    fn told(settings: &Settings, walk: Walk, most: usize) -> String {
        let addresses = settings.address_list();
        let (mut text, mut last_pass, mut last) = (String::new(), 1, None);
        for (count, step) in walk.enumerate() {
            if count == most {
                text.push('*');
                break;
            }
            match step {
                Step::Rest(time) => {
                    assert_eq!(time, settings.interval);
                    text.push('.');
                }
                Step::Try { address, attempt, pass } => {
                    if pass != last_pass {
                        text.push('|');
                    }
                    let expected = match last {
                        Some((same, before)) if same == (address, pass) => before + 1,
                        _ => 1,
                    };
                    assert_eq!(attempt, expected, "{text}");
                    (last_pass, last) = (pass, Some(((address, pass), attempt)));
                    text.push_str(&addresses[address].host);
                }
            }
        }
        text
    }

    #[test]
    fn the_list_is_walked_in_its_order_with_a_rest_between_any_two_attempts() {
        // list, passes, more attempts, interval: what is done, at most fifteen steps of it.
        for (list, passes, attempts, interval, expected) in [
            ("a", "1", "0", "3000", "a"),
            ("a", "3", "0", "3000", "a.|a.|a"),
            ("a", "1", "2", "3000", "a.a.a"),
            ("a,b,c", "1", "0", "3000", "a.b.c"),
            ("a,b", "2", "0", "3000", "a.b.|a.b"),
            ("a,b", "2", "1", "3000", "a.a.b.b.|a.a.b.b"),
            ("a,b", "2", "1", "0", "aabb|aabb"),
            ("a,b", "0", "0", "1", "a.b.|a.b.|a.b.|a.b*"),
            ("a,b", "-1", "0", "1", "a.b.|a.b.|a.b.|a.b*"),
            ("a,b", "-1", "1", "0", "aabb|aabb|aabb|aab*"),
            ("a,b", "2", "-1", "1", "a.a.a.a.a.a.a.a*"),
            ("a,b", "2", "-1", "0", "aaaaaaaaaaaaaaa*"),
        ] {
            let settings = settings([list, "PRIORITY", passes, attempts, interval]);
            let steps = told(&settings, Walk::new(&settings, 7), 15);
            assert_eq!(steps, expected, "{list} × {passes}, {attempts} more, {interval} ms");
        }
    }

    #[test]
    fn without_settings_the_broker_on_this_machine_is_tried_five_times() {
        let settings = Settings::default();
        let steps = told(&settings, Walk::new(&settings, 7), 100);
        assert_eq!(steps, "localhost.|localhost.|localhost.|localhost.|localhost");
    }

    #[test]
    fn a_lost_connection_is_sought_where_it_was_after_a_rest() {
        for (list, passes, attempts, interval, lost, expected) in [
            ("a", "1", "0", "3000", 0, ".a"),
            ("a", "2", "1", "3000", 0, ".a.a.|a.a"),
            ("a,b,c", "1", "0", "3000", 0, ".a.b.c"),
            ("a,b,c", "2", "0", "3000", 1, ".b.a.c.|b.a.c"),
            ("a,b,c", "1", "1", "3000", 2, ".c.c.a.a.b.b"),
            ("a,b,c", "1", "0", "0", 2, "cab"),
            ("a,b,c", "1", "-1", "1", 1, ".b.b.b.b.b.b*"),
            // The list is another one by now.
            ("a,b,c", "1", "0", "1", 3, ".a.b.c"),
        ] {
            let settings = settings([list, "PRIORITY", passes, attempts, interval]);
            let steps = told(&settings, Walk::again(&settings, 7, lost), 12);
            assert_eq!(steps, expected, "{list} from {lost} × {passes}, {attempts} more");
        }
    }

    #[test]
    fn a_random_walk_takes_every_order_and_keeps_it_in_all_passes() {
        let settings = settings(["a,b,c", "RANDOM", "2", "0", "0"]);
        let mut firsts = std::collections::BTreeMap::new();
        for random in 0..600 {
            let steps = told(&settings, Walk::new(&settings, random), 100);
            let (first, second) = steps.split_once('|').unwrap();
            assert_eq!(first, second);
            *firsts.entry(first.to_owned()).or_insert(0) += 1;
        }
        let orders: Vec<_> = firsts.keys().map(String::as_str).collect();
        assert_eq!(orders, ["abc", "acb", "bac", "bca", "cab", "cba"]);
        assert!(firsts.values().all(|&count| (60..140).contains(&count)), "{firsts:?}");
        for random in 0..20 {
            let steps = told(&settings, Walk::again(&settings, random, 1), 3);
            assert!(steps.starts_with('b'), "{steps}");
        }
    }

    #[test]
    fn what_this_build_lacks_is_tried_once_and_never_waited_for() {
        for (list, passes, attempts, expected) in [
            ("mqssl://x:1", "5", "3", "x"),
            ("mqssl://x:1,https://y/imq/tunnel", "-1", "-1", "xy"),
            ("mqssl://x:1,a", "2", "1", "xa.a.|a.a"),
            ("a,mqws://x,b", "2", "0", "ax.b.|a.b"),
            ("a,mqws://x", "2", "0", "ax.|a"),
        ] {
            let settings = settings([list, "PRIORITY", passes, attempts, "3000"]);
            let mut walk = Walk::new(&settings, 7);
            let steps = told(&settings, walk, 20);
            assert_eq!(steps, expected, "{list} × {passes}, {attempts} more");
            walk = Walk::new(&settings, 7);
            while walk.next().is_some() {}
            assert_eq!((walk.next(), walk.next()), (None, None));
        }
    }
}
