//! Addresses of brokers, as they stand in `imqAddressList`.
//!
//! `[mq://][host][:port][/service]` asks the port mapper at host and port where the service
//! listens; `mqtcp://host:port/service` connects to the service itself. The schemes for TLS,
//! WebSocket and HTTP are known, and refused with that reason.
//!
//! # Source
//! The address schemes of the Message Queue client runtime.

use std::fmt;

/// Port of a port mapper.
pub(super) const PORT_MAPPER_PORT: u16 = 7676;
const DEFAULT_HOST: &str = "localhost";
const DEFAULT_SERVICE: &str = "jms";
const ADDRESS_BYTES_MAX: usize = 1024;
/// Addresses taken from one list.
const ADDRESSES_MAX: usize = 256;

/// Where a broker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) way: Way,
}

/// How to get to the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// Host and port are a port mapper's; it knows the port of this service.
    PortMapper { service: String },
    /// Host and port are the service's.
    Direct { service: String },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, service) = match &self.way {
            Way::PortMapper { service } => ("mq", service),
            Way::Direct { service } => ("mqtcp", service),
        };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}/{service}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}/{service}", self.host, self.port)
        }
    }
}

/// Why a text is no address that this client can use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddressError {
    #[error("an address starts with mq:// or mqtcp://; \"{0}\" is no scheme")]
    Scheme(String),
    #[error(
        "\"{0}\" needs {1}, which this build does not include; it has mq:// and mqtcp:// to services over TCP"
    )]
    NotIncluded(String, &'static str),
    #[error("a port is 1 to 65535, not \"{0}\"")]
    Port(String),
    #[error("an mqtcp:// address needs a port: mqtcp://host:port/jms")]
    PortMissing,
    #[error("a host in brackets ends with ]")]
    Bracket,
    #[error("\"{0}\" is no name of a host")]
    Host(String),
    #[error("\"{0}\" is no name of a service")]
    Service(String),
    #[error("an address takes ?isHostTrusted=true or false, not \"?{0}\"")]
    Query(String),
    #[error("an address has at most {ADDRESS_BYTES_MAX} bytes")]
    TooLong,
    #[error("a list has at most {ADDRESSES_MAX} addresses")]
    TooMany,
}

/// Reads a comma-separated list; an empty one means the default address.
pub(super) fn parse_list(list: &str) -> Result<Vec<Address>, AddressError> {
    let addresses: Vec<_> = list
        .split(',')
        .map(str::trim)
        .filter(|address| !address.is_empty())
        .map(parse)
        .collect::<Result<_, _>>()?;
    match addresses.len() {
        0 => Ok(vec![parse("")?]),
        1..=ADDRESSES_MAX => Ok(addresses),
        _ => Err(AddressError::TooMany),
    }
}

/// Reads one address.
pub(super) fn parse(text: &str) -> Result<Address, AddressError> {
    let text = text.trim();
    if text.len() > ADDRESS_BYTES_MAX {
        return Err(AddressError::TooLong);
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("mq", text));
    let direct = match scheme.to_ascii_lowercase().as_str() {
        "mq" => false,
        "mqtcp" => true,
        "mq+ssl" | "mqssl" => {
            return Err(AddressError::NotIncluded(text.to_owned(), "TLS"));
        }
        "mqws" | "mqwss" => {
            return Err(AddressError::NotIncluded(text.to_owned(), "WebSocket"));
        }
        "http" | "https" => {
            return Err(AddressError::NotIncluded(text.to_owned(), "the HTTP tunnel"));
        }
        _ => return Err(AddressError::Scheme(scheme.to_owned())),
    };
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, q)| (rest, Some(q)));
    check_query(query)?;
    let (place, service) =
        rest.split_once('/').map_or((rest, DEFAULT_SERVICE), |(place, service)| (place, service));
    let service = service.trim_end_matches('/');
    let service = if service.is_empty() { DEFAULT_SERVICE } else { service };
    check_service(text, service)?;
    let (host, port) = split_place(place, direct)?;
    let port = match (port, direct) {
        (Some(port), _) => parse_port(port)?,
        (None, false) => PORT_MAPPER_PORT,
        (None, true) => return Err(AddressError::PortMissing),
    };
    let service = service.to_owned();
    let way = if direct { Way::Direct { service } } else { Way::PortMapper { service } };
    Ok(Address { host: host.to_owned(), port, way })
}

/// Host and port of `host`, `host:port`, `:port`, `port`, `[v6]`, `[v6]:port` or nothing.
fn split_place(place: &str, direct: bool) -> Result<(&str, Option<&str>), AddressError> {
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(AddressError::Bracket)?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(AddressError::Bracket),
        }
    } else if !direct && !place.is_empty() && place.bytes().all(|byte| byte.is_ascii_digit()) {
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

fn check_service(text: &str, service: &str) -> Result<(), AddressError> {
    match service {
        "ssljms" | "ssladmin" => Err(AddressError::NotIncluded(text.to_owned(), "TLS")),
        "httpjms" | "httpsjms" | "httpadmin" => {
            Err(AddressError::NotIncluded(text.to_owned(), "the HTTP tunnel"))
        }
        name if name.chars().all(|c| c.is_alphanumeric() || "-._".contains(c)) => Ok(()),
        name => Err(AddressError::Service(name.to_owned())),
    }
}

fn check_query(query: Option<&str>) -> Result<(), AddressError> {
    match query {
        // It only matters to TLS.
        None | Some("" | "isHostTrusted=true" | "isHostTrusted=false") => Ok(()),
        Some(other) => Err(AddressError::Query(other.to_owned())),
    }
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
            ("mq://[::1]:9/jms?isHostTrusted=true", "mq://[::1]:9/jms"),
            ("[fe80::1%eth0]", "mq://[fe80::1%eth0]:7676/jms"),
            ("mqtcp://127.0.0.1:7677/jms", "mqtcp://127.0.0.1:7677/jms"),
            ("mqtcp://:7677", "mqtcp://localhost:7677/jms"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), full, "{text}");
        }
    }

    #[test]
    fn schemes_of_other_transports_are_refused_with_what_is_missing() {
        for (text, missing) in [
            ("mq+ssl://h", "TLS"),
            ("mqssl://h:1/ssljms", "TLS"),
            ("mq://h/ssljms", "TLS"),
            ("mqws://h:1/s", "WebSocket"),
            ("mqwss://h:1/s", "WebSocket"),
            ("http://h:1/c/tunnel", "HTTP"),
            ("https://h:1/c/tunnel?ServerName=a:b", "HTTP"),
            ("mq://h/httpjms", "HTTP"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(missing) && error.contains("does not include"), "{error}");
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
            "mq://[::1",
            "a b",
            "mq://[::1]x",
            "mq://h/a b",
            "mq://h?x=1",
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
        assert_eq!(parse_list(" ").unwrap().len(), 1);
        assert_eq!(parse_list(&"h,".repeat(256)).unwrap().len(), 256);
        assert_eq!(parse_list(&"h,".repeat(257)), Err(AddressError::TooMany));
    }
}
