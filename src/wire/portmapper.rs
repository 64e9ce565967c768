//! The port mapper's table: which services a broker has, and where.
//!
//! ```text
//! 101 broker-name 301
//! jms tcp NORMAL 7677 [hostname=127.0.0.1]
//! .
//! ```
//!
//! One line for the broker, one for each service (name, protocol, type, port and maybe
//! properties), a dot. A client sends [`REQUEST`], reads until [`PortTable::is_complete`] or the
//! end, and looks up its service.
//!
//! # Source
//! The wire protocol. Reading follows the Java client, which is the more lenient one; writing
//! keeps to what the C client reads.

use std::fmt::Write as _;

/// The line a client sends to ask for the table. Its content is not checked.
pub const REQUEST: &[u8] = b"101\n";

/// Largest table written, in bytes: the C client reads no more.
pub const TABLE_BYTES_MAX: usize = 2_000;

/// Largest table read, in bytes.
pub const TABLE_READ_BYTES_MAX: usize = 64 * 1024;

/// Longest line read, in bytes; longer ones are cut.
pub const LINE_BYTES_MAX: usize = 2_048;

/// Version of the table's format.
const TABLE_VERSION: &str = "101";

/// What a broker's port mapper says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_structs, reason = "the wire fixes its fields")]
pub struct PortTable {
    /// Name of the broker.
    pub instance: String,
    /// Packet version, such as `301`, or an old product version, such as `2.0`.
    pub packet_version: String,
    /// Services, in the table's order.
    pub services: Vec<Service>,
}

/// One service of a broker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_structs, reason = "the wire fixes its fields")]
pub struct Service {
    /// Its name, such as `jms`.
    pub name: String,
    /// `tcp`, `tls`, `http`, `https`, `ws` or `wss`.
    pub protocol: String,
    /// `NORMAL`, `ADMIN`, `PORTMAPPER`, `CLUSTER` or `CLUSTER_DISCOVERY`.
    pub kind: String,
    /// Its port; 0 if it has none of its own or is paused.
    pub port: u16,
    /// Properties, in order.
    pub properties: Vec<(String, String)>,
}

/// What is wrong with a port table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortTableError {
    /// The first line is not that of a port mapper.
    #[error("not a port mapper: the first line is {found:?}")]
    Version {
        /// The line, cut to its first characters.
        found: String,
    },
    /// A line with too few fields, or without a port where one belongs.
    #[error("port mapper line {line} is malformed: {found:?}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The line, cut to its first characters.
        found: String,
    },
    /// A field that is to be written is empty or has a space or control character in it.
    #[error("{field} {value:?} cannot stand in a port table: it must be a word")]
    Field {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// The table is larger than clients read.
    #[error("port table of {len} bytes; clients read at most {max}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The most that is read or written.
        max: usize,
    },
}

impl PortTable {
    /// Reads a table. It ends at a dot, at an empty line or with the bytes.
    ///
    /// # Errors
    /// [`PortTableError`] about version, lines or length.
    pub fn decode(bytes: &[u8]) -> Result<Self, PortTableError> {
        if bytes.len() > TABLE_READ_BYTES_MAX {
            let (len, max) = (bytes.len(), TABLE_READ_BYTES_MAX);
            return Err(PortTableError::TooLong { len, max });
        }
        let mut lines = lines(bytes);
        let first = lines.next().unwrap_or_default();
        let mut fields = first.split(' ');
        let (Some(TABLE_VERSION), Some(instance), Some(packet_version)) =
            (fields.next(), fields.next(), fields.next())
        else {
            return Err(PortTableError::Version { found: shortened(&first) });
        };
        let mut table = Self {
            instance: instance.to_owned(),
            packet_version: packet_version.to_owned(),
            services: Vec::new(),
        };
        for (at, line) in lines.enumerate() {
            if line.is_empty() || line == "." {
                break;
            }
            let wrong = || PortTableError::Line { line: at + 2, found: shortened(&line) };
            table.services.push(service(&line).ok_or_else(wrong)?);
        }
        Ok(table)
    }

