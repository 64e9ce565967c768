//! The address of a database, which has a password in it.

use std::fmt;

/// Where a database is, and who logs in there, as in `postgresql://user:password@host:5432/name`.
///
/// Shown, it is without user and password; [`reveal`](Self::reveal) has all of it.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    /// From a text; `None` if it does not begin as such an address does.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let rest = behind_scheme(text)?;
        (!rest.is_empty()).then(|| Self(text.to_owned()))
    }

    /// All of it, for whoever connects.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

fn behind_scheme(text: &str) -> Option<&str> {
    text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://"))
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = behind_scheme(&self.0).unwrap_or_default();
        // A password that was not escaped may hold any of the marks, so only what cannot be a part
        // of it is shown: behind the last `@`, unless that may stand in a parameter.
        let login = rest.rfind('@').map_or("", |at| &rest[..at]);
        let open = &rest[login.len()..];
        let open = if login.contains('?') { "@" } else { open };
        let open = open.split_once('?').map_or(open, |(before, _)| before);
        let hidden = if login.is_empty() { "" } else { "…" };
        write!(f, "postgresql://{hidden}{open}")
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::DatabaseUrl;

    #[test]
    fn it_is_shown_without_user_and_password() {
        for (text, shown) in [
            ("postgres://host/name", "postgresql://host/name"),
            ("postgresql://user:secret@host:5432/name", "postgresql://…@host:5432/name"),
            ("postgres://user:sec@ret/secret@host/name", "postgresql://…@host/name"),
            ("postgres://host/name?user=u&password=secret", "postgresql://host/name"),
            ("postgres://host/name?password=secret@secret", "postgresql://…@"),
            ("postgres://user:secret?secret@host/name", "postgresql://…@"),
            ("postgres://user:secret@a,b:1/name?password=secret", "postgresql://…@a,b:1/name"),
        ] {
            let url = DatabaseUrl::new(text).unwrap();
            assert_eq!((url.to_string(), url.reveal()), (shown.to_owned(), text));
            assert!(!format!("{url:?}").contains("secret"));
        }
        for text in ["", "host=a password=secret", "postgres://", "mysql://host/name"] {
            assert_eq!(DatabaseUrl::new(text), None);
        }
    }
}
