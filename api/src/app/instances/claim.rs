//! What every start must pass, in one transaction: quota, an hour of money, a matched set of cards; then hold and lease.
//!
//! Nothing is written before all three said yes, so a refusal leaves no trace. The tenant is locked and placements take turns, so
//! many starts at once neither overdraw a quota or a wallet nor choose the same cards; the unique index on live leases stands behind.

use tarn_billing::account::{Account, AccountKind};
use tarn_billing::gate;
use tarn_billing::money::{Micros, OutOfRange};
use tarn_billing::rate::Rate;
use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::ids::{HoldId, LeaseId, OfferId};
use tarn_provisioner::fleet::FleetError;
use tarn_provisioner::placement::{self, Placed, Refusal};
use tarn_provisioner::quota::{self, Quota, QuotaExceeded};
use tarn_provisioner::snapshot::HostSnapshot;
use tarn_rows::leases::{LeaseGpuRow, LeaseRow};
use tarn_rows::offers::OfferRow;
use tarn_rows::wallet::{HoldRow, HoldState};
use tarn_store::{StoreError, Tx};

use super::dossier::Dossier;
use crate::app::act::Act;
use crate::app::fleet;
use crate::app::metering::caps::{CapReached, Limits};
use crate::app::metering::purse::{CorruptMoney, Purse};
use crate::app::metering::storage;
use crate::app::metering::stored::corrupt;
use crate::app::offers::catalog::{self, Listed};
use crate::app::offers::shape::{Shape, Wanted};

/// How long an hour's money is kept back for a start that never becomes ready.
const HOLD_SECONDS: i64 = 24 * 3600;

