//! Values of settings as text: one way to read each kind, wherever it comes from.
//!
//! Blanks around a value are gone when it gets here. `None` is a value that is not allowed.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    str::FromStr,
    time::Duration,
};

use crate::flow::Credit;

/// What a switch takes.
pub(super) const SWITCH: &str = "true or false";

/// What a limit of messages takes.
pub(super) const COUNT: &str = "a number from 1 on, or -1 for no limit";

/// What a limit of bytes takes.
pub(super) const SIZE: &str = "a size from 1 on, such as 10m, or -1 for no limit";

/// Puts a value in if there is one.
pub(super) fn set<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

/// An address. A name is looked up once, here; the first address counts.
pub(super) fn address(value: &str) -> Option<SocketAddr> {
    value.parse().ok().or_else(|| value.to_socket_addrs().ok()?.next())
}

/// A number in a range.
pub(super) fn within<T: FromStr + PartialOrd>(value: &str, low: T, high: T) -> Option<T> {
    value.parse().ok().filter(|number| *number >= low && *number <= high)
}

/// `true` or `false`, in any case.
pub(super) fn switch(value: &str) -> Option<bool> {
    value.to_ascii_lowercase().parse().ok()
}

/// A time of up to a day: `60`, `60s`, `60 s`.
pub(super) fn seconds(value: &str) -> Option<Duration> {
    let number = value.strip_suffix('s').unwrap_or(value).trim_end();
    within(number, 1, 86_400).map(Duration::from_secs)
}

/// A plain number.
pub(super) fn plain(value: &str) -> Option<u64> {
    value.parse().ok()
}

/// A size in bytes: `10`, `10k`, `10 m`, `10MB`.
pub(super) fn size(value: &str) -> Option<u64> {
    let lower = value.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
    let unit = lower.get(digits.len()..)?.trim_start();
    let shift = match unit {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A limit from 1 on; −1 is none, `u64::MAX`.
pub(super) fn limit(value: &str, read: fn(&str) -> Option<u64>) -> Option<u64> {
    if value == "-1" { Some(u64::MAX) } else { read(value).filter(|&number| number > 0) }
}

/// How many of something there may be, from `low` to what the wire can say; −1 is no limit,
/// `u32::MAX`.
pub(super) fn heads(value: &str, low: i32) -> Option<u32> {
    match within(value, -1, i32::MAX)? {
        -1 => Some(u32::MAX),
        number => u32::try_from(number).ok().filter(|_| number >= low),
    }
}

/// A prefetch; 0 and −1 are no limit.
pub(super) fn credit(value: &str) -> Option<Credit> {
    match within(value, -1, 1_000_000)? {
        -1 | 0 => Some(Credit::Unlimited),
        limited => u32::try_from(limited).ok().map(Credit::Limited),
    }
}
