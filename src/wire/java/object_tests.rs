//! Objects as a Java runtime writes them, round trips and hostile input.

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};

use super::{
    JavaClass, JavaDocument, JavaError, JavaField, JavaObject, JavaValue, TableClass,
    decode_object, encode_object, encode_vector,
};
use crate::wire::limits::JAVA_DEPTH_MAX;

const SAMPLES: &str = include_str!("../../../tests/vectors/java_objects.txt");

fn sample(name: &str) -> Bytes {
    let (_, hex) = SAMPLES
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(found, _)| *found == name)
        .unwrap();
    let digits: Vec<u32> = hex.trim().chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

fn decode(bytes: &Bytes) -> JavaDocument {
    decode_object(bytes, 10_000).unwrap()
}

fn table(class: TableClass, entries: &[(&str, JavaObject)]) -> JavaObject {
    let owned = entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    JavaObject::Table(class, owned)
}

#[test]
fn what_a_java_runtime_wrote_is_read() {
    let hashtable =
        table(TableClass::Hashtable, &[("cxnid", 5_i64.into()), ("user", "guest".into())]);
    assert_eq!(decode(&sample("vector")).root, JavaObject::Vector(vec![hashtable]));
    assert_eq!(decode(&sample("empty")).root, JavaObject::Vector(Vec::new()));
    let properties = table(TableClass::Properties, &[("imq.a", "b".into())]);
    assert_eq!(decode(&sample("properties")).root, properties);
    let list = JavaObject::Vector(vec!["x".into(), JavaObject::NULL, 7_i32.into()]);
    let map = table(TableClass::HashMap, &[("list", list)]);
    assert_eq!(decode(&sample("map")).root, map);

    let one = decode(&sample("info"));
    let field = |name| one.field(&one.root, name).unwrap();
    assert_eq!(field("name").text(), Some("q"));
    assert_eq!((field("type").number(), field("maxMessages").number()), (Some(1), Some(10)));
    assert_eq!(field("maxMessageBytes"), &JavaObject::from(-1_i64));
    assert_eq!(field("useDMQ"), &JavaObject::from(true));
    assert_eq!(field("XMLSchemaUriList"), &JavaObject::NULL);
    assert_eq!(one.field(&one.root, "nothing"), None);
    assert_eq!(one.class_of(&one.root).unwrap().uid, 7_043_096_792_121_903_858);

    let two = decode(&sample("infos"));
    let names: Vec<_> =
        two.root.elements().unwrap().iter().map(|info| two.field(info, "name")).collect();
    assert_eq!(names, [Some(&"q".into()), Some(&"r".into())]);
    assert_eq!(two.classes.len(), 1);
}

#[test]
fn a_child_is_read_with_its_parents_fields_and_without_its_own_data() {
    let document = decode(&sample("sub"));
    let class = document.class_of(&document.root).unwrap();
    let names: Vec<&str> = class.fields.iter().map(|field| &*field.name).collect();
    assert_eq!((&*class.name, &names[..]), ("Gt$Sub", &["mask", "many", "nested", "text"][..]));
    assert_eq!(document.field(&document.root, "mask").unwrap().number(), Some(5));
    let many = document.field(&document.root, "many").unwrap();
    assert_eq!(many, &JavaObject::Array(vec!["a".into(), 1_i32.into()]));
    assert_eq!(document.field(&document.root, "text").unwrap().text(), Some("t"));
}

#[test]
fn what_is_written_is_what_java_writes() {
    let document = decode(&sample("info"));
    assert_eq!(encode_object(&document.classes, &document.root), sample("info"));
    // The room that Java leaves behind the elements of a vector, and the size of the table it has
    // for properties, mean nothing to a reader.
    for name in ["vector", "empty", "properties", "map", "infos", "sub"] {
        let document = decode(&sample(name));
        let written = encode_object(&document.classes, &document.root);
        assert_eq!(decode(&written), document, "{name}");
    }
    let document = decode(&sample("infos"));
    let elements = document.root.elements().unwrap().to_vec();
    let written = encode_vector(&document.classes, elements.into_iter());
    assert_eq!(written, encode_object(&document.classes, &document.root));
}

#[test]
fn every_prefix_is_an_error_and_every_changed_byte_is_survived() {
    for line in SAMPLES.lines() {
        let (name, _) = line.split_once(' ').unwrap();
        let bytes = sample(name);
        for cut in 0..bytes.len() {
            assert!(decode_object(&bytes.slice(..cut), 10_000).is_err(), "{name} cut at {cut}");
            for flip in [0x01, 0x80, 0xFF] {
                let mut changed = bytes.to_vec();
                changed[cut] ^= flip;
                if let Ok(document) = decode_object(&changed.into(), 10_000) {
                    drop(encode_object(&document.classes, &document.root));
                }
            }
        }
    }
}

