//! Selectors as users write them, against messages as they stand on the wire: what is firm, and what
//! the two dialects answer differently.
#![cfg(feature = "broker")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "selector_support/samples.rs"]
mod samples;
mod selector_support;

use bytes::Bytes;
use selector_support::{DIALECTS, check, message, packet, parse, with};
use tidegate::{
    selector::{Dialect, Selector},
    wire::{Packet, PacketBuilder, PacketType, Padding, Value, VariableHeader},
};

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
    samples::messages().map(|(name, message)| (name, packet(&message)))
}

#[test]
fn samples_of_the_language_find_what_they_should() {
    check(&samples(), &DIALECTS, &samples::FOUND);
}

#[test]
fn literals_are_read_as_java_writes_them() {
    let messages = [
        ("low", with(&[("n", i64::MIN.into())])),
        ("high", with(&[("n", i64::MAX.into())])),
        ("ten", with(&[("n", 10_i32.into())])),
        ("half", with(&[("n", 0.5_f64.into())])),
    ];
    check(
        &messages,
        &DIALECTS,
        &[
            ("n = -9223372036854775808", "low"),
            ("n = - 9223372036854775808L", "low"),
            ("n = -0x8000000000000000", "low"),
            ("n = 9223372036854775807", "high"),
            ("n = 0x7fffffffffffffffL", "high"),
            ("n = 0777777777777777777777", "high"),
            ("n = 012", "ten"),
            ("n = 0Xa", "ten"),
            ("n = 10l", "ten"),
            ("n = 10d", "ten"),
            ("n = 010D", "ten"),
            ("n = 10.", "ten"),
            ("n = 1e1", "ten"),
            ("n = 1.E1f", "ten"),
            ("n = 100e-1F", "ten"),
            ("n = .5", "half"),
            ("n = 5e-1", "half"),
            ("n = + 10", "ten"),
            ("- - 1 = 1 AND n = 10", "ten"),
            ("n - -10 = 20", "ten"),
            ("n--10=20", "ten"),
            ("-+-n = 10", "ten"),
        ],
    );
    let quoted = [("quote", with(&[("s", "it's".into())])), ("two", with(&[("s", "''".into())]))];
    check(
        &quoted,
        &DIALECTS,
        &[
            ("s = 'it''s'", "quote"),
            ("s = ''''''", "two"),
            ("s IN ('it''s', 'x')", "quote"),
            ("s LIKE '%''_'", "quote two"),
            ("s LIKE 'it''_s' ESCAPE ''''", ""),
            ("s=\t'it''s'\n\r\x0COR(s)=('x')", "quote"),
        ],
    );
}

#[test]
fn a_plus_in_an_exponent_is_for_one_dialect_only() {
    let message = with(&[("n", 7_i32.into())]);
    assert!(parse("n < 1e+5", Dialect::Jms).matches(&message));
    let refused = Selector::parse("n < 1e+5", Dialect::Reference).unwrap_err();
    assert_eq!(refused.to_string(), "column 7: at `+`: an exponent is digits, perhaps after `-`");
    assert!(parse("n < 1e5 AND n > 1e-5", Dialect::Reference).matches(&message));
}

#[test]
fn names_are_java_identifiers_of_any_script() {
    let names = ["größe", "名前", "_x", "$1", "JMSXGroupID", "JMS_SUN_COMPRESS", "nulls", "𝒳1"];
    for name in names {
        let message = with(&[(name, 1_i32.into())]);
        for dialect in DIALECTS {
            assert!(parse(&format!("{name} = 1"), dialect).matches(&message), "{name}");
        }
    }
}

#[test]
fn header_fields_are_read_from_the_headers() {
    let mut message = message(&[("JMSRedelivered", "a property".into())]);
    message.set_correlation_id(Some("c\0😀")).unwrap().set_priority(0).unwrap();
    let own = packet(&message);
    let variable = VariableHeader { message_id: Some(b"ID:foreign"), ..VariableHeader::default() };
    let foreign = PacketBuilder::new(PacketType::TEXT_MESSAGE);
    let foreign = foreign.variable(&variable, Padding::Java).unwrap().finish();
    check(
        &[("own", own), ("foreign", foreign)],
        &DIALECTS,
        &[
            ("JMSMessageID = 'ID:7-0:0:0:0:0:0:0:0-0-1700000000000'", "own"),
            ("JMSMessageID = 'ID:foreign'", "foreign"),
            ("JMSMessageID IN ('ID:foreign') OR JMSMessageID LIKE 'ID:7-%'", "own foreign"),
            ("JMSDeliveryMode = 'PERSISTENT'", "own"),
            ("JMSDeliveryMode = 'NON_PERSISTENT'", "foreign"),
            ("JMSPriority = 0", "own"),
            ("JMSTimestamp = 1700000000000", "own"),
            ("JMSCorrelationID = 'c\0😀'", "own"),
            ("JMSCorrelationID LIKE 'c__'", "own"),
            ("JMSCorrelationID IS NULL", "foreign"),
            ("JMSType IS NULL", "own foreign"),
            ("JMSRedelivered = 'a property'", "own"),
            ("JMSExpiration IS NULL", "own foreign"),
            ("jmspriority IS NULL", "own foreign"),
        ],
    );
}

