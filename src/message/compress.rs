//! Compressed bodies: a zlib stream in place of the body, flagged in the packet's header.

use std::io::{Read as _, Write as _};

use bytes::Bytes;
use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};

use super::BodyError;

/// Unpacks a body that may have `limit` bytes.
pub(super) fn inflate(body: &[u8], limit: usize) -> Result<Bytes, BodyError> {
    let mut plain = Vec::new();
    // One byte more than allowed tells a body at the limit from one over it.
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    ZlibDecoder::new(body).take(most).read_to_end(&mut plain).map_err(|_| BodyError::Compressed)?;
    if plain.len() > limit {
        return Err(BodyError::CompressedSize { limit });
    }
    Ok(plain.into())
}

/// Packs a body.
pub(super) fn deflate(body: &[u8]) -> Bytes {
    let mut packed = ZlibEncoder::new(Vec::with_capacity(body.len() / 2), Compression::default());
    let written = packed.write_all(body).and_then(|()| packed.finish());
    written.expect("a vector takes all that is written").into()
}

#[cfg(test)]
mod tests {
    use super::{deflate, inflate};
    use crate::message::BodyError;

    #[test]
    fn bodies_survive_and_their_limit_holds() {
        let plain = b"tide ".repeat(500);
        let packed = deflate(&plain);
        assert!(packed.len() < 100);
        assert_eq!(inflate(&packed, 2500).unwrap(), plain);
        assert_eq!(inflate(&packed, 2499), Err(BodyError::CompressedSize { limit: 2499 }));
        assert_eq!(inflate(&packed[..20], 2500), Err(BodyError::Compressed));
        assert_eq!(inflate(b"plain", 2500), Err(BodyError::Compressed));
    }
}
