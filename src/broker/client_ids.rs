//! Client ids in use, each with the connections that hold it.
//!
//! An id belongs to one connection, unless all that ask for it are willing to share. A connection
//! may also ask for an id within a name space: that takes the id for the name space as well, and
//! this part is never shared.
//!
//! # Source
//! The wire protocol: `SET_CLIENTID`.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

use crate::{proto::broker_in::ClientIdWish, sync::Snapshot, wire::Status};

const PARTS: usize = 64;

/// Stands at the beginning of an id where the user's name is to be put in.
const USER: &str = "${u}";

/// How an id begins in which the user's name stands already.
const USER_EXPANDED: &str = "${u:";

/// Stands between name space and id in the name of their lock.
const NAMESPACE_SEPARATOR: &str = "${%%}";

/// Who holds an id.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holders {
    One(i64),
    Shared(Vec<i64>),
}

impl Holders {
    fn has(&self, connection: i64) -> bool {
        match self {
            Self::One(holder) => *holder == connection,
            Self::Shared(holders) => holders.contains(&connection),
        }
    }
}

/// Ids and the locks of their name spaces.
type Part = HashMap<Box<str>, Holders>;

/// The client ids of a broker.
#[derive(Debug)]
pub(super) struct ClientIds {
    /// An id and all its name spaces are in the same part, so that one exchange takes them.
    parts: Vec<Snapshot<Part>>,
    hasher: RandomState,
}

impl Default for ClientIds {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| Snapshot::new(Part::default())).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl ClientIds {
    /// Takes an id for a connection, and returns the id as it is from now on. What the connection
    /// held before it keeps, until that is [released](Self::release).
    ///
    /// # Errors
    /// 400 for an id that cannot be one, 409 if others hold it.
    pub(super) fn take(
        &self,
        wish: &ClientIdWish,
        user: &str,
        connection: i64,
    ) -> Result<String, (Status, String)> {
        let id = expand(&wish.id, user)?;
        let shares = wish.share.unwrap_or_else(|| wish.namespace.is_some());
        let lock = wish.namespace.as_ref().map(|name| format!("{name}{NAMESPACE_SEPARATOR}{id}"));
        let (_, taken) = self.part(&id).update(|part| {
            let mut next = part.clone();
            add(&mut next, &id, connection, shares)?;
            if let Some(lock) = &lock {
                add(&mut next, lock, connection, false)?;
            }
            Some(next)
        });
        match taken {
            Some(_) => Ok(id),
            None => Err((Status::CONFLICT, format!("the client id {id} is in use"))),
        }
    }

    /// Frees an id, as [`take`](Self::take) returned it, and its name space, if this connection
    /// holds them.
    pub(super) fn release(&self, id: &str, connection: i64) {
        let _released = self.part(id).update(|part| {
            let belongs = |key: &str| {
                key.strip_suffix(id)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with(NAMESPACE_SEPARATOR))
            };
            let keys = part.iter().filter(|(key, holders)| belongs(key) && holders.has(connection));
            let keys: Vec<&str> = keys.map(|(key, _)| &**key).collect();
            (!keys.is_empty()).then(|| {
                let mut next = part.clone();
                keys.into_iter().for_each(|key| remove(&mut next, key, connection));
                next
            })
        });
    }

    fn part(&self, id: &str) -> &Snapshot<Part> {
        let hash = self.hasher.hash_one(id);
        &self.parts[usize::try_from(hash % PARTS as u64).unwrap_or(0)]
    }
}

/// The id with the user's name put in.
fn expand(id: &str, user: &str) -> Result<String, (Status, String)> {
    let refused = |reason: &str| Err((Status::BAD_REQUEST, format!("the client id {reason}")));
    if id.trim().is_empty() {
        return refused("is blank");
    }
    if id.starts_with(USER_EXPANDED) {
        return refused("must not begin with '${u:'; write '${u}', the broker puts the user in");
    }
    if id.contains(NAMESPACE_SEPARATOR) {
        return refused("must not hold '${%%}', which is reserved");
    }
    Ok(match id.strip_prefix(USER) {
        Some(rest) => format!("{USER_EXPANDED}{user}}}{rest}"),
        None => id.to_owned(),
    })
}

/// Adds a holder; `None` if the others do not allow it.
fn add(part: &mut Part, key: &str, connection: i64, shares: bool) -> Option<()> {
    let new = || if shares { Holders::Shared(vec![connection]) } else { Holders::One(connection) };
    match part.get_mut(key) {
        None => {
            part.insert(key.into(), new());
        }
        // Its own: it may change its mind about sharing while nobody shares with it.
        Some(Holders::One(holder)) if *holder == connection => {
            part.insert(key.into(), new());
        }
        Some(Holders::Shared(holders)) if holders.as_slice() == [connection] => {
            part.insert(key.into(), new());
        }
        Some(Holders::Shared(holders)) if shares => {
            if !holders.contains(&connection) {
                holders.push(connection);
            }
        }
        Some(Holders::One(_) | Holders::Shared(_)) => return None,
    }
    Some(())
}

fn remove(part: &mut Part, key: &str, connection: i64) {
    if let Some(Holders::Shared(holders)) = part.get_mut(key) {
        holders.retain(|holder| *holder != connection);
        if !holders.is_empty() {
            return;
        }
    }
    part.remove(key);
}

