//! From rows to the facts that an audit takes.

use tarn_billing::audit::Counted;
use tarn_billing::audit::movements::{EntryFact, GrantFact, TransferFact};
use tarn_billing::audit::overlaps::SpanFact;
use tarn_billing::audit::reversals::MovementFact;
use tarn_billing::audit::segments::{EvidenceFact, SegmentFact, UsageFact};
use tarn_billing::audit::wallets::{AccountFact, BalanceFact, HoldFact, WalletEntryFact};
use tarn_billing::grant::GrantTerms;
use tarn_billing::meter::Meter;
use tarn_billing::money::Micros;
use tarn_billing::segment::{Anchor, SegmentTerms, Settled};
use tarn_rows::audit::{
    AuditAccountRow, AuditCountsRow, AuditEntryRow, AuditEvidenceRow, AuditReversalRow, AuditSegmentRow,
    AuditSpanRow, AuditTransferRow, AuditUsageRow,
};
use tarn_rows::wallet::{GrantRow, HoldRow};

pub fn counted(row: &AuditCountsRow) -> Counted {
    Counted {
        accounts: row.accounts,
        balances: row.balances,
        transfers: row.transfers,
        reversals: row.reversals,
        entries: row.entries,
        grants: row.grants,
        holds_pending: row.holds_pending,
        segments: row.segments,
        disks: row.disks,
    }
}

pub fn grant(row: GrantRow) -> GrantFact {
    let terms = GrantTerms {
        id: row.id,
        tenant_id: row.tenant_id,
        kind: row.kind,
        priority: row.priority,
        amount: row.granted_micros,
        granted_at: row.created_at,
        expires_at: row.expires_at,
    };
    GrantFact { terms, remaining: row.remaining_micros }
}

pub fn transfer(row: AuditTransferRow) -> TransferFact {
    let entry = |amount: Option<Micros>, seq, balance_after| {
        amount.map(|amount| EntryFact { amount, seq, balance_after })
    };
    TransferFact {
        debit_entry: entry(row.debit_micros, row.debit_seq, row.debit_balance_micros),
        credit_entry: entry(row.credit_micros, row.credit_seq, row.credit_balance_micros),
        id: row.id,
        kind: row.kind,
        debit: row.debit_account_id,
        credit: row.credit_account_id,
        amount: row.amount_micros,
        tenant_id: row.tenant_id,
        segment_id: row.segment_id,
        grant_id: row.grant_id,
        reverses: row.reverses,
        at: row.created_at,
        entries: row.entries,
    }
}

/// The original, and what reverses it.
pub fn reversal(row: AuditReversalRow) -> (MovementFact, MovementFact) {
    let original = MovementFact {
        id: row.original_id,
        kind: row.original_kind,
        debit: row.original_debit_account_id,
        credit: row.original_credit_account_id,
        amount: row.original_amount_micros,
        segment_id: row.original_segment_id,
        grant_id: row.original_grant_id,
        undone: Micros::ZERO,
    };
    let reversal = MovementFact {
        id: row.id,
        kind: row.kind,
        debit: row.debit_account_id,
        credit: row.credit_account_id,
        amount: row.amount_micros,
        segment_id: row.segment_id,
        grant_id: row.grant_id,
        undone: row.undone_micros,
    };
    (original, reversal)
}

pub fn account(row: AuditAccountRow) -> AccountFact {
    let balance = row.posted_micros.zip(row.held_micros).zip(row.version);
    let balance = balance.map(|((posted, held), version)| BalanceFact { posted, held, version });
    AccountFact { id: row.id, kind: row.kind, tenant_id: row.tenant_id, balance }
}

pub fn hold(row: HoldRow) -> HoldFact {
    HoldFact { id: row.id, account_id: row.account_id, amount: row.amount_micros }
}

pub fn entry(row: AuditEntryRow) -> WalletEntryFact {
    WalletEntryFact {
        account_id: row.account_id,
        seq: row.seq,
        amount: row.amount_micros,
        balance_after: row.balance_after_micros,
    }
}

pub fn segment(row: AuditSegmentRow) -> SegmentFact {
    let anchor = Anchor { at: row.started_at, boot_id: row.boot_id, mono_ms: row.anchor_mono_ms };
    let terms = SegmentTerms {
        id: row.id,
        tenant_id: row.tenant_id,
        instance_id: row.instance_id,
        generation: row.generation,
        offer_id: row.sku,
        // A row of neither kind is a disk of nothing, whose rate no price gives.
        meter: row.meter_gpu_uuid.map_or(Meter::Disk { gib: row.gib.unwrap_or(0) }, Meter::Card),
        price_version: row.price_version,
        rate: row.micros_per_hour,
        anchor,
    };
    SegmentFact {
        terms,
        covered: row.covered.0,
        ended_at: row.ended_at,
        close_reason: row.close_reason,
        settled: Settled { seconds: row.settled_seconds, micros: row.settled_micros },
        updated_at: row.updated_at,
        lease_host: row.lease_host_id,
        instance_tenant: row.instance_tenant_id,
        continues: row.continues,
    }
}

pub fn evidence(row: AuditEvidenceRow) -> EvidenceFact {
    EvidenceFact {
        segment_id: row.segment_id,
        host_id: row.host_id,
        seq: row.seq.get(),
        from_ms: row.from_mono_ms.get(),
        to_ms: row.to_mono_ms.get(),
        excused_ms: row.excused_ms,
        received_at: row.received_at,
    }
}

pub fn usage(row: AuditUsageRow) -> UsageFact {
    UsageFact {
        id: row.id,
        segment_id: row.segment_id,
        tenant_id: row.tenant_id,
        grant_id: row.grant_id,
        amount: row.amount_micros,
    }
}

pub fn span(owner: String, row: AuditSpanRow) -> SpanFact {
    let proven = row.covered.0.intervals();
    let proven = proven.first().zip(proven.last()).map(|(first, last)| (first.0, last.1));
    SpanFact {
        owner,
        segment_id: row.id,
        started_at: row.started_at,
        ended_at: row.ended_at,
        boot_id: row.boot_id,
        proven,
    }
}
