//! Every maximum of the broker that is not a setting.

/// Bytes of control packets that may wait for a peer that does not read, before the connection is
/// closed. Messages do not count: credit bounds them.
pub(super) const OUTPUT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes read from one connection in one turn before the others have theirs.
pub(super) const TURN_BYTES_MAX: usize = 256 * 1024;

/// Longest name of a destination, in bytes.
pub(super) const DESTINATION_NAME_BYTES_MAX: usize = 4096;

/// Most destinations of a broker.
pub(super) const DESTINATIONS_MAX: usize = 100_000;

/// Most subscriptions that are durable or shared.
pub(super) const SUBSCRIPTIONS_MAX: usize = 100_000;

/// Most sessions, and most producers, and most consumers of one connection.
pub(super) const PER_CONNECTION_MAX: usize = 100_000;

/// Most numbers made by one request for unique numbers.
pub(super) const UNIQUE_IDS_MAX: i32 = 10_000;

/// Most lines a port mapper reads from one peer, and the longest it cares about.
pub(super) const PORT_MAPPER_LINES_MAX: usize = 6;

/// Connections of administrators beyond those that are a setting.
pub(super) const ADMIN_CONNECTIONS_EXTRA: usize = 16;

/// Most transactions that are open or prepared at a time: a local one for each session that a busy
/// connection may have.
pub(super) const TRANSACTIONS_MAX: usize = 100_000;

/// Most requests about one transaction that wait for its acknowledgements. A client asks for three
/// things at most without waiting in between: end, prepare, commit.
pub(super) const TRANSACTION_WAITING_MAX: usize = 16;

/// Most transactions that are remembered after their end.
pub(super) const TRANSACTIONS_REMEMBERED_MAX: usize = 1024;

/// Shortest time between two looks for messages that expired while they waited, in milliseconds.
pub(super) const EXPIRY_SWEEP_MS: i64 = 1000;

/// Most browsers of one connection that are remembered.
pub(super) const BROWSERS_MAX: usize = 1000;
