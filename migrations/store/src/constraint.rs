//! The uniqueness that the schema keeps, by name.
//!
//! PostgreSQL names the constraint that refused; SQLite names the columns, or the trigger. Both map to one value here, and a test
//! holds this table against both schemas.

/// What would not have been unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Constraint {
    UserEmail,
    Membership,
    RefreshTokenSecret,
    ApiKeySecret,
    SshKeyFingerprint,
    IdempotencyKey,
    HostCredential,
    JoinTokenSecret,
    CurrentCertificate,
    ProbeOrder,
    GpuEvent,
    PriceVersion,
    PriceInstant,
    LeaseGeneration,
    /// The instance has a live lease.
    LiveLease,
    /// The card is in a live lease.
    LiveLeaseOfGpu,
    LeaseCard,
    LeasePlace,
    OpenAlert,
    TenantAccount,
    SystemAccount,
    ExternalTransfer,
    Entry,
    EntrySeq,
    /// The instance has an open segment of this SKU.
    OpenSku,
    /// The card has an open segment.
    OpenCard,
    /// Some of the interval is in another segment of the card.
    CardOverlap,
    /// Some of the interval is in another segment of the instance and SKU.
    SkuOverlap,
    /// The disk has an open segment of this SKU.
    OpenDisk,
    /// Some of the interval is in another segment of the disk and SKU.
    DiskOverlap,
    InvoiceNumber,
    InvoicePlace,
    /// The second is on another invoice.
    InvoicedSecond,
    CreditPlace,
    /// The reversal is on another credit note.
    CreditedReversal,
    MeterEvent,
    HostBoot,
    Eviction,
    Orphan,
    AutomaticStep,
    /// The grant belongs to another request for credit.
    RequestOfGrant,
    /// The call that asks for it has a top-up.
    TopUpReference,
    ExternalTopUp,
    PendingAutoTopUp,
    /// A cap on this subject for this period is there.
    SpendCap,
    /// It was told before.
    Notice,
    NoticeMark,
    Incident,
    /// A row of this id.
    RowId,
}

