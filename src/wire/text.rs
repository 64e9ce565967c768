//! Text as Java writes it.
//!
//! Property tables and the variable header hold *modified* UTF-8: U+0000 as `C0 80`, characters
//! outside the basic plane as two three-byte surrogates. Some readers and writers use plain UTF-8
//! instead, so both are accepted and the modified form is written.

use std::borrow::Cow;

use bytes::BufMut;

/// Reads plain or modified UTF-8. `None` if it is neither.
#[must_use]
pub fn decode_text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(Cow::Borrowed(text)),
        Err(_) => decode_modified(bytes).map(Cow::Owned),
    }
}

fn decode_modified(bytes: &[u8]) -> Option<String> {
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        let (unit, used) = match (first, tail) {
            (0x00..=0x7F, _) => (u16::from(first), 0),
            (0xC0..=0xDF, [a, ..]) if is_continuation(*a) => {
                (u16::from(first & 0x1F) << 6 | low_six(*a), 1)
            }
            (0xE0..=0xEF, [a, b, ..]) if is_continuation(*a) && is_continuation(*b) => {
                (u16::from(first & 0x0F) << 12 | low_six(*a) << 6 | low_six(*b), 2)
            }
            _ => return None,
        };
        units.push(unit);
        rest = tail.get(used..)?;
    }
    String::from_utf16(&units).ok()
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

fn low_six(byte: u8) -> u16 {
    u16::from(byte & 0x3F)
}

/// Writes `text` as modified UTF-8.
pub fn encode_text(text: &str, out: &mut impl BufMut) {
    if !needs_modification(text) {
        out.put_slice(text.as_bytes());
        return;
    }
    let mut buffer = [0; 4];
    for c in text.chars() {
        if c == '\0' {
            out.put_slice(&[0xC0, 0x80]);
        } else if c.len_utf8() == 4 {
            let mut pair = [0; 2];
            for &mut unit in c.encode_utf16(&mut pair) {
                out.put_slice(&surrogate_bytes(unit));
            }
        } else {
            out.put_slice(c.encode_utf8(&mut buffer).as_bytes());
        }
    }
}

/// How many bytes [`encode_text`] writes for `text`.
#[must_use]
pub(crate) fn encoded_len(text: &str) -> usize {
    if !needs_modification(text) {
        return text.len();
    }
    let len = |c: char| match (c, c.len_utf8()) {
        ('\0', _) => 2,
        (_, 4) => 6,
        (_, plain) => plain,
    };
    text.chars().map(len).sum()
}

fn needs_modification(text: &str) -> bool {
    // A zero byte, or the first byte of a four-byte sequence.
    text.bytes().any(|byte| byte == 0 || byte >= 0xF0)
}

fn surrogate_bytes(unit: u16) -> [u8; 3] {
    let [high, low] = unit.to_be_bytes();
    [0xE0 | high >> 4, 0x80 | (high & 0x0F) << 2 | low >> 6, 0x80 | low & 0x3F]
}

#[cfg(test)]
mod tests {
    use super::{decode_text, encode_text, encoded_len};

    #[test]
    fn text_survives_the_round_trip_in_the_form_java_writes() {
        for text in ["", "abc", "é中", "a\0b", "😀x", "\u{10FFFF}"] {
            let mut out = Vec::new();
            encode_text(text, &mut out);
            assert_eq!(encoded_len(text), out.len());
            assert_eq!(decode_text(&out).as_deref(), Some(text));
            assert!(!out.contains(&0));
        }
        let mut smile = Vec::new();
        encode_text("😀", &mut smile);
        assert_eq!(smile, [0xED, 0xA0, 0xBD, 0xED, 0xB8, 0x80]);
        assert_eq!(decode_text("😀".as_bytes()).as_deref(), Some("😀"));
    }

    #[test]
    fn bytes_that_are_no_text_are_told_apart() {
        let bad: [&[u8]; 6] =
            [&[0xC3, 0x28], &[0xE0], &[0xE0, 0x80], &[0xC3], &[0xFF], &[0xED, 0xA0, 0xBD]];
        for bytes in bad {
            assert_eq!(decode_text(bytes), None, "{bytes:x?}");
        }
    }
}
