//! One probe of one ordered pair, from outside: starts the two processes, waits no longer than the deadline, and reads what they
//! say. Nothing that they do can reach the agent.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tarn_protocol::hardware::{
    AtomicTrial, LinkClass, LinkEvidence, LinkLimit, LinkProbe, LinkRates, ProbeOutcome,
};
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::units::Bytes;

use super::circumstances::Circumstances;
use super::words::{Measured, Verdict};
use super::{advice, atomics, grade};
use crate::clock::HostClock;
use crate::donor_guard::allowed::Allowed;

const POLL: Duration = Duration::from_millis(5);
/// A card that still cleans up after the last probe or tenant gets this many tries.
const TRIES: u32 = 2;

#[derive(Debug, Clone)]
pub struct Prober {
    pub clock: HostClock,
    /// Told of the two processes before they touch a card.
    pub allowed: Arc<Allowed>,
    pub own_executable: PathBuf,
    /// Where the driver's libraries are; `None` leaves it to the loader.
    pub driver_dir: Option<PathBuf>,
    pub driver_version: String,
    /// Memory with which a certificate is made, and with which a link is looked at again before a pool starts.
    pub bytes: Bytes,
    pub verify_bytes: Bytes,
    pub deadline: Duration,
}

/// What a probe shows: figures and sums, or a reason code and what was found.
type Proof = Result<(Measured, Vec<AtomicTrial>), (String, String)>;

/// Why a certificate is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// The agent started: after a reboot, a new driver, a repair.
    Start,
    /// A pool is about to use the link.
    Provision,
    /// The control plane wants it again.
    Order,
    Xid,
    /// The number of active NVLinks changed.
    LinkEvent,
    /// A pool that had a card when its links came into doubt has ended.
    Released,
    /// By hand.
    Operator,
}

impl Occasion {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Provision => "provision",
            Self::Order => "order",
            Self::Xid => "xid",
            Self::LinkEvent => "link_event",
            Self::Released => "released",
            Self::Operator => "operator",
        }
    }
}

/// The two processes' names on the command line.
const EXPORTER: &str = "exporter";
const IMPORTER: &str = "importer";

impl Prober {
    /// The quick look before a pool starts.
    pub fn verify(&self, from: &GpuUuid, to: &GpuUuid, circumstances: Circumstances) -> LinkProbe {
        let quick = Self { bytes: self.verify_bytes, ..self.clone() };
        quick.probe(from, to, circumstances, Occasion::Provision)
    }

    /// Probes `from → to`. Always returns: what went wrong is in the outcome.
    pub fn probe(
        &self,
        from: &GpuUuid,
        to: &GpuUuid,
        circumstances: Circumstances,
        occasion: Occasion,
    ) -> LinkProbe {
        let proof = match circumstances.forbid() {
            Some((code, found)) => Err((code.to_owned(), found)),
            None => self.proof(from, to, circumstances.class),
        };
        let (mut measured, mut trials, mut limits) = (Measured::default(), Vec::new(), Vec::new());
        let (class, grade, outcome) = match proof {
            Ok(proof) => {
                let judged = grade::judge(&proof.0, &proof.1, &circumstances);
                (measured, trials) = proof;
                limits = judged.limits;
                let atomics_native = atomics::native(&trials) && measured.atomics_fault.is_none();
                (judged.class, judged.grade, ProbeOutcome::Passed { atomics_native })
            }
            Err((reason, found)) => {
                let (class, grade) = grade::failed();
                let detail = advice::told(&reason, &found);
                limits.push(LinkLimit { code: reason.clone(), detail: detail.clone() });
                (class, grade, ProbeOutcome::Failed { reason, detail })
            }
        };
        LinkProbe {
            from: from.clone(),
            to: to.clone(),
            class,
            grade,
            outcome,
            read_mb_per_second: measured.read_mb_per_second,
            write_mb_per_second: measured.write_mb_per_second,
            latency_nanos: measured.latency_nanos,
            driver_version: self.driver_version.clone(),
            iommu: circumstances
                .iommu_translating
                .map(|on| if on { "translating" } else { "off" }.to_owned()),
            bytes_tested: Bytes::new(measured.bytes_tested),
            evidence: Some(LinkEvidence {
                mono_ms: Some(self.clock.now()),
                occasion: occasion.as_str().to_owned(),
                kernel_module: circumstances.module.map(|module| module.as_str().to_owned()),
                bar1_bytes: circumstances.bar1_bytes,
                memory_bytes: circumstances.memory_bytes,
                acs_redirect: circumstances.acs_redirect,
                display_active: circumstances.display_active,
                mig_enabled: circumstances.mig_enabled,
                nominal_mb_per_second: circumstances.nominal_mb_per_second,
                rates: LinkRates {
                    loaded_read_mb_per_second: measured.loaded_read_mb_per_second,
                    loaded_write_mb_per_second: measured.loaded_write_mb_per_second,
                    copy_out_mb_per_second: measured.copy_out_mb_per_second,
                    copy_in_mb_per_second: measured.copy_in_mb_per_second,
                },
                atomics: trials,
                limits,
            }),
        }
    }

