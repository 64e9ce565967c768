//! Addresses of brokers, as they stand in `imqAddressList`.
//!
//! | scheme | leads to | defaults |
//! | --- | --- | --- |
//! | `mq`, or none | the port mapper, which knows where the service listens | `localhost`, 7676, `jms` |
//! | `mq+ssl` | the port mapper over TLS | the same |
//! | `mqtcp` | the service itself | `localhost`, `jms` |
//! | `mqssl` | the service itself over TLS | `localhost`, `ssljms` |
//! | `mqws`, `mqwss` | the service itself over WebSocket | `localhost`, 7670 or 7671, `wsjms` or `wssjms` |
//! | `http`, `https` | the tunnel's servlet | `localhost`, 80 or 443, `/imq/tunnel` |
//!
//! All of them are read and shown; [`Address::missing`] tells which this build cannot use.
//!
//! # Source
//! The address schemes of the Message Queue client runtime.

use std::fmt;

/// Port of a port mapper.
pub(super) const PORT_MAPPER_PORT: u16 = 7676;
const DEFAULT_HOST: &str = "localhost";
const DEFAULT_SERVICE: &str = "jms";
const DEFAULT_TUNNEL: &str = "imq/tunnel";
const ADDRESS_BYTES_MAX: usize = 1024;
/// Addresses taken from one list.
const ADDRESSES_MAX: usize = 256;

/// Where a broker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) way: Way,
    /// Whether TLS takes any certificate; `None` leaves it to `imqSSLIsHostTrusted`.
    trusts_host: Option<bool>,
    over_tls: bool,
}

/// How to get to the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// Host and port are a port mapper's; it knows the port of this service.
    PortMapper { service: String },
    /// Host and port are the service's.
    Direct { service: String },
    /// Host and port are the service's, which speaks WebSocket.
    WebSocket { service: String },
    /// Host and port are a web server's; the path leads to the servlet, `server` (host and
    /// instance) to one of several brokers behind it.
    Tunnel { path: String, server: Option<String> },
    /// The broker is in this process.
    SameProcess,
}

impl Address {
    /// The broker in this process, which no text can name.
    pub(super) fn same_process() -> Self {
        let host = DEFAULT_HOST.to_owned();
        Self { host, port: 0, way: Way::SameProcess, trusts_host: None, over_tls: false }
    }

    /// What this build would need to use the address; `None` if it can.
    pub(super) fn missing(&self) -> Option<&'static str> {
        match (&self.way, self.over_tls) {
            (Way::SameProcess, _) => Some("the broker itself"),
            (Way::WebSocket { .. }, false) => Some("WebSocket"),
            (Way::WebSocket { .. }, true) => Some("WebSocket over TLS"),
            (Way::Tunnel { .. }, false) => Some("the HTTP tunnel"),
            (Way::Tunnel { .. }, true) => Some("the HTTP tunnel over TLS"),
            (_, true) => Some("TLS"),
            (Way::PortMapper { service } | Way::Direct { service }, false) => {
                match service.as_str() {
                    "ssljms" | "ssladmin" => Some("TLS"),
                    "httpjms" | "httpadmin" => Some("the HTTP tunnel"),
                    "httpsjms" => Some("the HTTP tunnel over TLS"),
                    "wsjms" => Some("WebSocket"),
                    "wssjms" => Some("WebSocket over TLS"),
                    _ => None,
                }
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, path) = match (&self.way, self.over_tls) {
            (Way::SameProcess, _) => return f.write_str("direct"),
            (Way::PortMapper { service }, false) => ("mq", service),
            (Way::PortMapper { service }, true) => ("mq+ssl", service),
            (Way::Direct { service }, false) => ("mqtcp", service),
            (Way::Direct { service }, true) => ("mqssl", service),
            (Way::WebSocket { service }, false) => ("mqws", service),
            (Way::WebSocket { service }, true) => ("mqwss", service),
            (Way::Tunnel { path, .. }, false) => ("http", path),
            (Way::Tunnel { path, .. }, true) => ("https", path),
        };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}/{path}", self.host, self.port)?;
        } else {
            write!(f, "{scheme}://{}:{}/{path}", self.host, self.port)?;
        }
        let mut before = '?';
        if let Way::Tunnel { server: Some(server), .. } = &self.way {
            write!(f, "?ServerName={server}")?;
            before = '&';
        }
        self.trusts_host.map_or(Ok(()), |trusts| write!(f, "{before}isHostTrusted={trusts}"))
    }
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddressError {
    #[error(
        "an address starts with mq://, mq+ssl://, mqtcp://, mqssl://, mqws://, mqwss://, http:// \
         or https://; \"{0}\" is no scheme"
    )]
    Scheme(String),
    #[error("a port is 1 to 65535, not \"{0}\"")]
    Port(String),
    #[error("an {scheme}:// address needs a port: {scheme}://host:port/{service}")]
    PortMissing { scheme: &'static str, service: &'static str },
    #[error("a host in brackets ends with ]")]
    Bracket,
    #[error("\"{0}\" is no name of a host")]
    Host(String),
    #[error("\"{0}\" is no name of a service")]
    Service(String),
    #[error("\"{0}\" is no path to a tunnel: http://host:port/context/tunnel")]
    Tunnel(String),
    #[error("{allowed}, not \"?{query}\"")]
    Query { query: String, allowed: &'static str },
    #[error("an address has at most {ADDRESS_BYTES_MAX} bytes")]
    TooLong,
    #[error("a list has at most {ADDRESSES_MAX} addresses")]
    TooMany,
}

