//! From rows to documents: everything a document needs is read in one transaction.

use std::collections::HashMap;

use tarn_billing::exhaustion::{Runway, forecast};
use tarn_billing::meter::Item;
use tarn_billing::money::{Micros, OutOfRange};
use tarn_billing::rate;
use tarn_billing::segment::SegmentState;
use tarn_protocol::control::CardRole;
use tarn_protocol::ids::{HostId, InstanceId, OfferId};
use tarn_protocol::units::{Bytes, Timestamp};
use tarn_provisioner::lifecycle::{ReasonCode, State, actions};
use tarn_rows::TenantScope;
use tarn_rows::instances::{InstanceEventRow, InstanceRow};
use tarn_rows::leases::{LeaseGpuRow, LeaseRow};
use tarn_rows::storage::StorageSegmentRow;
use tarn_store::{StoreError, Tx};

use super::request::{Constraints, PolicyChoice};
use super::view::{
    CardResidencyDocument, DiskDocument, EventDocument, HostTierDocument, InstanceDocument,
    KeepsCostingDocument, LogDocument, PeerDocument, PoolDocument, PriceDocument, ResidencyDocument,
    SpendingDocument, UnreachableDocument,
};
use crate::app::metering::purse::{CorruptMoney, Purse};
use crate::app::metering::storage;
use crate::app::metering::stored::corrupt;

/// What several documents of one answer share.
#[derive(Debug)]
pub struct Renderer {
    now: Timestamp,
    hosts: HashMap<HostId, Option<Timestamp>>,
    prices: HashMap<OfferId, Micros>,
    money: Option<Money>,
}

impl Renderer {
    pub fn at(now: Timestamp) -> Self {
        Self { now, hosts: HashMap::new(), prices: HashMap::new(), money: None }
    }

    pub async fn instance(
        &mut self,
        tx: &mut Tx,
        scope: &TenantScope,
        row: InstanceRow,
    ) -> Result<InstanceDocument, StoreError> {
        let unreachable = match &row.host_id {
            Some(host_id) if !row.state.terminal() => self.unreachable_since(tx, host_id).await?,
            _ => None,
        };
        let per_hour = self.price(tx, &row.offer_id).await?;
        let pool = match tx.newest_lease(scope, &row.id).await? {
            Some(lease) => {
                let cards = tx.lease_gpus(&lease.id).await?;
                pool(lease, &cards, row.pool_bytes)
            }
            None => None,
        };
        let bill = self.bill(tx, scope, &row).await?;
        Ok(document(row, unreachable, per_hour, pool, bill))
    }

    /// What an instance costs: the tenant's money is read once for all documents of an answer.
    async fn bill(
        &mut self,
        tx: &mut Tx,
        scope: &TenantScope,
        row: &InstanceRow,
    ) -> Result<Bill, StoreError> {
        let settled = tx.spent_on_instance(scope, &row.id).await?;
        let last_disk = tx.newest_storage_segment_of_instance(scope, &row.id).await?;
        if self.money.is_none() {
            let purse = Purse::load(tx, scope, self.now).await.map_err(unreadable)?;
            let runway = forecast(purse.costing(), &purse.book, &purse.funds, self.now).map_err(corrupt)?;
            self.money = Some(Money { purse, runway, unpaid: tx.unpaid_disks(scope).await? });
        }
        let money = self.money.as_ref().expect("loaded above");
        bill(row, money, (settled, last_disk.is_some()), self.now).map_err(corrupt)
    }

    async fn unreachable_since(&mut self, tx: &mut Tx, id: &HostId) -> Result<Option<Timestamp>, StoreError> {
        if let Some(known) = self.hosts.get(id) {
            return Ok(*known);
        }
        let since = tx.host(id).await?.and_then(|host| host.unreachable_since);
        self.hosts.insert(id.clone(), since);
        Ok(since)
    }

