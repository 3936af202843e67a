//! Rows to start from.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tarn_billing::account::{Account, AccountKind};
use tarn_billing::coverage::Coverage;
use tarn_billing::money::{Currency, Micros};
use tarn_billing::price::PriceVersion;
use tarn_billing::rate::{Rate, Seconds};
use tarn_billing::transfer::TransferKind;
use tarn_protocol::hardware::{GpuHealth, LinkClass, LinkGrade};
use tarn_protocol::ids::{GpuUuid, HostId, OfferId};
use tarn_protocol::pool_config::Policy;
use tarn_protocol::units::{BootId, Bytes, Generation, MonoMillis, Sequence, Timestamp};
use tarn_provisioner::lifecycle::{DesiredState, ReasonCode, State};
use tarn_rows::accounts::{TenantRow, UserRow};
use tarn_rows::gpus::GpuRow;
use tarn_rows::hosts::HostRow;
use tarn_rows::instances::{InstanceRow, LaunchSpec};
use tarn_rows::leases::{LeaseGpuRow, LeaseRow};
use tarn_rows::ledger::{AccountRow, Posting, TransferRow};
use tarn_rows::offers::OfferRow;
use tarn_rows::secrets::{PasswordHash, SecretDigest};
use tarn_rows::segments::SegmentRow;
use tarn_rows::{Json, TenantScope};
use tarn_store::{Store, StoreError, Tx};

static NEXT: AtomicU64 = AtomicU64::new(1);

pub fn number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000).plus_seconds(seconds)
}

pub fn digest() -> SecretDigest {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number().to_be_bytes());
    SecretDigest::from_bytes(bytes)
}

macro_rules! id {
    ($ty:ident) => {
        tarn_protocol::ids::$ty::new(crate::fixtures::at(0), u128::from(crate::fixtures::number()))
    };
}
pub(crate) use id;

/// What a closure of `Store::write` returns here.
pub type Done<T> = Result<T, StoreError>;

/// One write, without ceremony: `change!(store, tx => tx.insert_host(&row).await)`.
macro_rules! change {
    ($store:expr, $tx:ident => $body:expr) => {
        $store.write(move |$tx| Box::pin(async move { $body }))
    };
}
pub(crate) use change;

pub async fn tenant(store: &Store) -> TenantScope {
    let row = TenantRow {
        id: id!(TenantId),
        name: "Acme".to_owned(),
        quota_cards: 8,
        quota_bytes: Bytes::gib(192),
        created_at: at(0),
    };
    let scope = TenantScope::proven(row.id.clone());
    change!(store, tx => tx.insert_tenant(&row).await).await.unwrap();
    scope
}

pub async fn user(store: &Store) -> UserRow {
    let row = UserRow {
        id: id!(UserId),
        email: format!("user{}@example.test", number()),
        password_hash: PasswordHash::from_phc("$argon2id$stand-in"),
        operator: false,
        token_epoch: 0,
        created_at: at(0),
    };
    let inserted = row.clone();
    change!(store, tx => tx.insert_user(&inserted).await).await.unwrap();
    row
}

pub fn host_row() -> HostRow {
    HostRow {
        id: id!(HostId),
        name: "box".to_owned(),
        region: "cn-east".to_owned(),
        credential_sha256: digest(),
        epoch: Generation::new(1),
        boot_id: None,
        report_seq: Sequence::new(0),
        reported_at: None,
        reported_mono_ms: None,
        agent_version: "0.1.0".to_owned(),
        driver_version: None,
        inventory: None,
        cordoned: false,
        unreachable_since: None,
        quarantine_reason: None,
        desired_revision: 0,
        created_at: at(0),
    }
}

pub fn gpu_row(host_id: &HostId, minor: u32) -> GpuRow {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number().to_be_bytes());
    GpuRow {
        uuid: GpuUuid::from_bytes(bytes),
        host_id: host_id.clone(),
        model: "NVIDIA GeForce RTX 4090".to_owned(),
        memory_bytes: Bytes::gib(24),
        bar1_bytes: Bytes::gib(32),
        pci_bus_id: format!("00000000:{minor:02x}:00.0"),
        minor,
        numa_node: Some(0),
        pcie_switch: None,
        compute_capability: "8.9".to_owned(),
        mig_enabled: false,
        display_active: false,
        health: Json(GpuHealth::Ok),
        quarantined: false,
        telemetry: None,
        present: true,
        updated_at: at(0),
    }
}

/// A host with cards.
pub async fn host(store: &Store, cards: u32) -> (HostRow, Vec<GpuRow>) {
    let host = host_row();
    let gpus: Vec<GpuRow> = (0..cards).map(|minor| gpu_row(&host.id, minor)).collect();
    let (host_in, gpus_in) = (host.clone(), gpus.clone());
    change!(store, tx => {
        tx.insert_host(&host_in).await?;
        for gpu in &gpus_in {
            assert!(tx.upsert_gpu(gpu).await?);
        }
        Done::Ok(())
    })
    .await
    .unwrap();
    (host, gpus)
}

pub async fn offer(store: &Store) -> OfferId {
    let row = OfferRow {
        id: "pool-96".parse().unwrap(),
        title: "Pool-96".to_owned(),
        cards: 4,
        metered_cards: 1,
        card_memory_bytes: Bytes::gib(24),
        model_contains: None,
        link_class_min: LinkClass::PcieP2p,
        listed: true,
        created_at: at(0),
    };
    let id = row.id.clone();
    change!(store, tx => tx.insert_offer(&row).await).await.unwrap();
    id
}

