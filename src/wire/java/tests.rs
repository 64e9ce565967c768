//! Samples as Java writes them, round trips and hostile input.

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};

use super::{
    JavaError, JavaValue, decode_hashtable, decode_map, decode_stream, encode_hashtable,
    encode_map, encode_stream,
};
use crate::wire::limits::JAVA_REPEATED_BYTES_MAX;

const STREAM_SAMPLE: &str = "aced0005 7372 0011 6a6176612e6c616e672e496e7465676572 \
    12e2a0a4f7818738 02 0001 49 0005 76616c7565 78 72 0010 6a6176612e6c616e672e4e756d626572 \
    86ac951d0b94e08b 02 0000 78 70 00000001 74 0001 73 73 71 007e0000 00000002 75 72 0002 5b42 \
    acf317f8060854e0 02 0000 78 70 00000001 09 70";

const MAP_SAMPLE: &str = "aced0005 73 72 0011 6a6176612e7574696c2e486173684d6170 \
    0507dac1c31660d1 03 0002 46 000a 6c6f6164466163746f72 49 0009 7468726573686f6c64 78 70 \
    3f400000 0000000c 77 08 00000010 00000002 74 0001 73 74 0001 78 74 0001 69 73 72 0011 \
    6a6176612e6c616e672e496e7465676572 12e2a0a4f7818738 02 0001 49 0005 76616c7565 78 72 0010 \
    6a6176612e6c616e672e4e756d626572 86ac951d0b94e08b 02 0000 78 70 00000001 78";

const NUMBERS_SAMPLE: &str = "aced0005 \
    7372 0011 6a6176612e6c616e672e426f6f6c65616e cd207280d59cfaee 02 0001 5a 0005 76616c7565 78 70 \
    01 7372 0013 6a6176612e6c616e672e436861726163746572 348b47d96b1a2678 02 0001 43 0005 \
    76616c7565 78 70 0063 7372 000e 6a6176612e6c616e672e42797465 9c4e6084ee50f51c 02 0001 42 0005 \
    76616c7565 78 72 0010 6a6176612e6c616e672e4e756d626572 86ac951d0b94e08b 02 0000 78 70 01 \
    7372 000f 6a6176612e6c616e672e53686f7274 684d37133460da52 02 0001 53 0005 76616c7565 78 71 \
    007e0005 0002 7372 000e 6a6176612e6c616e672e4c6f6e67 3b8be490cc8f23df 02 0001 4a 0005 \
    76616c7565 78 71 007e0005 0000000000000003 7372 000f 6a6176612e6c616e672e466c6f6174 \
    daedc9a2db3cf0ec 02 0001 46 0005 76616c7565 78 71 007e0005 3f800000 7372 0010 \
    6a6176612e6c616e672e446f75626c65 80b3c24a296bfb04 02 0001 44 0005 76616c7565 78 71 007e0005 \
    4000000000000000";

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn map_bytes(entries: &[(String, JavaValue)]) -> Bytes {
    encode_map(entries.iter().map(|(key, value)| (key.as_str(), value)))
}

#[test]
fn samples_are_read_and_written_byte_for_byte() {
    let stream = [
        JavaValue::Int(1),
        JavaValue::from("s"),
        JavaValue::Int(2),
        JavaValue::from(vec![9]),
        JavaValue::Null,
    ];
    let numbers = [
        JavaValue::Boolean(true),
        JavaValue::Char(99),
        JavaValue::Byte(1),
        JavaValue::Short(2),
        JavaValue::Long(3),
        JavaValue::Float(1.0),
        JavaValue::Double(2.0),
    ];
    for (sample, wanted) in [(STREAM_SAMPLE, &stream[..]), (NUMBERS_SAMPLE, &numbers)] {
        assert_eq!(decode_stream(&unhex(sample)).unwrap(), wanted);
        assert_eq!(encode_stream(wanted), unhex(sample));
    }
    let map = [("s".to_owned(), JavaValue::from("x")), ("i".to_owned(), JavaValue::Int(1))];
    assert_eq!(decode_map(&unhex(MAP_SAMPLE)).unwrap(), map);
    assert_eq!(map_bytes(&map), unhex(MAP_SAMPLE));
}

