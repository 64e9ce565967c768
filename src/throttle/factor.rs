//! The factor by which thread depth rises and falls.

use std::fmt;
use std::str::FromStr;

use crate::setting::SettingError;
use crate::throttle::policy::DEPTH_MOST;

/// A factor of at least 1, with up to three decimals.
///
/// Shape: whole thousandths, 1.000 … 134 217 727.000. The documented factors are whole numbers;
/// fractions are allowed because a gentle step (1.5) is useful for small channels. Whole
/// thousandths instead of floating point, so that there is nothing that is not a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor {
    thousandths: u64,
}

impl Factor {
    /// No change.
    pub const ONE: Self = Self::whole(1);

    /// What every factor takes, for refusals.
    pub(super) const ALLOWED: &'static str = "1 to 134217727, with up to three decimals";

    /// A whole factor; 0 counts as 1, more than 134 217 727 as that.
    pub(super) const fn whole(factor: u32) -> Self {
        let factor = if factor == 0 { 1 } else { factor };
        let factor = if factor > DEPTH_MOST { DEPTH_MOST } else { factor };
        Self { thousandths: factor as u64 * THOUSAND }
    }

    /// A factor in thousandths: 1500 is one and a half.
    ///
    /// # Errors
    /// [`SettingError`] if it is under 1 or over 134 217 727.
    pub fn from_thousandths(thousandths: u64) -> Result<Self, SettingError> {
        let factor = Self { thousandths };
        if factor < Self::ONE || factor > Self::whole(DEPTH_MOST) {
            return Err(SettingError::new("factor", factor, Self::ALLOWED));
        }
        Ok(factor)
    }

    /// `depth` times this, rounded up, at most the highest depth. Rounded up, so that every factor
    /// over 1 raises every depth.
    pub(super) fn raise(self, depth: u32) -> u32 {
        let product = u64::from(depth).saturating_mul(self.thousandths).div_ceil(THOUSAND);
        u32::try_from(product).map_or(DEPTH_MOST, |depth| depth.min(DEPTH_MOST))
    }

    /// `depth` divided by this, rounded down. So every factor over 1 lowers every depth.
    pub(super) fn lower(self, depth: u32) -> u32 {
        let quotient = u64::from(depth) * THOUSAND / self.thousandths;
        // A factor is at least 1, so the quotient is no larger than the depth.
        u32::try_from(quotient).unwrap_or(depth)
    }
}

impl FromStr for Factor {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let refused = || SettingError::new("factor", text, Self::ALLOWED);
        let text = text.trim();
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
            return Err(refused());
        }
        let whole: u64 = whole.parse().map_err(|_| refused())?;
        let fraction: u64 = format!("{fraction:0<3}").parse().map_err(|_| refused())?;
        let thousandths = whole.checked_mul(THOUSAND).and_then(|whole| whole.checked_add(fraction));
        Self::from_thousandths(thousandths.ok_or_else(refused)?).map_err(|_| refused())
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.thousandths / THOUSAND, self.thousandths % THOUSAND);
        if fraction == 0 {
            write!(f, "{whole}")
        } else {
            write!(f, "{whole}.{}", format!("{fraction:03}").trim_end_matches('0'))
        }
    }
}

const THOUSAND: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::{DEPTH_MOST, Factor};

    #[test]
    fn factors_survive_text() {
        for text in ["1", "5", "1.5", "1.001", "2.25", "134217727"] {
            assert_eq!(text.parse::<Factor>().unwrap().to_string(), text);
        }
        assert_eq!("1.50".parse::<Factor>().unwrap(), Factor::from_thousandths(1500).unwrap());
    }

    #[test]
    fn what_is_no_factor_is_refused_with_value_and_range() {
        for text in [
            "0",
            "0.5",
            "0.999",
            "-1",
            "",
            ".",
            "1.",
            ".5",
            "NaN",
            "inf",
            "1e3",
            "1.0001",
            "x",
            "134217727.001",
            "134217728",
            "9223372036854775808",
            "99999999999999999999999",
        ] {
            let error = text.parse::<Factor>().unwrap_err();
            assert_eq!((error.value(), error.allowed()), (text, Factor::ALLOWED));
        }
    }

    #[test]
    fn every_factor_over_one_moves_every_depth() {
        let gentle: Factor = "1.001".parse().unwrap();
        for depth in [1, 2, 10, 999, 1000, DEPTH_MOST - 1] {
            assert!(gentle.raise(depth) > depth, "{depth}");
            assert!(gentle.lower(depth) < depth, "{depth}");
        }
        assert_eq!(Factor::ONE.raise(7), 7);
        assert_eq!(Factor::ONE.lower(7), 7);
    }

    #[test]
    fn a_raised_depth_stops_at_the_highest() {
        for (factor, depth) in [("5", DEPTH_MOST / 5), ("134217727", 1)] {
            assert!(factor.parse::<Factor>().unwrap().raise(depth) <= DEPTH_MOST);
        }
        let largest = Factor::whole(u32::MAX);
        assert_eq!(largest.raise(DEPTH_MOST), DEPTH_MOST);
        assert_eq!(largest.lower(DEPTH_MOST), 1);
    }
}