#[test]
fn numbers_are_promoted_as_java_does_it() {
    let message = with(&[
        ("i", 7_i32.into()),
        ("l", i64::MAX.into()),
        ("d", 2.5_f64.into()),
        ("f", 0.1_f32.into()),
        ("nan", f64::NAN.into()),
    ]);
    check(
        &[("m", message)],
        &DIALECTS,
        &[
            ("i / 2 = 3 AND i / 2.0 = 3.5 AND -i / 2 = -3", "m"),
            ("l + 1 < 0", "m"),
            ("l = 9223372036854775807 AND l <> 9223372036854775806", "m"),
            ("l = 9223372036854775806.0", "m"),
            ("-9223372036854775808 / -1 = -9223372036854775808", "m"),
            ("i * d = 17.5 AND i - d = 4.5 AND d + d = 5", "m"),
            ("f = 0.1", ""),
            ("f * 10 > 1", "m"),
            ("d / 0 > 1e300 AND 1.0 / 0 > 0", "m"),
            ("nan = nan OR nan < 1 OR nan >= 1", ""),
            ("nan <> nan AND NOT nan BETWEEN 0 AND 1", "m"),
            ("-0.0 = 0", "m"),
        ],
    );
}

#[test]
fn lists_and_patterns_are_strings_and_commas_are_optional() {
    let texts = ["x", "y", "50%", "a!b", "a!!b", ""];
    let messages = texts.map(|text| {
        let name = if text.is_empty() { "empty" } else { text };
        (name, with(&[("s", text.into())]))
    });
    check(
        &messages,
        &DIALECTS,
        &[
            ("s IN ('x', 'y')", "x y"),
            ("s IN ('x' 'y')", "x y"),
            ("s IN ()", ""),
            ("s NOT IN ()", "x y 50% a!b a!!b empty"),
            ("s NOT IN ('x', 'y', '')", "50% a!b a!!b"),
            ("'x' IN ('x') AND s = 'y'", "y"),
            ("s LIKE '50!%' ESCAPE '!'", "50%"),
            ("s LIKE '%!%' ESCAPE '!more'", "50%"),
            ("s LIKE '%'", "x y 50% a!b a!!b empty"),
            ("s = ''", "empty"),
            ("s IS NULL", ""),
        ],
    );
    let differing = [
        ("s LIKE 'a!!b' ESCAPE '!'", "a!b", "a!!b"),
        ("s LIKE ''", "empty", ""),
        ("s NOT LIKE 'a%' AND s NOT LIKE '5%'", "x y empty", "x y"),
        ("NOT (s LIKE '_%')", "empty", ""),
    ];
    for (text, jms, reference) in differing {
        check(&messages, &[Dialect::Jms], &[(text, jms)]);
        check(&messages, &[Dialect::Reference], &[(text, reference)]);
    }
}

#[test]
fn what_is_wrong_for_a_message_does_not_match_it_whichever_way_it_is_asked() {
    let messages = [
        ("number", with(&[("v", 1_i32.into())])),
        ("string", with(&[("v", "1".into())])),
        ("truth", with(&[("v", true.into())])),
        ("object", with(&[("v", Value::Object(Bytes::from_static(b"java")))])),
    ];
    check(
        &messages,
        &DIALECTS,
        &[
            ("v = 1", "number"),
            ("v <> 2", "number"),
            ("NOT (v = 2)", "number"),
            ("v < 2 OR v >= 2", "number"),
            ("v NOT BETWEEN 5 AND 6", "number"),
            ("v + 1 = 2", "number"),
            ("v NOT IN ('2')", "string"),
            ("v NOT LIKE '2'", "string"),
            ("v = '1'", "string"),
            ("v = 'true'", ""),
            ("v", "truth"),
            ("NOT (v AND FALSE)", "truth"),
            ("v IS NOT NULL", "number string truth object"),
            // A string and a truth value are told apart, and that is no mistake.
            ("v <> '2'", "string truth"),
            ("v = TRUE", "truth"),
            ("v <> FALSE", "string truth"),
            // What decides on the left hides what is wrong on the right.
            ("v IS NOT NULL OR v < 2", "number string truth object"),
            ("NOT (v IS NULL AND v < 2)", "number string truth object"),
            ("v < 2 OR v IS NOT NULL", "number"),
            // Accepted, as it might have been UNKNOWN.
            ("v + 1", ""),
            ("v LIKE ''", ""),
            ("v / 0 = 1", ""),
            ("1 / (v - 1) = 1 OR TRUE", ""),
            ("v / 0.0 > 1", "number"),
        ],
    );
}

