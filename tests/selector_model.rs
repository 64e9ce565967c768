//! Random selectors on random messages against a model that is too simple to be wrong.
#![cfg(feature = "broker")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod selector_support;

use std::cell::Cell;

use bytes::Bytes;
use proptest::{
    prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof},
    sample::select,
    test_runner::{Config, TestRunner},
};
use selector_support::tree::{Model, Pen, Seen, Tree};
use tidegate::{
    selector::{Dialect, Selector, SelectorError},
    wire::{Flags, Packet, PacketBuilder, PacketType, Padding, Properties, Value, VariableHeader},
};

/// Properties, named after what they mostly are.
const NAMES: [&str; 6] = ["n1", "n2", "s1", "s2", "t1", "t2"];
const OTHER_NAMES: [&str; 5] = ["zz", "JMSPriority", "JMSDeliveryMode", "JMSType", "JMSXGroupID"];

fn name(kind: char) -> impl Strategy<Value = Tree> {
    let own = NAMES.into_iter().filter(|name| name.starts_with(kind)).collect::<Vec<_>>();
    let all: Vec<_> = NAMES.into_iter().chain(OTHER_NAMES).collect();
    prop_oneof![5 => select(own), 1 => select(all)].prop_map(Tree::Name)
}

fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![6 => -3_i64..6, 1 => select(vec![i64::MIN, i64::MAX, 1 << 53]), 1 => any::<i64>()]
}

fn real() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => (-6_i8..12).prop_map(|half| f64::from(half) / 2.0),
        1 => select(vec![1e300, -1e-300, 9_007_199_254_740_992.0, 0.1]),
    ]
}

fn text() -> impl Strategy<Value = String> {
    let chars = vec!['a', 'a', 'b', '%', '_', '!', '\'', 'é', '😀', '\0'];
    proptest::collection::vec(select(chars), 0..5).prop_map(String::from_iter)
}

fn pattern() -> impl Strategy<Value = String> {
    let chars = vec!['a', 'b', '%', '%', '%', '_', '_', '!', '!', '\'', '😀'];
    proptest::collection::vec(select(chars), 0..6).prop_map(String::from_iter)
}

fn boxed(tree: impl Strategy<Value = Tree>) -> impl Strategy<Value = Box<Tree>> {
    tree.prop_map(Box::new)
}

