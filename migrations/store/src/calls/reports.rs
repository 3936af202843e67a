//! What reports read.

use tarn_billing::money::Micros;
use tarn_protocol::ids::{AccountId, InstanceId, LeaseId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::reports::{LeasedRow, LedgerPlace, RevenueRow, StatementEntryRow, TurnoverRow};

use super::calls;

calls! { statements {
    statement_entries(scope: &TenantScope, account: &AccountId, after: &LedgerPlace, before: Timestamp, limit: u32) -> Vec<StatementEntryRow>;
    balance_at(scope: &TenantScope, account: &AccountId, place: &LedgerPlace) -> Micros;
    turnover(scope: &TenantScope, account: &AccountId, from: Timestamp, to: Timestamp) -> TurnoverRow;
    system_turnover(account: &AccountId, from: Timestamp, to: Timestamp) -> TurnoverRow;
    revenue(account: &AccountId, from: Timestamp, to: Timestamp) -> Vec<RevenueRow>;
} }

calls! { leased {
    leased_still(before: Timestamp, above: Option<&LeaseId>, limit: u32) -> Vec<LeasedRow>;
    leased_until(after: (Timestamp, &str), before: Timestamp, limit: u32) -> Vec<LeasedRow>;
    leases_of_instance(scope: &TenantScope, instance: &InstanceId) -> Vec<LeasedRow>;
} }