#[test]
fn a_property_that_is_no_text_matches_nothing_and_hides_nothing_else() {
    let broken = Value::Malformed(Bytes::from_static(&[0xC3, 0x28]));
    let messages = [("m", with(&[("bad", broken), ("good", 1_i32.into())]))];
    check(
        &messages,
        &DIALECTS,
        &[
            ("bad = 'x'", ""),
            ("bad <> 'x'", ""),
            ("NOT (bad = 'x')", ""),
            ("bad LIKE '%'", ""),
            ("bad NOT LIKE 'x'", ""),
            ("bad NOT IN ('x')", ""),
            ("bad IS NULL", ""),
            ("bad IS NOT NULL", ""),
            ("bad = other", ""),
            ("good = 1", "m"),
            ("good = 1 OR bad = 'x'", "m"),
            ("TRUE", "m"),
        ],
    );
    // The same as a name.
    let mut table = vec![0, 0, 0, 1, 0, 0, 0, 2, 0, 2, 0xC3, 0x28, 0, 1, 1];
    table.extend([0, 1, b'n', 0, 4, 0, 0, 0, 7]);
    let message = PacketBuilder::new(PacketType::TEXT_MESSAGE).property_section(table).finish();
    check(&[("m", message)], &DIALECTS, &[("n = 7", "m"), ("x IS NULL", "m")]);
}

#[test]
fn properties_that_cannot_be_read_match_nothing() {
    // What a client leaves behind that cannot say a length over 65,535; then other broken tables.
    let cut = vec![0, 0, 0, 1, 0, 0, 0, 1, 0, 1, b'v', 0, 8];
    let version = vec![0, 0, 0, 2, 0, 0, 0, 0];
    let kind = vec![0, 0, 0, 1, 0, 0, 0, 1, 0, 1, b'v', 0, 77, 1];
    for table in [cut, version, kind, vec![1]] {
        let builder = PacketBuilder::new(PacketType::TEXT_MESSAGE).body("c");
        check(
            &[("m", builder.property_section(table).finish())],
            &DIALECTS,
            &[
                ("v = 'x'", ""),
                ("v <> 'x'", ""),
                ("NOT (v LIKE 'x%')", ""),
                ("v IS NULL", ""),
                ("v IS NOT NULL", ""),
                ("v NOT BETWEEN 1 AND 2", ""),
                ("JMSPriority = 4", "m"),
                ("JMSPriority = 4 OR v = 1", "m"),
            ],
        );
    }
}

#[test]
fn headers_that_cannot_be_read_match_nothing() {
    let variable = VariableHeader { correlation_id: Some(b"abcd"), ..VariableHeader::default() };
    let good = PacketBuilder::new(PacketType::TEXT_MESSAGE);
    let good = good.variable(&variable, Padding::Java).unwrap().finish();
    let mut bytes = good.raw().to_vec();
    // The length of the only entry.
    bytes[74..76].copy_from_slice(&[0x7F, 0xFF]);
    let broken = Packet::decode(bytes.into()).unwrap();
    check(
        &[("good", good), ("broken", broken)],
        &DIALECTS,
        &[
            ("JMSCorrelationID = 'abcd'", "good"),
            ("JMSCorrelationID <> 'x'", "good"),
            ("JMSType IS NULL", "good"),
            ("JMSMessageID LIKE 'ID:%'", "good"),
            ("JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT'", "good broken"),
        ],
    );
}

#[test]
fn text_is_found_in_both_forms_the_wire_has_for_it() {
    // The builder writes what Java writes; other clients write plain UTF-8.
    let java = with(&[("s", "x😀".into()), ("𝒳", "x".into())]);
    let mut table = vec![0, 0, 0, 1, 0, 0, 0, 2, 0, 1, b's', 0, 8, 0, 5];
    table.extend("x😀".bytes());
    table.extend([0, 4]);
    table.extend("𝒳".bytes());
    table.extend([0, 8, 0, 1, b'x']);
    let plain = PacketBuilder::new(PacketType::TEXT_MESSAGE).property_section(table).finish();
    check(
        &[("java", java), ("plain", plain)],
        &DIALECTS,
        &[
            ("s = 'x😀'", "java plain"),
            ("s <> 'x😀'", ""),
            ("s IN ('x', 'x😀')", "java plain"),
            ("s LIKE 'x_'", "java plain"),
            ("s LIKE '%😀' AND s NOT LIKE '%😁'", "java plain"),
            ("𝒳 = 'x'", "java plain"),
            ("s = 𝒳", ""),
            ("s = s", "java plain"),
        ],
    );
}
