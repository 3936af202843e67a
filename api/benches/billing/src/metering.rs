//! Evidence in, charges out: through the same use cases and the same worker as `tarn serve`.

use std::sync::Arc;

use tarn_api::app::act::Act;
use tarn_api::app::metering::evidence;
use tarn_api::config::Config;
use tarn_api::serve::{self, Ambient};
use tarn_api::state::AppState;
use tarn_api::workers::{self, Claim, Worker};
use tarn_billing::coverage::Coverage;
use tarn_billing::grant::GrantKind;
use tarn_billing::money::Micros;
use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::{GrantId, HostId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Sequence, Timestamp};
use tarn_rows::Json;
use tarn_rows::segments::SegmentRow;
use tarn_rows::wallet::GrantRow;
use tarn_store::StoreError;

use crate::Wanted;
use crate::fixtures::*;
use crate::load::{Table, closed_loop, once};

const FUNDS: i64 = 1_000_000_000;
/// Instances that report evidence: 100 hosts of 8 cards.
const HOSTS: usize = 100;
const EVIDENCE_BATCH: usize = 100;
const OPEN_SEGMENTS: usize = 10_000;
/// Each tenant runs so many.
const SEGMENTS_PER_TENANT: usize = 4;

pub async fn all(table: &mut Table, engine: &str, database_url: Option<String>, wanted: &Wanted) {
    let data = tempfile::tempdir().unwrap();
    let config = Config { database_url, workers: false, ..Config::local(data.path().to_owned()) };
    let state = serve::open(config, Ambient::of_system()).await.unwrap();
    let begun = state.clock.now();
    if wanted.part("evidence") {
        ingest(table, engine, &state, begun).await;
    }
    if wanted.part("settlement") {
        settle(table, engine, &state, begun).await;
    }
    state.store.close().await;
}

/// What a host's agent reports of one running instance.
#[derive(Debug, Clone)]
struct Reporter {
    host: HostId,
    template: UsageEvidence,
}

async fn ingest(table: &mut Table, engine: &str, state: &AppState, begun: Timestamp) {
    let mut reporters = Vec::new();
    let scope = tenant(&state.store).await;
    for _ in 0..HOSTS {
        let (host, gpus) = host(&state.store, 8).await;
        for gpu in gpus {
            let instance = instance(&state.store, &scope).await;
            let (lease, cards) = lease_rows(&instance, std::slice::from_ref(&gpu));
            let segment = SegmentRow { started_at: begun, ..segment_row(&instance, &gpu.uuid, 0) };
            let scope = scope.clone();
            change!(state.store, tx => {
                tx.insert_lease(&scope, &lease, &cards).await?;
                tx.insert_segment(&scope, &segment).await
            })
            .await
            .unwrap();
            let template = UsageEvidence {
                seq: Sequence::new(0),
                boot_id: BootId::new("boot"),
                instance_id: instance.id,
                generation: Generation::new(1),
                primary: gpu.uuid,
                from_mono_ms: MonoMillis::new(0),
                to_mono_ms: MonoMillis::new(0),
                excused_ms: 0,
            };
            reporters.push(Reporter { host: host.id.clone(), template });
        }
    }
    let reporters = Arc::new(reporters);
    for clients in [1, 8] {
        let (state, reporters) = (state.clone(), Arc::clone(&reporters));
        let load = closed_loop(clients, EVIDENCE_BATCH, move |_, _| {
            let batch = (0..EVIDENCE_BATCH)
                .map(|_| {
                    let number = number();
                    let reporter = &reporters[usize::try_from(number).unwrap() % reporters.len()];
                    let from = 1_000 + number * 10;
                    let usage = UsageEvidence {
                        seq: Sequence::new(number),
                        from_mono_ms: MonoMillis::new(from),
                        to_mono_ms: MonoMillis::new(from + 10),
                        ..reporter.template.clone()
                    };
                    (reporter.host.clone(), usage)
                })
                .collect();
            accepted(state.clone(), batch)
        });
        table.row(format!("tarn {engine}, evidence, {clients} clients, {EVIDENCE_BATCH} a call"), load.await);
    }
}

async fn accepted(state: AppState, batch: Vec<(HostId, UsageEvidence)>) {
    let act = Act::at(&state, state.clock.now());
    state
        .store
        .write(move |tx| {
            Box::pin(async move {
                for (host, usage) in &batch {
                    evidence::accept(tx, &act, host, usage).await?;
                }
                Ok::<_, StoreError>(())
            })
        })
        .await
        .unwrap();
}

/// Tenants whose instances each ran for an unsettled hour, their hosts told until when they may run; then one tick of the settling worker.
async fn settle(table: &mut Table, engine: &str, state: &AppState, begun: Timestamp) {
    for _ in 0..OPEN_SEGMENTS / SEGMENTS_PER_TENANT {
        let (scope, _) = funded_tenant(&state.store, FUNDS).await;
        let grant = GrantRow {
            id: GrantId::new(begun, u128::from(number())),
            tenant_id: scope.tenant_id().clone(),
            kind: GrantKind::Promo,
            priority: 0,
            granted_micros: Micros::new(FUNDS),
            remaining_micros: Micros::new(FUNDS),
            expires_at: None,
            created_at: begun,
        };
        let rows: Vec<_> = (0..SEGMENTS_PER_TENANT).map(|_| ran_an_hour(&scope, begun)).collect();
        change!(state.store, tx => {
            tx.insert_grant(&scope, &grant).await?;
            for (instance, segment) in &rows {
                tx.insert_instance(&scope, instance).await?;
                tx.insert_segment(&scope, segment).await?;
            }
            Done::Ok(())
        })
        .await
        .unwrap();
    }
    let now = begun.plus_seconds(1);
    let claim = Claim::take(state, Worker::Settle, "bench", now).await.unwrap().unwrap();
    workers::tick(state, claim, now).await.unwrap();
    let now = begun.plus_seconds(3_600);
    let claim = Claim::take(state, Worker::Settle, "bench", now).await.unwrap().unwrap();
    let load = once(OPEN_SEGMENTS, async {
        let report = workers::tick(state, claim, now).await.unwrap();
        assert_eq!(report.failed, 0);
        assert!(report.changed as usize >= OPEN_SEGMENTS, "{report:?}");
    });
    table.row(format!("tarn {engine}, settlement of {OPEN_SEGMENTS} open segments"), load.await);
}

fn ran_an_hour(
    scope: &tarn_rows::TenantScope,
    begun: Timestamp,
) -> (tarn_rows::instances::InstanceRow, SegmentRow) {
    let instance = instance_row(scope);
    let mut covered = Coverage::default();
    covered.insert(1_000, 1_000 + 3_600_000).unwrap();
    let gpu = gpu_row(&HostId::new(begun, 0), 0).uuid;
    let segment = SegmentRow { started_at: begun, covered: Json(covered), ..segment_row(&instance, &gpu, 0) };
    (instance, segment)
}