pub fn instance_row(scope: &TenantScope) -> InstanceRow {
    InstanceRow {
        id: id!(InstanceId),
        tenant_id: scope.tenant_id().clone(),
        created_by: None,
        label: "training".to_owned(),
        tags: Json(BTreeMap::from([("team".to_owned(), "a".to_owned())])),
        offer_id: "pool-96".parse().unwrap(),
        spec: Json(LaunchSpec {
            command: vec!["run".to_owned()],
            env: vec![],
            policy: Policy::default(),
            link_class_min: LinkClass::PcieP2p,
            region: None,
            host_id: None,
            ssh_keys: vec![],
            disk_gib: 20,
        }),
        desired_state: DesiredState::Running,
        desired_reason: ReasonCode::UserRequest,
        desired_since: at(0),
        state: State::Requested,
        state_since: at(0),
        phase: None,
        reason_code: None,
        reason_detail: None,
        generation: Generation::new(0),
        row_version: 0,
        placement_attempts: 0,
        host_id: None,
        pool_bytes: None,
        residency: None,
        observed_phase: None,
        observed_at: None,
        log_tail: String::new(),
        ttl_at: None,
        created_at: at(0),
        terminated_at: None,
    }
}

/// An instance of `scope` (the offer must be there).
pub async fn instance(store: &Store, scope: &TenantScope) -> InstanceRow {
    let row = instance_row(scope);
    let (scope, inserted) = (scope.clone(), row.clone());
    change!(store, tx => tx.insert_instance(&scope, &inserted).await).await.unwrap();
    row
}

pub fn lease_rows(instance: &InstanceRow, gpus: &[GpuRow]) -> (LeaseRow, Vec<LeaseGpuRow>) {
    let lease = LeaseRow {
        id: id!(LeaseId),
        instance_id: instance.id.clone(),
        tenant_id: instance.tenant_id.clone(),
        host_id: gpus[0].host_id.clone(),
        generation: Generation::new(1),
        created_at: at(0),
        released_at: None,
    };
    let cards = gpus.iter().zip(0..).map(|(gpu, place)| LeaseGpuRow {
        lease_id: lease.id.clone(),
        gpu_uuid: gpu.uuid.clone(),
        place,
        link_class: LinkClass::Nvlink,
        grade: LinkGrade::A,
        read_mb_per_second: 50_000,
        certificate_id: None,
        released_at: None,
    });
    (lease.clone(), cards.collect())
}

pub fn segment_row(instance: &InstanceRow, gpu: &GpuUuid, started: i64) -> SegmentRow {
    SegmentRow {
        id: id!(SegmentId),
        tenant_id: instance.tenant_id.clone(),
        instance_id: instance.id.clone(),
        generation: Generation::new(1),
        sku: instance.offer_id.clone(),
        meter_gpu_uuid: gpu.clone(),
        price_version: PriceVersion::FIRST,
        micros_per_hour: Rate::per_hour(Micros::new(2_400_000)).unwrap(),
        boot_id: BootId::new("boot"),
        anchor_mono_ms: MonoMillis::new(1_000),
        started_at: at(started),
        ended_at: None,
        close_reason: None,
        covered: Json(Coverage::default()),
        settled_seconds: Seconds::new(0).unwrap(),
        settled_micros: Micros::ZERO,
        row_version: 0,
        run_until_mono_ms: None,
        exhausts_at: None,
        updated_at: at(started),
    }
}

pub fn account_row(account: &Account) -> AccountRow {
    AccountRow {
        id: account.id().clone(),
        tenant_id: account.tenant_id().cloned(),
        kind: account.kind(),
        currency: Currency::Cny,
        created_at: at(0),
    }
}

pub fn transfer_row(kind: TransferKind, debit: &Account, credit: &Account, micros: i64) -> TransferRow {
    TransferRow {
        id: id!(TransferId),
        kind,
        debit_account_id: debit.id().clone(),
        credit_account_id: credit.id().clone(),
        amount_micros: Micros::new(micros),
        tenant_id: debit.tenant_id().or(credit.tenant_id()).cloned(),
        segment_id: None,
        grant_id: None,
        reverses: None,
        external_provider: None,
        external_id: None,
        memo: "test".to_owned(),
        created_at: at(0),
    }
}

pub fn system(kind: AccountKind) -> Account {
    Account::new(kind, None).unwrap()
}

/// A tenant whose promotional wallet holds `micros`.
pub async fn funded_tenant(store: &Store, micros: i64) -> (TenantScope, Account) {
    let scope = tenant(store).await;
    let wallet = Account::wallet_promo(scope.tenant_id());
    let accounts: Vec<AccountRow> = [Account::all_of(scope.tenant_id()), Account::all_of_system()]
        .concat()
        .iter()
        .map(account_row)
        .collect();
    let credit = transfer_row(TransferKind::TrialCredit, &system(AccountKind::TrialGrants), &wallet, micros);
    change!(store, tx => {
        open_accounts(tx, &accounts).await?;
        tx.post_transfer(&credit).await
    })
    .await
    .map(|posting| assert_eq!(posting, Posting::Posted))
    .unwrap();
    (scope, wallet)
}

async fn open_accounts(tx: &mut Tx, accounts: &[AccountRow]) -> Done<()> {
    for account in accounts {
        tx.ensure_account(account).await?;
    }
    Ok(())
}