/// Mostly a number.
fn number(depth: u32) -> BoxedStrategy<Tree> {
    let leaf = prop_oneof![
        3 => integer().prop_map(Tree::Integer),
        2 => real().prop_map(Tree::Double),
        5 => name('n'),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let part = || boxed(number(depth - 1));
    prop_oneof![
        4 => leaf,
        4 => (select(vec!['+', '-', '*', '/']), part(), part())
            .prop_map(|(sign, left, right)| Tree::Calculate(sign, left, right)),
        2 => (select(vec!['+', '-']), part()).prop_map(|(sign, inner)| Tree::Sign(sign, inner)),
        1 => anything(depth - 1),
    ]
    .boxed()
}

/// Mostly a string.
fn string(depth: u32) -> BoxedStrategy<Tree> {
    let leaf = prop_oneof![2 => text().prop_map(Tree::Text), 5 => name('s')];
    if depth == 0 {
        leaf.boxed()
    } else {
        prop_oneof![15 => leaf, 1 => anything(depth - 1)].boxed()
    }
}

/// Mostly a truth value.
fn condition(depth: u32) -> BoxedStrategy<Tree> {
    let leaf = prop_oneof![1 => any::<bool>().prop_map(Tree::Truth), 3 => name('t')];
    if depth == 0 {
        return leaf.boxed();
    }
    let part = || boxed(condition(depth - 1));
    let number = || boxed(number(depth - 1));
    let string = || boxed(string(depth - 1));
    let not = any::<bool>;
    let escape = prop_oneof![2 => Just(None), 1 => Just(Some('!')), 1 => Just(Some('%'))];
    prop_oneof![
        1 => leaf,
        2 => part().prop_map(Tree::Not),
        3 => (part(), part()).prop_map(|(left, right)| Tree::And(left, right)),
        3 => (part(), part()).prop_map(|(left, right)| Tree::Or(left, right)),
        3 => (select(vec!["=", "<>", "<", "<=", ">", ">="]), number(), number())
            .prop_map(|(sign, left, right)| Tree::Compare(sign, left, right)),
        2 => (select(vec!["=", "<>"]), string(), string())
            .prop_map(|(sign, left, right)| Tree::Compare(sign, left, right)),
        1 => (select(vec!["=", "<>"]), part(), part())
            .prop_map(|(sign, left, right)| Tree::Compare(sign, left, right)),
        2 => (not(), number(), number(), number())
            .prop_map(|(not, value, low, high)| Tree::Between { not, value, low, high }),
        2 => (not(), string(), proptest::collection::vec(text(), 0..4))
            .prop_map(|(not, value, list)| Tree::In { not, value, list }),
        3 => (not(), string(), pattern(), escape).prop_map(|(not, value, pattern, escape)| {
            Tree::Like { not, value, pattern, escape }
        }),
        2 => (not(), boxed(anything(depth - 1)))
            .prop_map(|(not, value)| Tree::IsNull { not, value }),
    ]
    .boxed()
}

fn anything(depth: u32) -> BoxedStrategy<Tree> {
    prop_oneof![number(depth), string(depth), condition(depth)].boxed()
}

/// A message's properties and headers.
#[derive(Debug, Clone)]
struct Sent {
    properties: Vec<(&'static str, Value)>,
    priority: u8,
    persistent: bool,
    message_type: Option<String>,
}

fn property(name: &'static str) -> impl Strategy<Value = Option<(&'static str, Value)>> {
    let number = prop_oneof![
        integer().prop_map(Value::Long),
        (-3_i32..6).prop_map(Value::Int),
        (-3_i16..6).prop_map(Value::Short),
        (-3_i8..6).prop_map(Value::Byte),
        real().prop_map(Value::Double),
        (-6_i8..12).prop_map(|half| Value::Float(f32::from(half) / 2.0)),
        Just(Value::Double(f64::NAN)),
    ];
    let string = text().prop_map(Value::String);
    let truth = any::<bool>().prop_map(Value::Boolean);
    let unreadable = prop_oneof![
        Just(Value::Object(Bytes::from_static(b"java"))),
        Just(Value::Malformed(Bytes::from_static(&[0xC3, 0x28]))),
    ];
    let weight = |kind: char| if name.starts_with(kind) { 20 } else { 1 };
    prop_oneof![
        weight('n') => number.prop_map(Some),
        weight('s') => string.prop_map(Some),
        weight('t') => truth.prop_map(Some),
        1 => unreadable.prop_map(Some),
        5 => Just(None),
    ]
    .prop_map(move |value| value.map(|value| (name, value)))
}

fn sent() -> impl Strategy<Value = Sent> {
    let message_type = prop_oneof![Just(None), text().prop_map(Some)];
    let properties = NAMES.map(|name| property(name).boxed());
    let properties = properties.prop_map(|found| found.into_iter().flatten().collect());
    (properties, 0_u8..10, any::<bool>(), message_type).prop_map(
        |(properties, priority, persistent, message_type)| Sent {
            properties,
            priority,
            persistent,
            message_type,
        },
    )
}

impl Sent {
    fn packet(&self) -> Packet {
        let mut table = Properties::new();
        for (name, value) in &self.properties {
            table.set(*name, value.clone());
        }
        let mut kind = Vec::new();
        tidegate::wire::encode_text(self.message_type.as_deref().unwrap_or_default(), &mut kind);
        let message_type = self.message_type.is_some().then_some(kind.as_slice());
        let variable = VariableHeader { message_type, ..VariableHeader::default() };
        PacketBuilder::new(PacketType::MESSAGE)
            .priority(self.priority)
            .flags(Flags::empty().set(Flags::PERSISTENT, self.persistent))
            .variable(&variable, Padding::Java)
            .unwrap()
            .properties(&table)
            .unwrap()
            .finish()
    }

    fn look_up(&self, name: &str) -> Option<Seen> {
        let mode = if self.persistent { "PERSISTENT" } else { "NON_PERSISTENT" };
        match name {
            "JMSPriority" => return Some(Seen::Integer(self.priority.into())),
            "JMSDeliveryMode" => return Some(Seen::Text(mode.to_owned())),
            "JMSType" => return Some(self.message_type.clone().map_or(Seen::Unknown, Seen::Text)),
            _ => {}
        }
        let Some((_, value)) = self.properties.iter().find(|(known, _)| *known == name) else {
            return Some(Seen::Unknown);
        };
        Some(match value {
            Value::Boolean(value) => Seen::Truth(*value),
            Value::Byte(value) => Seen::Integer((*value).into()),
            Value::Short(value) => Seen::Integer((*value).into()),
            Value::Int(value) => Seen::Integer((*value).into()),
            Value::Long(value) => Seen::Integer(*value),
            Value::Float(value) => Seen::Double((*value).into()),
            Value::Double(value) => Seen::Double(*value),
            Value::String(value) => Seen::Text(value.clone()),
            Value::Object(_) => Seen::Object,
            _ => return None,
        })
    }
}

/// How often each thing that can happen did.
#[derive(Debug, Default)]
struct Tally {
    refused: Cell<u32>,
    matched: Cell<u32>,
    not_true: Cell<u32>,
    failed: Cell<u32>,
}

fn compare(tree: &Tree, sent: &Sent, dialect: Dialect, chance: u64, tally: &Tally) {
    let text = Pen::write(tree, chance);
    let trial = Model { dialect, lazy: false, look_up: &|_| Some(Seen::Unknown) }.value(tree);
    let fits = matches!(trial, Some(Seen::Truth(_) | Seen::Unknown));
    let selector = match Selector::parse(&text, dialect) {
        Ok(selector) => selector,
        Err(error) => {
            assert!(!fits, "{text}\nrefused: {error}");
            assert!(matches!(error, SelectorError::Mistyped { .. }), "{text}\n{error}");
            tally.refused.set(tally.refused.get() + 1);
            return;
        }
    };
    assert!(fits, "{text}\naccepted, though it is {trial:?}");
    let look_up = |name: &str| sent.look_up(name);
    let expected = Model { dialect, lazy: true, look_up: &look_up }.value(tree);
    let matches = selector.matches(&sent.packet());
    assert_eq!(matches, expected == Some(Seen::Truth(true)), "{text}\nis {expected:?}");
    let count = match expected {
        None => &tally.failed,
        Some(Seen::Truth(true)) => &tally.matched,
        Some(_) => &tally.not_true,
    };
    count.set(count.get() + 1);
}

#[test]
fn random_selectors_find_what_the_model_finds() {
    let tally = Tally::default();
    let cases = 4_000;
    let dialect = select(vec![Dialect::Jms, Dialect::Reference]);
    let input = (condition(5), sent(), dialect, any::<u64>());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&input, |(tree, sent, dialect, chance)| {
        compare(&tree, &sent, dialect, chance, &tally);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    // All of it happened, and often: the comparison above was not empty.
    for count in [&tally.refused, &tally.matched, &tally.not_true, &tally.failed] {
        assert!(count.get() > cases / 50, "{tally:?}");
    }
}