#[test]
fn depth_and_number_of_values_are_bounded() {
    let nested = |depth| {
        let mut object = JavaObject::from(1_i32);
        for _ in 0..depth {
            object = JavaObject::Vector(vec![object]);
        }
        encode_object(&[], &object)
    };
    // An element lies in the vector's array, two deeper than the vector; a boxed number has a class
    // with a parent, which is one deeper still.
    assert!(decode_object(&nested(JAVA_DEPTH_MAX / 2 - 1), 10_000).is_ok());
    assert_eq!(decode_object(&nested(JAVA_DEPTH_MAX / 2), 10_000), Err(JavaError::Depth));
    assert_eq!(decode_object(&nested(200), 10_000), Err(JavaError::Depth));

    let many = JavaObject::Vector(vec![JavaObject::NULL; 100]);
    let bytes = encode_object(&[], &many);
    let needed = (1..).find(|&items| decode_object(&bytes, items).is_ok()).unwrap();
    assert!((100..120).contains(&needed), "{needed}");
    assert_eq!(decode_object(&bytes, needed - 1), Err(JavaError::Items));
}

#[test]
fn a_claimed_length_costs_nothing() {
    let mut bytes = BytesMut::from(&encode_object(&[], &JavaObject::Array(Vec::new()))[..]);
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&i32::MAX.to_be_bytes());
    assert!(matches!(
        decode_object(&bytes.clone().freeze(), usize::MAX),
        Err(JavaError::Truncated { .. })
    ));
    bytes[end - 4..].copy_from_slice(&(-1_i32).to_be_bytes());
    assert!(matches!(decode_object(&bytes.freeze(), usize::MAX), Err(JavaError::Length { .. })));
}

#[test]
fn a_vector_has_no_more_elements_than_it_holds() {
    let bytes = encode_object(&[], &JavaObject::Vector(vec![1_i32.into(), 2_i32.into()]));
    let at = bytes.windows(4).position(|four| four == 2_i32.to_be_bytes()).unwrap();
    for (count, left) in [(0_i32, Some(0)), (1, Some(1)), (2, Some(2)), (3, None), (-1, None)] {
        let mut changed = bytes.to_vec();
        changed[at..at + 4].copy_from_slice(&count.to_be_bytes());
        match (decode_object(&changed.into(), 100), left) {
            (Ok(document), Some(left)) => {
                assert_eq!(document.root.elements().unwrap().len(), left);
            }
            (Err(JavaError::ClassForm { name: "java.util.Vector" }), None) => {}
            (other, _) => panic!("{count}: {other:?}"),
        }
    }
}

#[test]
fn an_object_within_itself_is_refused() {
    // A vector whose array has the vector, handle 2 behind its class and that one's field type.
    let mut bytes = BytesMut::from(&encode_object(&[], &JavaObject::Vector(Vec::new()))[..]);
    let end = bytes.len();
    bytes.truncate(end - 5);
    bytes.put_i32(1);
    bytes.put_slice(&[0x71, 0x00, 0x7E, 0x00, 0x02, 0x78]);
    assert!(matches!(
        decode_object(&bytes.freeze(), usize::MAX),
        Err(JavaError::Reference { handle: 0x7E_0002, .. })
    ));
}

#[test]
fn a_value_of_another_type_is_written_as_zero() {
    let field =
        |kind| JavaField { kind, name: char::from(kind).to_string().into(), signature: "".into() };
    let fields: Vec<JavaField> = b"BCDFIJSZ".iter().map(|&kind| field(kind)).collect();
    let class = JavaClass { name: "a.B".into(), uid: 1, fields: fields.into() };
    let wrong = JavaObject::Record(0, vec!["text".into(); 8]);
    let document = decode(&encode_object(std::slice::from_ref(&class), &wrong));
    let expected = [
        JavaValue::Byte(0),
        JavaValue::Char(0),
        JavaValue::Double(0.0),
        JavaValue::Float(0.0),
        JavaValue::Int(0),
        JavaValue::Long(0),
        JavaValue::Short(0),
        JavaValue::Boolean(false),
    ];
    let expected = expected.into_iter().map(JavaObject::Value).collect();
    assert_eq!(document.root, JavaObject::Record(0, expected));
    assert_eq!(encode_object(&[], &JavaObject::Record(3, Vec::new())).last(), Some(&0x70));
}

fn values() -> impl Strategy<Value = JavaObject> {
    prop_oneof![
        Just(JavaObject::NULL),
        any::<bool>().prop_map(JavaObject::from),
        any::<i32>().prop_map(JavaObject::from),
        any::<i64>().prop_map(JavaObject::from),
        any::<i16>().prop_map(|n| JavaObject::Value(JavaValue::Short(n))),
        ".{0,8}".prop_map(JavaObject::from),
        proptest::collection::vec(any::<u8>(), 0..8).prop_map(JavaObject::from),
    ]
}

fn objects() -> impl Strategy<Value = JavaObject> {
    values().prop_recursive(3, 24, 4, |inner| {
        let entries = proptest::collection::vec((".{0,4}", inner.clone()), 0..4);
        let class = prop_oneof![
            Just(TableClass::HashMap),
            Just(TableClass::Hashtable),
            Just(TableClass::Properties)
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(JavaObject::Vector),
            proptest::collection::vec(inner, 0..4).prop_map(JavaObject::Array),
            (class, entries).prop_map(|(class, entries)| JavaObject::Table(class, entries)),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(object in objects()) {
        prop_assert_eq!(decode(&encode_object(&[], &object)).root, object);
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let stream = [&[0xAC, 0xED, 0, 5][..], &bytes].concat();
        drop(decode_object(&stream.into(), 1000));
    }
}
