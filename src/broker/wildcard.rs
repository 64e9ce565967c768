//! Names of topics that stand for many.
//!
//! A name's elements are separated by dots.
//!
//! | in a pattern | stands for |
//! | --- | --- |
//! | `*` | one element of letters, digits, `$` and `_` |
//! | `**` | one or more characters that are not blank, dots too |
//! | `a>` | `a` itself, and `a.` with anything behind it |
//! | `*>` | what `*` stands for, then a dot and anything |
//! | `>` alone | every topic |
//!
//! `*` and `**` are whole elements, `>` ends a pattern, and no element is empty.
//!
//! # Source
//! The wire protocol: topic wildcards.

use crate::wire::Status;

/// What a name is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NameKind {
    /// The name of one destination.
    Plain,
    /// A name for many topics.
    Pattern(Pattern),
}

/// Says whether a name is a pattern, and reads it if so.
///
/// # Errors
/// 406 with a reason if it is one and malformed.
pub(super) fn classify(name: &str) -> Result<NameKind, (Status, String)> {
    if !name.contains(['*', '>']) {
        return Ok(NameKind::Plain);
    }
    match Pattern::parse(name) {
        Ok(pattern) => Ok(NameKind::Pattern(pattern)),
        Err(why) => Err((Status::NOT_ACCEPTABLE, format!("the wildcard name {name}: {why}"))),
    }
}

/// A name that stands for many topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    text: Box<str>,
    pieces: Box<[Piece]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// This text.
    Text(Box<str>),
    /// A word of at least one letter, digit, `$` or `_`, as long as there is.
    Word,
    /// At least one character that is not blank; as many as need be.
    Many,
    /// The end, or a dot and anything.
    EndOrMore,
    /// A dot and anything.
    More,
    /// Anything.
    Anything,
}

impl Pattern {
    fn parse(name: &str) -> Result<Self, &'static str> {
        let done = |pieces: Vec<Piece>| Self { text: name.into(), pieces: pieces.into() };
        if name == ">" {
            return Ok(done(vec![Piece::Anything]));
        }
        let (elements, is_open) = match name.strip_suffix('>') {
            Some(elements) => (elements, true),
            None => (name, false),
        };
        if elements.contains('>') {
            return Err("'>' stands at the end only");
        }
        let mut pieces = Vec::new();
        let mut ends_with_text = false;
        for element in elements.split('.') {
            if !pieces.is_empty() {
                pieces.push(Piece::Text(".".into()));
            }
            pieces.push(match element {
                "" => return Err("an element is empty"),
                "*" => Piece::Word,
                "**" => Piece::Many,
                text if text.contains('*') => return Err("'*' and '**' are whole elements"),
                text => Piece::Text(text.into()),
            });
            ends_with_text = !element.contains('*');
        }
        if is_open {
            pieces.push(if ends_with_text { Piece::EndOrMore } else { Piece::More });
        }
        Ok(done(pieces))
    }

    /// The name as it was given.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it stands for this topic. Allocates nothing; takes at most the product of both
    /// lengths in steps.
    pub(super) fn matches(&self, topic: &str) -> bool {
        // Where the pieces behind the last `Many` begin, and where that may begin to end. It is
        // enough to try again from there: what stands before it matches at its first place, and a
        // later place would leave the rest of the pattern less to match.
        let mut retry: Option<(usize, &str)> = None;
        let (mut at, mut rest) = (0, topic);
        loop {
            match self.pieces.get(at) {
                Some(Piece::Many) => {
                    let Some(shorter) = skip_visible(rest) else { return false };
                    (at, rest) = (at + 1, shorter);
                    retry = Some((at, rest));
                    continue;
                }
                Some(piece) => {
                    if let Some(left) = piece.strip(rest) {
                        (at, rest) = (at + 1, left);
                        continue;
                    }
                }
                None if rest.is_empty() => return true,
                None => {}
            }
            // Does not fit: let the last `Many` have one character more.
            let Some((behind, from)) = retry else { return false };
            let Some(shorter) = skip_visible(from) else { return false };
            (at, rest) = (behind, shorter);
            retry = Some((behind, shorter));
        }
    }
}

impl Piece {
    /// What is left of the text behind this piece; `None` if it does not begin with it.
    fn strip<'a>(&self, text: &'a str) -> Option<&'a str> {
        match self {
            Self::Text(own) => text.strip_prefix(&**own),
            Self::Word => {
                let left = text.trim_start_matches(is_word);
                (left.len() < text.len()).then_some(left)
            }
            Self::EndOrMore => (text.is_empty() || text.starts_with('.')).then_some(""),
            Self::More => text.starts_with('.').then_some(""),
            Self::Anything => Some(""),
            // Its length depends on what follows.
            Self::Many => skip_visible(text),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '$' || c == '_'
}

