//! From arguments to a connection.

use std::env;
use std::time::Duration;

use tidegate::client::{Connection, ConnectionFactory};
use tidegate::message::Destination;

use super::arguments::ConnectionArguments;
use super::failure::{Failure, with_causes};

/// Where a password is looked for that should not stand on the command line.
const PASSWORD_VARIABLE: &str = "TIDEGATE_PASSWORD";

/// Logs in. `timeout` bounds each step of it, and every answer of the broker afterwards.
pub(super) fn connect(
    arguments: &ConnectionArguments,
    timeout: Duration,
    attributes: &[(&str, &str)],
) -> Result<Connection, Failure> {
    let password = password(arguments.password.as_deref(), "guest");
    let milliseconds = milliseconds(timeout).to_string();
    let mut factory = ConnectionFactory::new();
    let own = [
        ("imqAddressList", arguments.address.as_str()),
        ("imqDefaultUsername", &arguments.user),
        ("imqDefaultPassword", &password),
        ("imqSocketConnectTimeout", &milliseconds),
        ("imqPortMapperSoTimeout", &milliseconds),
        ("imqAckTimeout", &milliseconds),
    ];
    for (name, value) in own.iter().chain(attributes) {
        factory.set_attribute(name, value).map_err(|error| Failure::Usage(with_causes(&error)))?;
    }
    let what = format!("cannot connect to {}", arguments.address);
    factory.create_connection().map_err(|error| Failure::new(&what, &error))
}

/// The password given, that of the environment, or this one.
pub(super) fn password(given: Option<&str>, default: &str) -> String {
    let given = given.map(str::to_owned).or_else(|| env::var(PASSWORD_VARIABLE).ok());
    given.unwrap_or_else(|| default.to_owned())
}

/// A queue by the name the user gave it.
pub(super) fn queue(name: &str) -> Result<Destination, Failure> {
    Destination::queue(name).map_err(|error| Failure::Usage(with_causes(&error)))
}

/// A duration as the client's attributes have it: at least one, as zero means for ever.
fn milliseconds(time: Duration) -> u128 {
    // Attributes are 32-bit numbers.
    time.as_millis().clamp(1, i32::MAX.unsigned_abs().into())
}