    /// Whether a table's last line has arrived, so that a reader need not wait for the end.
    #[must_use]
    pub fn is_complete(bytes: &[u8]) -> bool {
        bytes.ends_with(b"\n.\n") || bytes.ends_with(b"\n.\r\n") || bytes.ends_with(b"\n\n")
    }

    /// The first service with this protocol, type and, if one is given, name.
    #[must_use]
    pub fn find(&self, protocol: &str, kind: &str, name: Option<&str>) -> Option<&Service> {
        self.services.iter().find(|service| {
            service.protocol == protocol
                && service.kind == kind
                && name.is_none_or(|name| service.name == name)
        })
    }

    /// Whether the broker is new enough for packets of version 301.
    #[must_use]
    pub fn speaks_current_packets(&self) -> bool {
        // Product versions count part by part, so 301 is far above 3.0.1.
        let parts = self.packet_version.split('.').map(|part| part.parse().unwrap_or(0_u32));
        parts.ge([3, 0, 1])
    }

    /// The table's bytes.
    ///
    /// # Errors
    /// [`PortTableError::Field`] if a field is no single word, [`PortTableError::TooLong`] if a
    /// client could not read it all.
    pub fn encode(&self) -> Result<Vec<u8>, PortTableError> {
        let instance = word("instance name", &self.instance)?;
        let version = word("packet version", &self.packet_version)?;
        let mut out = format!("{TABLE_VERSION} {instance} {version}\n");
        for service in &self.services {
            put_service(service, &mut out)?;
        }
        out.push_str(".\n");
        let (len, max) = (out.len(), TABLE_BYTES_MAX);
        if len > max {
            return Err(PortTableError::TooLong { len, max });
        }
        Ok(out.into_bytes())
    }
}

