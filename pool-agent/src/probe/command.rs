//! `tarn-agent probe`: certificates by hand, on a host that need not have joined. Nothing is changed and nothing is kept.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tarn_protocol::hardware::LinkProbe;
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::units::Bytes;

use super::circumstances::Circumstances;
use super::pair::{Occasion, Prober};
use super::schedule::ordered_pairs;
use crate::clock::HostClock;
use crate::nvml::host::{HostCards, NoDriver};

#[derive(Debug, Clone)]
pub struct Request {
    /// Both or none: none is every ordered pair of the host's cards. One card with itself is a trial without a link.
    pub pair: Option<(GpuUuid, GpuUuid)>,
    pub bytes: Bytes,
    pub deadline: Duration,
    pub driver_dir: Option<PathBuf>,
    pub own_executable: PathBuf,
}

/// One probe after the other; each is handed to `told` as it ends.
pub fn run(
    request: &Request,
    clock: &HostClock,
    mut told: impl FnMut(&LinkProbe),
) -> Result<Vec<LinkProbe>, NoDriver> {
    let driver_dir =
        request.driver_dir.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    let cards = HostCards::open(driver_dir.as_deref())?;
    let prober = Prober {
        clock: clock.clone(),
        allowed: Arc::default(),
        own_executable: request.own_executable.clone(),
        driver_dir,
        driver_version: cards.driver_version().to_owned(),
        bytes: request.bytes,
        verify_bytes: request.bytes,
        deadline: request.deadline,
    };
    let uuids = cards.uuids();
    let pairs = match (&request.pair, uuids.as_slice()) {
        (Some(pair), _) => vec![pair.clone()],
        (None, [only]) => vec![(only.clone(), only.clone())],
        (None, all) => ordered_pairs(all),
    };
    let probe = |(from, to): (GpuUuid, GpuUuid)| {
        let probe = prober.probe(&from, &to, Circumstances::of(&cards, &from, &to), Occasion::Operator);
        told(&probe);
        probe
    };
    Ok(pairs.into_iter().map(probe).collect())
}
