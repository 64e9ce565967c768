//! Selectors as users write them, against messages as they stand on the wire: what is firm, what
//! the two dialects answer differently, and what is refused.
#![cfg(feature = "broker")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use tidegate::{
    message::{DeliveryMode, Destination, Message, Origin},
    selector::{Dialect, Selector, SelectorError, limits::DEPTH_MAX},
    wire::{MessageId, Packet, Value},
};

const DIALECTS: [Dialect; 2] = [Dialect::Jms, Dialect::Reference];

fn message(properties: &[(&str, Value)]) -> Message {
    let mut message = Message::text("body");
    message.set_destination(Destination::queue("q").unwrap());
    for (name, value) in properties {
        message.set_property(*name, value.clone()).unwrap();
    }
    message
}

fn packet(message: &Message) -> Packet {
    let id = MessageId { timestamp: 1_700_000_000_000, sequence: 7, ..MessageId::default() };
    message.encode(&Origin::default()).unwrap().id(id).finish()
}

fn with(properties: &[(&str, Value)]) -> Packet {
    packet(&message(properties))
}

#[track_caller]
fn parse(text: &str, dialect: Dialect) -> Selector {
    match Selector::parse(text, dialect) {
        Ok(selector) => selector,
        Err(error) => panic!("{text}: {error}"),
    }
}

/// The names of the messages that a selector wants, with blanks between them.
#[track_caller]
fn wanted(text: &str, dialect: Dialect, messages: &[(&str, Packet)]) -> String {
    let selector = parse(text, dialect);
    let names = messages.iter().filter(|(_, packet)| selector.matches(packet));
    names.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
}

/// A table of selectors and of the messages each of them wants.
#[track_caller]
fn check(messages: &[(&str, Packet)], dialects: &[Dialect], table: &[(&str, &str)]) {
    for (text, expected) in table {
        for &dialect in dialects {
            assert_eq!(wanted(text, dialect, messages), *expected, "{dialect:?}: {text}");
        }
    }
}