/// Why a start was refused. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum StartRefused {
    #[error("offer {0} is not on sale")]
    NotOnSale(OfferId),
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    #[error(transparent)]
    Money(#[from] gate::Refused),
    #[error(transparent)]
    SpendCap(#[from] CapReached),
    #[error("{refusal}")]
    NoCapacity { refusal: Refusal, alternatives: Vec<Listed> },
}

#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Money(#[from] CorruptMoney),
    #[error(transparent)]
    Fleet(#[from] FleetError),
}

/// Checks and claims for `dossier`, whose next generation the lease gets. The caller stores the instance first if it is new.
pub async fn check(
    tx: &mut Tx,
    act: &Act,
    dossier: &Dossier,
    wanted: &Wanted,
) -> Result<Result<Admission, StartRefused>, ClaimError> {
    let scope = dossier.scope();
    tx.take_placement_turn().await?;
    tx.lock_tenant(&scope).await?;
    tx.lock_wallets(&scope).await?;
    let Some(tenant) = tx.tenant(&scope).await? else { return Err(tx.stale().into()) };
    let offer_id = &dossier.row.offer_id;
    let offers = tx.offers().await?;
    let purse = Purse::load(tx, &scope, act.now).await?;
    let offer = offers.iter().find(|offer| offer.id == *offer_id);
    let price = purse.book.at(offer_id, act.now);
    let (Some(offer), Some(price)) = (offer.filter(|offer| offer.listed), price) else {
        return Ok(Err(StartRefused::NotOnSale(offer_id.clone())));
    };
    let shape = Shape::of(offer);
    let used = tx.quota_use(&scope).await?;
    let limit = Quota { cards: tenant.quota_cards, memory_bytes: tenant.quota_bytes };
    let used = Quota { cards: u32::try_from(used.cards).unwrap_or(u32::MAX), memory_bytes: used.bytes };
    if let Err(exceeded) = quota::check(limit, used, shape.charge()) {
        return Ok(Err(exceeded.into()));
    }
    let disk = storage::starting(tx, &purse.book, &dossier.row, act.now).await?;
    let rate = price.rate.hourly().checked_add(disk).map_err(CorruptMoney::Amount)?;
    let rate = Rate::per_hour(rate).map_err(|_| CorruptMoney::Amount(OutOfRange))?;
    let hold = match gate::admit(purse.start_request(&purse.burning(), rate), act.now) {
        Ok(admitted) => admitted.hold,
        Err(refused) => return Ok(Err(refused.into())),
    };
    let limits = Limits::load(tx, &scope, &purse, act.now).await?;
    let starting = limits.starting(tx, &scope, &dossier.row.id).await?;
    let (by, label) = (dossier.row.created_by.as_deref(), &dossier.row.label);
    let admitted = limits.admit(rate, &starting, by, label, act.now);
    if let Err(reached) = admitted.map_err(CorruptMoney::Amount)? {
        return Ok(Err(reached.into()));
    }
    let snapshot = fleet::snapshot(tx).await?;
    match placement::place(&shape.fleet(&snapshot)?, &shape.request(wanted)) {
        Ok(placed) => {
            let hold = purse.funds.reserve(hold, act.now).map_err(CorruptMoney::Shortfall)?;
            Ok(Ok(Admission { placed, hold }))
        }
        Err(refusal) => {
            let alternatives = others(&offers, &purse, &snapshot, offer_id, act)?;
            Ok(Err(StartRefused::NoCapacity { refusal, alternatives }))
        }
    }
}

/// A start that may go ahead.
#[derive(Debug)]
pub struct Admission {
    pub placed: Placed,
    /// An hour of its price and of its disk's, on the accounts that keep it back.
    pub hold: Vec<(AccountKind, Micros)>,
}

fn others(
    offers: &[OfferRow],
    purse: &Purse,
    snapshot: &[HostSnapshot],
    refused: &OfferId,
    act: &Act,
) -> Result<Vec<Listed>, FleetError> {
    let listed = catalog::list(offers, &purse.book, snapshot, &Wanted::default(), act.now)?;
    Ok(listed
        .into_iter()
        .filter(|listed| listed.offer.id != *refused && listed.availability.count > 0)
        .collect())
}

/// Stores hold and lease of an admitted start; the instance itself is stored already.
pub async fn take(
    tx: &mut Tx,
    act: &Act,
    dossier: &mut Dossier,
    admission: &Admission,
) -> Result<(), StoreError> {
    let scope = dossier.scope();
    for (kind, amount) in &admission.hold {
        let account = Account::new(*kind, Some(&dossier.row.tenant_id)).map_err(corrupt)?;
        let hold = HoldRow {
            id: HoldId::new(act.now, act.bits()),
            tenant_id: dossier.row.tenant_id.clone(),
            account_id: account.id().clone(),
            instance_id: Some(dossier.row.id.clone()),
            amount_micros: *amount,
            state: HoldState::Pending,
            created_at: act.now,
            expires_at: act.now.plus_seconds(HOLD_SECONDS),
            resolved_at: None,
        };
        // Settled away between reading and holding.
        if !tx.place_hold(&scope, &hold).await? {
            return Err(tx.stale());
        }
    }
    lease(tx, act, dossier, &admission.placed).await
}

/// Leases placed cards under the instance's current generation.
pub async fn lease(tx: &mut Tx, act: &Act, dossier: &mut Dossier, placed: &Placed) -> Result<(), StoreError> {
    let row = LeaseRow {
        id: LeaseId::new(act.now, act.bits()),
        instance_id: dossier.row.id.clone(),
        tenant_id: dossier.row.tenant_id.clone(),
        host_id: placed.host_id.clone(),
        generation: dossier.row.generation,
        created_at: act.now,
        released_at: None,
    };
    let gpus = cards(&row.id, placed);
    tx.insert_lease(&dossier.scope(), &row, &gpus).await?;
    dossier.lease = Some((row, gpus));
    Ok(())
}

fn cards(lease_id: &LeaseId, placed: &Placed) -> Vec<LeaseGpuRow> {
    let primary = LeaseGpuRow {
        lease_id: lease_id.clone(),
        gpu_uuid: placed.primary.clone(),
        place: 0,
        link_class: LinkClass::None,
        grade: LinkGrade::A,
        read_mb_per_second: 0,
        certificate_id: None,
        released_at: None,
    };
    let donors = (1..).zip(&placed.donors).map(|(place, donor)| LeaseGpuRow {
        gpu_uuid: donor.uuid.clone(),
        place,
        link_class: donor.link_class,
        grade: donor.grade,
        read_mb_per_second: donor.read_mb_per_second,
        certificate_id: Some(donor.certificate_id.clone()),
        ..primary.clone()
    });
    std::iter::once(primary.clone()).chain(donors).collect()
}
