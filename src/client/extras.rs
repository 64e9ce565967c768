//! What a factory's attributes put into messages beside what the application says: headers of an
//! administrator, and properties that JMS defines.

use std::time::Duration;

use super::{
    clock, core::Core, error::SendCause, session_state::SessionShared, settings::Overrides,
};
use crate::message::{DeliveryMode, Destination, Message, MessageError};

const APP_ID: &str = "JMSXAppID";
const USER_ID: &str = "JMSXUserID";
const PRODUCER_TXID: &str = "JMSXProducerTXID";
const CONSUMER_TXID: &str = "JMSXConsumerTXID";
const RECEIVE_TIMESTAMP: &str = "JMSXRcvTimestamp";

/// The headers that a producer decides about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Headers {
    pub(super) delivery_mode: DeliveryMode,
    pub(super) priority: u8,
    /// `None` and zero are for ever.
    pub(super) time_to_live: Option<Duration>,
}

/// What goes into the messages of one producer.
#[derive(Debug)]
pub(super) struct Extras {
    overrides: Overrides,
    app_id: Option<String>,
    user_id: Option<String>,
    names_transaction: bool,
}

impl Extras {
    /// What the settings of a connection ask for; `None` if that is nothing.
    pub(super) fn of(core: &Core) -> Option<Box<Self>> {
        let settings = &core.settings;
        let jmsx = settings.jmsx;
        let asked = settings.overrides.any() || jmsx.app_id || jmsx.user_id || jmsx.producer_txid;
        asked.then(|| {
            Box::new(Self {
                overrides: settings.overrides.clone(),
                app_id: jmsx.app_id.then(|| core.stamp.to_string()),
                user_id: jmsx.user_id.then(|| settings.user.clone()),
                names_transaction: jmsx.producer_txid,
            })
        })
    }

    /// The headers that count for a message to `destination`.
    pub(super) fn headers(&self, own: Headers, destination: &Destination) -> Headers {
        let overrides = &self.overrides;
        if destination.is_temporary() && !overrides.temporaries {
            return own;
        }
        Headers {
            delivery_mode: overrides.delivery_mode().unwrap_or(own.delivery_mode),
            priority: overrides.priority().unwrap_or(own.priority),
            time_to_live: overrides.time_to_live().or(own.time_to_live),
        }
    }

    /// Adds the properties to a message that `session` is about to send.
    pub(super) fn add_properties(
        &self,
        session: &SessionShared,
        message: &mut Message,
    ) -> Result<(), SendCause> {
        for (name, value) in [(APP_ID, &self.app_id), (USER_ID, &self.user_id)] {
            if let Some(value) = value {
                message.set_property(name, value.as_str())?;
            }
        }
        if self.names_transaction
            && let Some(id) = session.transaction()?
        {
            message.set_property(PRODUCER_TXID, id.to_string())?;
        }
        Ok(())
    }
}

impl SessionShared {
    /// Adds the properties that a received message gets here and nowhere else.
    pub(super) fn add_local_properties(&self, message: &mut Message) {
        let jmsx = self.core.settings.jmsx;
        if !(jmsx.consumer_txid || jmsx.receive_timestamp) {
            return;
        }
        let transaction = if jmsx.consumer_txid { self.transaction() } else { Ok(None) };
        let transaction = transaction.ok().flatten();
        let time = jmsx.receive_timestamp.then(clock::wall_millis);
        if let Err(error) = add_local(message, transaction, time) {
            // The application learns it when it reads the properties.
            tracing::debug!(%error, "a received message has properties that cannot be read");
        }
    }
}

fn add_local(
    message: &mut Message,
    transaction: Option<i64>,
    time: Option<i64>,
) -> Result<(), MessageError> {
    if let Some(id) = transaction {
        message.set_property(CONSUMER_TXID, id.to_string())?;
    }
    if let Some(time) = time {
        message.set_property(RECEIVE_TIMESTAMP, time)?;
    }
    Ok(())
}