/// Reads a comma-separated list, which may be empty.
pub(super) fn parse_list(list: &str) -> Result<Vec<Address>, AddressError> {
    let addresses: Vec<_> = list
        .split(',')
        .map(str::trim)
        .filter(|address| !address.is_empty())
        .map(parse)
        .collect::<Result<_, _>>()?;
    if addresses.len() > ADDRESSES_MAX {
        return Err(AddressError::TooMany);
    }
    Ok(addresses)
}

/// What belongs to a scheme.
struct Scheme {
    name: &'static str,
    over_tls: bool,
    kind: Kind,
    /// `None` if an address must tell it.
    port: Option<u16>,
    /// Service or path of an address that tells none.
    path: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    PortMapper,
    Direct,
    WebSocket,
    Tunnel,
}

#[rustfmt::skip]
const SCHEMES: [Scheme; 8] = [
    Scheme { name: "mq", over_tls: false, kind: Kind::PortMapper, port: Some(PORT_MAPPER_PORT), path: DEFAULT_SERVICE },
    Scheme { name: "mq+ssl", over_tls: true, kind: Kind::PortMapper, port: Some(PORT_MAPPER_PORT), path: DEFAULT_SERVICE },
    Scheme { name: "mqtcp", over_tls: false, kind: Kind::Direct, port: None, path: DEFAULT_SERVICE },
    Scheme { name: "mqssl", over_tls: true, kind: Kind::Direct, port: None, path: "ssljms" },
    Scheme { name: "mqws", over_tls: false, kind: Kind::WebSocket, port: Some(7670), path: "wsjms" },
    Scheme { name: "mqwss", over_tls: true, kind: Kind::WebSocket, port: Some(7671), path: "wssjms" },
    Scheme { name: "http", over_tls: false, kind: Kind::Tunnel, port: Some(80), path: DEFAULT_TUNNEL },
    Scheme { name: "https", over_tls: true, kind: Kind::Tunnel, port: Some(443), path: DEFAULT_TUNNEL },
];