#[test]
fn empty_bodies_have_the_form_java_gives_them() {
    assert!(encode_stream(&[]).is_empty());
    assert_eq!(decode_stream(&Bytes::new()), Ok(Vec::new()));
    let empty = map_bytes(&[]);
    assert!(empty.ends_with(&unhex("3f400000 00000000 7708 00000010 00000000 78")));
    assert_eq!(decode_map(&empty), Ok(Vec::new()));
    assert_eq!(decode_map(&Bytes::new()), Err(JavaError::Header));
}

#[test]
fn maps_grow_their_table_as_java_does() {
    let block = |bytes: &Bytes| {
        // Load factor, threshold, block data code and length, capacity, size.
        let at = bytes.windows(4).position(|four| four == [0x3F, 0x40, 0, 0]).unwrap();
        let int = |at: usize| i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        (int(at + 4), int(at + 10), int(at + 14))
    };
    let entries = |count: i32| -> Vec<(String, JavaValue)> {
        (0..count).map(|n| (n.to_string(), JavaValue::Int(n))).collect()
    };
    for (count, threshold, capacity) in [(1, 12, 16), (12, 12, 16), (13, 24, 32), (25, 48, 64)] {
        assert_eq!(block(&map_bytes(&entries(count))), (threshold, capacity, count));
    }
    for (count, threshold, capacity) in [(0, 8, 11), (8, 8, 11), (9, 17, 23), (18, 35, 47)] {
        let entries = entries(count);
        let bytes = encode_hashtable(entries.iter().map(|(key, value)| (key.as_str(), value)));
        assert_eq!(block(&bytes), (threshold, capacity, count));
        assert_eq!(decode_hashtable(&bytes).unwrap(), entries);
        assert!(decode_map(&bytes).is_err());
    }
}

#[test]
fn references_to_strings_boxes_and_arrays_are_resolved() {
    let mut body = BytesMut::from(&unhex(STREAM_SAMPLE)[..]);
    // 0 Integer, 1 Number, 2 the one, 3 "s", 4 the two, 5 byte[], 6 the array.
    for handle in [2, 3, 6] {
        body.put_u8(0x71);
        body.put_i32(0x007E_0000 + handle);
    }
    let items = decode_stream(&body.clone().freeze()).unwrap();
    let wanted = [JavaValue::Int(1), JavaValue::from("s"), JavaValue::from(vec![9])];
    assert_eq!(items[5..], wanted);
    for handle in [0x007E_0000, 0x007E_0007, 0, -1, i32::MIN] {
        let mut wrong = body.clone();
        wrong.put_u8(0x71);
        wrong.put_i32(handle);
        let found = decode_stream(&wrong.freeze());
        assert!(matches!(found, Err(JavaError::Reference { .. })), "{handle}: {found:?}");
    }
}

#[test]
fn long_strings_use_the_long_form() {
    for len in [65_535, 65_536] {
        let items = [JavaValue::String("x".repeat(len))];
        let bytes = encode_stream(&items);
        assert_eq!(bytes[4], if len > 65_535 { 0x7C } else { 0x74 });
        assert_eq!(decode_stream(&bytes).unwrap(), items);
    }
}

#[test]
fn other_classes_are_named_in_the_error() {
    let list = unhex(
        "aced0005 7372 0013 6a6176612e7574696c2e41727261794c697374 7881d21d99c7619d 03 0001 49 \
         0004 73697a65 78 70 00000000 77 04 00000000 78",
    );
    let refused = decode_stream(&list).unwrap_err();
    assert_eq!(refused.to_string(), "java class \"java.util.ArrayList\" is not read here");
    let mut changed = unhex(STREAM_SAMPLE).to_vec();
    changed[26] ^= 1;
    let refused = decode_stream(&changed.into()).unwrap_err();
    assert_eq!(refused, JavaError::ClassForm { name: "java.lang.Integer" });
}

