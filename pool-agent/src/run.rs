//! The agent's life: joins, finds its cards, takes up what runs, then talks and listens until it is told to end. Ending the
//! agent ends nothing else.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tarn_protocol::control::GpuEvent;
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::units::Bytes;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::board::Board;
use crate::card_use::CardUse;
use crate::clock::{HostClock, NoBootId};
use crate::control_plane::{CallError, ControlPlane};
use crate::donor_guard::allowed::Allowed;
use crate::donor_guard::driver::DriverGuard;
use crate::donor_guard::roster::Roster;
use crate::donor_guard::sentry::EscapePolicy;
use crate::donor_guard::watch::watch as watch_donors;
use crate::durable_file::DurableError;
use crate::failpoint::Failpoints;
use crate::health::{Consequence, HealthBook};
use crate::instance::record::{InstanceRecord, Stage};
use crate::instance::worker::{Settings, Surroundings};
use crate::join::{self, JoinError, Secret};
use crate::nvml::events;
use crate::nvml::host::{HostCards, NoDriver};
use crate::probe::errands;
use crate::probe::pair::Prober;
use crate::report::{ReportNumbers, Reporter};
use crate::runtime::process::ProcessRuntime;
use crate::scrub::card::Scrubber;
use crate::state_dir::{StateDir, StateDirError};
use crate::sync::{self, Workers};
use crate::usage::UsageSpool;
use crate::wanted::WantedBook;

/// Memory with which each link of a pool is looked at again before the pool starts: one granule.
const VERIFY_BYTES: Bytes = Bytes::mib(2);

