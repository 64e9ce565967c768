//! Selectors that are refused, with what is said about them; and the longest, deepest and nastiest
//! ones, which are refused or work, but cost neither the stack nor the time of anybody else.
#![cfg(feature = "broker")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test ends where it fails")]

mod selector_support;

use std::{
    thread,
    time::{Duration, Instant},
};

use selector_support::{DIALECTS, parse, with};
use tidegate::selector::{
    Dialect, Selector, SelectorError,
    limits::{DEPTH_MAX, NAMES_MAX, TEXT_BYTES_MAX},
};

#[test]
fn samples_that_are_wrong_for_every_message_are_refused() {
    for dialect in DIALECTS {
        let refused = |text| Selector::parse(text, dialect).unwrap_err().to_string();
        assert_eq!(
            refused("n IN (42)"),
            "column 7: the number 42 found; allowed here: a string in single quotes or `)`"
        );
        assert_eq!(refused("name < 'b'"), "column 6: `<` needs numbers, not a string");
        assert_eq!(
            refused("name = NULL"),
            "column 8: NULL is no value; ask with IS NULL or IS NOT NULL"
        );
    }
}

#[test]
fn a_refusal_names_the_place_what_is_there_and_what_could_be() {
    let value = "a value (a name, a string, a number, TRUE, FALSE, NOT, a sign or `(`)";
    let number = "a number (a name, a literal, a sign or `(`)";
    let table = [
        ("", 1, "the end", value),
        ("n = = 1", 5, "`=`", value),
        ("a AND", 6, "the end", value),
        ("AND a", 1, "AND", value),
        ("()", 2, "`)`", value),
        ("ü = 'ü' ö", 9, "the name `ö`", "an operator or the end"),
        ("(a b", 4, "the name `b`", "an operator or `)`"),
        ("name = 'it's'", 12, "the name `s`", "an operator or the end"),
        ("a NOT NULL", 7, "NULL", "IN, LIKE or BETWEEN after NOT"),
        ("a IS 1.5", 6, "the number 1.5", "NULL or NOT NULL"),
        ("a IS NOT 'x'", 10, "the string 'x'", "NULL"),
        ("a IN 'x'", 6, "the string 'x'", "`(` and a list of strings after IN"),
        ("a IN ('x',)", 11, "`)`", "a string in single quotes"),
        ("a IN (b)", 7, "the name `b`", "a string in single quotes or `)`"),
        ("a LIKE b", 8, "the name `b`", "a string in single quotes"),
        ("a LIKE 'x' ESCAPE 1", 19, "the number 1", "a string in single quotes"),
        ("a ESCAPE 'x'", 3, "ESCAPE", "an operator or the end"),
        ("a BETWEEN 1 OR 2", 13, "OR", "the AND that belongs to BETWEEN"),
        ("(a BETWEEN 1) AND 2", 13, "`)`", "the AND that belongs to BETWEEN"),
        ("a BETWEEN b = 1 AND 2", 13, "`=`", "the AND that belongs to BETWEEN"),
        ("a BETWEEN 1 AND NOT 2", 17, "NOT", number),
        ("a < NOT b", 5, "NOT", number),
        ("a , b", 3, "`,`", "an operator or the end"),
    ];
    for (text, column, found, allowed) in table {
        let refused = Selector::parse(text, Dialect::Jms).unwrap_err();
        let expected = SelectorError::Unexpected { column, found: found.to_owned(), allowed };
        assert_eq!(refused, expected, "{text}");
        let told = format!("column {column}: {found} found; allowed here: {allowed}");
        assert_eq!(refused.to_string(), told);
        assert_eq!(refused.column(), Some(column));
    }
    let long = format!("a '{}", "it's\n".repeat(50));
    let refused = Selector::parse(&long, Dialect::Jms).unwrap_err().to_string();
    assert_eq!(refused, "column 3: the string 'it' found; allowed here: an operator or the end");
    let long = format!("a {}", "ü".repeat(50));
    let refused = Selector::parse(&long, Dialect::Jms).unwrap_err().to_string();
    assert!(refused.contains(&format!("the name `{}…` found", "ü".repeat(40))), "{refused}");
}