/// Constraint, PostgreSQL's name, SQLite's columns (or its trigger's message).
const NAMES: &[(Constraint, &str, &str)] = &[
    (Constraint::UserEmail, "users_email_key", "users.email"),
    (Constraint::Membership, "memberships_pkey", "memberships.tenant_id, memberships.user_id"),
    (Constraint::RefreshTokenSecret, "refresh_tokens_secret_sha256_key", "refresh_tokens.secret_sha256"),
    (Constraint::ApiKeySecret, "api_keys_secret_sha256_key", "api_keys.secret_sha256"),
    (
        Constraint::SshKeyFingerprint,
        "ssh_keys_tenant_id_fingerprint_key",
        "ssh_keys.tenant_id, ssh_keys.fingerprint",
    ),
    (Constraint::IdempotencyKey, "idempotency_keys_pkey", "idempotency_keys.tenant_id, idempotency_keys.key"),
    (Constraint::HostCredential, "hosts_credential_sha256_key", "hosts.credential_sha256"),
    (Constraint::JoinTokenSecret, "join_tokens_secret_sha256_key", "join_tokens.secret_sha256"),
    (
        Constraint::CurrentCertificate,
        "one_current_certificate",
        "link_certificates.from_uuid, link_certificates.to_uuid",
    ),
    (Constraint::ProbeOrder, "probe_orders_pkey", "probe_orders.from_uuid, probe_orders.to_uuid"),
    (
        Constraint::GpuEvent,
        "gpu_events_boot_id_gpu_uuid_mono_ms_xid_key",
        "gpu_events.boot_id, gpu_events.gpu_uuid, gpu_events.mono_ms, gpu_events.xid",
    ),
    (Constraint::PriceVersion, "price_book_pkey", "price_book.version, price_book.sku"),
    (Constraint::PriceInstant, "one_price_at_an_instant", "price_book.sku, price_book.effective_from"),
    (
        Constraint::LeaseGeneration,
        "leases_instance_id_generation_key",
        "leases.instance_id, leases.generation",
    ),
    (Constraint::LiveLease, "one_live_lease", "leases.instance_id"),
    (Constraint::LiveLeaseOfGpu, "one_live_lease_per_gpu", "lease_gpus.gpu_uuid"),
    (Constraint::LeaseCard, "lease_gpus_pkey", "lease_gpus.lease_id, lease_gpus.gpu_uuid"),
    (Constraint::LeasePlace, "lease_gpus_lease_id_place_key", "lease_gpus.lease_id, lease_gpus.place"),
    (Constraint::OpenAlert, "one_open_alert", "alerts.kind, alerts.subject"),
    (
        Constraint::TenantAccount,
        "one_account_per_tenant_kind",
        "accounts.tenant_id, accounts.kind, accounts.currency",
    ),
    (Constraint::SystemAccount, "one_system_account", "accounts.kind, accounts.currency"),
    (
        Constraint::ExternalTransfer,
        "one_transfer_per_external",
        "transfers.external_provider, transfers.external_id",
    ),
    (Constraint::Entry, "entries_pkey", "entries.transfer_id, entries.account_id"),
    (Constraint::EntrySeq, "one_entry_per_seq", "entries.account_id, entries.seq"),
    (Constraint::OpenSku, "one_open_sku", "usage_segments.instance_id, usage_segments.sku"),
    (Constraint::OpenCard, "one_open_card", "usage_segments.meter_gpu_uuid"),
    (Constraint::CardOverlap, "card_segments_never_overlap", "card_segments_never_overlap"),
    (Constraint::SkuOverlap, "sku_segments_never_overlap", "sku_segments_never_overlap"),
    (Constraint::OpenDisk, "one_open_disk", "storage_segments.instance_id, storage_segments.sku"),
    (Constraint::DiskOverlap, "storage_segments_never_overlap", "storage_segments_never_overlap"),
    (
        Constraint::InvoiceNumber,
        "invoices_seller_year_number_key",
        "invoices.seller, invoices.year, invoices.number",
    ),
    (Constraint::InvoicePlace, "invoice_lines_pkey", "invoice_lines.invoice_id, invoice_lines.place"),
    (
        Constraint::InvoicedSecond,
        "invoice_lines_segment_id_from_s_key",
        "invoice_lines.segment_id, invoice_lines.from_s",
    ),
    (
        Constraint::CreditPlace,
        "credit_lines_invoice_id_place_key",
        "credit_lines.invoice_id, credit_lines.place",
    ),
    (Constraint::CreditedReversal, "credit_lines_pkey", "credit_lines.transfer_id"),
    (
        Constraint::MeterEvent,
        "meter_events_pkey",
        "meter_events.host_id, meter_events.boot_id, meter_events.seq",
    ),
    (Constraint::RowId, "host_revisions_pkey", "host_revisions.host_id"),
    (Constraint::HostBoot, "host_boots_pkey", "host_boots.host_id, host_boots.boot_id"),
    (Constraint::Eviction, "evictions_pkey", "evictions.host_id, evictions.instance_id"),
    (Constraint::Orphan, "orphans_pkey", "orphans.host_id, orphans.instance_id"),
    (Constraint::AutomaticStep, "automatic_steps_pkey", "automatic_steps.window_at, automatic_steps.slot"),
    (Constraint::RequestOfGrant, "one_request_per_grant", "credit_requests.grant_id"),
    (Constraint::RowId, "operator_log_pkey", "operator_log.seq"),
    (Constraint::RowId, "operator_log_head_pkey", "operator_log_head.id"),
    (Constraint::RowId, "credit_requests_pkey", "credit_requests.id"),
    (Constraint::TopUpReference, "top_ups_reference_key", "top_ups.reference"),
    (Constraint::ExternalTopUp, "one_top_up_per_external", "top_ups.provider, top_ups.external_id"),
    (Constraint::PendingAutoTopUp, "one_pending_auto_top_up", "top_ups.tenant_id"),
    (
        Constraint::SpendCap,
        "one_spend_cap_per_subject",
        "spend_caps.tenant_id, spend_caps.period, spend_caps.subject_kind, spend_caps.subject",
    ),
    (Constraint::Notice, "one_notice_per_crossing", "notices.tenant_id, notices.crossing"),
    (Constraint::NoticeMark, "notice_marks_pkey", "notice_marks.tenant_id, notice_marks.kind"),
    (
        Constraint::Incident,
        "one_incident",
        "sla_incidents.instance_id, sla_incidents.kind, sla_incidents.from_at",
    ),
    (Constraint::RowId, "top_ups_pkey", "top_ups.id"),
    (Constraint::RowId, "payment_methods_pkey", "payment_methods.tenant_id"),
    (Constraint::RowId, "auto_top_ups_pkey", "auto_top_ups.tenant_id"),
    (Constraint::RowId, "payment_providers_pkey", "payment_providers.provider"),
    (Constraint::RowId, "refunds_pkey", "refunds.id"),
    (Constraint::RowId, "reversed_transfers_pkey", "reversed_transfers.transfer_id"),
    (Constraint::RowId, "debts_pkey", "debts.tenant_id"),
    (Constraint::RowId, "waived_seconds_pkey", "waived_seconds.segment_id"),
    (Constraint::RowId, "spend_caps_pkey", "spend_caps.id"),
    (Constraint::RowId, "notices_pkey", "notices.id"),
    (Constraint::RowId, "sla_incidents_pkey", "sla_incidents.id"),
    (Constraint::RowId, "instance_plans_pkey", "instance_plans.instance_id"),
    (Constraint::RowId, "placement_turns_pkey", "placement_turns.id"),
    (Constraint::RowId, "billing_details_pkey", "billing_details.tenant_id"),
    (Constraint::RowId, "invoice_numbers_pkey", "invoice_numbers.seller, invoice_numbers.year"),
    (Constraint::RowId, "invoices_pkey", "invoices.id"),
    (Constraint::RowId, "invoice_runs_pkey", "invoice_runs.period_to"),
    (Constraint::RowId, "storage_segments_pkey", "storage_segments.id"),
    (Constraint::RowId, "tenants_pkey", "tenants.id"),
    (Constraint::RowId, "users_pkey", "users.id"),
    (Constraint::RowId, "refresh_tokens_pkey", "refresh_tokens.id"),
    (Constraint::RowId, "api_keys_pkey", "api_keys.id"),
    (Constraint::RowId, "ssh_keys_pkey", "ssh_keys.id"),
    (Constraint::RowId, "hosts_pkey", "hosts.id"),
    (Constraint::RowId, "join_tokens_pkey", "join_tokens.id"),
    (Constraint::RowId, "gpus_pkey", "gpus.uuid"),
    (Constraint::RowId, "link_certificates_pkey", "link_certificates.id"),
    (Constraint::RowId, "gpu_events_pkey", "gpu_events.id"),
    (Constraint::RowId, "offers_pkey", "offers.id"),
    (Constraint::RowId, "instances_pkey", "instances.id"),
    (Constraint::RowId, "leases_pkey", "leases.id"),
    (Constraint::RowId, "instance_events_pkey", "instance_events.id"),
    (Constraint::RowId, "alerts_pkey", "alerts.id"),
    (Constraint::RowId, "accounts_pkey", "accounts.id"),
    (Constraint::RowId, "transfers_pkey", "transfers.id"),
    (Constraint::RowId, "wallet_balances_pkey", "wallet_balances.account_id"),
    (Constraint::RowId, "credit_grants_pkey", "credit_grants.id"),
    (Constraint::RowId, "holds_pkey", "holds.id"),
    (Constraint::RowId, "usage_segments_pkey", "usage_segments.id"),
    (Constraint::RowId, "worker_claims_pkey", "worker_claims.worker"),
];

impl Constraint {
    /// By PostgreSQL's name of an index or constraint.
    pub fn of_postgres(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, postgres, _)| *postgres == name).map(|(constraint, ..)| *constraint)
    }

    /// By SQLite's text: `table.column, table.column` or a trigger's message.
    pub fn of_sqlite(text: &str) -> Option<Self> {
        NAMES.iter().find(|(.., sqlite)| *sqlite == text).map(|(constraint, ..)| *constraint)
    }
}