    async fn price(&mut self, tx: &mut Tx, id: &OfferId) -> Result<Micros, StoreError> {
        if let Some(known) = self.prices.get(id) {
            return Ok(*known);
        }
        let price =
            tx.price_at(id, self.now).await?.map_or(Micros::ZERO, |price| price.micros_per_hour.hourly());
        self.prices.insert(id.clone(), price);
        Ok(price)
    }
}

/// What money has to say of one instance.
#[derive(Debug)]
struct Bill {
    disk: DiskDocument,
    spending: SpendingDocument,
    keeps_costing: Vec<KeepsCostingDocument>,
    stopped_per_hour: Micros,
}

/// The tenant's money, and until when it lasts.
#[derive(Debug)]
struct Money {
    purse: Purse,
    runway: Runway,
    /// Instances whose disk nobody pays for since the money ended.
    unpaid: Vec<InstanceId>,
}

fn unreadable(error: CorruptMoney) -> StoreError {
    match error {
        CorruptMoney::Store(error) => error,
        other => corrupt(other),
    }
}

fn bill(
    row: &InstanceRow,
    Money { purse, runway, unpaid }: &Money,
    (settled, had_disk): (Micros, bool),
    now: Timestamp,
) -> Result<Bill, OutOfRange> {
    let gib = row.spec.0.disk_gib;
    let own = purse.costing().filter(|segment| segment.terms().instance_id == row.id);
    let accrued = Micros::checked_sum(own.clone().map(|segment| segment.accrued(now)))?;
    let open = own.filter(|segment| segment.state() == SegmentState::Open);
    let per_hour = rate::hourly_burn(open.map(|segment| segment.terms().rate))?;
    let paid_until = match runway {
        Runway::Until(until) if per_hour > Micros::ZERO => Some(*until),
        Runway::Until(_) | Runway::Unlimited => None,
    };
    let disks = purse
        .disks
        .iter()
        .filter(|(disk, segment)| disk.instance_id == row.id && segment.state() == SegmentState::Open);
    let mut keeps_costing: Vec<KeepsCostingDocument> =
        disks.map(|(disk, _)| keeps_costing(row, disk)).collect();
    keeps_costing.sort_by_key(|kept| std::cmp::Reverse(kept.per_hour.amount));
    let whole = storage::hourly(&purse.book, gib, now)?;
    let billing = match (had_disk, keeps_costing.is_empty()) {
        _ if unpaid.contains(&row.id) => "unpaid",
        (false, _) => "not_yet",
        (true, false) => "charged",
        (true, true) => "ended",
    };
    Ok(Bill {
        disk: DiskDocument {
            size_gb: gib,
            included_gb: gib.min(storage::INCLUDED_GIB),
            per_hour: whole.into(),
            billing,
            enforced: false,
        },
        spending: SpendingDocument {
            settled: settled.into(),
            accrued: accrued.into(),
            per_hour: per_hour.into(),
            paid_until: paid_until.map(Into::into),
            seconds_left: paid_until.map(|until| (until.micros_since(now) / 1_000_000).max(0)),
        },
        stopped_per_hour: if row.state.terminal() { Micros::ZERO } else { whole },
        keeps_costing,
    })
}

fn keeps_costing(row: &InstanceRow, disk: &StorageSegmentRow) -> KeepsCostingDocument {
    KeepsCostingDocument {
        item: Item::Disk.as_str(),
        sku: disk.sku.to_string(),
        size_gb: disk.gib,
        per_hour: disk.micros_per_hour.hourly().into(),
        ends_with: format!("DELETE /v1/instances/{}", row.id),
    }
}

