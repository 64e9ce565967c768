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
    RawText::new(bytes).map(|text| match text {
        RawText::Plain(text) => Cow::Borrowed(text),
        RawText::Modified(_) => Cow::Owned(text.chars().collect()),
    })
}

/// Text as it stands on the wire, checked, and read without being decoded first.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RawText<'a> {
    /// Plain UTF-8.
    Plain(&'a str),
    /// Modified UTF-8 that is not plain as well.
    Modified(&'a [u8]),
}

impl<'a> RawText<'a> {
    /// Takes plain or modified UTF-8. `None` if it is neither.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Some(Self::Plain(text));
        }
        let mut units = ModifiedUnits { rest: bytes };
        let paired = char::decode_utf16(&mut units).all(|c| c.is_ok());
        (paired && units.rest.is_empty()).then_some(Self::Modified(bytes))
    }

    /// Its characters, one after the other.
    pub(crate) fn chars(self) -> impl Iterator<Item = char> + Clone + use<'a> {
        let (plain, modified) = match self {
            Self::Plain(text) => (text, [].as_slice()),
            Self::Modified(bytes) => ("", bytes),
        };
        let units = ModifiedUnits { rest: modified };
        plain.chars().chain(char::decode_utf16(units).map_while(Result::ok))
    }
}

impl PartialEq for RawText<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain(one), Self::Plain(other)) => one == other,
            // The same text can be written in several ways.
            _ => self.chars().eq(other.chars()),
        }
    }
}

/// The UTF-16 units of modified UTF-8; ends early, with something left, where it is none.
#[derive(Debug, Clone)]
struct ModifiedUnits<'a> {
    rest: &'a [u8],
}

impl Iterator for ModifiedUnits<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        let (unit, rest) = match *self.rest {
            [first @ 0x00..=0x7F, ref rest @ ..] => (u16::from(first), rest),
            [first @ 0xC0..=0xDF, a, ref rest @ ..] if is_continuation(a) => {
                (u16::from(first & 0x1F) << 6 | low_six(a), rest)
            }
            [first @ 0xE0..=0xEF, a, b, ref rest @ ..]
                if is_continuation(a) && is_continuation(b) =>
            {
                (u16::from(first & 0x0F) << 12 | low_six(a) << 6 | low_six(b), rest)
            }
            _ => return None,
        };
        self.rest = rest;
        Some(unit)
    }
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
    use super::{RawText, decode_text, encode_text, encoded_len};

    #[test]
    fn text_survives_the_round_trip_in_the_form_java_writes() {
        for text in ["", "abc", "é中", "a\0b", "😀x", "\u{10FFFF}"] {
            let mut out = Vec::new();
            encode_text(text, &mut out);
            assert_eq!(encoded_len(text), out.len());
            assert_eq!(decode_text(&out).as_deref(), Some(text));
            assert!(!out.contains(&0));
            let raw = RawText::new(&out).unwrap();
            assert!(raw.chars().eq(text.chars()));
            assert!(raw == RawText::Plain(text) && raw != RawText::Plain("other"));
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
