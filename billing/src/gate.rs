//! The start gate: an instance starts only when the tenant can pay one hour of everything it runs, the new instance included.
//!
//! The check and the hold it asks for belong in one transaction. Instances that are starting weigh through their holds, running ones
//! through their rates; when a segment opens its hold is voided, so nothing weighs twice.

use tarn_protocol::units::Timestamp;

use crate::funds::Funds;
use crate::money::{Micros, OutOfRange};
use crate::rate::{Rate, hourly_burn};

/// What the gate sees.
#[derive(Debug, Clone, Copy)]
pub struct StartRequest<'a> {
    /// All grants, less the pending holds of instances that are starting.
    pub funds: &'a Funds,
    /// Confirmed by running segments and not settled yet.
    pub accrued: Micros,
    /// The rates of all open segments of the tenant.
    pub burning: &'a [Rate],
    /// The rate of the instance that wants to start.
    pub starting: Rate,
}

/// A start that may go ahead, once this much is held for it: an hour of its rate. [`Funds::reserve`] says on which accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    pub hold: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("an hour costs {required}, {available} available")]
    InsufficientFunds { required: Micros, available: Micros },
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

/// Decides a start at `at`.
pub fn admit(request: StartRequest<'_>, at: Timestamp) -> Result<Admitted, Refused> {
    let required = hourly_burn(request.burning.iter().copied().chain([request.starting]))?;
    let available = request.funds.available(at).checked_sub(request.accrued)?.max(Micros::ZERO);
    if available < required {
        return Err(Refused::InsufficientFunds { required, available });
    }
    Ok(Admitted { hold: request.starting.hourly() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::{Grant, GrantKind, GrantTerms};
    use tarn_protocol::ids::{GrantId, TenantId};

    #[test]
    fn m3_a_start_needs_an_hour_of_the_whole_burn() {
        let now = Timestamp::from_micros(0);
        let trial = Grant::new(GrantTerms {
            id: GrantId::new(now, 1),
            tenant_id: TenantId::new(now, 1),
            kind: GrantKind::Trial,
            priority: 0,
            amount: Micros::new(10_000_000),
            granted_at: now,
            expires_at: None,
        })
        .unwrap();
        let rate = |micros| Rate::per_hour(Micros::new(micros)).unwrap();
        let check = |held, accrued, burning: &[Rate], starting| {
            let funds = Funds::new(vec![trial.clone()], Micros::new(held)).unwrap();
            let starting = rate(starting);
            admit(StartRequest { funds: &funds, accrued: Micros::new(accrued), burning, starting }, now)
                .is_ok()
        };
        assert!(check(0, 0, &[], 10_000_000));
        assert!(!check(0, 0, &[], 10_000_001));
        assert!(!check(0, 1, &[], 10_000_000));
        assert!(check(0, 0, &[rate(2_400_000)], 7_600_000));
        assert!(!check(0, 0, &[rate(2_400_000)], 7_600_001));
        assert!(check(2_400_000, 0, &[], 7_600_000));
        assert!(!check(2_400_000, 0, &[], 7_600_001));
    }
}
