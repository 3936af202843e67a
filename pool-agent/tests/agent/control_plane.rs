//! A control plane in a few lines: one desired document, every accepted report kept.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use tarn_protocol::control::{
    Desired, DesiredInstance, JoinRequest, JoinResponse, Phase, ProbeOrder, Report, ReportAccepted,
    UsageEvidence,
};
use tarn_protocol::hardware::{Inventory, LinkProbe};
use tarn_protocol::ids::{HostId, InstanceId};
use tarn_protocol::units::{Generation, Sequence, Timestamp};

pub const TOKEN: &str = "tarn_join_test";
const CREDENTIAL: &str = "credential-of-the-host";

#[derive(Debug)]
pub struct Ledger {
    pub desired: Desired,
    pub joins: Vec<JoinRequest>,
    pub last: Option<Report>,
    pub reports: Vec<(String, u64)>,
    pub inventory: Option<Inventory>,
    pub probes: Vec<LinkProbe>,
    pub events: Vec<tarn_protocol::control::GpuEvent>,
    pub usage: BTreeMap<u64, UsageEvidence>,
    pub logs: BTreeMap<InstanceId, String>,
    /// Answer nothing, as a control plane that is away.
    pub away: bool,
}

#[derive(Debug, Clone)]
pub struct ControlPlane {
    pub address: SocketAddr,
    pub ledger: Arc<Mutex<Ledger>>,
}

impl ControlPlane {
    pub fn start() -> Self {
        let ledger = Arc::new(Mutex::new(Ledger {
            desired: Desired {
                revision: 1,
                host_epoch: Generation::new(1),
                report_seconds: 1,
                instances: vec![],
                probes: vec![],
            },
            joins: vec![],
            last: None,
            reports: vec![],
            inventory: None,
            probes: vec![],
            events: vec![],
            usage: BTreeMap::new(),
            logs: BTreeMap::new(),
            away: false,
        }));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::clone(&ledger);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let router = Router::new()
                    .route("/agent/v1/join", post(join))
                    .route("/agent/v1/report", post(report))
                    .route("/agent/v1/desired", get(desired))
                    .with_state(state);
                axum::serve(listener, router).await.unwrap();
            });
        });
        Self { address, ledger }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Ledger) -> T) -> T {
        look(&mut self.ledger.lock().unwrap())
    }

    /// Replaces one instance's goal and raises the revision.
    pub fn want(&self, instance: &DesiredInstance) {
        self.with(|ledger| {
            ledger.desired.instances.retain(|known| known.instance_id != instance.instance_id);
            ledger.desired.instances.push(instance.clone());
            ledger.desired.revision += 1;
        });
    }

    pub fn order_probe(&self, order: ProbeOrder) {
        self.with(|ledger| {
            ledger.desired.probes = vec![order];
            ledger.desired.revision += 1;
        });
    }

    pub fn phase(&self, id: &InstanceId) -> Option<Phase> {
        self.with(|ledger| {
            let report = ledger.last.as_ref()?;
            Some(report.instances.iter().find(|seen| seen.instance_id == *id)?.phase.clone())
        })
    }
}

/// Waits for a condition, with a bound that slow machines need.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..7200 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("{what}: not within three minutes");
}

async fn join(
    State(ledger): State<Arc<Mutex<Ledger>>>,
    Json(request): Json<JoinRequest>,
) -> Result<Json<JoinResponse>, StatusCode> {
    let mut ledger = ledger.lock().unwrap();
    let used = ledger.joins.first().is_some_and(|first| first.nonce != request.nonce);
    if request.token != TOKEN || used {
        return Err(StatusCode::UNAUTHORIZED);
    }
    ledger.joins.push(request);
    let host_id = HostId::new(Timestamp::from_micros(1), 1);
    Ok(Json(JoinResponse { host_id, credential: CREDENTIAL.to_owned() }))
}

fn refuse(ledger: &Ledger, headers: &HeaderMap) -> Result<(), StatusCode> {
    let expected = format!("Bearer {CREDENTIAL}");
    if headers.get("authorization").is_none_or(|value| value.as_bytes() != expected.as_bytes()) {
        return Err(StatusCode::UNAUTHORIZED);
    }
    if ledger.away { Err(StatusCode::SERVICE_UNAVAILABLE) } else { Ok(()) }
}

async fn report(
    State(ledger): State<Arc<Mutex<Ledger>>>,
    headers: HeaderMap,
    Json(report): Json<Report>,
) -> Result<Json<ReportAccepted>, StatusCode> {
    let mut ledger = ledger.lock().unwrap();
    refuse(&ledger, &headers)?;
    ledger.reports.push((report.boot_id.to_string(), report.seq.get()));
    if let Some(inventory) = &report.inventory {
        ledger.inventory = Some(inventory.clone());
    }
    ledger.probes.extend(report.probes.iter().cloned());
    ledger.events.extend(report.gpu_events.iter().cloned());
    for evidence in &report.usage {
        let known = ledger.usage.insert(evidence.seq.get(), evidence.clone());
        assert!(known.is_none_or(|known| known == *evidence), "evidence changed after it was sent");
    }
    for seen in &report.instances {
        if let Some(tail) = &seen.log_tail {
            ledger.logs.insert(seen.instance_id.clone(), tail.clone());
        }
    }
    let usage_through = Sequence::new(ledger.usage.keys().last().copied().unwrap_or(0));
    ledger.last = Some(report);
    Ok(Json(ReportAccepted { usage_through, fresh: true }))
}

#[derive(Deserialize)]
struct Poll {
    after: i64,
    wait_seconds: u64,
}

async fn desired(
    State(ledger): State<Arc<Mutex<Ledger>>>,
    headers: HeaderMap,
    Query(poll): Query<Poll>,
) -> Result<Json<Desired>, StatusCode> {
    for _ in 0..poll.wait_seconds * 50 {
        {
            let ledger = ledger.lock().unwrap();
            refuse(&ledger, &headers)?;
            if ledger.desired.revision > poll.after {
                return Ok(Json(ledger.desired.clone()));
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(Json(ledger.lock().unwrap().desired.clone()))
}