    /// Tries until there is a proof or a refusal that is none of the probe's own doing.
    fn proof(&self, from: &GpuUuid, to: &GpuUuid, hint: LinkClass) -> Proof {
        let mut proof = self.once(from, to, hint);
        for _ in 1..TRIES {
            // Only a doubt about the probe itself is tried again; data that was wrong once is wrong.
            if !matches!(&proof, Err((reason, _)) if reason == "probe_error") {
                break;
            }
            proof = self.once(from, to, hint);
        }
        proof
    }

    fn once(&self, from: &GpuUuid, to: &GpuUuid, hint: LinkClass) -> Proof {
        let (mut exporter, mut importer) = self
            .start(from, to)
            .map_err(|error| ("probe_error".to_owned(), format!("cannot start the probe: {error}")))?;
        let in_time = wait(&mut [&mut exporter, &mut importer], self.deadline);
        let (owner, user) = (last_word(&mut exporter, in_time), last_word(&mut importer, in_time));
        match (owner, user) {
            (Some(Verdict::Intact { sums }), Some(Verdict::Measured(measured))) => {
                let trials = atomics::trials(&sums, &measured.atomics_nanos)
                    .map_err(|error| (error.reason().to_owned(), error.to_string()))?;
                Ok((measured, trials))
            }
            (owner, user) => {
                let (reason, detail) = blame(owner, user, in_time);
                // Refused access where nobody ever promised a link is not a fault.
                let unpromised = reason == "p2p_enable_failed" && hint == LinkClass::None;
                Err((if unpromised { "no_p2p".to_owned() } else { reason }, detail))
            }
        }
    }

    fn start(&self, from: &GpuUuid, to: &GpuUuid) -> std::io::Result<(Child, Child)> {
        let (left, right) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut exporter = self.spawn(EXPORTER, to, left)?;
        match self.spawn(IMPORTER, from, right) {
            Ok(importer) => Ok((exporter, importer)),
            Err(error) => {
                let _gone = exporter.kill();
                let _reaped = exporter.wait();
                Err(error)
            }
        }
    }

    fn spawn(&self, role: &str, card: &GpuUuid, socket: OwnedFd) -> std::io::Result<Child> {
        let mut command = Command::new(&self.own_executable);
        command.args(["probe-link", "--role", role, "--card", card.as_str()]);
        command.args(["--bytes", &self.bytes.to_string()]);
        command.env_clear().env("CUDA_VISIBLE_DEVICES", card.as_str());
        if let Some(directory) = &self.driver_dir {
            command.env("LD_LIBRARY_PATH", directory);
        }
        let child =
            command.stdin(Stdio::from(socket)).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        self.allowed.admit(child.id());
        Ok(child)
    }
}

