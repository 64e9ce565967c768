//! The patterns of LIKE.

use super::{
    Dialect,
    value::{Effort, Fault},
};
use crate::wire::RawText;

/// A pattern, taken apart.
#[derive(Debug)]
pub(super) struct Pattern {
    parts: Box<[Part]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// This character.
    One(char),
    /// `_`: any one character.
    Any,
    /// `%`: any characters, or none.
    Many,
}

impl Part {
    fn takes(self, c: char) -> bool {
        match self {
            Self::One(wanted) => wanted == c,
            Self::Any => true,
            Self::Many => false,
        }
    }
}

impl Pattern {
    pub(super) fn new(text: &str, escape: Option<char>, dialect: Dialect) -> Self {
        let mut parts = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            // An escape character before anything else stands for itself.
            let escaped = Some(c) == escape
                && chars.peek().is_some_and(|&next| {
                    matches!(next, '%' | '_') || Some(next) == escape && dialect == Dialect::Jms
                });
            let part = match c {
                _ if escaped => Part::One(chars.next().unwrap_or(c)),
                '_' => Part::Any,
                '%' => Part::Many,
                c => Part::One(c),
            };
            // `%%` is the same as `%`.
            if part != Part::Many || parts.last() != Some(&Part::Many) {
                parts.push(part);
            }
        }
        Self { parts: parts.into() }
    }

    pub(super) fn starts_with_many(&self) -> bool {
        self.parts.first() == Some(&Part::Many)
    }

    /// Whether the whole text is like this.
    ///
    /// # Errors
    /// [`Fault::Effort`] if it takes too many comparisons of characters to find out.
    pub(super) fn matches(&self, text: RawText<'_>, effort: &mut Effort) -> Result<bool, Fault> {
        let mut rest = text.chars();
        let mut at = 0;
        // The part after the last `%` passed, and the text that it was tried on.
        let mut retry = None;
        loop {
            effort.spend(1)?;
            let part = self.parts.get(at);
            if part == Some(&Part::Many) {
                at += 1;
                if at == self.parts.len() {
                    return Ok(true);
                }
                retry = Some((at, rest.clone()));
                continue;
            }
            let mut ahead = rest.clone();
            match (part, ahead.next()) {
                (None, None) => return Ok(true),
                (Some(part), Some(c)) if part.takes(c) => {
                    rest = ahead;
                    at += 1;
                }
                // The text is used up; a `%` that takes more of it only leaves less.
                (Some(_), None) => return Ok(false),
                _ => {
                    let Some((first, from)) = &mut retry else { return Ok(false) };
                    from.next();
                    at = *first;
                    rest = from.clone();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;
    use crate::{
        selector::{
            Dialect,
            value::{Effort, Fault},
        },
        wire::RawText,
    };

    #[track_caller]
    fn like(text: &str, pattern: &str, escape: Option<char>, dialect: Dialect) -> bool {
        let pattern = Pattern::new(pattern, escape, dialect);
        pattern.matches(RawText::Plain(text), &mut Effort::new()).unwrap()
    }

    #[test]
    fn wildcards_take_what_they_should_and_no_more() {
        let plain = |text, pattern| like(text, pattern, None, Dialect::Jms);
        for (text, pattern) in [
            ("", ""),
            ("", "%"),
            ("", "%%"),
            ("abc", "abc"),
            ("abc", "a_c"),
            ("abc", "%"),
            ("abc", "%c"),
            ("abc", "a%"),
            ("abc", "%b%"),
            ("abc", "a%b%c%"),
            ("aab", "%ab"),
            ("abab", "%ab"),
            ("ababc", "%ab_"),
            ("mississippi", "%iss%ip%i"),
            ("line1\nline2", "line1_line2"),
            ("😀", "_"),
            ("a😀é", "a__"),
            (".*[x]", ".*[x]"),
            ("\\", "\\"),
        ] {
            assert!(plain(text, pattern), "{text:?} {pattern:?}");
        }
        for (text, pattern) in [
            ("", "_"),
            ("a", ""),
            ("abc", "ab"),
            ("abc", "b%"),
            ("abc", "%b"),
            ("abc", "____"),
            ("ABC", "abc"),
            ("abab", "%aba"),
            ("abc", "a%bb%c"),
            ("axx", ".xx"),
        ] {
            assert!(!plain(text, pattern), "{text:?} {pattern:?}");
        }
    }

    #[test]
    fn an_escape_character_takes_the_meaning_from_what_follows() {
        for dialect in [Dialect::Jms, Dialect::Reference] {
            let like = |text, pattern| like(text, pattern, Some('!'), dialect);
            assert!(like("50%", "50!%") && !like("500", "50!%"));
            assert!(like("a_c", "a!_c") && !like("abc", "a!_c"));
            assert!(like("a!c", "a!c") && like("a!", "a!"), "an ordinary character otherwise");
        }
    }

    #[test]
    fn a_doubled_escape_character_is_itself_except_in_the_reference() {
        assert!(like("a!b", "a!!b", Some('!'), Dialect::Jms));
        assert!(!like("a!b", "a!!b", Some('!'), Dialect::Reference));
        assert!(like("a!xyz", "a!!%", Some('!'), Dialect::Jms));
        assert!(!like("a!xyz", "a!!%", Some('!'), Dialect::Reference));
    }

    #[test]
    fn a_pattern_that_would_take_forever_is_given_up() {
        let pattern = |text: &str| Pattern::new(text, None, Dialect::Jms);
        let text = "a".repeat(60_000);
        let nasty = pattern(&format!("%{}b", "a".repeat(1000)));
        let result = nasty.matches(RawText::Plain(&text), &mut Effort::new());
        assert_eq!(result, Err(Fault::Effort));
        // Long ones are not.
        for long in [text.clone(), "_".repeat(60_000), "%a".repeat(30_000)] {
            let result = pattern(&long).matches(RawText::Plain(&text), &mut Effort::new());
            assert_eq!(result, Ok(true));
        }
    }
}