/// The text without its first character, if that is not blank.
fn skip_visible(text: &str) -> Option<&str> {
    let mut characters = text.chars();
    let first = characters.next()?;
    (!first.is_whitespace()).then_some(characters.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop_assert_eq, proptest};

    use super::{NameKind, Pattern, Piece, classify, is_word};
    use crate::wire::Status;

    fn pattern(text: &str) -> Pattern {
        match classify(text) {
            Ok(NameKind::Pattern(pattern)) => pattern,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn patterns_match_what_the_reference_matched() {
        let all = ["a>", "**", ">", "a.**", "a.*>", "a.**.b", "x.*.y"];
        for (topic, wanted) in [
            ("a", &["a>", "**", ">"][..]),
            ("a.b", &["a>", "**", ">", "a.**"]),
            ("a.b.c", &["a>", "**", ">", "a.**", "a.*>"]),
            ("a.b.b", &["a>", "**", ">", "a.**", "a.*>", "a.**.b"]),
            ("ab", &["**", ">"]),
            ("x.1.y", &["**", ">", "x.*.y"]),
            ("x.a-b.y", &["**", ">"]),
        ] {
            let found: Vec<&str> =
                all.into_iter().filter(|text| pattern(text).matches(topic)).collect();
            assert_eq!(found, wanted, "{topic}");
        }
    }

    #[test]
    fn elements_hold_what_they_stand_for() {
        for (text, topic, wanted) in [
            ("*", "a_$1", true),
            ("*", "a.b", false),
            ("*", "", false),
            ("*.b", "a.b", true),
            ("*.b", "a.bc", false),
            ("*.*", "a.b", true),
            ("**", "a b", false),
            ("**.b", "a.b.b", true),
            ("**.b", "b", false),
            ("**.b.**", "a.b.b.c", true),
            ("**.b.**.d", "a.b.c.b.d", true),
            ("**.b>", "a.b", true),
            ("**.b>", "a.bc", false),
            ("**.b>", "a.bc.b.c", true),
            ("**>", "a", false),
            ("**>", "a.b", true),
            ("*>", "a", false),
            ("*>", "a.b c", true),
            ("a b.*", "a b.c", true),
            (">", "a b", true),
            ("å.*", "å.ø", true),
        ] {
            assert_eq!(pattern(text).matches(topic), wanted, "{text} on {topic}");
        }
        assert_eq!(pattern("a.*>").text(), "a.*>");
    }

    #[test]
    fn a_malformed_pattern_is_refused() {
        let bad = [
            "a*", "*a", "a.>", "a..*", ".*", "*.", "***", "a>b", "a.b>.c", "a>>", ">>", ">.a",
            "*a*", ".>",
        ];
        for text in bad {
            let (status, reason) = classify(text).unwrap_err();
            assert_eq!(status, Status::NOT_ACCEPTABLE);
            assert!(reason.contains(text), "{reason}");
        }
    }

    #[test]
    fn other_names_are_plain_whatever_they_hold() {
        for text in ["a", "a b", "a..b", ".", "", "a-b.c"] {
            assert_eq!(classify(text), Ok(NameKind::Plain));
        }
    }

    /// The definition, tried out.
    fn slowly(pieces: &[Piece], topic: &[char]) -> bool {
        let Some((piece, others)) = pieces.split_first() else { return topic.is_empty() };
        (0..=topic.len()).any(|len| {
            let (own, rest) = topic.split_at(len);
            let fits = match piece {
                Piece::Text(text) => own.iter().collect::<String>() == **text,
                Piece::Word => !own.is_empty() && own.iter().copied().all(is_word),
                Piece::Many => !own.is_empty() && !own.iter().any(|c| c.is_whitespace()),
                Piece::EndOrMore => own.first().is_none_or(|&first| first == '.'),
                Piece::More => own.first() == Some(&'.'),
                Piece::Anything => true,
            };
            fits && slowly(others, rest)
        })
    }

    fn patterns() -> impl Strategy<Value = String> {
        proptest::collection::vec("a|b|ab|a b|\\*|\\*\\*", 1..6)
            .prop_map(|elements| elements.join("."))
    }

    proptest! {
        #[test]
        fn matching_is_what_the_definition_says(
            closed in patterns(),
            topic in "(a|b|ab|a b|-|\\.){0,9}",
        ) {
            let characters: Vec<char> = topic.chars().collect();
            for text in [format!("{closed}>"), closed] {
                let Ok(NameKind::Pattern(pattern)) = classify(&text) else { continue };
                let wanted = slowly(&pattern.pieces, &characters);
                prop_assert_eq!(pattern.matches(&topic), wanted, "{} on {}", text, topic);
            }
        }
    }
}
