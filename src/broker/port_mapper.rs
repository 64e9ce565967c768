//! Tells clients where the services listen.
//!
//! One exchange a connection: the client may send a line, the broker answers with the table, reads
//! what else may come and closes. Whoever sends nothing gets the table after half a second; whoever
//! does not go away is closed after another.

use std::{io::IoSlice, time::Duration};

use crate::{
    reactor::{ReadBuffer, Transport},
    sync::Arc,
};

use super::limits::PORT_MAPPER_LINES_MAX;

/// Time for each of the two steps.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_millis(500);

/// Whether a port mapper's peer stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Stay {
    /// Wait for more.
    Yes,
    /// Close.
    No,
}

/// One peer of the port mapper.
#[derive(Debug)]
pub(super) struct Inquiry {
    transport: Arc<dyn Transport>,
    answered: bool,
    lines: usize,
}

impl Inquiry {
    /// A peer that has just connected.
    pub(super) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, answered: false, lines: 0 }
    }

    /// Something may be read.
    pub(super) fn readable(&mut self, table: &[u8], buffer: &mut ReadBuffer) -> Stay {
        loop {
            match buffer.read(&*self.transport) {
                Ok((bytes, _)) => {
                    self.lines += bytes.iter().filter(|&&byte| byte == b'\n').count();
                    if self.lines > PORT_MAPPER_LINES_MAX {
                        return Stay::No;
                    }
                    if self.lines > 0 && self.answer(table) == Stay::No {
                        return Stay::No;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Stay::Yes,
                // The end: whoever says nothing more still wants its answer.
                Err(_) => {
                    let _closed_anyway = self.answer(table);
                    return Stay::No;
                }
            }
        }
    }

    /// A step's time is up.
    pub(super) fn deadline(&mut self, table: &[u8]) -> Stay {
        if self.answered { Stay::No } else { self.answer(table) }
    }

    fn answer(&mut self, table: &[u8]) -> Stay {
        if self.answered {
            return Stay::Yes;
        }
        self.answered = true;
        // A table is far smaller than any socket's buffer; a peer that takes less gets nothing.
        match self.transport.write_vectored(&[IoSlice::new(table)]) {
            Ok(count) if count == table.len() => {
                self.transport.finish();
                Stay::Yes
            }
            _ => Stay::No,
        }
    }
}
