//! Which names are Java identifiers, and which the selector language keeps for itself.
//!
//! The standard library knows alphabetic and numeric characters but not every category Java asks
//! for. Letters, digits and marks agree; the currency signs and connectors are listed here.
//! Characters that Java ignores inside identifiers (controls, formatting) are refused.

/// The words a selector uses itself, in any case of letters.
const RESERVED: [&str; 11] =
    ["NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE", "NULL", "TRUE", "FALSE"];

/// Whether an identifier may begin with `c`.
pub(crate) fn is_start(c: char) -> bool {
    c.is_alphabetic() || is_currency(c) || is_connector(c)
}

/// Whether an identifier may go on with `c`.
pub(crate) fn is_part(c: char) -> bool {
    is_start(c) || c.is_numeric() || is_mark(c)
}

/// Whether `name` is an identifier as a whole.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(is_start) && chars.all(is_part)
}

/// Whether `name` is a word of the selector language.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|word| word.eq_ignore_ascii_case(name))
}

const fn is_currency(c: char) -> bool {
    matches!(c, '$' | '\u{A2}'..='\u{A5}' | '\u{58F}' | '\u{60B}' | '\u{9F2}' | '\u{9F3}'
        | '\u{E3F}' | '\u{20A0}'..='\u{20C0}' | '\u{FDFC}' | '\u{FE69}' | '\u{FF04}'
        | '\u{FFE0}' | '\u{FFE1}' | '\u{FFE5}' | '\u{FFE6}')
}

const fn is_connector(c: char) -> bool {
    matches!(
        c,
        '_' | '\u{203F}' | '\u{2040}' | '\u{2054}' | '\u{FE33}' | '\u{FE34}' | '\u{FE4D}'
            ..='\u{FE4F}' | '\u{FF3F}'
    )
}

/// Combining marks that are not alphabetic by themselves.
const fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36F}' | '\u{1AB0}'..='\u{1AFF}' | '\u{1DC0}'..='\u{1DFF}'
        | '\u{20D0}'..='\u{20DC}' | '\u{20E1}' | '\u{20E5}'..='\u{20F0}' | '\u{FE20}'..='\u{FE2F}')
}

#[cfg(test)]
mod tests {
    use super::{is_identifier, is_reserved};

    #[test]
    fn identifiers_are_told_from_other_names() {
        for good in ["a", "_x", "$1", "größe", "名前", "JMS_SUN_COMPRESS", "a9", "€x"] {
            assert!(is_identifier(good), "{good}");
        }
        for bad in ["", "1a", "a.b", "a b", "a-b", "a\0", "a'", "."] {
            assert!(!is_identifier(bad), "{bad:?}");
        }
    }

    #[test]
    fn selector_words_are_reserved_in_any_case() {
        for word in ["NULL", "null", "Between", "eScApE"] {
            assert!(is_reserved(word), "{word}");
        }
        assert!(!is_reserved("nulls"));
    }
}