#[test]
fn every_prefix_and_every_flipped_bit_is_survived() {
    for sample in [MAP_SAMPLE, STREAM_SAMPLE, NUMBERS_SAMPLE] {
        let bytes = unhex(sample);
        for len in 0..bytes.len() {
            let prefix = bytes.slice(..len);
            // A map has an end to miss; a stream may stop after any value.
            assert!(decode_map(&prefix).is_err());
            drop(decode_stream(&prefix));
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let flipped = Bytes::from(flipped);
            drop((decode_map(&flipped), decode_stream(&flipped), decode_hashtable(&flipped)));
        }
    }
}

#[test]
fn repeated_references_to_a_long_string_stop_at_the_limit() {
    let mut body = BytesMut::from(&encode_stream(&[JavaValue::String("x".repeat(1 << 20))])[..]);
    for _ in 0..=JAVA_REPEATED_BYTES_MAX >> 20 {
        body.put_u8(0x71);
        body.put_i32(0x007E_0000);
    }
    assert_eq!(decode_stream(&body.freeze()), Err(JavaError::Repeated));
}

#[test]
fn claimed_sizes_allocate_nothing() {
    let mut map = unhex(MAP_SAMPLE).to_vec();
    let at = map.windows(2).position(|pair| pair == [0x77, 8]).unwrap() + 6;
    map[at..at + 4].copy_from_slice(&1_000_000_i32.to_be_bytes());
    assert!(matches!(decode_map(&map.clone().into()), Err(JavaError::Element { .. })));
    map[at..at + 4].copy_from_slice(&i32::MAX.to_be_bytes());
    assert_eq!(decode_map(&map.clone().into()), Err(JavaError::Items));
    map[at..at + 4].copy_from_slice(&(-1_i32).to_be_bytes());
    assert!(matches!(decode_map(&map.into()), Err(JavaError::Length { length: -1, .. })));
}

fn values() -> impl Strategy<Value = JavaValue> {
    prop_oneof![
        Just(JavaValue::Null),
        any::<bool>().prop_map(JavaValue::Boolean),
        any::<i8>().prop_map(JavaValue::Byte),
        any::<i16>().prop_map(JavaValue::Short),
        any::<u16>().prop_map(JavaValue::Char),
        any::<i32>().prop_map(JavaValue::Int),
        any::<i64>().prop_map(JavaValue::Long),
        any::<f32>().prop_map(JavaValue::Float),
        any::<f64>().prop_map(JavaValue::Double),
        any::<String>().prop_map(JavaValue::String),
        any::<Vec<u8>>().prop_map(JavaValue::from),
    ]
}

proptest! {
    #[test]
    fn streams_survive_the_round_trip(items in proptest::collection::vec(values(), 0..20)) {
        let bytes = encode_stream(&items);
        let read = decode_stream(&bytes).unwrap();
        // Compared as bytes, as a number that is none does not equal itself.
        prop_assert_eq!(format!("{read:?}"), format!("{items:?}"));
        prop_assert_eq!(encode_stream(&read), bytes);
    }

    #[test]
    fn maps_survive_the_round_trip(
        entries in proptest::collection::vec((any::<String>(), values()), 0..20)
    ) {
        let bytes = map_bytes(&entries);
        let read = decode_map(&bytes).unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{entries:?}"));
        prop_assert_eq!(map_bytes(&read), bytes);
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        bytes.splice(0..0, [0xAC, 0xED, 0, 5]);
        let bytes = Bytes::from(bytes);
        drop((decode_map(&bytes), decode_stream(&bytes), decode_hashtable(&bytes)));
    }
}
