//! Between the rows of the money tables and the values that `tarn-billing` decides on.

use tarn_billing::account::{Account, AccountKind};
use tarn_billing::coverage::Coverage;
use tarn_billing::funds::Funds;
use tarn_billing::grant::{Grant, GrantTerms, InvalidGrant};
use tarn_billing::meter::Meter;
use tarn_billing::money::{Micros, OutOfRange};
use tarn_billing::segment::{
    Anchor, CloseReason, InvalidSegment, Segment, SegmentState, SegmentTerms, Settled,
};
use tarn_billing::transfer::{InvalidTransfer, Subject, Transfer};
use tarn_protocol::ids::{AccountId, SegmentId};
use tarn_protocol::units::Timestamp;
use tarn_rows::ledger::TransferRow;
use tarn_rows::segments::SegmentRow;
use tarn_rows::storage::StorageSegmentRow;
use tarn_rows::wallet::GrantRow;
use tarn_rows::{BadValue, Json};
use tarn_store::StoreError;

/// A money row that breaks a rule of billing: our fault, never the caller's.
#[derive(Debug, thiserror::Error)]
pub enum CorruptRow {
    #[error(transparent)]
    Segment(#[from] InvalidSegment),
    #[error("segment {0} ended without a reason")]
    EndedWithoutReason(SegmentId),
    #[error("segment {0} is in the table of another meter")]
    OtherMeter(SegmentId),
    #[error(transparent)]
    Grant(#[from] InvalidGrant),
    #[error("account {0} is none of this transfer's")]
    UnknownAccount(AccountId),
    #[error(transparent)]
    Transfer(#[from] InvalidTransfer),
    #[error(transparent)]
    Amount(#[from] OutOfRange),
}

/// The segment that a row holds.
pub fn segment(row: &SegmentRow) -> Result<Segment, CorruptRow> {
    let terms = SegmentTerms {
        id: row.id.clone(),
        tenant_id: row.tenant_id.clone(),
        instance_id: row.instance_id.clone(),
        generation: row.generation,
        offer_id: row.sku.clone(),
        meter: Meter::Card(row.meter_gpu_uuid.clone()),
        price_version: row.price_version,
        rate: row.micros_per_hour,
        anchor: Anchor { at: row.started_at, boot_id: row.boot_id.clone(), mono_ms: row.anchor_mono_ms },
    };
    let state = match (row.ended_at, row.close_reason) {
        (None, _) => SegmentState::Open,
        (Some(ended_at), Some(reason)) => SegmentState::Closed { ended_at, reason },
        (Some(_), None) => return Err(CorruptRow::EndedWithoutReason(row.id.clone())),
    };
    let settled = Settled { seconds: row.settled_seconds, micros: row.settled_micros };
    Ok(Segment::from_stored(terms, row.covered.0.clone(), settled, state)?)
}

/// A row for a card's segment as it is at `now`, its exhaustion not yet computed.
pub fn row(segment: &Segment, now: Timestamp) -> Result<SegmentRow, CorruptRow> {
    let terms = segment.terms();
    let card = terms.meter.card().ok_or_else(|| CorruptRow::OtherMeter(terms.id.clone()))?;
    let (ended_at, close_reason) = ending(segment);
    Ok(SegmentRow {
        id: terms.id.clone(),
        tenant_id: terms.tenant_id.clone(),
        instance_id: terms.instance_id.clone(),
        generation: terms.generation,
        sku: terms.offer_id.clone(),
        meter_gpu_uuid: card.clone(),
        price_version: terms.price_version,
        micros_per_hour: terms.rate,
        boot_id: terms.anchor.boot_id.clone(),
        anchor_mono_ms: terms.anchor.mono_ms,
        started_at: terms.anchor.at,
        ended_at,
        close_reason,
        covered: Json(segment.coverage().clone()),
        settled_seconds: segment.settled().seconds,
        settled_micros: segment.settled().micros,
        row_version: 1,
        run_until_mono_ms: None,
        exhausts_at: None,
        updated_at: now,
    })
}

fn ending(segment: &Segment) -> (Option<Timestamp>, Option<CloseReason>) {
    match segment.state() {
        SegmentState::Open => (None, None),
        SegmentState::Closed { ended_at, reason } => (Some(ended_at), Some(reason)),
    }
}

/// The row with what changed of its segment; the row version still guards it. A transaction that waited for another may be older than
/// what it found: the row keeps the newest instant at which it was right, up to which an audit counts what is proven.
pub fn changed(row: SegmentRow, segment: &Segment, now: Timestamp) -> SegmentRow {
    let (ended_at, close_reason) = ending(segment);
    SegmentRow {
        ended_at,
        close_reason,
        covered: Json(segment.coverage().clone()),
        settled_seconds: segment.settled().seconds,
        settled_micros: segment.settled().micros,
        updated_at: row.updated_at.max(now),
        ..row
    }
}

/// The segment that a disk's row holds: whatever lies between its two instants is proven.
pub fn storage_segment(row: &StorageSegmentRow) -> Result<Segment, CorruptRow> {
    let terms = SegmentTerms {
        id: row.id.clone(),
        tenant_id: row.tenant_id.clone(),
        instance_id: row.instance_id.clone(),
        generation: row.generation,
        offer_id: row.sku.clone(),
        meter: Meter::Disk { gib: row.gib },
        price_version: row.price_version,
        rate: row.micros_per_hour,
        anchor: Anchor::of_control_plane(row.started_at),
    };
    let state = match (row.ended_at, row.close_reason) {
        (None, _) => SegmentState::Open,
        (Some(ended_at), Some(reason)) => SegmentState::Closed { ended_at, reason },
        (Some(_), None) => return Err(CorruptRow::EndedWithoutReason(row.id.clone())),
    };
    let settled = Settled { seconds: row.settled_seconds, micros: row.settled_micros };
    Ok(Segment::from_stored(terms, Coverage::whole(), settled, state)?)
}

/// A row for a disk's segment as it is at `now`, its exhaustion not yet computed.
pub fn storage_row(segment: &Segment, now: Timestamp) -> Result<StorageSegmentRow, CorruptRow> {
    let terms = segment.terms();
    let Meter::Disk { gib } = terms.meter else { return Err(CorruptRow::OtherMeter(terms.id.clone())) };
    let (ended_at, close_reason) = ending(segment);
    Ok(StorageSegmentRow {
        id: terms.id.clone(),
        tenant_id: terms.tenant_id.clone(),
        instance_id: terms.instance_id.clone(),
        generation: terms.generation,
        sku: terms.offer_id.clone(),
        gib,
        price_version: terms.price_version,
        micros_per_hour: terms.rate,
        started_at: terms.anchor.at,
        ended_at,
        close_reason,
        settled_seconds: segment.settled().seconds,
        settled_micros: segment.settled().micros,
        row_version: 1,
        exhausts_at: None,
        updated_at: now,
    })
}

/// The disk's row with what changed of its segment; the row version still guards it.
pub fn storage_changed(row: StorageSegmentRow, segment: &Segment, now: Timestamp) -> StorageSegmentRow {
    let (ended_at, close_reason) = ending(segment);
    StorageSegmentRow {
        ended_at,
        close_reason,
        settled_seconds: segment.settled().seconds,
        settled_micros: segment.settled().micros,
        updated_at: row.updated_at.max(now),
        ..row
    }
}

pub fn grant(row: &GrantRow) -> Result<Grant, CorruptRow> {
    let terms = GrantTerms {
        id: row.id.clone(),
        tenant_id: row.tenant_id.clone(),
        kind: row.kind,
        priority: row.priority,
        amount: row.granted_micros,
        granted_at: row.created_at,
        expires_at: row.expires_at,
    };
    Ok(Grant::from_stored(terms, row.remaining_micros)?)
}

/// All that a tenant can draw on.
pub fn funds(rows: &[GrantRow], held: Micros) -> Result<Funds, CorruptRow> {
    let grants = rows.iter().map(grant).collect::<Result<Vec<_>, _>>()?;
    Ok(Funds::new(grants, held)?)
}

/// The ledger's row of a usage charge.
pub fn transfer(transfer: &Transfer) -> TransferRow {
    let subject = transfer.subject();
    TransferRow {
        id: transfer.id().clone(),
        kind: transfer.kind(),
        debit_account_id: transfer.debit().id().clone(),
        credit_account_id: transfer.credit().id().clone(),
        amount_micros: transfer.amount(),
        tenant_id: transfer.debit().tenant_id().or(transfer.credit().tenant_id()).cloned(),
        segment_id: subject.segment_id.clone(),
        grant_id: subject.grant_id.clone(),
        reverses: subject.reverses.clone(),
        external_provider: None,
        external_id: None,
        memo: "usage".to_owned(),
        created_at: transfer.at(),
    }
}

/// The transfer that a row holds.
pub fn transfer_of(row: &TransferRow) -> Result<Transfer, CorruptRow> {
    let account = |id: &AccountId| {
        let owners = [row.tenant_id.as_ref(), None];
        let known = owners.into_iter().flat_map(|owner| {
            AccountKind::ALL.into_iter().filter_map(move |kind| Account::new(kind, owner).ok())
        });
        known
            .into_iter()
            .find(|account| account.id() == id)
            .ok_or_else(|| CorruptRow::UnknownAccount(id.clone()))
    };
    let subject = Subject {
        grant_id: row.grant_id.clone(),
        segment_id: row.segment_id.clone(),
        reverses: row.reverses.clone(),
    };
    let accounts = (account(&row.debit_account_id)?, account(&row.credit_account_id)?);
    Ok(Transfer::new(row.id.clone(), row.kind, accounts, row.amount_micros, subject, row.created_at)?)
}

/// A stored value that breaks a rule of its domain, as the store's error: for work that has no error of its own for it.
pub fn corrupt(error: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(BadValue::new(error))
}
