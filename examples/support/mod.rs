//! What the examples share: a broker.

use std::error::Error;

use tidegate::{broker::Broker, client::ConnectionFactory};

/// A factory for the broker whose address is the program's first argument, or else for one inside
/// this program, which lives as long as the other thing that is returned.
pub(crate) fn broker() -> Result<(ConnectionFactory, Option<Broker>), Box<dyn Error>> {
    let mut factory = ConnectionFactory::new();
    if let Some(address) = std::env::args().nth(1) {
        factory.address_list(&address)?;
        return Ok((factory, None));
    }
    let broker = Broker::builder().listen(([127, 0, 0, 1], 0).into()).start()?;
    factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
    Ok((factory, Some(broker)))
}