/// Waits for all; kills those that are late. False when one was.
fn wait(children: &mut [&mut Child], deadline: Duration) -> bool {
    let mut waited = Duration::ZERO;
    loop {
        let done = children.iter_mut().all(|child| !matches!(child.try_wait(), Ok(None)));
        if done {
            return true;
        }
        if waited >= deadline {
            for child in children.iter_mut() {
                let _gone = child.kill();
                let _reaped = child.wait();
            }
            return false;
        }
        std::thread::sleep(POLL);
        waited += POLL;
    }
}

/// The JSON line of a process that ended; `None` for one that crashed or was killed.
fn last_word(child: &mut Child, in_time: bool) -> Option<Verdict> {
    if !in_time {
        return None;
    }
    let mut text = String::new();
    // The process is dead, so this does not wait; it wrote less than a pipe holds.
    child.stdout.take()?.read_to_string(&mut text).ok()?;
    serde_json::from_str(text.lines().last()?).ok()
}

/// The reason to give: a mismatch explains everything, a gone peer explains nothing.
fn blame(owner: Option<Verdict>, user: Option<Verdict>, in_time: bool) -> (String, String) {
    if !in_time {
        return ("probe_timeout".to_owned(), "the probe did not end within its deadline".to_owned());
    }
    let crashed = owner.is_none() || user.is_none();
    let mut failures: Vec<(String, String)> = [owner, user]
        .into_iter()
        .flatten()
        .filter_map(|verdict| match verdict {
            Verdict::Failed { reason, detail } => Some((reason, detail)),
            Verdict::Measured(_) | Verdict::Intact { .. } => None,
        })
        .collect();
    failures.sort_by_key(|(reason, _)| match reason.as_str() {
        "p2p_data_mismatch" => 0,
        "p2p_enable_failed" => 1,
        "probe_error" => 2,
        _ => 3,
    });
    match failures.into_iter().next() {
        Some((reason, detail)) if !crashed || reason != "probe_crashed" => (reason, detail),
        _ => ("probe_crashed".to_owned(), "a process of the probe ended without a word".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::circumstances::tests::NVLINK;
    use super::*;

    fn failure(reason: &str) -> Verdict {
        Verdict::Failed { reason: reason.to_owned(), detail: String::new() }
    }

    #[test]
    fn the_reason_given_is_the_one_that_explains_the_others() {
        let measured = || Some(Verdict::Measured(Measured::default()));
        assert_eq!(blame(Some(failure("p2p_data_mismatch")), measured(), true).0, "p2p_data_mismatch");
        assert_eq!(
            blame(Some(failure("probe_crashed")), Some(failure("p2p_enable_failed")), true).0,
            "p2p_enable_failed"
        );
        assert_eq!(blame(Some(failure("probe_crashed")), None, true).0, "probe_crashed");
        assert_eq!(blame(None, None, false).0, "probe_timeout");
    }

    #[test]
    fn p3_a_probe_that_crashes_is_only_a_failed_probe() {
        let prober = Prober {
            clock: HostClock::open(None).unwrap(),
            allowed: Arc::default(),
            own_executable: PathBuf::from("/bin/false"),
            driver_dir: None,
            driver_version: String::new(),
            bytes: Bytes::mib(2),
            verify_bytes: Bytes::mib(2),
            deadline: Duration::from_secs(5),
        };
        let (from, to) = (GpuUuid::from_bytes([1; 16]), GpuUuid::from_bytes([2; 16]));
        let reason = |circumstances| {
            let probe = prober.probe(&from, &to, circumstances, Occasion::Operator);
            assert_eq!((probe.class, probe.grade), (LinkClass::None, tarn_protocol::hardware::LinkGrade::D));
            match probe.outcome {
                ProbeOutcome::Failed { reason, .. } => reason,
                ProbeOutcome::Passed { .. } => "passed".to_owned(),
            }
        };
        assert_eq!(reason(NVLINK), "probe_crashed");
        // What forbids a pool is not even tried.
        assert_eq!(reason(Circumstances { mig_enabled: true, ..NVLINK }), "mig_member");
    }
}