#[test]
fn a_refusal_of_a_literal_or_sign_says_what_would_be_right() {
    let table = [
        ("n == 1", "column 3: at `=`: `==` is no operator, equal is `=`"),
        ("n != 1", "column 3: at `!`: `!` is no operator, not equal is `<>`"),
        ("s = \"x\"", "column 5: at `\"`: strings stand between single quotes, names without any"),
        (
            "a.b = 1",
            "column 2: at `.`: names have no full stop in them, and a number needs a digit before \
             or after it",
        ),
        (
            "a\u{A0}= 1",
            "column 2: at `\\u{a0}`: no part of a selector; names are letters, digits, `_` and `$`",
        ),
        ("NOT NOT a", "column 5: NOT twice in a row; put the second one in parentheses"),
        ("- - a = 1", "column 3: `-` twice in a row; put the second one in parentheses"),
        ("+ + 1 = 1", "column 3: `+` twice in a row; put the second one in parentheses"),
        ("(a = 1", "column 1: `(` is never closed; a `)` is missing"),
        ("a = 1)", "column 6: `)` without a `(` before it"),
        ("s = 'abc", "column 5: this string never ends (a quote inside a string is written twice)"),
        ("a LIKE 'x' ESCAPE ''", "column 12: ESCAPE needs a character, not an empty string"),
        ("n = 42x", "column 7: at `x`: a number has to end before this"),
        ("n = 1.2.3", "column 8: at `.`: a number has to end before this"),
        ("n = 1.5L", "column 8: at `L`: a number has to end before this"),
        ("n = 0x", "column 7: at the end: after 0x stand hexadecimal digits"),
        ("n = 1e", "column 7: at the end: an exponent is digits, perhaps after a sign"),
        (
            "n = 08",
            "column 5: this number begins with 0, so it is octal and has digits from 0 to 7 only",
        ),
        ("n = 1e999", "column 5: this number is beyond the range of a double"),
        (
            "n = 9223372036854775808",
            "column 5: this integer is above 9223372036854775807, the highest there is",
        ),
        (
            "n = 0xFFFFFFFFFFFFFFFFFF",
            "column 5: this integer is above 9223372036854775807, the highest there is",
        ),
        (
            "n = -9223372036854775809",
            "column 5: this integer is below -9223372036854775808, the lowest there is",
        ),
    ];
    for (text, expected) in table {
        let refused = Selector::parse(text, Dialect::Jms).unwrap_err();
        assert_eq!(refused.to_string(), expected, "{text}");
        let column = format!("column {}: ", refused.column().unwrap());
        assert!(expected.starts_with(&column), "{text}");
    }
}

#[test]
fn type_errors_between_literals_are_refused_wherever_they_stand() {
    let table = [
        ("'x' < 'y'", "column 5: `<` needs numbers, not a string"),
        ("1 = 'x'", "column 3: `=` needs a number on both sides, not a string"),
        ("TRUE <> 1", "column 6: `<>` needs a number on both sides, not a condition"),
        ("1 + 1", "column 1: a selector is a condition, and this is a number"),
        ("'x'", "column 1: a selector is a condition, and this is a string"),
        ("NOT 1", "column 1: NOT needs conditions, not a number"),
        ("a AND 'x'", "column 3: AND needs conditions, not a string"),
        ("1 OR b", "column 3: OR needs conditions, not a number"),
        ("-'x' = 1", "column 1: `-` needs numbers, not a string"),
        ("+TRUE = 1", "column 1: `+` needs numbers, not a condition"),
        ("a * 'x' = 1", "column 3: `*` needs numbers, not a string"),
        ("1 / 0 = 1", "column 3: an integer is divided by zero"),
        ("a BETWEEN 'a' AND 2", "column 3: BETWEEN needs numbers, not a string"),
        ("1 LIKE 'x'", "column 3: LIKE needs strings, not a number"),
        ("TRUE NOT IN ('x')", "column 10: IN needs strings, not a condition"),
        ("1 < 2 < 3", "column 7: `<` needs numbers, not a condition"),
        ("TRUE OR 'x' < 'y'", "column 13: `<` needs numbers, not a string"),
        ("a = 1 AND FALSE AND 'x' > 1", "column 25: `>` needs numbers, not a string"),
    ];
    for dialect in DIALECTS {
        for (text, expected) in table {
            let refused = Selector::parse(text, dialect).unwrap_err();
            assert!(matches!(refused, SelectorError::Mistyped { .. }), "{text}");
            assert_eq!(refused.to_string(), expected, "{text}");
        }
        for text in ["'x' = TRUE", "a + 1", "a LIKE ''", "a / 0 = 1", "a < b AND a = 'x'", "a"] {
            parse(text, dialect);
        }
    }
}

