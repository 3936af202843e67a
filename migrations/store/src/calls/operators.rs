//! What operators do.

use tarn_billing::money::Micros;
use tarn_protocol::ids::{CreditRequestId, TenantId, UserId};
use tarn_protocol::units::Timestamp;
use tarn_rows::Page;
use tarn_rows::operators::{CreditRequestRow, CreditState, DeedRow, LogHeadRow};

use super::calls;

calls! { operator_log {
    take_log_turn() -> LogHeadRow;
    append_deed(deed: &DeedRow) -> ();
    deeds_below(seq: i64, limit: u32) -> Vec<DeedRow>;
    deeds_of_subject(subject: &str, seq: i64, limit: u32) -> Vec<DeedRow>;
    deeds_above(seq: i64, limit: u32) -> Vec<DeedRow>;
    log_head() -> LogHeadRow;
} }

calls! { credit_requests {
    insert_credit_request(request: &CreditRequestRow) -> ();
    credit_request(id: &CreditRequestId) -> Option<CreditRequestRow>;
    credit_requests(state: Option<CreditState>, tenant: Option<&TenantId>, page: Page<'_, CreditRequestId>) -> Vec<CreditRequestRow>;
    decide_credit_request(decided: &CreditRequestRow) -> bool;
    credit_requests_expired(now: Timestamp, limit: u32) -> Vec<CreditRequestRow>;
    credit_given_alone(operator: &UserId, after: Timestamp) -> Micros;
} }