/// Reads one address.
pub(super) fn parse(text: &str) -> Result<Address, AddressError> {
    let text = text.trim();
    if text.len() > ADDRESS_BYTES_MAX {
        return Err(AddressError::TooLong);
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("mq", text));
    let scheme = SCHEMES
        .iter()
        .find(|known| known.name.eq_ignore_ascii_case(scheme))
        .ok_or_else(|| AddressError::Scheme(scheme.to_owned()))?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (trusts_host, server) = parse_query(query, scheme.kind)?;
    let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_end_matches('/');
    let path = if path.is_empty() { scheme.path } else { path };
    let way = parse_path(path, scheme.kind, server)?;
    let (host, port) = split_place(place, scheme.kind)?;
    let missing = AddressError::PortMissing { scheme: scheme.name, service: scheme.path };
    let port = match port {
        Some(port) => parse_port(port)?,
        None => scheme.port.ok_or(missing)?,
    };
    Ok(Address { host: host.to_owned(), port, way, trusts_host, over_tls: scheme.over_tls })
}

/// Host and port of `host`, `host:port`, `:port`, `port`, `[v6]`, `[v6]:port` or nothing.
fn split_place(place: &str, kind: Kind) -> Result<(&str, Option<&str>), AddressError> {
    let is_number = !place.is_empty() && place.bytes().all(|byte| byte.is_ascii_digit());
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(AddressError::Bracket)?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(AddressError::Bracket),
        }
    } else if kind == Kind::PortMapper && is_number {
        // A bare number is a port.
        ("", Some(place))
    } else {
        place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port)))
    };
    let is_v6 = place.starts_with('[');
    let fits = |c: char| c.is_alphanumeric() || "-._".contains(c) || is_v6 && ":%".contains(c);
    if !host.chars().all(fits) {
        return Err(AddressError::Host(host.to_owned()));
    }
    Ok((if host.is_empty() { DEFAULT_HOST } else { host }, port))
}

fn parse_port(text: &str) -> Result<u16, AddressError> {
    let port = text.parse().ok().filter(|&port| port != 0);
    port.ok_or_else(|| AddressError::Port(text.to_owned()))
}

fn parse_path(path: &str, kind: Kind, server: Option<String>) -> Result<Way, AddressError> {
    let fits = |also: &str| path.chars().all(|c| c.is_alphanumeric() || also.contains(c));
    let named = path.to_owned();
    if kind == Kind::Tunnel {
        let is_path = fits("-._~%+/");
        return if is_path {
            Ok(Way::Tunnel { path: named, server })
        } else {
            Err(AddressError::Tunnel(named))
        };
    }
    if !fits("-._") {
        return Err(AddressError::Service(named));
    }
    Ok(match kind {
        Kind::PortMapper => Way::PortMapper { service: named },
        Kind::Direct => Way::Direct { service: named },
        _ => Way::WebSocket { service: named },
    })
}

/// Whether the host is trusted, and the broker behind a tunnel.
fn parse_query(query: &str, kind: Kind) -> Result<(Option<bool>, Option<String>), AddressError> {
    let (mut trusts_host, mut server) = (None, None);
    for part in query.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some(("isHostTrusted", "true")) => trusts_host = Some(true),
            Some(("isHostTrusted", "false")) => trusts_host = Some(false),
            Some(("ServerName", name)) if kind == Kind::Tunnel && is_server(name) => {
                server = Some(name.to_owned());
            }
            _ => {
                let allowed = if kind == Kind::Tunnel {
                    "a tunnel takes ?ServerName=host:instance and isHostTrusted=true or false"
                } else {
                    "an address takes ?isHostTrusted=true or false"
                };
                return Err(AddressError::Query { query: query.to_owned(), allowed });
            }
        }
    }
    Ok((trusts_host, server))
}

fn is_server(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-._:[]%".contains(c))
}

#[cfg(test)]
mod tests {
    use super::{AddressError, parse, parse_list};