/// A message without properties, one with a key, one with another; none of them has `n`.
fn with_keys() -> [(&'static str, Packet); 3] {
    [
        ("E", with(&[])),
        ("F", with(&[("key", "aValue".into())])),
        ("G", with(&[("key", "other".into())])),
    ]
}

#[test]
fn a_missing_property_is_unknown_and_unknown_never_matches() {
    check(
        &with_keys(),
        &DIALECTS,
        &[
            ("key = 'aValue'", "F"),
            ("key NOT LIKE 'aV%'", "G"),
            ("key NOT IN ('aValue')", "G"),
            ("key IS NULL", "E"),
            ("key IS NOT NULL AND key <> 'aValue'", "G"),
            ("n > 0 OR n <= 0", ""),
            ("NOT n = 1", ""),
            ("n <> 1", ""),
            ("n = 1 OR key = 'other'", "G"),
            ("n = 1 AND key = 'other'", ""),
            ("FALSE AND n = 1 OR key = 'other'", "G"),
            ("zz IN ('a')", ""),
            ("zz NOT IN ('a')", ""),
            ("zz NOT IN ()", ""),
            ("zz NOT LIKE 'a%'", ""),
            ("-zz < 1", ""),
            ("zz + 1 > 0", ""),
            ("zz", ""),
            ("NOT zz", ""),
            ("zz IS NULL AND (zz + 1) IS NULL", "E F G"),
        ],
    );
}

#[test]
fn the_dialects_differ_in_what_a_missing_property_does_to_a_negation() {
    let table = [
        ("key <> 'aValue'", "G", "E G"),
        ("NOT (key = 'aValue')", "G", "E G"),
        ("NOT (key LIKE 'aV%')", "G", "E G"),
        ("NOT (key IN ('aValue'))", "G", "E G"),
        ("n NOT BETWEEN 0 AND 5", "", "E F G"),
        ("NOT (n BETWEEN 0 AND 5)", "", "E F G"),
        ("x1 = x2", "", "E F G"),
        ("x1 <> x2", "", ""),
        ("n <> 'x'", "", "E F G"),
        ("NOT (zz LIKE 'a%')", "", "E F G"),
        ("key = zz", "", "E"),
        ("b <> TRUE", "", "E F G"),
    ];
    for (text, jms, reference) in table {
        check(&with_keys(), &[Dialect::Jms], &[(text, jms)]);
        check(&with_keys(), &[Dialect::Reference], &[(text, reference)]);
    }
}

#[test]
fn operators_bind_as_strongly_as_they_should() {
    let messages = [
        ("m1", with(&[("a", "x".into()), ("b", 1_i32.into())])),
        ("m2", with(&[("a", "y".into()), ("b", 2_i32.into())])),
        ("m3", with(&[("a", "x".into()), ("b", 2_i32.into())])),
    ];
    check(
        &messages,
        &DIALECTS,
        &[
            ("NOT a LIKE 'x%' AND b = 2", "m2"),
            ("NOT (a LIKE 'x%' AND b = 2)", "m1 m2"),
            ("a NOT LIKE 'x' AND b = 2", "m2"),
            ("NOT a = 'x' OR b = 2", "m2 m3"),
            ("b = 1 OR b = 2 AND a = 'x'", "m1 m3"),
            ("NOT a IS NULL", "m1 m2 m3"),
            ("b NOT BETWEEN 2 AND 3 AND a = 'x'", "m1"),
            ("NOT b BETWEEN 2 AND 3", "m1"),
            ("a NOT IN ('x') AND b = 2", "m2"),
            ("2 + 3 * b = 8", "m2 m3"),
            ("-b + 3 = 2", "m1"),
            ("10 - 4 - b = 4", "m2 m3"),
            ("b + 1 BETWEEN b AND b * 2", "m1 m2 m3"),
            ("16 / 4 / b = 2", "m2 m3"),
            ("b = 1 = TRUE", "m1"),
            ("TRUE = b > 1", "m2 m3"),
            ("TRUE = NOT b = 1", "m2 m3"),
            ("a = 'x' AND NOT b = 1 OR b = 1", "m1 m3"),
            ("(b = 1 OR b = 2) AND a = 'x'", "m1 m3"),
            ("b BETWEEN 1 AND 1 OR a BETWEEN 1 AND 2", "m1"),
        ],
    );
}

fn samples() -> [(&'static str, Packet); 5] {
    let m0 = message(&[]);
    let mut m1 = message(&[
        ("name", "a_c".into()),
        ("n", 42_i32.into()),
        ("d", 42.0_f64.into()),
        ("b", true.into()),
    ]);
    m1.set_message_type(Some("order")).unwrap();
    let mut m2 = message(&[
        ("name", "abc".into()),
        ("n", 9_007_199_254_740_993_i64.into()),
        ("d", 0.1_f32.into()),
        ("b", false.into()),
    ]);
    m2.set_correlation_id(Some("it's")).unwrap().set_delivery_mode(DeliveryMode::NonPersistent);
    let m3 = message(&[("name", "line1\nline2".into()), ("n", "42".into()), ("d", (-1_i8).into())]);
    let mut m4 = message(&[("name", "50%.*[x]".into()), ("n", (-7_i16).into()), ("d", "".into())]);
    m4.set_priority(9).unwrap();
    [("M0", m0), ("M1", m1), ("M2", m2), ("M3", m3), ("M4", m4)]
        .map(|(name, message)| (name, packet(&message)))
}

#[test]
fn samples_of_the_language_find_what_they_should() {
    check(
        &samples(),
        &DIALECTS,
        &[
            ("name = 'a_c'", "M1"),
            ("name LIKE 'a_c'", "M1 M2"),
            ("name NOT LIKE 'a%'", "M3 M4"),
            ("name IS NULL", "M0"),
            ("name IS NOT NULL", "M1 M2 M3 M4"),
            ("n = 42", "M1"),
            ("n = 42.0", "M1"),
            ("d = 42", "M1"),
            ("n > 40", "M1 M2"),
            ("n + 0.0 = 9007199254740992", "M2"),
            ("d > 0.09 AND d < 0.11", "M2"),
            ("n / 2 = 21", "M1"),
            ("-n = 7", "M4"),
            ("n = 0x2A", "M1"),
            ("n = 42L", "M1"),
            ("n < 1e10", "M1 M4"),
            ("n < .5E2", "M1 M4"),
            ("b", "M1"),
            ("b = TRUE", "M1"),
            ("b = 'true'", ""),
            ("d = -1", "M3"),
            ("JMSDeliveryMode = 2", ""),
            ("JMSPriority > 4", "M4"),
            ("JMSType = 'order'", "M1"),
            ("JMSMessageID LIKE 'ID:%'", "M0 M1 M2 M3 M4"),
            ("JMSTimestamp > 0", "M0 M1 M2 M3 M4"),
            ("JMSXGroupID = 'g'", ""),
            ("name = 'a_c' OR zz = 1", "M1"),
            ("zz = 1 OR name = 'a_c'", "M1"),
            ("zz = 1 AND name = 'a_c'", ""),
            ("zz > 1 OR zz <= 1", ""),
            ("TRUE", "M0 M1 M2 M3 M4"),
            ("1 = 1", "M0 M1 M2 M3 M4"),
            ("'x' = 'x'", "M0 M1 M2 M3 M4"),
            ("NAME = 'a_c'", ""),
            ("name Like 'a%' and n Between 1 anD 50", "M1"),
        ],
    );
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
