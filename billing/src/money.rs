//! Money: whole micro-CNY in an `i64`, read and written as exact decimal strings.
//!
//! 1 CNY is 1,000,000 micros, so the largest amount is about 9.2 × 10^12 CNY. Arithmetic is checked: an amount that does not fit is
//! an error, never a wrapped or saturated balance. Rounding to fen happens in print only, never here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Micros in one CNY.
pub const MICROS_PER_UNIT: i64 = 1_000_000;
/// Decimal places that micros can express.
const PLACES: usize = 6;
/// Decimal places always written.
const PLACES_MIN: usize = 2;

/// A signed amount of micro-CNY. In JSON and in print a decimal string: `"2.40"`, `"9.999333"`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Micros(i64);

/// An amount that does not fit into an `i64` of micros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("amount out of range")]
pub struct OutOfRange;

/// Text that is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAmount {
    #[error("not a decimal amount such as 2.40")]
    Malformed,
    #[error("more than six decimal places")]
    TooPrecise,
    #[error("amount out of range")]
    OutOfRange,
}

impl Micros {
    pub const ZERO: Self = Self(0);

    pub const fn new(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn get(self) -> i64 {
        self.0
    }

    pub fn checked_add(self, other: Self) -> Result<Self, OutOfRange> {
        self.0.checked_add(other.0).map(Self).ok_or(OutOfRange)
    }

    pub fn checked_sub(self, other: Self) -> Result<Self, OutOfRange> {
        self.0.checked_sub(other.0).map(Self).ok_or(OutOfRange)
    }

    pub fn checked_neg(self) -> Result<Self, OutOfRange> {
        self.0.checked_neg().map(Self).ok_or(OutOfRange)
    }

    pub fn checked_sum(amounts: impl IntoIterator<Item = Self>) -> Result<Self, OutOfRange> {
        amounts.into_iter().try_fold(Self::ZERO, Self::checked_add)
    }

    /// From a sum made wide on purpose.
    pub(crate) fn narrow(wide: i128) -> Result<Self, OutOfRange> {
        i64::try_from(wide).map(Self).map_err(|_| OutOfRange)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = self.0.unsigned_abs();
        let unit = MICROS_PER_UNIT.unsigned_abs();
        let fraction = format!("{:0PLACES$}", magnitude % unit);
        let kept = fraction.trim_end_matches('0').len().max(PLACES_MIN);
        write!(f, "{sign}{}.{}", magnitude / unit, &fraction[..kept])
    }
}

impl FromStr for Micros {
    type Err = InvalidAmount;

    /// An optional `-`, digits, and optionally a point with one to six digits; nothing else.
    fn from_str(text: &str) -> Result<Self, InvalidAmount> {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let numeric = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !numeric(whole) || !numeric(fraction) {
            return Err(InvalidAmount::Malformed);
        }
        if fraction.len() > PLACES {
            return Err(InvalidAmount::TooPrecise);
        }
        let parsed = |part: &str| part.parse::<i128>().map_err(|_| InvalidAmount::OutOfRange);
        let scaled = parsed(whole)?
            .checked_mul(i128::from(MICROS_PER_UNIT))
            .and_then(|units| units.checked_add(parsed(&format!("{fraction:0<PLACES$}")).ok()?))
            .ok_or(InvalidAmount::OutOfRange)?;
        let signed = if negative { -scaled } else { scaled };
        Self::narrow(signed).map_err(|OutOfRange| InvalidAmount::OutOfRange)
    }
}

impl TryFrom<String> for Micros {
    type Error = InvalidAmount;
    fn try_from(text: String) -> Result<Self, InvalidAmount> {
        text.parse()
    }
}

impl From<Micros> for String {
    fn from(amount: Micros) -> String {
        amount.to_string()
    }
}

/// The currency of an amount. Unknown codes are refused where they enter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Currency {
    #[default]
    #[serde(rename = "CNY")]
    Cny,
}

/// A text that names no currency known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown currency")]
pub struct UnknownCurrency;

impl Currency {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cny => "CNY",
        }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Currency {
    type Err = UnknownCurrency;
    fn from_str(text: &str) -> Result<Self, UnknownCurrency> {
        if text == Self::Cny.as_str() { Ok(Self::Cny) } else { Err(UnknownCurrency) }
    }
}

/// An amount with its currency, as the API writes it: `{"amount":"2.40","currency":"CNY"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Money {
    pub amount: Micros,
    pub currency: Currency,
}

impl Money {
    pub const fn cny(amount: Micros) -> Self {
        Self { amount, currency: Currency::Cny }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_are_exact_and_trimmed_to_two() {
        let cases = [
            (0, "0.00"),
            (2_400_000, "2.40"),
            (10_000_000, "10.00"),
            (9_999_333, "9.999333"),
            (-500_000, "-0.50"),
            (1, "0.000001"),
            (i64::MAX, "9223372036854.775807"),
            (i64::MIN, "-9223372036854.775808"),
        ];
        for (micros, text) in cases {
            assert_eq!(Micros::new(micros).to_string(), text);
            assert_eq!(text.parse(), Ok(Micros::new(micros)));
        }
        assert_eq!("7".parse(), Ok(Micros::new(7_000_000)));
        assert_eq!("7.5".parse(), Ok(Micros::new(7_500_000)));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["", "-", ".", "1.", ".5", "+1", " 1", "1 ", "1e3", "1,00", "--1", "0x1", "１", "1.-5", "NaN"]
        {
            assert_eq!(text.parse::<Micros>(), Err(InvalidAmount::Malformed), "{text:?}");
        }
        assert_eq!("0.0000001".parse::<Micros>(), Err(InvalidAmount::TooPrecise));
        for text in ["9223372036854.775808", "99999999999999999999999999999999999999999999"] {
            assert_eq!(text.parse::<Micros>(), Err(InvalidAmount::OutOfRange), "{text:?}");
        }
        assert!("cny".parse::<Currency>().is_err());
    }

    #[test]
    fn overflow_is_an_error() {
        assert_eq!(Micros::new(i64::MAX).checked_add(Micros::new(1)), Err(OutOfRange));
        assert_eq!(Micros::new(i64::MIN).checked_neg(), Err(OutOfRange));
        assert_eq!(Micros::checked_sum([Micros::new(1), Micros::new(2)]), Ok(Micros::new(3)));
    }

    proptest! {
        #[test]
        fn every_amount_round_trips(micros: i64) {
            let amount = Micros::new(micros);
            prop_assert_eq!(amount.to_string().parse(), Ok(amount));
        }
    }
}
