//! The ledger and the meter as an audit reads them: all tenants, in keyset pages that together pass over every row once. For
//! operators, inside one snapshot.
//!
//! A window is `(after, upto]` in the order of the database; `z` is above every id. Within a window a page follows the last row
//! of the page before.

use sqlx::{query, query_as};
use tarn_rows::audit::{
    AuditAccountRaw, AuditAccountRow, AuditCountsRaw, AuditCountsRow, AuditEntryRaw, AuditEntryRow,
    AuditEvidenceRaw, AuditEvidenceRow, AuditReversalRaw, AuditReversalRow, AuditSegmentRaw, AuditSegmentRow,
    AuditSpanRaw, AuditSpanRow, AuditTransferRaw, AuditTransferRow, AuditUsageRaw, AuditUsageRow,
};
use tarn_rows::ledger::{EntryRaw, EntryRow};
use tarn_rows::wallet::{GrantRaw, GrantRow, HoldRaw, HoldRow};

use super::{Conn, Result, take, take_all};

pub async fn audit_counts(conn: &mut Conn) -> Result<AuditCountsRow> {
    let raw = query_as!(
        AuditCountsRaw,
        r#"SELECT (SELECT COUNT(*) FROM accounts) AS "accounts!: i64",
               (SELECT COUNT(*) FROM wallet_balances) AS "balances!: i64",
               (SELECT COUNT(*) FROM transfers) AS "transfers!: i64",
               (SELECT COUNT(*) FROM transfers WHERE reverses IS NOT NULL) AS "reversals!: i64",
               (SELECT COUNT(*) FROM entries) AS "entries!: i64",
               (SELECT COUNT(*) FROM credit_grants) AS "grants!: i64",
               (SELECT COUNT(*) FROM holds WHERE state = 'pending') AS "holds_pending!: i64",
               (SELECT COUNT(*) FROM usage_segments) + (SELECT COUNT(*) FROM storage_segments) AS "segments!: i64",
               (SELECT COUNT(*) FROM storage_segments) AS "disks!: i64""#
    );
    take(raw.fetch_one(conn).await?)
}

/// The tenant `skip` places after the first one above `after`: the end of a window.
pub async fn tenant_above(conn: &mut Conn, after: &str, skip: u32) -> Result<Option<String>> {
    let row =
        query!("SELECT id FROM tenants WHERE id > $1 ORDER BY id LIMIT 1 OFFSET $2", after, i64::from(skip));
    Ok(row.fetch_optional(conn).await?.map(|row| row.id))
}

/// Grants of the tenants `(after.0, upto]`, those after `after`.
pub async fn audit_grants(
    conn: &mut Conn,
    after: (&str, &str),
    upto: &str,
    limit: u32,
) -> Result<Vec<GrantRow>> {
    let raws = query_as!(
        GrantRaw,
        "SELECT id, tenant_id, kind, priority, granted_micros, remaining_micros, expires_at, created_at
         FROM credit_grants WHERE (tenant_id, id) > ($1, $2) AND tenant_id <= $3 ORDER BY tenant_id, id LIMIT $4",
        after.0,
        after.1,
        upto,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

macro_rules! select_transfer {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            AuditTransferRaw,
            r#"SELECT t.id, t.kind, t.debit_account_id, t.credit_account_id, t.amount_micros, t.tenant_id, t.segment_id,
                   t.grant_id, t.reverses, t.created_at,
                   (SELECT COUNT(*) FROM entries n WHERE n.transfer_id = t.id) AS "entries!: i64",
                   d.amount_micros AS "debit_micros?: i64", d.seq AS "debit_seq?: i64",
                   d.balance_after_micros AS "debit_balance_micros?: i64",
                   c.amount_micros AS "credit_micros?: i64", c.seq AS "credit_seq?: i64",
                   c.balance_after_micros AS "credit_balance_micros?: i64"
               FROM transfers t
               LEFT JOIN entries d ON d.transfer_id = t.id AND d.account_id = t.debit_account_id
               LEFT JOIN entries c ON c.transfer_id = t.id AND c.account_id = t.credit_account_id "# + $tail
            $(, $arg)*
        )
    };
}

