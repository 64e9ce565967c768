//! Where messages and credit go: the consumers and producers of one connection, by number.
//!
//! Owned by whoever reads. A message that goes where the last one went is looked up in no table,
//! any other costs one look whatever the number of consumers, and waking at the end of a burst
//! costs as much as consumers got something.

use std::collections::HashMap;

use slab::Slab;

use super::links::{ConsumerLink, ProducerLink};
use crate::sync::{Arc, Ordering, fence};

/// The consumers and producers of one connection.
#[derive(Debug, Default)]
pub(super) struct Routes {
    consumers: Slab<Route>,
    /// The place of each consumer by its id.
    places: HashMap<i64, usize>,
    /// Where the last message went.
    last: usize,
    /// Places of the consumers that got something in this burst.
    touched: Vec<usize>,
    producers: HashMap<i64, Arc<ProducerLink>>,
}

#[derive(Debug)]
struct Route {
    id: i64,
    link: Arc<ConsumerLink>,
    /// It got something in this burst.
    touched: bool,
}

impl Routes {
    /// The consumer with this id, which gets something: it is woken at the end of the burst.
    pub(super) fn consumer(&mut self, id: i64) -> Option<&ConsumerLink> {
        if self.consumers.get(self.last).is_none_or(|route| route.id != id) {
            self.last = *self.places.get(&id)?;
        }
        let route = self.consumers.get_mut(self.last)?;
        if !route.touched {
            route.touched = true;
            self.touched.push(self.last);
        }
        Some(&route.link)
    }

    pub(super) fn add_consumer(&mut self, id: i64, link: Arc<ConsumerLink>) {
        // A broker that uses a number twice means the newer one.
        self.remove(id);
        let place = self.consumers.insert(Route { id, link, touched: false });
        self.places.insert(id, place);
    }

    /// Removes this consumer, and no other that has its number by now.
    pub(super) fn remove_consumer(&mut self, link: &Arc<ConsumerLink>) {
        let id = link.remote.get();
        let place = self.places.get(&id).and_then(|&place| self.consumers.get(place));
        if place.is_some_and(|route| Arc::ptr_eq(&route.link, link)) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: i64) {
        if let Some(place) = self.places.remove(&id) {
            let route = self.consumers.remove(place);
            if route.touched {
                route.link.arrived();
            }
        }
    }

    /// Wakes whoever waits for what came in this burst.
    pub(super) fn wake_touched(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        // SeqCst fence: the messages come before the look who has a listener, as a new listener
        // comes before the session's look for messages. One of the two sees the other.
        fence(Ordering::SeqCst);
        for place in self.touched.drain(..) {
            // The place may be another consumer's by now, which is then listed itself.
            if let Some(route) = self.consumers.get_mut(place)
                && std::mem::take(&mut route.touched)
            {
                route.link.arrived();
            }
        }
    }

    pub(super) fn producer(&self, id: i64) -> Option<&ProducerLink> {
        self.producers.get(&id).map(|link| &**link)
    }

    pub(super) fn add_producer(&mut self, id: i64, link: Arc<ProducerLink>) {
        self.producers.insert(id, link);
    }

    /// Removes this producer, and no other that has its number by now.
    pub(super) fn remove_producer(&mut self, link: &Arc<ProducerLink>) {
        let id = link.remote.get();
        if self.producers.get(&id).is_some_and(|found| Arc::ptr_eq(found, link)) {
            self.producers.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Routes;
    use crate::{
        client::{
            epoch::Epoch,
            links::{ConsumerLink, SessionLink},
        },
        flow::FlowSettings,
        sync::Arc,
    };

    fn link(id: i64, session: &Arc<SessionLink>) -> Arc<ConsumerLink> {
        let key = id.unsigned_abs();
        let link = ConsumerLink::new(key, FlowSettings::default(), Arc::clone(session));
        link.remote.set(id, Epoch::FIRST);
        Arc::new(link)
    }

    #[test]
    fn each_of_many_consumers_is_found_and_none_that_is_gone() {
        let session = Arc::new(SessionLink::default());
        let mut routes = Routes::default();
        let links: Vec<_> = (0..1000).map(|id| link(id, &session)).collect();
        for (id, link) in (0..).zip(&links) {
            routes.add_consumer(id, Arc::clone(link));
        }
        for link in links.iter().step_by(3) {
            routes.remove_consumer(link);
        }
        for (id, link) in (0..).zip(&links) {
            let found = routes.consumer(id).map(std::ptr::from_ref);
            assert_eq!(found, (id % 3 != 0).then_some(Arc::as_ptr(link)), "{id}");
        }
    }

    #[test]
    fn a_consumer_with_a_listener_is_listed_once_a_burst_even_if_it_is_removed() {
        let session = Arc::new(SessionLink::default());
        let mut routes = Routes::default();
        let links = [1, 2, 3].map(|id| link(id, &session));
        for (id, link) in (1..).zip(&links) {
            // The third has no listener: nobody would take it off the list.
            assert!(id == 3 || link.claim_listener());
            routes.add_consumer(id, Arc::clone(link));
        }
        for id in [2, 2, 1, 3, 2] {
            assert!(routes.consumer(id).is_some());
        }
        routes.remove_consumer(&links[0]);
        // Takes the place of the one that went.
        routes.add_consumer(4, link(4, &session));
        routes.wake_touched();
        let listed: Vec<_> = std::iter::from_fn(|| session.ready.pop()).collect();
        assert_eq!(listed, [1, 2]);
        routes.wake_touched();
        assert_eq!(session.ready.pop(), None);
    }
}
