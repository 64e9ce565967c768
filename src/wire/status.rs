//! Status codes of replies.

/// The status of a reply, the `JMQStatus` property.
///
/// Shape: a number in the style of HTTP; 200 is success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "a number, as on the wire")]
pub struct Status(pub i32);

impl Status {
    /// Done.
    pub const OK: Self = Self(200);
    /// Another broker has it.
    pub const MOVED: Self = Self(301);
    /// Sent again, and already there.
    pub const NOT_MODIFIED: Self = Self(304);
    /// The request cannot be understood: a selector, an id.
    pub const BAD_REQUEST: Self = Self(400);
    /// Access control says no.
    pub const FORBIDDEN: Self = Self(403);
    /// No such destination, consumer, transaction.
    pub const NOT_FOUND: Self = Self(404);
    /// A producer limit is reached, or a temporary destination misused.
    pub const NOT_ALLOWED: Self = Self(405);
    /// A malformed wildcard name.
    pub const NOT_ACCEPTABLE: Self = Self(406);
    /// Not now: another broker is being taken over.
    pub const TIMEOUT: Self = Self(408);
    /// Somebody else has it: a client id, a durable, an acknowledged message.
    pub const CONFLICT: Self = Self(409);
    /// A durable without client id, a transaction in the wrong state.
    pub const PRECONDITION_FAILED: Self = Self(412);
    /// Wrong user or password.
    pub const INVALID_LOGIN: Self = Self(413);
    /// A destination's or the broker's limit is reached.
    pub const RESOURCE_FULL: Self = Self(414);
    /// A wildcard on a queue.
    pub const UNSUPPORTED_TYPE: Self = Self(415);
    /// The message is too large.
    pub const ENTITY_TOO_LARGE: Self = Self(423);
    /// Something got in between; the client asks once more.
    pub const RETRY: Self = Self(449);
    /// The request is malformed, or failed inside.
    pub const ERROR: Self = Self(500);
    /// The request's type is not known here.
    pub const NOT_IMPLEMENTED: Self = Self(501);
    /// Starting or shutting down.
    pub const UNAVAILABLE: Self = Self(503);
    /// A protocol level or packet version that is not spoken here.
    pub const BAD_VERSION: Self = Self(505);

    /// Whether this is [`OK`](Self::OK).
    #[must_use]
    pub fn is_ok(self) -> bool {
        self == Self::OK
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match *self {
            Self::OK => "ok",
            Self::MOVED => "moved",
            Self::NOT_MODIFIED => "already there",
            Self::BAD_REQUEST => "bad request",
            Self::FORBIDDEN => "forbidden",
            Self::NOT_FOUND => "not found",
            Self::NOT_ALLOWED => "not allowed",
            Self::NOT_ACCEPTABLE => "malformed name",
            Self::TIMEOUT => "time-out",
            Self::CONFLICT => "conflict",
            Self::PRECONDITION_FAILED => "precondition failed",
            Self::INVALID_LOGIN => "invalid login",
            Self::RESOURCE_FULL => "resource full",
            Self::UNSUPPORTED_TYPE => "unsupported type",
            Self::ENTITY_TOO_LARGE => "too large",
            Self::RETRY => "ask once more",
            Self::ERROR => "error",
            Self::NOT_IMPLEMENTED => "not implemented",
            Self::UNAVAILABLE => "unavailable",
            Self::BAD_VERSION => "bad version",
            Self(_) => return write!(f, "status {}", self.0),
        };
        write!(f, "{text} ({})", self.0)
    }
}
