//! What each refusal is in the contract.

use serde_json::json;
use tarn_provisioner::lifecycle::actions;

use crate::app::instances::change::ChangeRefused;
use crate::app::instances::claim::{ClaimError, StartRefused};
use crate::app::instances::start::NotStarted;
use crate::app::metering::purse::CorruptMoney;
use crate::http::error::{ApiError, Code};
use crate::http::offers;

impl From<ChangeRefused> for ApiError {
    fn from(refused: ChangeRefused) -> Self {
        match refused {
            ChangeRefused::NotFound => Self::not_found(),
            ChangeRefused::WrongState { state, .. } => {
                Self::new(Code::WrongState, refused.to_string()).with_member("actions", json!(actions(state)))
            }
        }
    }
}

impl From<StartRefused> for ApiError {
    fn from(refused: StartRefused) -> Self {
        let detail = refused.to_string();
        match refused {
            StartRefused::NotOnSale(_) => Self::invalid("/offer_id", detail),
            StartRefused::Quota(exceeded) => {
                Self::new(Code::QuotaExceeded, detail).with_member("quota", json!(exceeded))
            }
            StartRefused::Money(_) => Self::new(Code::BalanceTooLow, detail),
            StartRefused::SpendCap(_) => Self::new(Code::SpendCapReached, detail),
            StartRefused::NoCapacity { refusal, alternatives } => {
                let alternatives: Vec<_> = alternatives.iter().map(offers::render::alternative).collect();
                Self::new(Code::NoCapacity, detail)
                    .with_member("reasons", json!(refusal.hosts))
                    .with_member("alternatives", json!(alternatives))
            }
        }
    }
}

impl From<NotStarted> for ApiError {
    fn from(refused: NotStarted) -> Self {
        match refused {
            NotStarted::Change(refused) => refused.into(),
            NotStarted::Start(refused) => refused.into(),
            NotStarted::StillHeld => Self::new(Code::InUse, refused.to_string()),
        }
    }
}

impl From<CorruptMoney> for ApiError {
    fn from(error: CorruptMoney) -> Self {
        match error {
            CorruptMoney::Store(error) => error.into(),
            error => Self::internal(error),
        }
    }
}

impl From<ClaimError> for ApiError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Store(error) => error.into(),
            ClaimError::Money(error) => error.into(),
            ClaimError::Fleet(error) => Self::internal(error),
        }
    }
}