#[cfg(test)]
mod tests {
    use super::ClientIds;
    use crate::{proto::broker_in::ClientIdWish, wire::Status};

    fn wish(id: &str) -> ClientIdWish {
        ClientIdWish { id: id.into(), share: None, namespace: None }
    }

    fn shared(id: &str) -> ClientIdWish {
        ClientIdWish { share: Some(true), ..wish(id) }
    }

    fn within(id: &str, namespace: &str) -> ClientIdWish {
        ClientIdWish { namespace: Some(namespace.into()), ..wish(id) }
    }

    fn status(result: Result<String, (Status, String)>) -> Status {
        result.map_or_else(|(status, _)| status, |_| Status::OK)
    }

    #[test]
    fn an_id_belongs_to_one_connection_until_it_is_released() {
        let ids = ClientIds::default();
        assert_eq!(ids.take(&wish("a"), "guest", 1), Ok("a".into()));
        assert_eq!(ids.take(&wish("a"), "guest", 1), Ok("a".into()), "again, the same one");
        assert_eq!(status(ids.take(&wish("a"), "guest", 2)), Status::CONFLICT);
        assert_eq!(status(ids.take(&shared("a"), "guest", 2)), Status::CONFLICT);
        ids.release("a", 2);
        assert_eq!(status(ids.take(&wish("a"), "guest", 2)), Status::CONFLICT);
        ids.release("a", 1);
        assert_eq!(status(ids.take(&wish("a"), "guest", 2)), Status::OK);
    }

    #[test]
    fn an_id_is_shared_by_those_who_are_willing() {
        let ids = ClientIds::default();
        for connection in 1..=3 {
            assert_eq!(status(ids.take(&shared("a"), "guest", connection)), Status::OK);
        }
        assert_eq!(status(ids.take(&wish("a"), "guest", 4)), Status::CONFLICT);
        assert_eq!(status(ids.take(&wish("a"), "guest", 1)), Status::CONFLICT, "others share it");
        ids.release("a", 1);
        ids.release("a", 2);
        assert_eq!(status(ids.take(&wish("a"), "guest", 4)), Status::CONFLICT);
        assert_eq!(status(ids.take(&wish("a"), "guest", 3)), Status::OK, "nobody shares any more");
        assert_eq!(status(ids.take(&shared("a"), "guest", 4)), Status::CONFLICT);
        ids.release("a", 3);
        assert_eq!(status(ids.take(&wish("a"), "guest", 4)), Status::OK);
    }

    #[test]
    fn a_name_space_shares_the_id_and_not_itself() {
        let ids = ClientIds::default();
        assert_eq!(status(ids.take(&within("a", "n1"), "guest", 1)), Status::OK);
        assert_eq!(status(ids.take(&within("a", "n2"), "guest", 2)), Status::OK);
        assert_eq!(status(ids.take(&within("a", "n1"), "guest", 3)), Status::CONFLICT);
        assert_eq!(status(ids.take(&shared("a"), "guest", 3)), Status::OK, "the id alone");
        ids.release("a", 1);
        assert_eq!(status(ids.take(&within("a", "n1"), "guest", 4)), Status::OK);
        let unshared = ClientIdWish { share: Some(false), ..within("b", "n1") };
        assert_eq!(status(ids.take(&unshared, "guest", 1)), Status::OK);
        assert_eq!(status(ids.take(&within("b", "n2"), "guest", 2)), Status::CONFLICT);
    }

    #[test]
    fn a_refused_take_takes_nothing() {
        let ids = ClientIds::default();
        ids.take(&within("a", "n"), "guest", 1).unwrap();
        ids.take(&within("a", "n"), "guest", 2).unwrap_err();
        ids.release("a", 1);
        assert_eq!(status(ids.take(&wish("a"), "guest", 3)), Status::OK);
    }

    #[test]
    fn the_users_name_is_put_in() {
        let ids = ClientIds::default();
        assert_eq!(ids.take(&wish("${u}-app"), "ann", 1), Ok("${u:ann}-app".into()));
        assert_eq!(ids.take(&wish("${u}-app"), "bob", 2), Ok("${u:bob}-app".into()));
        assert_eq!(status(ids.take(&wish("${u}-app"), "ann", 3)), Status::CONFLICT);
        assert_eq!(ids.take(&wish("app-${u}"), "ann", 3), Ok("app-${u}".into()));
    }

    #[test]
    fn an_id_that_cannot_be_one_is_refused() {
        let ids = ClientIds::default();
        for bad in ["", " \t", "${u:ann}", "${u:", "n${%%}a"] {
            assert_eq!(status(ids.take(&wish(bad), "ann", 1)), Status::BAD_REQUEST, "{bad}");
        }
    }

    #[test]
    fn of_threads_that_race_for_an_id_one_wins() {
        let ids = ClientIds::default();
        let wins: usize = std::thread::scope(|scope| {
            let race = |connection| {
                let ids = &ids;
                move || {
                    let id = |n: i32| wish(&format!("id{n}"));
                    (0..200).filter(|&n| ids.take(&id(n), "guest", connection).is_ok()).count()
                }
            };
            let threads: Vec<_> = (1..=4).map(|connection| scope.spawn(race(connection))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(wins, 200);
    }
}