/// Transfers of the tenants `(after.0, upto]`, those after `after`.
pub async fn audit_transfers(
    conn: &mut Conn,
    after: (&str, &str),
    upto: &str,
    limit: u32,
) -> Result<Vec<AuditTransferRow>> {
    let raws = select_transfer!(
        "WHERE (t.tenant_id, t.id) > ($1, $2) AND t.tenant_id <= $3 ORDER BY t.tenant_id, t.id LIMIT $4",
        after.0,
        after.1,
        upto,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Transfers of no tenant.
pub async fn audit_transfers_of_nobody(
    conn: &mut Conn,
    after: &str,
    limit: u32,
) -> Result<Vec<AuditTransferRow>> {
    let raws = select_transfer!(
        "WHERE t.tenant_id IS NULL AND t.id > $1 ORDER BY t.id LIMIT $2",
        after,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// By original, then by id.
pub async fn audit_reversals(
    conn: &mut Conn,
    after: (&str, &str),
    limit: u32,
) -> Result<Vec<AuditReversalRow>> {
    let raws = query_as!(
        AuditReversalRaw,
        r#"SELECT r.id, r.kind, r.debit_account_id, r.credit_account_id, r.amount_micros, r.segment_id, r.grant_id,
             (SELECT CAST(COALESCE(SUM(u.amount_micros), 0) AS BIGINT) FROM transfers u
              WHERE u.reverses IS NOT NULL AND u.reverses = r.id) AS "undone_micros!: i64",
             o.id AS original_id, o.kind AS original_kind, o.debit_account_id AS original_debit_account_id,
             o.credit_account_id AS original_credit_account_id, o.amount_micros AS original_amount_micros,
             o.segment_id AS original_segment_id, o.grant_id AS original_grant_id
         FROM transfers r JOIN transfers o ON o.id = r.reverses
         WHERE r.reverses IS NOT NULL AND (r.reverses, r.id) > ($1, $2) ORDER BY r.reverses, r.id LIMIT $3"#,
        after.0,
        after.1,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// An entry whose transfer is not there.
pub async fn audit_stray_entry(conn: &mut Conn) -> Result<Option<EntryRow>> {
    let raw = query_as!(
        EntryRaw,
        "SELECT transfer_id, account_id, amount_micros, seq, balance_after_micros, created_at FROM entries e
         WHERE NOT EXISTS (SELECT 1 FROM transfers t WHERE t.id = e.transfer_id) LIMIT 1"
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

pub async fn audit_accounts(conn: &mut Conn, after: &str, limit: u32) -> Result<Vec<AuditAccountRow>> {
    let raws = query_as!(
        AuditAccountRaw,
        r#"SELECT a.id, a.kind, a.tenant_id, a.currency, b.posted_micros AS "posted_micros?: i64",
               b.held_micros AS "held_micros?: i64", b.version AS "version?: i64"
           FROM accounts a LEFT JOIN wallet_balances b ON b.account_id = a.id
           WHERE a.id > $1 ORDER BY a.id LIMIT $2"#,
        after,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Pending holds of the accounts `(after.0, upto]`, those after `after`.
pub async fn audit_holds(
    conn: &mut Conn,
    after: (&str, &str),
    upto: &str,
    limit: u32,
) -> Result<Vec<HoldRow>> {
    let raws = query_as!(
        HoldRaw,
        "SELECT id, tenant_id, account_id, instance_id, amount_micros, state, created_at, expires_at, resolved_at
         FROM holds WHERE state = 'pending' AND (account_id, id) > ($1, $2) AND account_id <= $3
         ORDER BY account_id, id LIMIT $4",
        after.0,
        after.1,
        upto,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Entries with a sequence, of the accounts `(after.0, upto]`, those after `after`.
pub async fn audit_entries(
    conn: &mut Conn,
    after: (&str, i64),
    upto: &str,
    limit: u32,
) -> Result<Vec<AuditEntryRow>> {
    let raws = query_as!(
        AuditEntryRaw,
        r#"SELECT account_id, seq AS "seq!: i64", amount_micros, balance_after_micros FROM entries
           WHERE seq IS NOT NULL AND (account_id, seq) > ($1, $2) AND account_id <= $3
           ORDER BY account_id, seq LIMIT $4"#,
        after.0,
        after.1,
        upto,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Of cards and of disks, in order of id. A disk's window is covered whole.
pub async fn audit_segments(conn: &mut Conn, after: &str, limit: u32) -> Result<Vec<AuditSegmentRow>> {
    let raws = query_as!(
        AuditSegmentRaw,
        r#"SELECT s.id AS "id!: String", s.tenant_id AS "tenant_id!: String", s.instance_id AS "instance_id!: String",
               s.generation AS "generation!: i64", s.sku AS "sku!: String", s.meter_gpu_uuid AS "meter_gpu_uuid?: String",
               CAST(NULL AS BIGINT) AS "gib?: i64", s.price_version AS "price_version!: i64",
               s.micros_per_hour AS "micros_per_hour!: i64", s.boot_id AS "boot_id!: String",
               s.anchor_mono_ms AS "anchor_mono_ms!: i64", s.started_at AS "started_at!: i64",
               s.ended_at AS "ended_at?: i64", s.close_reason AS "close_reason?: String", s.covered AS "covered!: String",
               s.settled_seconds AS "settled_seconds!: i64", s.settled_micros AS "settled_micros!: i64",
               s.updated_at AS "updated_at!: i64",
               (SELECT l.host_id FROM leases l WHERE l.instance_id = s.instance_id AND l.generation = s.generation)
                   AS "lease_host_id?: String",
               (SELECT i.tenant_id FROM instances i WHERE i.id = s.instance_id) AS "instance_tenant_id?: String",
               EXISTS (SELECT 1 FROM usage_segments p WHERE p.instance_id = s.instance_id AND p.sku = s.sku
                   AND p.generation = s.generation AND p.ended_at = s.started_at AND p.close_reason = 'price_changed')
                   AS "continues!: bool"
           FROM usage_segments s WHERE s.id > $1
           UNION ALL
           SELECT d.id, d.tenant_id, d.instance_id, d.generation, d.sku, NULL, d.gib, d.price_version, d.micros_per_hour,
               'control-plane', 0, d.started_at, d.ended_at, d.close_reason, '[[0,18446744073709551615]]',
               d.settled_seconds, d.settled_micros, d.updated_at, NULL,
               (SELECT i.tenant_id FROM instances i WHERE i.id = d.instance_id), FALSE
           FROM storage_segments d WHERE d.id > $1
           ORDER BY 1 LIMIT $2"#,
        after,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Evidence that was counted for the runs of the segments `(after.0, upto]`, that after `after`: segment, sequence, host.
pub async fn audit_evidence(
    conn: &mut Conn,
    after: (&str, i64, &str),
    upto: &str,
    limit: u32,
) -> Result<Vec<AuditEvidenceRow>> {
    let raws = query_as!(
        AuditEvidenceRaw,
        "SELECT s.id AS segment_id, e.host_id, e.seq, e.from_mono_ms, e.to_mono_ms, e.excused_ms, e.received_at
         FROM usage_segments s JOIN meter_events e ON e.instance_id = s.instance_id AND e.generation = s.generation
             AND e.boot_id = s.boot_id AND e.gpu_uuid = s.meter_gpu_uuid
         WHERE e.segment_id IS NOT NULL AND s.id >= $1 AND s.id <= $4
             AND (s.id > $1 OR e.seq > $2 OR (e.seq = $2 AND e.host_id > $3))
         ORDER BY s.id, e.seq, e.host_id LIMIT $5",
        after.0,
        after.1,
        after.2,
        upto,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Charges of the segments `(after.0, upto]`, those after `after`.
pub async fn audit_usages(
    conn: &mut Conn,
    after: (&str, &str),
    upto: &str,
    limit: u32,
) -> Result<Vec<AuditUsageRow>> {
    let raws = query_as!(
        AuditUsageRaw,
        r#"SELECT id, segment_id AS "segment_id!: String", tenant_id, grant_id, amount_micros FROM transfers
           WHERE kind = 'usage' AND segment_id IS NOT NULL AND (segment_id, id) > ($1, $2) AND segment_id <= $3
           ORDER BY segment_id, id LIMIT $4"#,
        after.0,
        after.1,
        upto,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// By card, start and id.
pub async fn audit_spans_of_cards(
    conn: &mut Conn,
    after: (&str, i64, &str),
    limit: u32,
) -> Result<Vec<AuditSpanRow>> {
    let raws = query_as!(
        AuditSpanRaw,
        r#"SELECT id, meter_gpu_uuid AS "meter_gpu_uuid?: String", instance_id, sku, boot_id, started_at, ended_at, covered
           FROM usage_segments
           WHERE (meter_gpu_uuid, started_at, id) > ($1, $2, $3) ORDER BY meter_gpu_uuid, started_at, id LIMIT $4"#,
        after.0,
        after.1,
        after.2,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// By instance, SKU, start and id.
pub async fn audit_spans_of_instances(
    conn: &mut Conn,
    after: (&str, &str, i64, &str),
    limit: u32,
) -> Result<Vec<AuditSpanRow>> {
    let raws = query_as!(
        AuditSpanRaw,
        r#"SELECT id AS "id!: String", meter_gpu_uuid AS "meter_gpu_uuid?: String",
               instance_id AS "instance_id!: String", sku AS "sku!: String", boot_id AS "boot_id!: String",
               started_at AS "started_at!: i64", ended_at AS "ended_at?: i64", covered AS "covered!: String"
           FROM usage_segments WHERE (instance_id, sku, started_at, id) > ($1, $2, $3, $4)
           UNION ALL
           SELECT id, NULL, instance_id, sku, 'control-plane', started_at, ended_at, '[]'
           FROM storage_segments WHERE (instance_id, sku, started_at, id) > ($1, $2, $3, $4)
           ORDER BY 3, 4, 6, 1 LIMIT $5"#,
        after.0,
        after.1,
        after.2,
        after.3,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}
