//! A large ledger, as settlement would have made it.

use tarn_api::app::metering::stored;
use tarn_billing::account::Account;
use tarn_billing::funds::Funds;
use tarn_billing::grant::{Grant, GrantKind, GrantTerms};
use tarn_billing::money::Micros;
use tarn_billing::price::{Price, PriceBook, PriceVersion};
use tarn_billing::segment::{CloseReason, Segment};
use tarn_billing::settlement::settle;
use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::{GrantId, HostId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Sequence, Timestamp};
use tarn_rows::TenantScope;
use tarn_rows::gpus::GpuRow;
use tarn_rows::instances::InstanceRow;
use tarn_rows::offers::PriceRow;
use tarn_rows::segments::{MeterEventRow, SegmentRow};
use tarn_rows::wallet::GrantRow;
use tarn_store::{Store, StoreError, Tx};

use crate::fixtures::{
    account_row, at, change, host, instance_row, lease_rows, number, offer, segment_row, tenant,
};

/// Settlements of one segment, one a minute.
const SETTLEMENTS: i64 = 50;
const SEGMENTS_OF_A_TENANT: u64 = 10;
const STEP_SECONDS: i64 = 60;

/// One tenant's next segment, on a card and at a time of its own.
#[derive(Clone)]
struct Turn {
    scope: TenantScope,
    instance: InstanceRow,
    gpu: GpuRow,
    host_id: HostId,
    opened: i64,
}

pub async fn make(store: &Store, entries: u64) {
    offer(store).await;
    let (host, gpus) = host(store, 8).await;
    change!(store, tx => {
        tx.append_price(&price_row()).await?;
        for account in Account::all_of_system() {
            tx.ensure_account(&account_row(&account)).await?;
        }
        Ok::<_, StoreError>(())
    })
    .await
    .unwrap();
    // Two entries for each settlement.
    let segments = entries.div_ceil(2 * SETTLEMENTS.unsigned_abs());
    for tenant_number in 0..segments.div_ceil(SEGMENTS_OF_A_TENANT) {
        let scope = tenant(store).await;
        let mut turns = Vec::new();
        for place in 0..SEGMENTS_OF_A_TENANT {
            let serial = tenant_number * SEGMENTS_OF_A_TENANT + place;
            let gpu = gpus[usize::try_from(serial % 8).unwrap()].clone();
            let opened = i64::try_from(serial / 8).unwrap() * (SETTLEMENTS + 1) * STEP_SECONDS;
            let instance = instance_row(&scope);
            turns.push(Turn { scope: scope.clone(), instance, gpu, host_id: host.id.clone(), opened });
        }
        let owned = scope.clone();
        change!(store, tx => one_tenant(tx, &owned, &turns).await).await.unwrap();
    }
}

fn price() -> Price {
    let rate = segment_rate();
    Price { offer_id: "pool-96".parse().unwrap(), version: PriceVersion::FIRST, rate, effective_from: at(-1) }
}

fn segment_rate() -> tarn_billing::rate::Rate {
    tarn_billing::rate::Rate::per_hour(Micros::new(2_400_000)).unwrap()
}

fn price_row() -> PriceRow {
    let Price { offer_id, version, rate, effective_from } = price();
    PriceRow {
        version,
        sku: offer_id,
        micros_per_hour: rate,
        effective_from,
        created_by: None,
        created_at: at(-1),
    }
}

async fn one_tenant(tx: &mut Tx, scope: &TenantScope, turns: &[Turn]) -> Result<(), StoreError> {
    for account in Account::all_of(scope.tenant_id()) {
        tx.ensure_account(&account_row(&account)).await?;
    }
    let grant = Grant::new(GrantTerms {
        id: GrantId::new(at(0), u128::from(number())),
        tenant_id: scope.tenant_id().clone(),
        kind: GrantKind::Cash,
        priority: 0,
        amount: Micros::new(1_000_000_000),
        granted_at: at(0),
        expires_at: None,
    })
    .unwrap();
    tx.post_transfer(&stored::transfer(&grant.funding().unwrap())).await?;
    let mut funds = Funds::new(vec![grant], Micros::ZERO).unwrap();
    let book = PriceBook::from_stored([price()]).unwrap();
    for turn in turns {
        funds = one_segment(tx, turn, &book, funds).await?;
    }
    let grant = &funds.grants()[0];
    let terms = grant.terms();
    let row = GrantRow {
        id: terms.id.clone(),
        tenant_id: terms.tenant_id.clone(),
        kind: terms.kind,
        priority: terms.priority,
        granted_micros: terms.amount,
        remaining_micros: grant.remaining(),
        expires_at: None,
        created_at: terms.granted_at,
    };
    tx.insert_grant(scope, &row).await.map(drop)
}

async fn one_segment(
    tx: &mut Tx,
    turn: &Turn,
    book: &PriceBook,
    mut funds: Funds,
) -> Result<Funds, StoreError> {
    tx.insert_instance(&turn.scope, &turn.instance).await?;
    let (lease, _) = lease_rows(&turn.instance, std::slice::from_ref(&turn.gpu));
    tx.insert_lease(&turn.scope, &lease, &[]).await?;
    // One boot for all: its clock goes on from segment to segment.
    let anchor_mono_ms = MonoMillis::new(1_000 + turn.opened.unsigned_abs() * 1_000);
    let row = SegmentRow { anchor_mono_ms, ..segment_row(&turn.instance, &turn.gpu.uuid, turn.opened) };
    let mut segment: Segment = stored::segment(&row).unwrap();
    let anchor_ms = row.anchor_mono_ms.get();
    for step in 1..=SETTLEMENTS {
        let now = at(turn.opened + step * STEP_SECONDS);
        let ms = |step: i64| anchor_ms + u64::try_from(step * STEP_SECONDS * 1000).unwrap();
        let evidence = UsageEvidence {
            seq: Sequence::new(number()),
            boot_id: BootId::new("boot"),
            instance_id: row.instance_id.clone(),
            generation: Generation::new(1),
            primary: row.meter_gpu_uuid.clone(),
            from_mono_ms: MonoMillis::new(ms(step - 1)),
            to_mono_ms: MonoMillis::new(ms(step)),
            excused_ms: 0,
        };
        segment.apply(&evidence, now).unwrap();
        tx.insert_meter_event(&event(turn, &evidence, row.id.clone(), now)).await?;
        let plan = settle(&segment, book, &funds, now).unwrap();
        segment = segment.settle_to(plan.before, plan.after).unwrap();
        for charge in &plan.charges {
            tx.post_transfer(&stored::transfer(&charge.transfer)).await?;
        }
        funds = plan.funds_after;
    }
    let end = at(turn.opened + SETTLEMENTS * STEP_SECONDS);
    let closed = segment.close(end, CloseReason::UserRequest).unwrap();
    tx.insert_segment(&turn.scope, &stored::changed(row, &closed, end)).await?;
    Ok(funds)
}

fn event(
    turn: &Turn,
    evidence: &UsageEvidence,
    segment_id: tarn_protocol::ids::SegmentId,
    now: Timestamp,
) -> MeterEventRow {
    MeterEventRow {
        host_id: turn.host_id.clone(),
        boot_id: evidence.boot_id.clone(),
        seq: evidence.seq,
        instance_id: evidence.instance_id.clone(),
        generation: evidence.generation,
        gpu_uuid: evidence.primary.clone(),
        from_mono_ms: evidence.from_mono_ms,
        to_mono_ms: evidence.to_mono_ms,
        excused_ms: 0,
        segment_id: Some(segment_id),
        received_at: now,
    }
}
