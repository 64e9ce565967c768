//! From arguments to a connection.

use std::env;
use std::time::Duration;

use tidegate::client::{ConfigError, Connection, ConnectionFactory};
use tidegate::message::Destination;

use super::arguments::{AttributeArguments, ConnectionArguments};
use super::failure::{Failure, with_causes};
use super::output::complain;

/// Where a password is looked for that should not stand on the command line.
const PASSWORD_VARIABLE: &str = "TIDEGATE_PASSWORD";

/// A factory as the arguments, a properties file and the environment say. `timeout` bounds each
/// step of a login, and every answer of the broker afterwards, unless an attribute says otherwise.
pub(super) fn factory(
    arguments: &ConnectionArguments,
    timeout: Duration,
) -> Result<ConnectionFactory, Failure> {
    let mut factory = impatient(timeout);
    load(&mut factory, &arguments.attributes)?;
    let password = arguments.password.clone().or_else(|| env::var(PASSWORD_VARIABLE).ok());
    let options = [
        ("imqAddressList", &arguments.address),
        ("imqDefaultUsername", &arguments.user),
        ("imqDefaultPassword", &password),
    ];
    for (name, value) in options {
        if let Some(value) = value {
            factory.set_attribute(name, value).map_err(usage)?;
        }
    }
    set(&mut factory, &arguments.attributes)?;
    for (attribute, why) in factory.attributes_without_effect() {
        complain(&format!("tidegate: {} has no effect: {why}", attribute.name()));
    }
    Ok(factory)
}

/// A factory that tries every address once: whether a broker is there is a question too.
pub(super) fn impatient(timeout: Duration) -> ConnectionFactory {
    let timeout = Some(timeout.max(Duration::from_millis(1)));
    let mut factory = ConnectionFactory::new();
    factory
        .address_list_iterations(Some(1))
        .socket_connect_timeout(timeout)
        .port_mapper_timeout(timeout)
        .ack_timeout(timeout);
    factory
}

/// Sets what the environment and a properties file say.
pub(super) fn load(
    factory: &mut ConnectionFactory,
    arguments: &AttributeArguments,
) -> Result<(), Failure> {
    factory.load_environment().map_err(usage)?;
    if let Some(path) = &arguments.properties {
        factory.load_properties(path).map_err(usage)?;
    }
    Ok(())
}

/// Sets what `--set` says.
pub(super) fn set(
    factory: &mut ConnectionFactory,
    arguments: &AttributeArguments,
) -> Result<(), Failure> {
    for assignment in &arguments.set {
        let Some((name, value)) = assignment.split_once('=') else {
            return Err(Failure::Usage(format!("--set {assignment}: it takes NAME=VALUE")));
        };
        factory.set_attribute(name, value).map_err(usage)?;
    }
    Ok(())
}

/// Logs in.
pub(super) fn connect(factory: &ConnectionFactory) -> Result<Connection, Failure> {
    factory.create_connection().map_err(|error| Failure::new("cannot connect", &error))
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

/// An attribute that is refused is the user's mistake.
pub(super) fn usage(error: ConfigError) -> Failure {
    Failure::Usage(with_causes(&error))
}
