//! What a consumer wants beside its destination.

use super::error::SessionError;
use crate::{
    message::{Destination, DestinationKind},
    wire::PacketBuilder,
};

/// What a consumer wants beside its destination.
///
/// ```
/// # use tidegate::client::{AcknowledgeMode, ConsumerOptions};
/// # use tidegate::message::{Destination, Message};
/// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
/// # let mut factory = tidegate::client::ConnectionFactory::new();
/// # factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
/// # let connection = factory.create_connection()?;
/// # let session = connection.create_session(AcknowledgeMode::Auto)?;
/// # connection.start()?;
/// let orders = Destination::topic("orders")?;
/// let mut options = ConsumerOptions::new();
/// options.selector("colour = 'red'").shared_durable("audit");
/// let consumer = session.create_consumer_with(&orders, &options)?;
///
/// let producer = session.create_producer(&orders)?;
/// for colour in ["green", "red"] {
///     let mut order = Message::text("a boat");
///     order.set_property("colour", colour)?;
///     producer.send(order)?;
/// }
/// let order = consumer.receive()?.expect("nobody closes the consumer");
/// assert_eq!(order.property_as::<String>("colour")?.as_deref(), Some("red"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsumerOptions {
    selector: Option<String>,
    subscription: Subscription,
    no_local: bool,
}

/// Whose messages of a topic a consumer gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Subscription {
    /// Its own, as long as it is open.
    #[default]
    Plain,
    Durable(String),
    Shared(String),
    SharedDurable(String),
}

impl ConsumerOptions {
    /// Every message of the destination, as long as the consumer is open.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only messages that this selector matches. Default none; a blank one counts as none.
    pub fn selector(&mut self, selector: &str) -> &mut Self {
        self.selector = Some(selector.trim().to_owned()).filter(|text| !text.is_empty());
        self
    }

    /// Of a topic: keeps messages under this name while no consumer is there. One consumer at a
    /// time has it, and the connection needs a client id. Replaces another kind of subscription.
    pub fn durable(&mut self, name: &str) -> &mut Self {
        self.subscription = Subscription::Durable(name.to_owned());
        self
    }

    /// Of a topic: shares the subscription of this name, which ends with its last consumer; each
    /// message goes to one of them. Replaces another kind of subscription.
    pub fn shared(&mut self, name: &str) -> &mut Self {
        self.subscription = Subscription::Shared(name.to_owned());
        self
    }

    /// Of a topic: shares the subscription of this name, which keeps messages while no consumer is
    /// there. Its owner is the client id, or everybody without one. Replaces another kind of
    /// subscription.
    pub fn shared_durable(&mut self, name: &str) -> &mut Self {
        self.subscription = Subscription::SharedDurable(name.to_owned());
        self
    }

    /// Of a topic: no messages that were sent on the same connection, or, for a subscription of a
    /// client id, with the same one. Default is to get them.
    pub fn no_local(&mut self) -> &mut Self {
        self.no_local = true;
        self
    }

    /// An error if these options make no sense for `destination`, whatever the broker.
    pub(super) fn check(
        &self,
        destination: &Destination,
        has_client_id: bool,
    ) -> Result<(), SessionError> {
        let problem = match &self.subscription {
            _ if self.no_local && destination.kind() == DestinationKind::Queue => {
                "no-local is for topics"
            }
            Subscription::Plain => return Ok(()),
            _ if destination.kind() == DestinationKind::Queue => "subscriptions are for topics",
            _ if destination.is_temporary() => "a temporary topic has no named subscriptions",
            Subscription::Durable(name)
            | Subscription::Shared(name)
            | Subscription::SharedDurable(name)
                if name.trim().is_empty() =>
            {
                "a subscription's name is not blank"
            }
            Subscription::Durable(_) if !has_client_id => {
                "a durable subscription needs a client id (set_client_id, imqConfiguredClientID); \
                 a shared durable one does not"
            }
            _ => return Ok(()),
        };
        Err(SessionError::IllegalState(problem))
    }

    /// Whether the broker keeps nothing for this consumer while it is away.
    pub(super) const fn is_plain(&self) -> bool {
        matches!(self.subscription, Subscription::Plain)
    }

    /// Puts what they say into a request. `shared_client_id` says whether several connections use
    /// the client id, and so its durable subscriptions.
    pub(super) fn fill(&self, packet: PacketBuilder, shared_client_id: bool) -> PacketBuilder {
        let packet = packet.boolean("JMQNoLocal", self.no_local).boolean("JMQReconnect", false);
        let packet = match &self.subscription {
            Subscription::Plain => packet.boolean("JMQShare", false),
            Subscription::Durable(name) => {
                packet.boolean("JMQShare", shared_client_id).string("JMQDurableName", name)
            }
            Subscription::Shared(name) => {
                packet.boolean("JMQJMSShare", true).string("JMQSharedSubscriptionName", name)
            }
            Subscription::SharedDurable(name) => {
                packet.boolean("JMQJMSShare", true).string("JMQDurableName", name)
            }
        };
        match &self.selector {
            Some(selector) => packet.string("JMQSelector", selector),
            None => packet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ConsumerOptions;
    use crate::message::{Destination, DestinationKind};

    #[test]
    fn options_that_make_no_sense_are_refused_before_anything_is_sent() {
        let queue = Destination::queue("q").unwrap();
        let topic = Destination::topic("t").unwrap();
        let temporary = Destination::temporary(DestinationKind::Topic, "h", 1, 1).unwrap();
        let new = ConsumerOptions::new;
        for (options, destination, problem) in [
            (new().no_local().clone(), &queue, "no-local"),
            (new().durable("d").clone(), &queue, "for topics"),
            (new().shared("s").clone(), &queue, "for topics"),
            (new().shared_durable("s").clone(), &temporary, "temporary"),
            (new().shared(" ").clone(), &topic, "blank"),
            (new().durable("d").clone(), &topic, "client id"),
        ] {
            let error = options.check(destination, false).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        for (options, destination) in [
            (new(), &queue),
            (new().selector("a = 1").clone(), &queue),
            (new().no_local().clone(), &temporary),
            (new().durable("d").no_local().clone(), &topic),
        ] {
            assert!(options.check(destination, true).is_ok());
        }
        assert!(new().shared("s").check(&topic, false).is_ok());
        assert!(new().shared_durable("s").check(&topic, false).is_ok());
    }
}