#[test]
fn nesting_works_to_a_depth_and_is_refused_beyond_it() {
    let nested = |n: usize| format!("{}TRUE{}", "(".repeat(n), ")".repeat(n));
    let message = with(&[]);
    for dialect in DIALECTS {
        for n in [10, 100, DEPTH_MAX] {
            assert!(parse(&nested(n), dialect).matches(&message), "{n}");
        }
        for n in [DEPTH_MAX + 1, 1_000, 20_000] {
            let refused = Selector::parse(&nested(n), dialect).unwrap_err();
            assert_eq!(refused, SelectorError::TooDeep { column: DEPTH_MAX + 1 });
        }
    }
}

#[test]
fn the_deepest_selector_has_room_for_all_the_values_that_wait() {
    let message = with(&[("a", 1_i32.into())]);
    // What is open at a level, how many operators and parentheses that is, and the innermost value.
    let table = [
        ("0 + 1 * (", 3, "a = 1"),
        ("TRUE = (", 2, "a = 1"),
        ("FALSE OR TRUE AND TRUE = (", 4, "a = 1"),
        ("1 BETWEEN 1 AND (", 2, "a"),
        ("1 BETWEEN 1 AND (", 2, "1 BETWEEN 1 AND a"),
        ("1 BETWEEN 1 AND (", 2, "1 BETWEEN 1 AND 0 + a"),
        ("FALSE OR TRUE AND TRUE = 0 < 1 BETWEEN 1 AND 0 + 1 * (", 8, "a"),
    ];
    for (open, each, innermost) in table {
        let nested = |levels| format!("{}{innermost}{}", open.repeat(levels), ")".repeat(levels));
        let refused = (1..).find(|&levels| {
            match Selector::parse(&nested(levels), Dialect::Jms) {
                Ok(selector) => {
                    // Whatever it comes to: it is of the wrong type on some level.
                    let _ = selector.matches(&message);
                    false
                }
                Err(SelectorError::TooDeep { .. }) => true,
                Err(error) => panic!("{}: {error}", nested(levels)),
            }
        });
        let levels = refused.unwrap();
        assert!(levels.abs_diff(DEPTH_MAX / each) <= 1, "{open}: {levels}");
    }
}

/// What texts that are as long or as deep as can be come to: refused, or whether they match.
fn extremes() -> Vec<(&'static str, String, Option<bool>)> {
    let many = 20_000;
    let literal = "x".repeat(60_000);
    let names: String = (0..=NAMES_MAX).map(|n| format!("n{n} = 1 OR ")).collect();
    vec![
        ("parentheses", "(".repeat(many), None),
        ("NOT (", "NOT (".repeat(13_000), None),
        ("minus", "-(".repeat(many) + "1", None),
        ("OR", "a=1 OR ".repeat(9_000) + "TRUE", Some(false)),
        ("OR without mistakes", "z=1 OR ".repeat(9_000) + "TRUE", Some(true)),
        ("more OR than fit", "a=1 OR ".repeat(many) + "TRUE", None),
        ("AND", "z AND ".repeat(10_000) + "TRUE", Some(false)),
        ("sum", format!("{}1={many}", "1+".repeat(many - 1)), Some(true)),
        ("comparisons", "z=".repeat(many) + "TRUE", Some(false)),
        ("questions", "a".to_owned() + &" IS NULL".repeat(5_000), Some(false)),
        ("literal", format!("a <> '{literal}'"), Some(true)),
        ("pattern", format!("a LIKE '{literal}'"), Some(false)),
        ("wildcards", format!("a LIKE '{}'", "%_".repeat(30_000)), Some(false)),
        ("list", format!("a NOT IN ({})", "'x',".repeat(10_000) + "''"), Some(true)),
        ("digits", format!("1 < 1{}.0", "0".repeat(300)), Some(true)),
        ("more digits", format!("1 < {}", "9".repeat(60_000)), None),
        ("name", format!("{} IS NULL", "n".repeat(60_000)), Some(true)),
        ("names", names + "TRUE", None),
        ("quotes", "'".repeat(60_000) + "= a", Some(false)),
        ("an odd number of quotes", "'".repeat(60_001) + "= a", None),
        ("blanks", " ".repeat(65_000) + "TRUE", Some(true)),
    ]
}

