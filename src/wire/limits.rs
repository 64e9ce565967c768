//! Every maximum of the wire.

/// Largest packet accepted unless a setting says otherwise, in bytes; the reference broker's
/// `imq.message.max_size` of 70 MiB.
pub const PACKET_BYTES_MAX: u32 = 73_400_320;

/// Largest packet accepted before login, in bytes. A HELLO or AUTHENTICATE has a few hundred.
pub const PACKET_BEFORE_LOGIN_BYTES_MAX: u32 = 64 * 1024;

/// Most properties read from one table. A name takes at least three bytes, so this is far above
/// what fits into a sensible packet and far below what would exhaust memory.
pub const PROPERTIES_MAX: usize = 16_384;

/// Longest string of a variable header, in bytes: its length is a signed 16-bit number.
pub const VARIABLE_STRING_BYTES_MAX: usize = 32_767;

/// Longest string of a property table, in bytes: its length is an unsigned 16-bit number.
pub const PROPERTY_STRING_BYTES_MAX: usize = 65_535;

/// Most values read from one serialized map or stream. A value can take a single byte on the wire
/// and some forty in memory.
pub const JAVA_ITEMS_MAX: usize = 1 << 20;

/// How deep objects may lie within objects where any class is read.
pub const JAVA_DEPTH_MAX: usize = 16;

/// Longest name of a class or field where any class is read, in bytes.
pub const JAVA_NAME_BYTES_MAX: u16 = 4096;

/// Most fields of one class, its parents' counted in.
pub const JAVA_FIELDS_MAX: usize = 1024;

/// Most text that references may repeat in one serialized map or stream, in bytes. A reference of
/// five bytes stands for a whole string.
pub const JAVA_REPEATED_BYTES_MAX: usize = 16 << 20;

/// Largest body and property table of a message together, in bytes; with its headers such a packet
/// stays below 2 GiB, the most a packet's size can say.
pub const MESSAGE_BYTES_MAX: usize = 2_000_000_000;
