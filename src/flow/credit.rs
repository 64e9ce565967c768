//! Credit as a value, and what the numbers on the wire mean.

/// Credit of one consumer or producer, in messages.
///
/// Shape: a count, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Credit {
    /// So many messages may be sent. Zero only for producers, who then wait for more.
    Limited(u32),
    /// Any number of messages may be sent, and none is marked as the last.
    Unlimited,
}

impl Credit {
    /// What `JMQSize` of a consumer means: a positive number is a limit, everything else is none.
    ///
    /// # Source
    /// The wire protocol: −1 is unlimited; 0 is accepted, echoed, and then delivered without limit.
    #[must_use]
    pub const fn from_wire(size: i32) -> Self {
        if size > 0 { Self::Limited(size.unsigned_abs()) } else { Self::Unlimited }
    }

    /// What `JMQSize` of a producer means: negative is no limit, 0 is "wait for more".
    ///
    /// # Source
    /// The wire protocol, credit of producers.
    #[must_use]
    pub const fn from_wire_producer(size: i32) -> Self {
        if size < 0 { Self::Unlimited } else { Self::Limited(size.unsigned_abs()) }
    }

    /// The number for `JMQSize`: −1 for no limit, at most `i32::MAX` otherwise.
    #[must_use]
    pub fn to_wire(self) -> i32 {
        match self {
            Self::Limited(count) => i32::try_from(count).unwrap_or(i32::MAX),
            Self::Unlimited => -1,
        }
    }

    /// What a consumer gets that wishes for `self` where the destination allows `limit`.
    ///
    /// # Source
    /// The wire protocol: the smaller of two limits; but a consumer that wishes for no limit gets
    /// none, whatever the destination says.
    #[must_use]
    pub const fn agree(self, limit: Self) -> Self {
        match (self, limit) {
            (Self::Limited(wish), Self::Limited(limit)) if limit < wish => Self::Limited(limit),
            (wish, _) => wish,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Credit;

    #[test]
    fn zero_and_negative_sizes_of_a_consumer_are_unlimited() {
        for size in [0, -1, -2, i32::MIN] {
            assert_eq!(Credit::from_wire(size), Credit::Unlimited);
        }
        assert_eq!(Credit::from_wire(1), Credit::Limited(1));
        assert_eq!(Credit::from_wire(i32::MAX), Credit::Limited(2_147_483_647));
    }

    #[test]
    fn zero_makes_a_producer_wait() {
        assert_eq!(Credit::from_wire_producer(0), Credit::Limited(0));
        assert_eq!(Credit::from_wire_producer(-1), Credit::Unlimited);
    }

    #[test]
    fn credit_survives_the_wire() {
        for credit in [Credit::Unlimited, Credit::Limited(1), Credit::Limited(1000)] {
            assert_eq!(Credit::from_wire(credit.to_wire()), credit);
        }
        assert_eq!(Credit::Limited(u32::MAX).to_wire(), i32::MAX);
    }

    #[test]
    fn the_smaller_limit_is_agreed_and_a_wish_for_none_wins() {
        use Credit::{Limited, Unlimited};
        for (wish, limit, agreed) in [
            (Limited(10), Limited(4), Limited(4)),
            (Limited(4), Limited(10), Limited(4)),
            (Limited(4), Unlimited, Limited(4)),
            (Unlimited, Limited(4), Unlimited),
            (Unlimited, Unlimited, Unlimited),
        ] {
            assert_eq!(wish.agree(limit), agreed, "{wish:?} {limit:?}");
        }
    }
}
