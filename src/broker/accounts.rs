//! Who may log in.
//!
//! A user file has one line a user, `name:hash:role:enabled`, where the hash is that of name and
//! password as the `digest` login computes it, so the file holds no password. Lines that are empty
//! or start with `#` are skipped.

use std::{collections::HashMap, fmt::Write as _, fs, io, net::IpAddr, path::Path};

use crate::proto::{auth::stored_hash, broker_in};

use super::connections::Service;

/// Name of the user file in a broker's data directory.
pub(super) const USER_FILE: &str = "users";

/// Names of the accounts a new broker has; each one's password is its name.
const DEFAULTS: [(&str, Role); 2] = [("admin", Role::Admin), ("guest", Role::User)];

/// A user file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountsError {
    /// The file cannot be read or made.
    #[error("user file {file}")]
    File {
        /// The file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// A line is not `name:hash:role:enabled`.
    #[error("user file {file}, line {line}: {reason}; a line is name:hash:role:enabled")]
    Line {
        /// The file.
        file: String,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum Role {
    /// Everything.
    Admin,
    /// Send and receive.
    User,
}

#[derive(Debug, Clone)]
struct User {
    hash: String,
    role: Role,
    enabled: bool,
}

/// The users of a broker, read once at its start.
#[derive(Debug, Clone)]
pub(super) struct Accounts {
    users: HashMap<String, User>,
}

impl Default for Accounts {
    /// `guest` and `admin`, each with its name as password.
    fn default() -> Self {
        let user = |&(name, role): &(&str, Role)| {
            (name.to_owned(), User { hash: stored_hash(name, name), role, enabled: true })
        };
        Self { users: DEFAULTS.iter().map(user).collect() }
    }
}

impl Accounts {
    /// Reads the user file of a data directory; makes one with the default accounts if there is
    /// none.
    ///
    /// # Errors
    /// Any [`AccountsError`].
    pub(super) fn open(directory: &Path) -> Result<Self, AccountsError> {
        let path = directory.join(USER_FILE);
        let file = path.display().to_string();
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text, &file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let accounts = Self::default();
                fs::write(&path, accounts.to_text())
                    .map_err(|source| AccountsError::File { file, source })?;
                Ok(accounts)
            }
            Err(source) => Err(AccountsError::File { file, source }),
        }
    }

    fn parse(text: &str, file: &str) -> Result<Self, AccountsError> {
        let mut users = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |reason: &str| AccountsError::Line {
                file: file.to_owned(),
                line: at + 1,
                reason: reason.to_owned(),
            };
            // A name may hold colons, the other three fields may not.
            let mut fields = line.rsplitn(4, ':').map(str::trim);
            let mut next = || fields.next();
            let (Some(enabled), Some(role), Some(hash), Some(name)) =
                (next(), next(), next(), next())
            else {
                return Err(wrong("too few fields"));
            };
            let role = match role {
                "admin" => Role::Admin,
                "user" => Role::User,
                _ => return Err(wrong("the role is neither admin nor user")),
            };
            let enabled = match enabled {
                "true" | "1" => true,
                "false" | "0" => false,
                _ => return Err(wrong("enabled is neither true nor false")),
            };
            let user = User { hash: hash.to_owned(), role, enabled };
            if users.insert(name.to_owned(), user).is_some() {
                return Err(wrong("this user stands here twice"));
            }
        }
        Ok(Self { users })
    }

    fn to_text(&self) -> String {
        let mut text = String::from("# name:hash:role:enabled\n");
        let mut names: Vec<&String> = self.users.keys().collect();
        names.sort();
        for name in names {
            let user = &self.users[name];
            let role = match user.role {
                Role::Admin => "admin",
                Role::User => "user",
            };
            // Writing to a string cannot fail.
            let _infallible = writeln!(text, "{name}:{}:{role}:{}", user.hash, user.enabled);
        }
        text
    }

    /// The accounts as a peer at this address may use them for this service: one that still has its
    /// default password is for this machine only, and only administrators administer.
    #[must_use]
    pub(super) const fn of(&self, peer: IpAddr, service: Service) -> AccountsFor<'_> {
        AccountsFor { accounts: self, peer, service }
    }
}

/// See [`Accounts::of`].
#[derive(Debug)]
pub(super) struct AccountsFor<'a> {
    accounts: &'a Accounts,
    peer: IpAddr,
    service: Service,
}

impl broker_in::Accounts for AccountsFor<'_> {
    fn stored_hash(&self, name: &str) -> Option<String> {
        let may = |user: &&User| match self.service {
            Service::Jms => user.enabled,
            Service::Admin => user.enabled && user.role == Role::Admin,
        };
        let user = self.accounts.users.get(name).filter(may)?;
        let is_default = user.hash == stored_hash(name, name);
        (self.peer.to_canonical().is_loopback() || !is_default).then(|| user.hash.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{Accounts, Service, USER_FILE, stored_hash};
    use crate::proto::broker_in::Accounts as _;

    #[test]
    fn default_accounts_are_for_this_machine_only() {
        let accounts = Accounts::default();
        let local: IpAddr = "127.0.0.1".parse().unwrap();
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let remote: IpAddr = "10.1.2.3".parse().unwrap();
        let knows = |peer, name| accounts.of(peer, Service::Jms).stored_hash(name).is_some();
        assert!(knows(local, "guest") && knows(mapped, "admin"));
        assert!(!knows(remote, "guest") && !knows(local, "nobody"));
    }

    #[test]
    fn only_administrators_administer() {
        let accounts = Accounts::default();
        let administer = accounts.of("127.0.0.1".parse().unwrap(), Service::Admin);
        assert!(administer.stored_hash("admin").is_some());
        assert!(administer.stored_hash("guest").is_none());
    }

    #[test]
    fn a_user_file_is_made_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        Accounts::open(directory.path()).unwrap();
        let file = directory.path().join(USER_FILE);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("guest:-2c3c4a34aa2c392f39edd112333c230d:user:true"), "{text}");
        std::fs::write(
            &file,
            format!("# mine\n\na:b:{}:user:true\noff:x:user:false\n", stored_hash("a:b", "s")),
        )
        .unwrap();
        let accounts = Accounts::open(directory.path()).unwrap();
        let remote = accounts.of("10.1.2.3".parse().unwrap(), Service::Jms);
        assert_eq!(remote.stored_hash("a:b"), Some(stored_hash("a:b", "s")));
        assert_eq!(remote.stored_hash("off"), None);
        assert_eq!(remote.stored_hash("guest"), None);
    }

    #[test]
    fn a_broken_user_file_is_named_with_its_line() {
        for (text, wanted) in [
            ("guest:x:user", "line 1: too few fields"),
            ("\na:x:boss:true", "line 2: the role"),
            ("a:x:user:perhaps", "enabled"),
            ("a:x:user:true\na:y:user:true", "line 2: this user stands here twice"),
        ] {
            let error = Accounts::parse(text, "u").unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
