//! Subscriptions that stand for themselves: durable ones, shared ones, and those to many topics.
//!
//! Each is a queue of its own, fed by its topics; a plain subscription to one topic lives inside
//! that. Who comes to a subscription says what it is to be, and behind its gate that is compared
//! with what it is.
//!
//! # Source
//! The wire protocol: subscriptions, wildcards.

use std::collections::HashMap;

use crate::{
    selector::Selector,
    sync::{Arc, Plain, Snapshot},
};

use super::{
    command::{Command, Rare},
    destination::{Destination, Kind},
    limits::SUBSCRIPTIONS_MAX,
    stored::Stored,
    turn::Turn,
    wildcard::Pattern,
};

/// Who shares a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sharing {
    /// Nobody: one consumer at a time.
    None,
    /// Connections with the same shared client id.
    ClientId,
    /// Whoever names it.
    Name,
}

/// What a subscription is found by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SubscriptionKey {
    pub client_id: Option<Plain<str>>,
    pub durable: bool,
    pub name: SubscriptionName,
}

/// The name of a subscription within a client id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum SubscriptionName {
    /// The client gave it one.
    Given(Box<str>),
    /// It is what its topic and selector are.
    Implied { topic: Box<str>, selector: Option<Box<str>> },
}

/// Where the messages of a subscription come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// One topic.
    Topic(Arc<Destination>),
    /// All topics with a name like this, also those to come.
    Pattern(Pattern),
    /// Nowhere: its one topic was destroyed.
    Gone,
}

impl Source {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Topic(a), Self::Topic(b)) => Arc::ptr_eq(a, b),
            (Self::Pattern(a), Self::Pattern(b)) => a.text() == b.text(),
            _ => false,
        }
    }
}

/// Whose messages a subscription does not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoLocal {
    Connection(i64),
    ClientId(Plain<str>),
}

/// What a subscription is.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// What it is found by; `None` for one that belongs to one consumer.
    pub key: Option<SubscriptionKey>,
    pub source: Source,
    pub selector: Option<Plain<Selector>>,
    pub no_local: Option<NoLocal>,
    pub sharing: Sharing,
}

impl Identity {
    /// Whether it stays when its last consumer has left.
    pub(super) fn is_durable(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.durable)
    }

    /// Whether its one topic was destroyed.
    pub(super) const fn is_orphan(&self) -> bool {
        matches!(self.source, Source::Gone)
    }

    /// Whether the two get the same messages. Selectors are compared as text.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let text = |one: &Self| one.selector.as_ref().map(|selector| selector.text().to_owned());
        self.source.is_same(&other.source)
            && text(self) == text(other)
            && self.no_local == other.no_local
            && self.sharing == other.sharing
    }

    /// Has the messages come to this subscription from now on.
    pub(super) fn attach(&self, to: &Arc<Destination>, turn: &mut Turn<'_>) {
        let route = Route { to: Arc::clone(to), identity: Plain::new(self.clone()) };
        match &self.source {
            Source::Gone => {}
            Source::Topic(topic) => turn.send_now(topic, route.attach()),
            Source::Pattern(pattern) => {
                // Known first, so that no topic that is made meanwhile is missed by both.
                turn.shared.subscriptions.add_pattern(pattern, &route);
                for topic in turn.shared.registry.all() {
                    if topic.is_public_topic() && pattern.matches(&topic.name) {
                        turn.send_now(&topic, route.clone().attach());
                    }
                }
            }
        }
    }

    /// Ends what [`attach`](Self::attach) began.
    pub(super) fn detach(&self, to: &Arc<Destination>, turn: &mut Turn<'_>) {
        let end = |to: &Arc<Destination>| {
            let to = Arc::clone(to);
            Rare::command(move |at, state, _| {
                state.routes.retain(|one| !Arc::ptr_eq(&one.to, &to));
                at.publish_routes(state);
            })
        };
        match &self.source {
            Source::Gone => {}
            Source::Topic(topic) => turn.send_now(topic, end(to)),
            Source::Pattern(pattern) => {
                turn.shared.subscriptions.remove_pattern(to);
                for topic in turn.shared.registry.all() {
                    if topic.is_public_topic() && pattern.matches(&topic.name) {
                        turn.send_now(&topic, end(to));
                    }
                }
            }
        }
    }
}

/// The way from a topic to a subscription.
#[derive(Debug, Clone)]
pub(super) struct Route {
    /// The subscription.
    pub to: Arc<Destination>,
    identity: Plain<Identity>,
}

impl Route {
    /// Whether the subscription gets this message.
    pub(super) fn wants(&self, message: &Stored) -> bool {
        let own = match &self.identity.no_local {
            None => false,
            Some(NoLocal::Connection(id)) => *id == message.connection_id,
            Some(NoLocal::ClientId(id)) => message.client_id.as_ref() == Some(id),
        };
        let selector = self.identity.selector.as_ref();
        !own && selector.is_none_or(|selector| selector.matches(&message.packet))
    }