fn document(
    row: InstanceRow,
    unreachable: Option<Timestamp>,
    per_hour: Micros,
    pool: Option<PoolDocument>,
    bill: Bill,
) -> InstanceDocument {
    let spec = row.spec.0;
    InstanceDocument {
        id: row.id,
        label: row.label,
        tags: row.tags.0,
        offer_id: row.offer_id,
        desired_state: row.desired_state.as_str(),
        state: row.state.as_str(),
        since: row.state_since.into(),
        phase: row.phase,
        reason_code: row.reason_code.map(ReasonCode::as_str),
        reason_detail: row.reason_detail,
        actions: legal(row.state),
        billable: row.state.billable(),
        unreachable: unreachable.map(|since| UnreachableDocument { since: since.into() }),
        generation: row.generation.get(),
        price: PriceDocument {
            per_hour: per_hour.into(),
            metered_cards: 1,
            stopped_per_hour: bill.stopped_per_hour.into(),
        },
        disk: bill.disk,
        spending: bill.spending,
        keeps_costing: bill.keeps_costing,
        pool,
        command: spec.command,
        env: spec.env.into_iter().collect(),
        policy: PolicyChoice::from(spec.policy),
        constraints: Constraints {
            region: spec.region,
            link_class_min: Some(spec.link_class_min),
            host_id: spec.host_id,
        },
        ssh_key_ids: spec.ssh_keys,
        ttl_at: row.ttl_at.map(Into::into),
        created_at: row.created_at.into(),
        terminated_at: row.terminated_at.map(Into::into),
    }
}

/// The actions that this build offers of those that are legal.
fn legal(state: State) -> Vec<&'static str> {
    use tarn_provisioner::lifecycle::Action;
    let offered = [Action::Start, Action::Stop, Action::Restart, Action::Terminate];
    actions(state).iter().filter(|action| offered.contains(action)).map(|action| action.as_str()).collect()
}

fn pool(lease: LeaseRow, cards: &[LeaseGpuRow], pool_bytes: Option<Bytes>) -> Option<PoolDocument> {
    let (primary, peers) = cards.split_first()?;
    let peer = |card: &LeaseGpuRow| PeerDocument {
        uuid: card.gpu_uuid.clone(),
        link_class: card.link_class,
        grade: card.grade,
        read_mb_per_second: card.read_mb_per_second,
        certificate_id: card.certificate_id.clone(),
    };
    Some(PoolDocument {
        held: lease.released_at.is_none(),
        lease_id: lease.id,
        host_id: lease.host_id,
        cards: cards.len(),
        primary_gpu: primary.gpu_uuid.clone(),
        peer_gpus: peers.iter().map(peer).collect(),
        link_class: peers.iter().map(|card| card.link_class).min(),
        pool_size_bytes: pool_bytes.map(Bytes::get),
    })
}

pub fn residency(row: InstanceRow) -> ResidencyDocument {
    let cards = row.residency.map(|cards| cards.0).unwrap_or_default();
    let used = |role: CardRole| {
        cards.iter().filter(|card| card.role == role).map(|card| card.used_bytes.get()).sum()
    };
    ResidencyDocument {
        instance_id: row.id,
        observed_at: row.observed_at.map(Into::into),
        pool_size_bytes: row.pool_bytes.map(Bytes::get),
        local_bytes: used(CardRole::Primary),
        peer_bytes: used(CardRole::Donor),
        host_tier: cards.iter().find(|card| card.role == CardRole::HostTier).map(|tier| HostTierDocument {
            capacity_bytes: tier.capacity_bytes.get(),
            used_bytes: tier.used_bytes.get(),
        }),
        cards: cards
            .iter()
            .filter(|card| card.role != CardRole::HostTier)
            .map(|card| CardResidencyDocument {
                uuid: card.uuid.clone(),
                role: card.role,
                capacity_bytes: card.capacity_bytes.get(),
                used_bytes: card.used_bytes.get(),
                quarantined_bytes: card.quarantined_bytes.get(),
            })
            .collect(),
    }
}

pub fn event(row: InstanceEventRow) -> EventDocument {
    EventDocument { id: row.id, kind: row.kind, detail: row.detail.0, created_at: row.created_at.into() }
}

pub fn log(row: InstanceRow) -> LogDocument {
    LogDocument { instance_id: row.id, observed_at: row.observed_at.map(Into::into), tail: row.log_tail }
}
