//! Samples of the selector language: five messages, and which of them each selector finds.

use tidegate::{
    message::{DeliveryMode, Destination, Message},
    wire::Value,
};

/// Five messages to queue `q`, each with its name, which is its text, too.
pub(crate) fn messages() -> [(&'static str, Message); 5] {
    let sample = |label: &str, properties: &[(&str, Value)]| {
        let mut message = Message::text(label);
        message.set_destination(Destination::queue("q").unwrap());
        for (name, value) in properties {
            message.set_property(*name, value.clone()).unwrap();
        }
        message
    };
    let m0 = sample("M0", &[]);
    let mut m1 = sample(
        "M1",
        &[("name", "a_c".into()), ("n", 42_i32.into()), ("d", 42.0_f64.into()), ("b", true.into())],
    );
    m1.set_message_type(Some("order")).unwrap();
    let mut m2 = sample(
        "M2",
        &[
            ("name", "abc".into()),
            ("n", 9_007_199_254_740_993_i64.into()),
            ("d", 0.1_f32.into()),
            ("b", false.into()),
        ],
    );
    m2.set_correlation_id(Some("it's")).unwrap().set_delivery_mode(DeliveryMode::NonPersistent);
    let m3 =
        sample("M3", &[("name", "line1\nline2".into()), ("n", "42".into()), ("d", (-1_i8).into())]);
    let mut m4 =
        sample("M4", &[("name", "50%.*[x]".into()), ("n", (-7_i16).into()), ("d", "".into())]);
    m4.set_priority(9).unwrap();
    [("M0", m0), ("M1", m1), ("M2", m2), ("M3", m3), ("M4", m4)]
}

/// Selectors, and the messages they find, without order; none of them depends on the dialect.
pub(crate) const FOUND: [(&str, &str); 36] = [
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
];