impl Service {
    /// A property, such as `hostname`.
    #[must_use]
    pub fn property(&self, key: &str) -> Option<&str> {
        self.properties.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

/// The lines, cut at their limit. Text that is none is replaced: only words are compared.
fn lines(bytes: &[u8]) -> impl Iterator<Item = String> {
    bytes.split(|&byte| byte == b'\n').map(|line| {
        let cut = line.get(..LINE_BYTES_MAX).unwrap_or(line);
        String::from_utf8_lossy(cut).trim_end_matches('\r').to_owned()
    })
}

fn service(line: &str) -> Option<Service> {
    let mut fields = line.splitn(5, ' ');
    let (name, protocol, kind) = (fields.next()?, fields.next()?, fields.next()?);
    let port: i64 = fields.next()?.parse().ok()?;
    // A service that is paused may say a port below 0.
    let port = u16::try_from(port.max(0)).ok()?;
    let properties = fields.next().map(properties).unwrap_or_default();
    let [name, protocol, kind] = [name, protocol, kind].map(str::to_owned);
    Some(Service { name, protocol, kind, port, properties })
}

/// `[key=value,key=value]`; values may have spaces. What has another form is left out.
fn properties(text: &str) -> Vec<(String, String)> {
    let inner = text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inner
        .unwrap_or_default()
        .split(',')
        .filter_map(|entry| entry.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn put_service(service: &Service, out: &mut String) -> Result<(), PortTableError> {
    let name = word("service name", &service.name)?;
    let protocol = word("service protocol", &service.protocol)?;
    let kind = word("service type", &service.kind)?;
    // Writing to a string cannot fail.
    let _ = write!(out, "{name} {protocol} {kind} {}", service.port);
    let mut before = " [";
    for (key, value) in &service.properties {
        let (key, value) = (word("property name", key)?, word("property value", value)?);
        let _ = write!(out, "{before}{key}={value}");
        before = ",";
    }
    out.push_str(if service.properties.is_empty() { "\n" } else { "]\n" });
    Ok(())
}

fn word<'a>(field: &'static str, value: &'a str) -> Result<&'a str, PortTableError> {
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '[' | ']' | ',' | '=');
    if value.is_empty() || value.contains(bad) {
        return Err(PortTableError::Field { field, value: shortened(value) });
    }
    Ok(value)
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::{PortTable, PortTableError, Service, TABLE_BYTES_MAX};

    const SAMPLE: &str = "101 spec 301\n\
        cluster_discovery tcp CLUSTER_DISCOVERY 0\n\
        portmapper tcp PORTMAPPER 7676 [sessionid=1275541431691713280]\n\
        admin tcp ADMIN 7678 [hostname=127.0.0.1]\n\
        jms tcp NORMAL 7677 [hostname=127.0.0.1,x=y]\n.\n";

    #[test]
    fn a_table_is_read_and_written_as_it_was() {
        let table = PortTable::decode(SAMPLE.as_bytes()).unwrap();
        assert_eq!((table.instance.as_str(), table.packet_version.as_str()), ("spec", "301"));
        assert_eq!(table.services.len(), 4);
        assert_eq!(table.encode().unwrap(), SAMPLE.as_bytes());
        let jms = table.find("tcp", "NORMAL", Some("jms")).unwrap();
        assert_eq!((jms.port, jms.property("hostname")), (7677, Some("127.0.0.1")));
        assert_eq!(table.find("tcp", "NORMAL", None), Some(jms));
        assert_eq!(table.find("tcp", "ADMIN", None).unwrap().port, 7678);
        assert_eq!(table.find("tls", "NORMAL", None), None);
        assert_eq!(table.find("tcp", "NORMAL", Some("ssljms")), None);
    }

    #[test]
    fn reading_stops_at_a_dot_an_empty_line_or_the_end() {
        for end in [".\nrest is not read", "\nrest", "", ".", ".\r\n"] {
            let text = format!("101 a 301\njms tcp NORMAL 1 [note=with spaces, and more]\n{end}");
            let table = PortTable::decode(text.as_bytes()).unwrap();
            assert_eq!(table.services.len(), 1, "{end:?}");
            assert_eq!(table.services[0].property("note"), Some("with spaces"));
        }
        assert!(PortTable::is_complete(SAMPLE.as_bytes()));
        assert!(!PortTable::is_complete(&SAMPLE.as_bytes()[..SAMPLE.len() - 1]));
    }

    #[test]
    fn other_servers_and_malformed_lines_are_refused() {
        for text in ["", "HTTP/1.1 400 Bad Request\r\n", "102 a 301\n", "101 a\n"] {
            let refused = PortTable::decode(text.as_bytes()).unwrap_err();
            assert!(matches!(refused, PortTableError::Version { .. }), "{text:?}");
        }
        for line in ["jms tcp NORMAL", "jms tcp NORMAL x", "jms tcp NORMAL 65536"] {
            let text = format!("101 a 301\n{line}\n");
            let refused = PortTable::decode(text.as_bytes()).unwrap_err();
            assert!(matches!(refused, PortTableError::Line { line: 2, .. }), "{line:?}");
        }
        let paused = PortTable::decode(b"101 a 301\njms tcp NORMAL -1\n").unwrap();
        assert_eq!(paused.services[0].port, 0);
        assert!(PortTable::decode(&[b'x'; 70_000]).is_err());
    }

    #[test]
    fn packet_versions_are_compared_part_by_part() {
        for (version, current) in
            [("301", true), ("3.0.1", true), ("6.10", true), ("3.0", false), ("2.0", false)]
        {
            let table = PortTable { packet_version: version.to_owned(), ..Default::default() };
            assert_eq!(table.speaks_current_packets(), current, "{version}");
        }
    }

    #[test]
    fn what_clients_could_not_read_is_not_written() {
        let mut table = PortTable::decode(SAMPLE.as_bytes()).unwrap();
        table.instance = "two words".to_owned();
        assert!(matches!(table.encode(), Err(PortTableError::Field { .. })));
        table.instance = "spec".to_owned();
        let rest = TABLE_BYTES_MAX - SAMPLE.len();
        let filler = |len: usize| Service {
            name: "n".repeat(len - " tcp NORMAL 1\n".len()),
            protocol: "tcp".to_owned(),
            kind: "NORMAL".to_owned(),
            port: 1,
            properties: Vec::new(),
        };
        table.services.push(filler(rest));
        assert_eq!(table.encode().unwrap().len(), TABLE_BYTES_MAX);
        table.services[4] = filler(rest + 1);
        assert!(matches!(table.encode(), Err(PortTableError::TooLong { len: 2_001, .. })));
    }
}
