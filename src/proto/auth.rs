//! How a user proves who they are.
//!
//! `digest`: the broker sends a nonce, the client answers with a hash over it and a hash of user
//! and password; the broker needs to store only the latter. `basic`: the password travels as
//! base64. Hashes are written in the protocol's own form: the 16 bytes of MD5 as a *signed*
//! big-endian integer in base 16, without leading zeros.
//!
//! MD5 is what the protocol says; it protects a password from casual eyes, not an attacker on
//! the path. TLS does.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{BufMut, Bytes, BytesMut};
use md5::{Digest as _, Md5};

use crate::wire::{decode_text, encode_text};

/// Longest user name or password accepted, in bytes.
pub const CREDENTIAL_BYTES_MAX: usize = 1024;

/// The hash of user and password that a broker stores: `hex(MD5(user:password))`.
#[must_use]
pub fn stored_hash(user: &str, password: &str) -> String {
    hash(&format!("{user}:{password}"))
}

/// The answer to a nonce: `hex(MD5(stored:nonce))`.
#[must_use]
pub fn digest_response(stored_hash: &str, nonce: &str) -> String {
    hash(&format!("{stored_hash}:{nonce}"))
}

/// Turns 16 random bytes into a nonce.
#[must_use]
pub fn nonce(random: [u8; 16]) -> String {
    signed_hex(random)
}

fn hash(text: &str) -> String {
    signed_hex(Md5::digest(text.as_bytes()).into())
}

fn signed_hex(bytes: [u8; 16]) -> String {
    let number = i128::from_be_bytes(bytes);
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{:x}", number.unsigned_abs())
}

/// The body of an `AUTHENTICATE` packet: user, then response or base64 password.
///
/// Returns `None` if either is longer than [`CREDENTIAL_BYTES_MAX`].
#[must_use]
pub fn authenticate_body(user: &str, response: &str) -> Option<Bytes> {
    let mut out = BytesMut::new();
    for text in [user, response] {
        let mut encoded = BytesMut::new();
        encode_text(text, &mut encoded);
        if encoded.len() > 2 * CREDENTIAL_BYTES_MAX {
            return None;
        }
        out.put_u16(u16::try_from(encoded.len()).ok()?);
        out.put_slice(&encoded);
    }
    Some(out.freeze())
}

/// What a `basic` login sends in place of a digest.
#[must_use]
pub fn basic_response(password: &str) -> String {
    STANDARD.encode(password)
}

/// Reads user and response from the body of an `AUTHENTICATE` packet. `None` if it is cut off, no
/// text, or has anything behind the two.
#[must_use]
pub fn read_authenticate_body(body: &[u8]) -> Option<(String, String)> {
    let (user, rest) = utf(body)?;
    let (response, rest) = utf(rest)?;
    rest.is_empty().then_some((user, response))
}

/// The password of a `basic` response; `None` if it is not base64 of text.
#[must_use]
pub fn read_basic_response(response: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(response).ok()?).ok()
}

fn utf(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    Some((decode_text(text)?.into_owned(), rest))
}

/// Compares two hashes without telling by its duration where they differ.
#[must_use]
pub fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::{
        authenticate_body, basic_response, digest_response, nonce, read_authenticate_body,
        read_basic_response, same, stored_hash,
    };

    #[test]
    fn digest_gives_what_the_reference_client_sent() {
        let stored = stored_hash("guest", "guest");
        assert_eq!(stored, "-2c3c4a34aa2c392f39edd112333c230d");
        assert_eq!(
            digest_response(&stored, "-69720c583e953e035925b875bc19d718"),
            "-1d8679593ad26cc18c62872def324d1b"
        );
    }

    #[test]
    fn hashes_are_signed_numbers_without_leading_zeros() {
        assert_eq!(nonce([0; 16]), "0");
        assert_eq!(nonce([0xFF; 16]), "-1");
        let mut lowest = [0; 16];
        lowest[0] = 0x80;
        assert_eq!(nonce(lowest), format!("-8{}", "0".repeat(31)));
    }

    #[test]
    fn bodies_survive_the_round_trip_and_broken_ones_are_refused() {
        let body = authenticate_body("gäst", &basic_response("pass:wörd")).unwrap();
        let (user, response) = read_authenticate_body(&body).unwrap();
        assert_eq!(
            (user.as_str(), read_basic_response(&response)),
            ("gäst", Some("pass:wörd".into()))
        );
        for len in 0..body.len() {
            assert_eq!(read_authenticate_body(&body[..len]), None, "{len}");
        }
        assert_eq!(read_authenticate_body(&[&body[..], &[0]].concat()), None);
        assert_eq!(read_basic_response("###"), None);
        assert!(authenticate_body(&"x".repeat(70_000), "").is_none());
        assert!(same("abc", "abc") && !same("abc", "abd") && !same("abc", "ab"));
    }
}
