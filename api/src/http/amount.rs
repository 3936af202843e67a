//! Amounts as clients see them: a decimal string with its currency, never a float.

use serde::{Deserialize, Serialize};
use tarn_billing::money::{Currency, Micros, Money};
use utoipa::ToSchema;

/// An amount of money.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Amount {
    /// Decimal, at most six places.
    #[schema(value_type = String, example = "10.00", pattern = r"^-?\d+(\.\d{1,6})?$")]
    pub amount: Micros,
    #[schema(value_type = String, example = "CNY")]
    pub currency: Currency,
}

impl From<Micros> for Amount {
    fn from(amount: Micros) -> Self {
        Money::cny(amount).into()
    }
}

impl From<Money> for Amount {
    fn from(Money { amount, currency }: Money) -> Self {
        Self { amount, currency }
    }
}
