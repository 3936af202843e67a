//! Cash through a payment provider: top-ups, saved methods, automatic top-ups, refunds.

use tarn_billing::money::Micros;
use tarn_protocol::ids::{GrantId, RefundId, SegmentId, TenantId, TopUpId, TransferId};
use tarn_protocol::units::Timestamp;

use crate::stored::{rows, words};

words! {
    /// A top-up resolves once.
    TopUpState {
        Pending = "pending",
        Settled = "settled",
        Failed = "failed",
        Expired = "expired",
    }
}

words! {
    /// Who asked for a top-up.
    TopUpCause {
        Customer = "customer",
        Auto = "auto",
    }
}

words! {
    RefundState {
        Pending = "pending",
        Settled = "settled",
        Failed = "failed",
    }
}

rows! {
    TopUpRow / TopUpRaw {
        /// Also the provider's idempotency key.
        id: TopUpId,
        tenant_id: TenantId,
        /// Of the call that asked for it: a retry finds this row.
        reference: String,
        provider: String,
        /// The provider's name of it, once it answered.
        external_id: Option<String>,
        /// What a refund names, once it is paid.
        payment_ref: Option<String>,
        amount_micros: Micros,
        cause: TopUpCause,
        save_method: bool,
        state: TopUpState,
        failure: Option<String>,
        pay_url: Option<String>,
        transfer_id: Option<TransferId>,
        grant_id: Option<GrantId>,
        created_by: Option<String>,
        created_at: Timestamp,
        /// How often the provider was asked about it.
        asks: u32,
        ask_at: Timestamp,
        resolved_at: Option<Timestamp>,
    }
    PaymentMethodRow / PaymentMethodRaw {
        tenant_id: TenantId,
        provider: String,
        customer_ref: String,
        method_ref: String,
        label: String,
        created_at: Timestamp,
    }
    AutoTopUpRow / AutoTopUpRaw {
        tenant_id: TenantId,
        threshold_micros: Micros,
        amount_micros: Micros,
        per_day_max: u32,
        /// In a row.
        declines: u32,
        /// `None`: active.
        stopped_reason: Option<String>,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
    /// How a provider fares.
    PaymentProviderRow / PaymentProviderRaw {
        provider: String,
        probe_at: Timestamp,
        /// `None`: it answered when it was last asked.
        failing_since: Option<Timestamp>,
        /// The last of many callbacks that were refused.
        refused_at: Option<Timestamp>,
    }
    RefundRow / RefundRaw {
        /// Also the provider's idempotency key.
        id: RefundId,
        tenant_id: TenantId,
        /// Of a charge: back into the wallet.
        segment_id: Option<SegmentId>,
        /// Of cash: back to where it came from.
        top_up_id: Option<TopUpId>,
        amount_micros: Micros,
        state: RefundState,
        failure: Option<String>,
        external_id: Option<String>,
        reason: String,
        requested_by: String,
        created_at: Timestamp,
        asks: u32,
        ask_at: Timestamp,
        resolved_at: Option<Timestamp>,
    }
}
