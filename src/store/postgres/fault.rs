//! What an error of the database means for the store.

use std::{error::Error as _, io};

use tokio_postgres::{Error, error::DbError};

use crate::store::StoreError;

/// Codes in which the place matters. PostgreSQL, appendix A.
pub(super) const UNIQUE_VIOLATION: &str = "23505";
pub(super) const DUPLICATE_TABLE: &str = "42P07";
pub(super) const DUPLICATE_OBJECT: &str = "42710";
pub(super) const UNDEFINED_TABLE: &str = "42P01";
pub(super) const UNDEFINED_OBJECT: &str = "42704";
const COMPLETION_UNKNOWN: &str = "40003";
const READ_ONLY: &str = "25006";
const LOCK_NOT_AVAILABLE: &str = "55P03";
const INTERNAL: &str = "XX000";

/// What follows from an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The connection is of no use any more, or the database cannot serve now: it may come back.
    Lost,
    /// Rolled back, because another transaction was in the way. It may be tried again.
    Conflict,
    /// What the database keeps is damaged.
    Corrupt,
    /// It will not do this, however often it is asked.
    Refused,
}

/// An error of the database. Holds no credentials: neither the address nor details of rows.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    /// The SQLSTATE, if the database said it.
    code: String,
    text: String,
}

impl Fault {
    pub(super) fn lost(text: impl Into<String>) -> Self {
        Self { kind: Kind::Lost, code: String::new(), text: text.into() }
    }

    /// Whether the database gave this code.
    pub(super) fn has_code(&self, code: &str) -> bool {
        self.code == code
    }

    /// As the error of a store that is described as `place`.
    pub(super) fn into_error(self, action: impl Into<String>, place: &str) -> StoreError {
        match self.kind {
            Kind::Lost | Kind::Conflict => StoreError::lost(action, self.text),
            Kind::Corrupt => StoreError::Corrupt { place: place.into(), reason: self.text },
            Kind::Refused => StoreError::failed(action, self.text),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        if let Some(said) = error.as_db_error() {
            return Self::from(said);
        }
        let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        let kind = match cause {
            // A value that does not fit into a message; nothing was sent.
            Some(cause) if cause.kind() == io::ErrorKind::InvalidInput => Kind::Refused,
            Some(_) => Kind::Lost,
            None if error.is_closed() => Kind::Lost,
            None => Kind::Refused,
        };
        let text = match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        };
        Self { kind, code: String::new(), text }
    }
}

impl From<&DbError> for Fault {
    fn from(said: &DbError) -> Self {
        let code = said.code().code();
        let text = match code.get(..2) {
            // The message names the user.
            Some("28") => format!("the database refuses the login (SQLSTATE {code})"),
            _ => format!("{} (SQLSTATE {code})", said.message()),
        };
        Self { kind: kind_of(code), code: code.into(), text }
    }
}

fn kind_of(code: &str) -> Kind {
    match (code.get(..2).unwrap_or_default(), code) {
        (_, COMPLETION_UNKNOWN | READ_ONLY | LOCK_NOT_AVAILABLE | INTERNAL) => Kind::Lost,
        ("40", _) => Kind::Conflict,
        // The connection, its resources (a full disk among them), an operator, the system.
        ("08" | "53" | "57" | "58", _) => Kind::Lost,
        ("XX", _) => Kind::Corrupt,
        _ => Kind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, kind_of};

    #[test]
    fn codes_say_whether_it_may_come_back() {
        let cases = [
            ("57P01", Kind::Lost),
            ("57014", Kind::Lost),
            ("53100", Kind::Lost),
            ("08006", Kind::Lost),
            ("25006", Kind::Lost),
            ("40001", Kind::Conflict),
            ("40P01", Kind::Conflict),
            ("40003", Kind::Lost),
            ("XX001", Kind::Corrupt),
            ("42501", Kind::Refused),
            ("28P01", Kind::Refused),
            ("", Kind::Refused),
        ];
        for (code, kind) in cases {
            assert_eq!(kind_of(code), kind, "{code}");
        }
    }
}
