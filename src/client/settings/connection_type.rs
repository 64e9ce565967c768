//! Where to connect by the attributes of version 3.0, which know one broker only.

use std::fmt;

use super::super::address::{self, Address, Way};

/// Which transport leads to the broker, in the attributes of version 3.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ConnectionType {
    /// TCP.
    #[default]
    Tcp,
    /// TLS, also named SSL.
    Tls,
    /// The HTTP tunnel.
    Http,
    /// No socket: the broker is in the same process.
    Direct,
}

impl fmt::Display for ConnectionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Http => "HTTP",
            Self::Direct => "Direct",
        })
    }
}

impl ConnectionType {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_uppercase().as_str() {
            "TCP" => Self::Tcp,
            "TLS" | "SSL" => Self::Tls,
            "HTTP" => Self::Http,
            "DIRECT" => Self::Direct,
            _ => return None,
        })
    }

    /// The transport of a Java class.
    pub(super) fn of_handler(class: &str) -> Option<Self> {
        let class = class.strip_prefix("com.sun.messaging.jmq.jmsclient.protocol.")?;
        Some(match class {
            "tcp.TCPStreamHandler" => Self::Tcp,
            "ssl.SSLStreamHandler" => Self::Tls,
            "http.HTTPStreamHandler" => Self::Http,
            _ => return None,
        })
    }
}

pub(super) const DEFAULT_HANDLER: &str =
    "com.sun.messaging.jmq.jmsclient.protocol.tcp.TCPStreamHandler";

/// The attributes of version 3.0. Together they always make an address.
#[derive(Debug, Clone)]
pub(super) struct OldAddress {
    pub(super) connection_type: ConnectionType,
    pub(super) handler: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// Empty for the transport's own.
    pub(super) service: String,
    /// 0 asks the port mapper.
    pub(super) service_port: u16,
    pub(super) url: String,
}

impl Default for OldAddress {
    fn default() -> Self {
        Self {
            connection_type: ConnectionType::Tcp,
            handler: DEFAULT_HANDLER.to_owned(),
            host: "localhost".to_owned(),
            port: address::PORT_MAPPER_PORT,
            service: String::new(),
            service_port: 0,
            url: "http://localhost/imq/tunnel".to_owned(),
        }
    }
}

impl OldAddress {
    /// Changes one of them, unless there is no address then.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Self)) -> Result<(), Option<String>> {
        let mut changed = self.clone();
        change(&mut changed);
        // All transports, as another one may be chosen later.
        for transport in [ConnectionType::Tcp, ConnectionType::Tls, ConnectionType::Http] {
            changed.address_over(transport).ok_or(None)?;
        }
        *self = changed;
        Ok(())
    }

    /// Where the broker is.
    pub(super) fn address(&self) -> Address {
        let transport = match self.connection_type {
            ConnectionType::Tcp => ConnectionType::of_handler(&self.handler).unwrap_or_default(),
            other => other,
        };
        self.address_over(transport).expect("checked when it was set")
    }

    fn address_over(&self, transport: ConnectionType) -> Option<Address> {
        let (scheme, default) = match (transport, self.service_port) {
            (ConnectionType::Direct, _) => return Some(Address::same_process()),
            (ConnectionType::Http, _) => {
                let address = address::parse(&self.url).ok()?;
                return matches!(address.way, Way::Tunnel { .. }).then_some(address);
            }
            (ConnectionType::Tls, 0) => ("mq", "ssljms"),
            (ConnectionType::Tls, _) => ("mqssl", "ssljms"),
            (ConnectionType::Tcp, 0) => ("mq", "jms"),
            (ConnectionType::Tcp, _) => ("mqtcp", "jms"),
        };
        let port = if self.service_port == 0 { self.port } else { self.service_port };
        let service = if self.service.is_empty() { default } else { &self.service };
        let host = &self.host;
        let address = if host.contains(':') && !host.starts_with('[') {
            address::parse(&format!("{scheme}://[{host}]:{port}/{service}"))
        } else {
            address::parse(&format!("{scheme}://{host}:{port}/{service}"))
        };
        address.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;

    /// The address that these attributes make.
    fn address(attributes: &[(&str, &str)]) -> String {
        let mut settings = Settings::default();
        for (name, value) in attributes {
            settings.set(name, value).unwrap();
        }
        settings.address_list()[0].to_string()
    }

    #[test]
    fn the_attributes_of_version_3_0_make_one_address() {
        let handler = |class: &str| format!("com.sun.messaging.jmq.jmsclient.protocol.{class}");
        let tls = handler("ssl.SSLStreamHandler");
        let tcp = handler("tcp.TCPStreamHandler");
        for (attributes, made) in [
            (&[][..], "mq://localhost:7676/jms"),
            (&[("imqBrokerHostName", "h"), ("imqBrokerHostPort", "1")], "mq://h:1/jms"),
            (&[("imqBrokerHostName", "::1")], "mq://[::1]:7676/jms"),
            (&[("imqBrokerServiceName", "admin")], "mq://localhost:7676/admin"),
            (&[("imqBrokerServicePort", "9")], "mqtcp://localhost:9/jms"),
            (&[("imqConnectionType", "tls")], "mq://localhost:7676/ssljms"),
            (
                &[("imqConnectionType", "SSL"), ("imqBrokerServicePort", "9")],
                "mqssl://localhost:9/ssljms",
            ),
            (&[("imqConnectionHandler", &tls)], "mq://localhost:7676/ssljms"),
            (
                &[("imqConnectionHandler", &tcp), ("imqConnectionType", "HTTP")],
                "http://localhost:80/imq/tunnel",
            ),
            (
                &[("imqConnectionType", "HTTP"), ("imqConnectionURL", "https://w/c/tunnel")],
                "https://w:443/c/tunnel",
            ),
            (&[("imqConnectionType", "Direct")], "direct"),
            (
                &[("imqBrokerHostName", "h"), ("imqAddressList", "mq://other")],
                "mq://other:7676/jms",
            ),
            (
                &[("imqAddressList", "mq://other"), ("imqAddressList", " ")],
                "mq://localhost:7676/jms",
            ),
        ] {
            assert_eq!(address(attributes), made, "{attributes:?}");
        }
    }

    #[test]
    fn what_makes_no_address_is_refused_and_changes_nothing() {
        for (name, value) in [
            ("imqBrokerHostName", "a b"),
            ("imqBrokerHostName", "h/x"),
            ("imqBrokerServiceName", "a/b"),
            ("imqConnectionURL", "mq://h"),
            ("imqConnectionURL", "http://h/a b"),
            ("imqConnectionType", "UDP"),
            ("imqConnectionHandler", "java.lang.Object"),
            ("imqBrokerHostPort", "0"),
            ("imqBrokerServicePort", "65536"),
        ] {
            let mut settings = Settings::default();
            let error = settings.set(name, value).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
            assert_eq!(settings.address_list()[0].to_string(), "mq://localhost:7676/jms");
        }
    }
}
