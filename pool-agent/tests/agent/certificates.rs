//! Certificates: every way in which a link has been seen to fail, on the simulated driver, refuses the pool and says what to do.

use std::path::{Path, PathBuf};
use std::process::Command;

use tarn_protocol::control::{FailReason, Phase};
use tarn_protocol::hardware::{LinkGrade, LinkProbe, ProbeOutcome};
use tarn_sim::{Fault, Host};

use crate::control_plane::eventually;
use crate::host::{TestHost, artefact, artefacts};

/// A simulated host on which pairs are probed by hand.
struct Rack {
    host: Host,
    _directory: tempfile::TempDir,
}

impl Rack {
    fn new(preset: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("tarn").tempdir().unwrap();
        let host = Host::create(&directory.path().join("host"), preset, 7, &artefacts()).unwrap();
        Self { host, _directory: directory }
    }

    /// A shipped host with something about its cards or itself changed.
    fn changed(preset: &str, from: &str, to: &str) -> Self {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("sim/presets/{preset}.toml"));
        let text = std::fs::read_to_string(shipped).unwrap();
        assert!(text.contains(from), "{from} in {preset}");
        let directory = tempfile::tempdir().unwrap();
        let path: PathBuf = directory.path().join("changed.toml");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        Self::new(path.to_str().unwrap())
    }

    fn probe(&self, from: usize, to: usize, deadline_seconds: u32) -> LinkProbe {
        let card = |index: usize| self.host.gpus()[index].uuid.clone();
        let output = Command::new(artefact("tarn-agent"))
            .args(["probe", "--bytes", "2097152", "--from", &card(from), "--to", &card(to)])
            .args(["--deadline-seconds", &deadline_seconds.to_string()])
            .arg("--driver-dir")
            .arg(self.host.lib_dir())
            .output()
            .unwrap();
        let document: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        let certificates: Vec<LinkProbe> = serde_json::from_value(document["certificates"].clone()).unwrap();
        let [certificate] = certificates.try_into().unwrap();
        let failed = matches!(certificate.outcome, ProbeOutcome::Failed { .. });
        assert_eq!(output.status.success(), !failed, "the exit status is the verdict");
        let used = |uuid: &str| self.host.used_bytes(uuid).unwrap().unwrap();
        assert_eq!((used(&card(from)), used(&card(to))), (0, 0), "a probe leaves nothing behind");
        certificate
    }

    /// `reason` is the failed probe's, or the first limit of one that passed.
    fn check(&self, what: &str, (from, to): (usize, usize), grade: LinkGrade, reason: &str) -> String {
        let probe = self.probe(from, to, 60);
        assert_eq!(probe.grade, grade, "{what}: {probe:?}");
        let evidence = probe.evidence.unwrap();
        let limit = evidence.limits.first();
        assert_eq!(limit.map_or("", |limit| &limit.code), reason, "{what}");
        if let ProbeOutcome::Failed { reason: told, detail } = &probe.outcome {
            assert_eq!(told, reason, "{what}");
            assert!(detail.contains("; "), "{what}: {detail} does not say what to do");
        }
        limit.map_or_else(String::new, |limit| limit.detail.clone())
    }
}

const PAIR: (usize, usize) = (0, 1);
/// The same switch, no bridge.
const OVER_PCIE: (usize, usize) = (0, 2);

#[test]
fn every_fault_of_a_link_is_found_and_named() {
    use LinkGrade::{A, C, D};
    let rack = Rack::new("rtx4090-x8-seed");
    let (from, to) = PAIR;
    rack.check("sound", PAIR, A, "");
    for (what, fault, grade, reason, said) in [
        ("writes vanish", Fault::P2pWritesVanish { from, to }, D, "p2p_data_mismatch", "iommu=pt"),
        ("wrong half", Fault::UpperHalfVanishes { from, to }, D, "p2p_data_mismatch", "word 49"),
        ("wrong under load", Fault::VanishUnderLoad { from, to }, D, "p2p_data_mismatch", "busy"),
        ("not granted", Fault::P2pEnableFails { from, to }, D, "p2p_enable_failed", "topo -p2p"),
        ("crash", Fault::KernelsCrash { from, to }, D, "probe_crashed", "kernel log"),
        ("no atomics", Fault::AtomicsMissing { from, to }, C, "atomics_missing", "add_u32 98304 of 131072"),
        ("slow", Fault::LinkDegrade { from, to, percent: 50 }, C, "nvlink_slow", "of 56248 MB/s"),
    ] {
        rack.host.fault(fault).unwrap();
        let detail = rack.check(what, PAIR, grade, reason);
        assert!(detail.contains(said), "{what}: {detail}");
        rack.host.fault(Fault::Clear).unwrap();
    }
    rack.check("sound again", PAIR, A, "");
}

#[test]
fn a_probe_that_hangs_is_ended_at_its_deadline() {
    let rack = Rack::new("rtx4090-x8-seed");
    rack.host.fault(Fault::KernelsHang { from: 0, to: 1 }).unwrap();
    let probe = rack.probe(0, 1, 3);
    assert!(
        matches!(&probe.outcome, ProbeOutcome::Failed { reason, .. } if reason == "probe_timeout"),
        "{probe:?}"
    );
    assert_eq!(probe.grade, LinkGrade::D);
}

