//! Reads files of recorded traffic, one JSON object a line.
//!
//! | key | meaning |
//! | --- | --- |
//! | `n` | running number, from 1 |
//! | `dir` | `c2b`, client to broker, or `b2c`, broker to client |
//! | `conn` | number of the connection, from 1; 0 is the recorder itself |
//! | `ms` | milliseconds since the first line |
//! | `type` | name of the packet's type; only where `hex` is one whole packet |
//! | `hex` | the bytes |
//! | `ev` | `open`, `eof`, `reset` or `drop`, where nothing was sent |

use std::io::{self, BufRead};

use bytes::Bytes;
use serde::Deserialize;

use super::{DecodeError, Packet, limits::PACKET_BYTES_MAX};

/// Which way bytes went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[allow(clippy::exhaustive_enums, reason = "there are two ends")]
pub enum Direction {
    /// Client to broker.
    #[serde(rename = "c2b")]
    ToBroker,
    /// Broker to client.
    #[serde(rename = "b2c")]
    ToClient,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ToBroker => "->",
            Self::ToClient => "<-",
        })
    }
}

/// One line of a capture.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CaptureLine {
    /// Running number, from 1.
    pub number: u64,
    /// Which way the bytes went.
    pub direction: Direction,
    /// Number of the connection, from 1; 0 is the recorder itself.
    pub connection: u64,
    /// Milliseconds since the first line.
    pub millis: u64,
    /// What happened, if nothing was sent.
    pub event: Option<String>,
    /// Name of the packet's type; `None` if the bytes are no packet.
    pub packet_type: Option<String>,
    /// What was sent.
    pub bytes: Bytes,
}

impl CaptureLine {
    /// The packet; `None` if the line is an event or text.
    #[must_use]
    pub fn packet(&self) -> Option<Result<Packet, DecodeError>> {
        self.packet_type.as_ref().map(|_| Packet::decode(self.bytes.clone()))
    }
}

/// Why a capture cannot be read any further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// Reading failed.
    #[error("line {line} of the capture cannot be read")]
    Read {
        /// Number of the line, from 1.
        line: usize,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line is longer than the largest packet takes.
    #[error("line {line} of the capture has over {LINE_BYTES_MAX} bytes")]
    TooLong {
        /// Number of the line, from 1.
        line: usize,
    },
    /// A line is not an object with these keys.
    #[error("line {line} of the capture is no capture line")]
    Json {
        /// Number of the line, from 1.
        line: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The bytes are not hexadecimal digits in pairs.
    #[error("line {line} of the capture has bytes that are no pairs of hexadecimal digits")]
    Hex {
        /// Number of the line, from 1.
        line: usize,
    },
}

/// The lines of a capture. Ends after the first error; empty lines are skipped.
pub fn read_capture(
    reader: impl BufRead,
) -> impl Iterator<Item = Result<CaptureLine, CaptureError>> {
    let mut reader = Some(reader);
    let mut line = 0;
    std::iter::from_fn(move || {
        loop {
            line += 1;
            let found = next_line(reader.as_mut()?, line);
            match &found {
                Ok(Some(text)) if text.iter().all(u8::is_ascii_whitespace) => continue,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => reader = None,
            }
            let parsed = found.transpose()?.and_then(|text| parse(&text, line));
            if parsed.is_err() {
                reader = None;
            }
            return Some(parsed);
        }
    })
}

/// Digits of the largest packet, and room for everything else.
const LINE_BYTES_MAX: u64 = PACKET_BYTES_MAX as u64 * 2 + 4096;

#[derive(Deserialize)]
struct Line {
    n: u64,
    dir: Direction,
    conn: u64,
    ms: u64,
    ev: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    hex: String,
}

fn next_line(reader: &mut impl BufRead, line: usize) -> Result<Option<Vec<u8>>, CaptureError> {
    let mut text = Vec::new();
    let read = io::Read::take(reader, LINE_BYTES_MAX + 1)
        .read_until(b'\n', &mut text)
        .map_err(|source| CaptureError::Read { line, source })?;
    if read as u64 > LINE_BYTES_MAX {
        return Err(CaptureError::TooLong { line });
    }
    Ok((read > 0).then_some(text))
}

fn parse(text: &[u8], line: usize) -> Result<CaptureLine, CaptureError> {
    let parsed: Line =
        serde_json::from_slice(text).map_err(|source| CaptureError::Json { line, source })?;
    Ok(CaptureLine {
        number: parsed.n,
        direction: parsed.dir,
        connection: parsed.conn,
        millis: parsed.ms,
        event: parsed.ev,
        packet_type: parsed.kind,
        bytes: unhex(parsed.hex.as_bytes()).ok_or(CaptureError::Hex { line })?,
    })
}

fn unhex(digits: &[u8]) -> Option<Bytes> {
    let (pairs, rest) = digits.as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::{CaptureError, Direction, read_capture};

    #[test]
    fn lines_are_read_and_errors_name_their_line() {
        let text = concat!(
            r#"{"n":1,"dir":"c2b","conn":1,"ms":0,"ev":"open","hex":""}"#,
            "\n\n",
            r#"{"n":2,"dir":"b2c","conn":1,"ms":5,"type":"PING","hex":"1bFF"}"#,
            "\n",
            r#"{"n":3,"dir":"b2c","conn":1,"ms":5,"type":"PING","hex":"1bf"}"#,
            "\n",
            r#"{"n":4}"#,
        );
        let mut lines = read_capture(text.as_bytes());
        let open = lines.next().unwrap().unwrap();
        assert_eq!((open.event.as_deref(), open.direction), (Some("open"), Direction::ToBroker));
        assert!(open.packet().is_none());
        let ping = lines.next().unwrap().unwrap();
        assert_eq!((ping.number, ping.millis, &ping.bytes[..]), (2, 5, &[0x1B, 0xFF][..]));
        assert!(ping.packet().unwrap().is_err());
        assert!(matches!(lines.next(), Some(Err(CaptureError::Hex { line: 4 }))));
        assert!(lines.next().is_none(), "ends after the first error");
        assert!(matches!(
            read_capture(&b"{\"n\":4}"[..]).next(),
            Some(Err(CaptureError::Json { line: 1, .. }))
        ));
    }
}