/// Configuration, read once.
#[derive(Debug, Clone)]
pub struct Options {
    pub server: String,
    pub state_dir: PathBuf,
    pub join_token: Option<Secret>,
    pub name: String,
    pub driver_dir: Option<PathBuf>,
    pub device_dir: Option<PathBuf>,
    pub artefacts: PathBuf,
    pub own_executable: PathBuf,
    pub report_seconds: u32,
    pub usage_interval_ms: u64,
    /// Bytes of the host's memory that one pool may overflow into.
    pub host_tier_max: Option<Bytes>,
    pub drain_seconds: u64,
    pub probe_bytes: Bytes,
    pub probe_deadline: Duration,
    pub probe_on_start: bool,
    pub escape_policy: EscapePolicy,
    pub driver_guard: DriverGuard,
    pub scrub_deadline: Duration,
    pub boot_id: Option<String>,
    pub failpoint: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    #[error(transparent)]
    BootId(#[from] NoBootId),
    #[error(transparent)]
    Driver(#[from] NoDriver),
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    ControlPlane(#[from] CallError),
    #[error(transparent)]
    Durable(#[from] DurableError),
    #[error("a report could not be drafted")]
    Draft(#[source] tokio::task::JoinError),
    #[error("cannot watch for signals or events")]
    Watch(#[source] std::io::Error),
}

/// Runs until SIGTERM or SIGINT.
pub async fn run(options: Options) -> Result<(), AgentError> {
    let state = StateDir::open(&options.state_dir)?;
    let _held = state.lock()?;
    state.keep_reserve();
    let clock = HostClock::open(options.boot_id.clone())?;
    let control_plane = ControlPlane::new(&options.server)?;
    let around = surroundings(&options, &state, &clock)?;
    tell_lost_usage(&around);
    listen_for_xids(&around)?;
    errands::after_link_events(&around).map_err(AgentError::Watch)?;

    // What runs is taken up before the control plane is even looked for.
    let book = WantedBook::open(&state, &around.failpoints)?;
    let workers = Workers::new(Arc::clone(&around));
    workers.recover(book.stored());
    // Only now is it known whose card is whose.
    watch_donors(&around, options.escape_policy).map_err(AgentError::Watch)?;
    if let Some(revision) = book.revision() {
        around.board.desired_journaled(revision);
    }

    let mut terminated = signal(SignalKind::terminate()).map_err(AgentError::Watch)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(AgentError::Watch)?;
    tokio::select! {
        result = serve(&options, &state, &clock, control_plane, around, book, workers) => result,
        _ = terminated.recv() => Ok(()),
        _ = interrupted.recv() => Ok(()),
    }
}

async fn serve(
    options: &Options,
    state: &StateDir,
    clock: &HostClock,
    control_plane: ControlPlane,
    around: Arc<Surroundings>,
    book: WantedBook,
    workers: Arc<Workers>,
) -> Result<(), AgentError> {
    let token = options.join_token.clone();
    let identity = join::identity(state, clock, &control_plane, token, &options.name).await?;
    if options.probe_on_start {
        errands::at_start(&around);
    }
    let (report_seconds, told_seconds) = watch::channel(options.report_seconds);
    let reporter =
        Reporter::new(Arc::clone(&around), ReportNumbers::open(state, clock.boot_id(), clock.now())?);
    tracing::info!(host = %identity.host_id, driver = around.cards.driver_version(), "serving");
    let pulling = sync::pull(
        Arc::clone(&around),
        control_plane.clone(),
        identity.clone(),
        book,
        workers,
        report_seconds,
    );
    let pushing = sync::push(Arc::clone(&around), control_plane, identity, reporter, told_seconds);
    tokio::select! {
        () = pulling => Ok(()),
        panicked = pushing => Err(AgentError::Draft(panicked)),
    }
}

fn surroundings(
    options: &Options,
    state: &StateDir,
    clock: &HostClock,
) -> Result<Arc<Surroundings>, AgentError> {
    let driver_dir =
        options.driver_dir.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    let cards = HostCards::open(driver_dir.as_deref())?;
    let failpoints = Failpoints::new(options.failpoint.clone());
    let allowed = Arc::<Allowed>::default();
    let prober = Prober {
        clock: clock.clone(),
        allowed: Arc::clone(&allowed),
        own_executable: options.own_executable.clone(),
        driver_dir: driver_dir.clone(),
        driver_version: cards.driver_version().to_owned(),
        bytes: options.probe_bytes,
        verify_bytes: VERIFY_BYTES,
        deadline: options.probe_deadline,
    };
    let scrubber = Scrubber {
        own_executable: options.own_executable.clone(),
        driver_dir: driver_dir.clone(),
        allowed: Arc::clone(&allowed),
        deadline: options.scrub_deadline,
    };
    let beside =
        driver_dir.as_ref().and_then(|path| Some(path.parent()?.join("dev"))).filter(|path| path.is_dir());
    let device_dir = options.device_dir.clone().or(beside).unwrap_or_else(|| PathBuf::from("/dev"));
    Ok(Arc::new(Surroundings {
        clock: clock.clone(),
        state: state.clone(),
        health: HealthBook::load(state, &cards.uuids())?.into(),
        cards,
        runtime: Box::new(ProcessRuntime::new(state.root(), &options.own_executable)),
        prober,
        scrubber,
        board: Board::default(),
        card_use: CardUse::default(),
        roster: Roster::default(),
        allowed,
        usage: UsageSpool::open(state, &failpoints)?,
        settings: Settings {
            artefacts: options.artefacts.clone(),
            driver_dir,
            device_dir,
            driver_guard: options.driver_guard,
            drain_ms: options.drain_seconds * 1000,
            usage_interval_ms: options.usage_interval_ms,
            host_tier_max: options.host_tier_max,
        },
        failpoints,
    }))
}

/// What may stay unbilled, said once: of which instances, on whose primary.
fn tell_lost_usage(around: &Arc<Surroundings>) {
    let Some(damage) = around.usage.damage() else { return };
    tracing::error!(?damage, "usage evidence was lost; what runs is claimed again from its start");
    for id in around.state.known_instances() {
        let Ok(Some(record)) = InstanceRecord::load(&around.state, &id) else { continue };
        let consequence = match record.stage {
            Stage::Running { .. } | Stage::Stopping { .. } => "is claimed again from its start",
            Stage::Ended { .. } | Stage::Cleaning { .. } => {
                "had ended: what was not acknowledged of it stays unbilled"
            }
            _ => continue,
        };
        let detail = format!("usage_lost: {damage:?}; {id}, generation {}, {consequence}", record.generation);
        let (uuid, mono_ms) = (record.spec.primary, around.clock.now());
        around.board.event(GpuEvent { uuid, mono_ms, xid: 0, detail, escape: None });
    }
}

fn listen_for_xids(around: &Arc<Surroundings>) -> Result<(), AgentError> {
    let heard = Arc::clone(around);
    events::listen(around.cards.nvml(), around.cards.uuids(), move |uuid, xid| hear(&heard, uuid, xid))
        .map_err(AgentError::Watch)
}

fn hear(around: &Arc<Surroundings>, uuid: &GpuUuid, xid: u32) {
    let now = around.clock.now();
    let consequence = {
        let mut health = around.health.lock().unwrap_or_else(PoisonError::into_inner);
        let consequence = health.xid(uuid, xid, around.clock.boot_id(), now);
        if let Err(error) = health.save(&around.state) {
            tracing::error!(%error, "a card's fault is not on disk");
        }
        consequence
    };
    let detail = format!("xid {xid}: {:?}", crate::xid::action(xid));
    around.board.event(GpuEvent { uuid: uuid.clone(), mono_ms: now, xid, detail, escape: None });
    errands::after_xid(around, uuid, xid);
    if consequence == Consequence::StopInstances {
        around.board.card_fell(uuid, &format!("xid {xid}"));
    }
}
