//! Top-ups, refunds, what is owed, limits, notices, broken promises.

use tarn_billing::money::Micros;
use tarn_protocol::ids::{
    HostId, IncidentId, InstanceId, NoticeId, RefundId, SegmentId, SpendCapId, TenantId, TopUpId, TransferId,
};
use tarn_protocol::units::{Generation, Timestamp};
use tarn_rows::caps::{SegmentOwnerRow, SpendCapRow};
use tarn_rows::instances::InstanceEventRow;
use tarn_rows::notices::{NoticeKind, NoticeMarkRow, NoticeRow, StoppedCostRow};
use tarn_rows::payments::{AutoTopUpRow, PaymentMethodRow, PaymentProviderRow, RefundRow, TopUpRow};
use tarn_rows::segments::SegmentRow;
use tarn_rows::sla::{IncidentRow, SilenceRow};
use tarn_rows::{Page, TenantScope};

use super::calls;

calls! { top_ups {
    insert_top_up(scope: &TenantScope, top_up: &TopUpRow) -> bool;
    update_top_up(scope: &TenantScope, top_up: &TopUpRow) -> bool;
    top_ups(scope: &TenantScope, page: Page<'_, TopUpId>) -> Vec<TopUpRow>;
    top_up(scope: &TenantScope, id: &TopUpId) -> Option<TopUpRow>;
    top_up_by_reference(scope: &TenantScope, reference: &str) -> Option<TopUpRow>;
    top_up_by_external(provider: &str, external_id: &str) -> Option<TopUpRow>;
    top_up_of_any_tenant(id: &TopUpId) -> Option<TopUpRow>;
    top_ups_due(now: Timestamp, limit: u32) -> Vec<TopUpRow>;
    auto_top_ups_since(scope: &TenantScope, since: Timestamp) -> u64;
    payment_method(scope: &TenantScope) -> Option<PaymentMethodRow>;
    put_payment_method(scope: &TenantScope, method: &PaymentMethodRow) -> ();
    forget_payment_method(scope: &TenantScope) -> bool;
    auto_top_up(scope: &TenantScope) -> Option<AutoTopUpRow>;
    put_auto_top_up(scope: &TenantScope, rule: &AutoTopUpRow) -> ();
    set_auto_top_up_declines(
        scope: &TenantScope, declines: u32, stopped_reason: Option<&str>, now: Timestamp,
    ) -> bool;
    delete_auto_top_up(scope: &TenantScope) -> bool;
    auto_top_ups_wanted() -> Vec<TenantId>;
    wallet_available(scope: &TenantScope) -> Micros;
} }

calls! { refunds {
    insert_refund(scope: &TenantScope, refund: &RefundRow) -> ();
    update_refund(scope: &TenantScope, refund: &RefundRow) -> bool;
    refunds(scope: &TenantScope, page: Page<'_, RefundId>) -> Vec<RefundRow>;
    refund(scope: &TenantScope, id: &RefundId) -> Option<RefundRow>;
    refunded_of_segment(scope: &TenantScope, segment: &SegmentId) -> Micros;
    refunds_due(now: Timestamp, limit: u32) -> Vec<RefundRow>;
    refunds_paid_due(now: Timestamp, limit: u32) -> Vec<RefundRow>;
    refund_ask_now(external_id: &str) -> bool;
    reversed_of_transfer(id: &TransferId) -> Micros;
    reverse_transfer(id: &TransferId, original: Micros, amount: Micros) -> bool;
    owed(scope: &TenantScope) -> Micros;
    owed_by_all() -> Micros;
    add_debt(scope: &TenantScope, change: Micros) -> bool;
} }

calls! { payment_watch {
    payment_provider(provider: &str) -> Option<PaymentProviderRow>;
    payment_provider_probed(provider: &str, probe_at: Timestamp, failing_since: Option<Timestamp>) -> ();
    payment_callbacks_refused(provider: &str, refused_at: Option<Timestamp>) -> ();
} }

calls! { notices {
    insert_notice(scope: &TenantScope, notice: &NoticeRow) -> bool;
    notices(scope: &TenantScope, page: Page<'_, NoticeId>) -> Vec<NoticeRow>;
    notice(scope: &TenantScope, id: &NoticeId) -> Option<NoticeRow>;
    notice_marks(scope: &TenantScope) -> Vec<NoticeMarkRow>;
    insert_notice_mark(scope: &TenantScope, mark: &NoticeMarkRow) -> bool;
    stopped_still_costing(crossing: &str, since: Timestamp) -> Vec<StoppedCostRow>;
    clear_notice_mark(scope: &TenantScope, kind: NoticeKind) -> bool;
} }

calls! { caps {
    put_spend_cap(scope: &TenantScope, cap: &SpendCapRow) -> SpendCapRow;
    spend_caps(scope: &TenantScope) -> Vec<SpendCapRow>;
    delete_spend_cap(scope: &TenantScope, id: &SpendCapId) -> bool;
    segment_owners(scope: &TenantScope, since: Timestamp) -> Vec<SegmentOwnerRow>;
} }

calls! { sla {
    insert_incident(scope: &TenantScope, incident: &IncidentRow) -> bool;
    incidents(scope: &TenantScope, page: Page<'_, IncidentId>) -> Vec<IncidentRow>;
    incident(scope: &TenantScope, id: &IncidentId) -> Option<IncidentRow>;
    incident_known(instance: &InstanceId, kind: &str, from: Timestamp) -> bool;
    credited_for_run(scope: &TenantScope, instance: &InstanceId, generation: Generation) -> Micros;
    events_without_incident(
        kind: &str, incident_kind: &str, since: Timestamp, limit: u32,
    ) -> Vec<InstanceEventRow>;
    next_state_event(instance: &InstanceId, after: Timestamp) -> Option<InstanceEventRow>;
    silences_ended(since: Timestamp) -> Vec<SilenceRow>;
    segments_on_host(host: &HostId, from: Timestamp, to: Timestamp) -> Vec<SegmentRow>;
} }