#[test]
fn the_longest_and_deepest_selectors_take_little_stack_and_little_time() {
    let message = with(&[("a", "text".into())]);
    let work = move || {
        for (what, text, expected) in extremes() {
            let started = Instant::now();
            let parsed = Selector::parse(&text, Dialect::Jms);
            let matched = parsed.as_ref().map(|selector| selector.matches(&message)).ok();
            let told = parsed.as_ref().err().map(ToString::to_string).unwrap_or_default();
            assert!(told.len() < 200, "{what}: {told}");
            assert_eq!(matched, expected, "{what}: {told}");
            drop(parsed);
            // It takes milliseconds; the rest is for a machine with other things to do.
            let taken = started.elapsed();
            assert!(taken < Duration::from_secs(1), "{what}: {taken:?}");
        }
    };
    let small = thread::Builder::new().stack_size(256 * 1024).spawn(work).unwrap();
    small.join().unwrap();
}

#[test]
fn strings_made_to_take_forever_are_given_up_and_do_not_match() {
    let long = "a".repeat(65_000);
    // Not plain UTF-8, so it is compared character by character.
    let java = "a".repeat(64_000) + "\0";
    let message = with(&[("s", long.into()), ("j", java.clone().into()), ("k", java.into())]);
    for text in [
        format!("s NOT LIKE '%{}b'", "a".repeat(30_000)),
        "s NOT LIKE '%ab%' AND ".repeat(2_900) + "TRUE",
        "j <> k OR ".repeat(6_000) + "TRUE",
    ] {
        let selector = parse(&text, Dialect::Jms);
        let started = Instant::now();
        assert!(!selector.matches(&message), "{text:.40}");
        let taken = started.elapsed();
        assert!(taken < Duration::from_secs(5), "{text:.40}: {taken:?}");
    }
    // What is sensible is not.
    for text in ["s LIKE '%a%a%a%'", "s NOT LIKE '%b%'", "j = k AND j <> s AND s NOT LIKE '%ab%'"] {
        assert!(parse(text, Dialect::Jms).matches(&message), "{text}");
    }
}

#[test]
fn limits_are_told_with_the_refusal() {
    let refused = |text: &str| Selector::parse(text, Dialect::Jms).unwrap_err().to_string();
    assert_eq!(
        refused(&"x".repeat(TEXT_BYTES_MAX + 1)),
        "selector of 65536 bytes; at most 65535 are read"
    );
    assert_eq!(
        refused(&"NOT (".repeat(1_000)),
        "column 641: nested too deeply; at most 256 parentheses and unfinished operators may be \
         open at once"
    );
    let names: String = (0..=NAMES_MAX).map(|n| format!("n{n} = 1 OR ")).collect();
    let column = names.len() + 1 - "n128 = 1 OR ".len();
    assert_eq!(
        refused(&format!("{names}TRUE")),
        format!("column {column}: too many different names; at most 128 are looked up")
    );
    // The same name again is no other one.
    let fitting = names.replace(&format!("n{NAMES_MAX} "), "n0 ") + "n1 IS NULL";
    let selector = parse(&fitting, Dialect::Jms);
    assert_eq!(selector.text(), fitting);
    assert!(selector.matches(&with(&[])));
    assert!(!selector.matches(&with(&[("n1", 2_i32.into())])));
    assert!(selector.matches(&with(&[("n1", 2_i32.into()), ("n127", 1_i32.into())])));
}
