//! Settings that arrive as text or numbers, and the one way to refuse them.

use std::borrow::Cow;
use std::fmt::Display;

/// A setting was refused, before anything started with it.
///
/// Shape: the setting's name, the value as given, and what would be allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("setting {setting}: {value:?} is not allowed, it takes {allowed}")]
pub struct SettingError {
    setting: Cow<'static, str>,
    value: String,
    allowed: Cow<'static, str>,
}

impl SettingError {
    /// A refusal of `value` for `setting`, which takes `allowed` ("0 to 100", "true or false").
    pub fn new(
        setting: impl Into<Cow<'static, str>>,
        value: impl Display,
        allowed: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { setting: setting.into(), value: value.to_string(), allowed: allowed.into() }
    }

    /// Name of the setting.
    #[must_use]
    pub fn setting(&self) -> &str {
        &self.setting
    }

    /// The value that was refused.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What the setting takes: a range, or a list of words.
    #[must_use]
    pub fn allowed(&self) -> &str {
        &self.allowed
    }
}

/// `value` as a number from `least` to `most`.
pub(crate) fn in_range<N>(
    setting: &'static str,
    value: N,
    least: N,
    most: N,
) -> Result<N, SettingError>
where
    N: PartialOrd + Display + Copy,
{
    if least <= value && value <= most {
        Ok(value)
    } else {
        Err(SettingError::new(setting, value, format!("{least} to {most}")))
    }
}

/// The text `value` as a whole number from `least` to `most`.
pub(crate) fn number<N>(
    setting: &'static str,
    value: &str,
    least: N,
    most: N,
) -> Result<N, SettingError>
where
    N: TryFrom<i128> + Into<i128> + Copy,
{
    let (low, high): (i128, i128) = (least.into(), most.into());
    let refused = || SettingError::new(setting, value, format!("{low} to {high}"));
    let number = value.trim().parse::<i128>().map_err(|_| refused())?;
    if !(low..=high).contains(&number) {
        return Err(refused());
    }
    N::try_from(number).map_err(|_| refused())
}

/// The text `value` as a switch.
pub(crate) fn switch(setting: &'static str, value: &str) -> Result<bool, SettingError> {
    match value.trim() {
        on if on.eq_ignore_ascii_case("true") => Ok(true),
        off if off.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(SettingError::new(setting, value, "true or false")),
    }
}

/// The one of the `known` names that is most like `name`, whatever its case.
#[cfg(feature = "wire")]
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> &'a str {
    let lower: Vec<char> = name.trim().to_ascii_lowercase().chars().take(64).collect();
    let like = |known: &&'a str| distance(&lower, &known.to_ascii_lowercase());
    known.into_iter().min_by_key(like).unwrap_or_default()
}

/// How many characters must be put in, taken out or replaced to make one word of the other.
#[cfg(feature = "wire")]
fn distance(from: &[char], to: &str) -> usize {
    let mut row: Vec<usize> = (0..=from.len()).collect();
    for (at, wanted) in to.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, &have) in from.iter().enumerate() {
            let replaced = diagonal + usize::from(have != wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[from.len()]
}

#[cfg(test)]
mod tests {
    use super::{SettingError, in_range, number, switch};

    #[test]
    fn a_refusal_tells_setting_value_and_range() {
        let error = number::<u32>("size", "-1", 0, 7).unwrap_err();
        assert_eq!(error.to_string(), "setting size: \"-1\" is not allowed, it takes 0 to 7");
        assert_eq!((error.setting(), error.value(), error.allowed()), ("size", "-1", "0 to 7"));
        assert_eq!(in_range("size", 8, 0, 7), Err(SettingError::new("size", 8, "0 to 7")));
    }

    #[test]
    fn bounds_are_allowed_and_what_lies_beyond_is_not() {
        for good in ["0", " 7 "] {
            assert!(number::<u32>("size", good, 0, 7).is_ok(), "{good}");
        }
        for bad in ["8", "", "x", "1.5", "9223372036854775808", "1e3"] {
            assert!(number::<u32>("size", bad, 0, 7).is_err(), "{bad}");
        }
        assert_eq!(number::<u64>("size", "18446744073709551615", 0, u64::MAX), Ok(u64::MAX));
    }

    #[test]
    fn a_switch_takes_two_words_in_any_case() {
        assert_eq!((switch("on", "TRUE"), switch("on", " false")), (Ok(true), Ok(false)));
        assert!(switch("on", "1").is_err());
    }
}