    /// Whether its subscription stays when its last consumer has left.
    pub(super) fn is_durable(&self) -> bool {
        self.identity.is_durable()
    }

    /// The command that has a topic use it.
    pub(super) fn attach(self) -> Command {
        Rare::command(move |at, state, turn| {
            state.routes.retain(|one| !Arc::ptr_eq(&one.to, &self.to));
            if state.destroyed {
                self.topic_is_gone(turn);
            } else {
                if state.consumption_paused && self.is_of_one_topic() {
                    let pause = Rare::command(|_, state, _| state.consumption_paused = true);
                    turn.send_now(&self.to, pause);
                }
                state.routes.push(self);
            }
            at.publish_routes(state);
        })
    }

    /// Whether it is the only way to its subscription.
    fn is_of_one_topic(&self) -> bool {
        matches!(self.identity.source, Source::Topic(_))
    }

    /// Tells a subscription that the one topic it had was destroyed.
    pub(super) fn topic_is_gone(&self, turn: &mut Turn<'_>) {
        let source = self.identity.source.clone();
        if matches!(source, Source::Topic(_)) {
            let orphan = Rare::command(move |at, state, turn| {
                // It may have been given another topic meanwhile.
                let identity = state.identity.as_mut().filter(|now| now.source.is_same(&source));
                if let Some(identity) = identity {
                    identity.source = Source::Gone;
                    at.record_orphan(identity, turn);
                }
            });
            turn.send_now(&self.to, orphan);
        }
    }
}

type Named = HashMap<SubscriptionKey, Arc<Destination>>;

/// The subscriptions of a broker that can be found.
///
/// Shape: by what they are found by, and the patterns of those to many topics. Changed seldom, so
/// each is replaced whole.
#[derive(Debug)]
pub(super) struct Subscriptions {
    named: Snapshot<Named>,
    patterns: Snapshot<Vec<(Pattern, Route)>>,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self { named: Snapshot::new(Named::new()), patterns: Snapshot::new(Vec::new()) }
    }
}

impl Subscriptions {
    /// The subscription found by this.
    pub(super) fn find(&self, key: &SubscriptionKey) -> Option<Arc<Destination>> {
        self.named.read(|named| named.get(key).cloned())
    }

    /// The subscription found by this, or `new` from now on; `None` if there are too many.
    pub(super) fn find_or_add(
        &self,
        key: &SubscriptionKey,
        new: &Arc<Destination>,
    ) -> Option<Arc<Destination>> {
        let (before, after) = self.named.update(|named| {
            (!named.contains_key(key) && named.len() < SUBSCRIPTIONS_MAX).then(|| {
                let mut next = named.clone();
                next.insert(key.clone(), Arc::clone(new));
                next
            })
        });
        match after {
            Some(_) => Some(Arc::clone(new)),
            None => before.get(key).cloned(),
        }
    }

    /// Takes a subscription out.
    pub(super) fn remove(&self, gone: &Arc<Destination>) {
        let _removed = self.named.update(|named| {
            let is_it = |one: &Arc<Destination>| Arc::ptr_eq(one, gone);
            named.values().any(is_it).then(|| {
                let mut next = named.clone();
                next.retain(|_, one| !is_it(one));
                next
            })
        });
    }

    /// All that can be found, in no order.
    pub(super) fn all(&self) -> Vec<(SubscriptionKey, Arc<Destination>)> {
        self.named
            .read(|named| named.iter().map(|(key, one)| (key.clone(), Arc::clone(one))).collect())
    }

    fn add_pattern(&self, pattern: &Pattern, route: &Route) {
        let _added = self.patterns.update(|patterns| {
            let mut next = patterns.clone();
            next.push((pattern.clone(), route.clone()));
            Some(next)
        });
    }

    fn remove_pattern(&self, to: &Arc<Destination>) {
        let _removed = self.patterns.update(|patterns| {
            let mut next = patterns.clone();
            next.retain(|(_, route)| !Arc::ptr_eq(&route.to, to));
            Some(next)
        });
    }

    /// Has a topic that was just made feed the subscriptions whose patterns it fits.
    pub(super) fn attach_to(&self, topic: &Arc<Destination>, turn: &mut Turn<'_>) {
        if !topic.is_public_topic() {
            return;
        }
        for (pattern, route) in self.patterns.load_full().iter() {
            if pattern.matches(&topic.name) {
                turn.send_now(topic, route.clone().attach());
            }
        }
    }

    /// Forgets all, at the end of the broker.
    pub(super) fn clear(&self) -> Vec<Arc<Destination>> {
        let patterns = self.patterns.load_full();
        let of_patterns = patterns.iter().map(|(_, route)| Arc::clone(&route.to));
        let all = self.all().into_iter().map(|(_, one)| one).chain(of_patterns).collect();
        self.named.publish(Named::new());
        self.patterns.publish(Vec::new());
        all
    }
}

impl Destination {
    /// Whether patterns may find it: a topic that is nobody's own.
    pub(super) fn is_public_topic(&self) -> bool {
        self.kind == Kind::Topic && !self.is_temporary()
    }
}