    #[test]
    fn every_short_form_is_filled_with_the_defaults() {
        for (text, full) in [
            ("", "mq://localhost:7676/jms"),
            ("mq://", "mq://localhost:7676/jms"),
            ("1012", "mq://localhost:1012/jms"),
            (":1012", "mq://localhost:1012/jms"),
            ("broker", "mq://broker:7676/jms"),
            ("broker:80", "mq://broker:80/jms"),
            ("mq://broker/jms2", "mq://broker:7676/jms2"),
            ("MQ://broker:1/", "mq://broker:1/jms"),
            ("mq://[::1]:9/jms?isHostTrusted=true", "mq://[::1]:9/jms?isHostTrusted=true"),
            ("[fe80::1%eth0]", "mq://[fe80::1%eth0]:7676/jms"),
            ("mq://h/ssljms?isHostTrusted=false", "mq://h:7676/ssljms?isHostTrusted=false"),
            ("mq+ssl://", "mq+ssl://localhost:7676/jms"),
            ("mqtcp://127.0.0.1:7677/jms", "mqtcp://127.0.0.1:7677/jms"),
            ("mqtcp://:7677", "mqtcp://localhost:7677/jms"),
            ("mqtcp://h:7677/admin", "mqtcp://h:7677/admin"),
            ("mqssl://h:1", "mqssl://h:1/ssljms"),
            ("mqssl://h:1/ssladmin", "mqssl://h:1/ssladmin"),
            ("mqws://h", "mqws://h:7670/wsjms"),
            ("mqwss://[::1]", "mqwss://[::1]:7671/wssjms"),
            ("mqws://h:1/mine", "mqws://h:1/mine"),
            ("http://h", "http://h:80/imq/tunnel"),
            ("http://h:8080/c/tunnel", "http://h:8080/c/tunnel"),
            (
                "HTTPS://h/c/tunnel?isHostTrusted=true&ServerName=a:b",
                "https://h:443/c/tunnel?ServerName=a:b&isHostTrusted=true",
            ),
        ] {
            let address = parse(text).unwrap();
            assert_eq!(address.to_string(), full, "{text}");
            assert_eq!(parse(full).unwrap(), address, "{full}");
        }
    }

    #[test]
    fn an_address_tells_what_this_build_lacks_for_it() {
        for (text, missing) in [
            ("mq://h", None),
            ("mq://h/admin", None),
            ("mqtcp://h:1/admin", None),
            ("mq+ssl://h", Some("TLS")),
            ("mqssl://h:1/ssljms", Some("TLS")),
            ("mq://h/ssljms", Some("TLS")),
            ("mqtcp://h:1/ssladmin", Some("TLS")),
            ("mqws://h:1/s", Some("WebSocket")),
            ("mqwss://h:1/s", Some("WebSocket over TLS")),
            ("http://h:1/c/tunnel", Some("the HTTP tunnel")),
            ("https://h:1/c/tunnel?ServerName=a:b", Some("the HTTP tunnel over TLS")),
            ("mq://h/httpjms", Some("the HTTP tunnel")),
            ("mq://h/httpsjms", Some("the HTTP tunnel over TLS")),
        ] {
            assert_eq!(parse(text).unwrap().missing(), missing, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "ftp://h",
            "mq://h:0",
            "mq://h:65536",
            "mq://h:x",
            "mqtcp://h",
            "mqssl://h/ssljms",
            "mq://[::1",
            "a b",
            "mq://[::1]x",
            "mq://h/a b",
            "mq://h/a/b",
            "mq://h?x=1",
            "mq://h?isHostTrusted=maybe",
            "mq://h?ServerName=a:b",
            "http://h/a b",
            "http://h/c/tunnel?ServerName=",
            "a:b:c",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse(&"x".repeat(2000)), Err(AddressError::TooLong));
    }

    #[test]
    fn a_list_skips_blanks_and_has_an_end() {
        let list = parse_list(" a , ,mqtcp://b:1/jms,").unwrap();
        let texts: Vec<_> = list.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["mq://a:7676/jms", "mqtcp://b:1/jms"]);
        assert_eq!(parse_list(" , ").unwrap().len(), 0);
        assert_eq!(parse_list(&"h,".repeat(256)).unwrap().len(), 256);
        assert_eq!(parse_list(&"h,".repeat(257)), Err(AddressError::TooMany));
    }
}