#[test]
fn p1_p3_p4_hosts_that_are_no_pools_say_why() {
    use LinkGrade::{A, B, D};
    let seed = "rtx4090-x8-seed";
    let mig = Rack::changed("h200-x2", "[card]\n", "[card]\nmig_enabled = true\n");
    mig.check("MIG", PAIR, D, "mig_member");
    let display = Rack::changed(seed, "[card]\n", "[card]\ndisplay_active = true\n");
    display.check("display", OVER_PCIE, D, "display_active");
    let window = Rack::changed(seed, "bar1_mib = 32768", "bar1_mib = 16384");
    let detail = window.check("BAR1", OVER_PCIE, D, "bar1_too_small");
    assert!(detail.contains("16384 MiB of the card's 24564 MiB"), "{detail}");
    window.check("NVLink needs no BAR1", PAIR, A, "");
    let translating = Rack::changed(seed, "iommu_translating = false", "iommu_translating = true");
    translating.check("IOMMU", OVER_PCIE, D, "p2p_data_mismatch");
    Rack::new("rtx4090-x8-stock").check("stock 4090", PAIR, D, "no_p2p");
    let bridged = Rack::new("rtx3090-x8-bridged");
    bridged.check("a bridged pair", PAIR, A, "");
    bridged.check("two pairs", (1, 2), D, "no_p2p");
    let sound = Rack::new(seed);
    sound.check("one switch", OVER_PCIE, B, "atomics_missing");
    sound.check("two switches", (0, 5), D, "no_p2p");
    sound.check("a card with itself", (3, 3), D, "same_card");
}

#[test]
fn a_certificate_says_what_it_rests_on() {
    let probe = Rack::new("rtx4090-x8-seed").probe(0, 2, 60);
    assert!((20_000..25_000).contains(&probe.read_mb_per_second), "{probe:?}");
    assert!(probe.latency_nanos >= 2000 && probe.bytes_tested.get() == 2 << 20);
    assert_eq!(probe.driver_version, "570.133.20");
    let evidence = probe.evidence.unwrap();
    assert_eq!(evidence.kernel_module.as_deref(), Some("patched"));
    assert_eq!((evidence.bar1_bytes.get() >> 20, evidence.memory_bytes.get() >> 20), (32768, 24564));
    assert_eq!(evidence.occasion, "operator");
    assert!(evidence.mono_ms.is_some() && evidence.acs_redirect.is_none());
    let kinds: Vec<&str> = evidence.atomics.iter().map(|trial| trial.kind.as_str()).collect();
    assert_eq!(kinds, ["add_u32", "add_f32", "cas_u32", "red_u64"]);
    assert!(evidence.atomics.iter().all(|trial| trial.found < trial.expected && trial.per_second > 0));
    let rates = &evidence.rates;
    for rate in [rates.copy_in_mb_per_second, rates.copy_out_mb_per_second] {
        assert!((20_000..25_000).contains(&rate), "{rates:?}");
    }
    assert!(rates.loaded_read_mb_per_second > 0 && rates.loaded_write_mb_per_second > 0);
}

#[test]
fn p10_links_that_are_no_pool_end_a_start_with_the_reason_and_no_bill() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let (from, to) = PAIR;
    for (fault, reason, said) in [
        (Fault::AtomicsMissing { from, to }, FailReason::PoolVerifyFailed, "atomics_missing"),
        (Fault::LinkDegrade { from, to, percent: 75 }, FailReason::PoolVerifyFailed, "nvlink_slow"),
        (Fault::UpperHalfVanishes { from, to }, FailReason::P2pDataMismatch, "p2p_data_mismatch"),
    ] {
        host.sim.fault(fault).unwrap();
        let instance = host.instance(&[0, 1], &["/bin/sleep", "1000"]);
        host.control_plane.want(&instance);
        let id = &instance.instance_id;
        let phase = host.await_phase(id, "never failed", |phase| matches!(phase, Phase::Failed { .. }));
        let Phase::Failed { reason: found, detail, .. } = &phase else { unreachable!() };
        assert_eq!((found, detail.contains(said)), (&reason, true), "{detail}");
        host.control_plane.with(|ledger| assert!(ledger.usage.is_empty()));
        host.remove(&instance);
        host.sim.fault(Fault::Clear).unwrap();
    }
}

#[test]
fn certificates_are_made_again_after_an_xid_a_link_event_and_the_pool_that_was_in_the_way() {
    let mut host = TestHost::new("rtx3090-x8-bridged");
    host.start_agent(None);
    let instance = host.instance(&[0, 1], &["/bin/sleep", "1000"]);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    let made = |what: &str, occasion: &str, (from, to): (usize, usize)| {
        let (from, to) = (host.card(from), host.card(to));
        eventually(what, || {
            host.control_plane.with(|ledger| {
                let mut found = ledger.probes.iter().filter(|probe| probe.from == from && probe.to == to);
                found.find(|probe| probe.evidence.as_ref().unwrap().occasion == occasion).cloned()
            })
        })
    };
    made("no look before the start", "provision", (0, 1));
    // An application's own Xid puts no link in doubt, one of the link does: but a pool has these two.
    host.sim.fault(Fault::Xid { gpu: 0, code: 31 }).unwrap();
    host.sim.fault(Fault::Xid { gpu: 0, code: 74 }).unwrap();
    host.sim.fault(Fault::Xid { gpu: 2, code: 74 }).unwrap();
    made("no probe after an Xid", "xid", (2, 3));
    host.sim.fault(Fault::LinkLost { from: 4, to: 5 }).unwrap();
    let lost = made("no probe after a link event", "link_event", (4, 5));
    assert!(matches!(lost.outcome, ProbeOutcome::Failed { .. }), "{lost:?}");
    host.control_plane.with(|ledger| {
        assert!(ledger.events.iter().any(|event| event.detail.starts_with("nvlink_changed: 4 active")));
        let (first, second) = (host.card(0), host.card(1));
        let disturbing = ledger.probes.iter().filter(|probe| probe.from == first && probe.to == second);
        assert_eq!(disturbing.count(), 1, "a running pool is not disturbed");
    });
    host.remove(&instance);
    made("no probe once the pool has gone", "released", (0, 1));
}
