//! `tidegate dump`: captured packets as text, one line each.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use bytes::Bytes;
use tidegate::message::dump::describe;
use tidegate::wire::capture::{CaptureLine, read_capture};
use tidegate::wire::limits::PACKET_BYTES_MAX;
use tidegate::wire::{Decoder, Frame};

use super::arguments::DumpArguments;
use super::failure::{Failure, with_causes};
use super::output::Output;

/// How much of a file of raw packets is read at a time.
const READ_BYTES: usize = 64 * 1024;

/// Prints every packet of a file.
pub(super) fn run(arguments: &DumpArguments, output: &mut Output) -> Result<(), Failure> {
    let standard = arguments.file == Path::new("-");
    let name =
        if standard { "standard input".into() } else { arguments.file.display().to_string() };
    let unreadable = |error: io::Error| Failure::new(&format!("cannot read {name}"), &error);
    let input: Box<dyn Read> = if standard {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&arguments.file).map_err(unreadable)?)
    };
    let mut input = BufReader::with_capacity(READ_BYTES, input);
    match input.fill_buf().map_err(unreadable)?.first() {
        None => Ok(()),
        Some(b'{' | b' ' | b'\t' | b'\r' | b'\n') => capture(input, &name, output),
        Some(_) => raw(input, &name, output),
    }
}

/// A capture. Bytes that are no packet are named, and the rest still printed.
fn capture(input: impl BufRead, name: &str, output: &mut Output) -> Result<(), Failure> {
    let mut broken = 0_u64;
    for line in read_capture(input) {
        let line = line.map_err(|error| Failure::new(name, &error))?;
        let CaptureLine { number, direction, connection, millis, .. } = &line;
        let place = format!("{number} {direction} {connection} {millis}ms");
        let what = match (line.packet(), &line.event) {
            (Some(Ok(packet)), _) => describe(&packet).to_string(),
            (Some(Err(error)), _) => {
                broken += 1;
                format!("<{}> {}", with_causes(&error), line.bytes.escape_ascii())
            }
            (None, Some(event)) => event.clone(),
            (None, None) => format!("\"{}\"", line.bytes.escape_ascii()),
        };
        output.foreign_line(&format!("{place} {what}"))?;
    }
    match broken {
        0 => Ok(()),
        1 => Err(Failure::Failed(format!("{name}: a packet could not be read"))),
        _ => Err(Failure::Failed(format!("{name}: {broken} packets could not be read"))),
    }
}

/// Packets back to back.
fn raw(mut input: impl Read, name: &str, output: &mut Output) -> Result<(), Failure> {
    let mut decoder = Decoder::new(PACKET_BYTES_MAX);
    let mut buffer = vec![0; READ_BYTES];
    let mut number = 0_u64;
    loop {
        let len = input.read(&mut buffer);
        let len = len.map_err(|error| Failure::new(&format!("cannot read {name}"), &error))?;
        if len == 0 {
            break;
        }
        decoder.feed(Bytes::copy_from_slice(buffer.get(..len).unwrap_or_default()));
        loop {
            let frame = decoder
                .next_frame()
                .map_err(|error| Failure::new(&format!("{name}: after packet {number}"), &error))?;
            let Some(frame) = frame else { break };
            number += 1;
            let what = match frame {
                Frame::Packet(packet) => describe(&packet).to_string(),
                Frame::Oversized(header) => {
                    format!("{} {} bytes, skipped", header.packet_type, header.size)
                }
            };
            output.foreign_line(&format!("{number} {what}"))?;
        }
    }
    if decoder.is_mid_packet() {
        return Err(Failure::Failed(format!("{name}: ends inside the packet after {number}")));
    }
    Ok(())
}
