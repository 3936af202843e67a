//! What a tenant was told about its money, and which thresholds are crossed.

use serde_json::Value;
use tarn_billing::money::Micros;
use tarn_protocol::ids::{InstanceId, NoticeId, TenantId};
use tarn_protocol::units::Timestamp;

use crate::stored::{Json, rows, words};

words! {
    /// The type of a notice, as clients and webhooks see it.
    NoticeKind {
        BalanceLow24h = "balance.low_24h",
        BalanceLow1h = "balance.low_1h",
        BalanceExhausted = "balance.exhausted",
        SpendCapReached = "spend_cap.reached",
        AutoTopUpDeclined = "auto_top_up.declined",
        AutoTopUpLimit = "auto_top_up.limit",
        DebtIncurred = "debt.incurred",
        StoppedStillCosts = "stopped.still_costs",
        SlaCredit = "sla.credit",
    }
}

rows! {
    NoticeRow / NoticeRaw {
        id: NoticeId,
        tenant_id: TenantId,
        kind: NoticeKind,
        /// What happened once.
        crossing: String,
        detail: Json<Value>,
        created_at: Timestamp,
    }
    NoticeMarkRow / NoticeMarkRaw {
        tenant_id: TenantId,
        kind: NoticeKind,
        fired_at: Timestamp,
    }
    /// An instance that does not run and whose disk is charged.
    StoppedCostRow / StoppedCostRaw {
        tenant_id: TenantId,
        instance_id: InstanceId,
        label: String,
        micros_per_hour: Micros,
    }
}
