//! What an unmodified program sees, takes, verifies and gives back.

use std::process::Command;

use tarn_protocol::units::Bytes;

use crate::rig::{Rig, Shape, Tenant, until};

/// The whole story by one way of finding the driver's functions.
fn story(rig: &Rig, how: &str) {
    let mut tenant: Tenant = rig.spawn(how, &["everything"]);
    tenant.read_until("waiting");
    let total = rig.config.total_bytes().get();
    assert_eq!(tenant.number("devices"), 1, "{how}");
    assert_eq!(tenant.number("total"), total, "{how}");
    assert_eq!(tenant.number("info_total"), total, "{how}");
    assert!(total >= Bytes::gib(95).get());
    let uuid = rig.config.primary.uuid.to_bytes().map(|byte| format!("{byte:02x}")).concat();
    assert_eq!(tenant.facts["uuid"], uuid, "{how}: identity is the primary's");
    let (free, taken) = (tenant.number("free"), tenant.number("taken"));
    assert!(taken * 100 >= free * 99, "{how}: {taken} of {free} could be taken");
    assert_eq!(tenant.number("bad"), 0, "{how}");
    for &card in &rig.cards {
        assert!(rig.used(card) > Bytes::gib(23).get(), "{how}: card {card} holds {}", rig.used(card));
    }
    tenant.say("go on");
    tenant.end();
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn a_program_takes_all_four_cards_as_one_and_gives_them_back() {
    let rig = Rig::new(&Shape::default());
    story(&rig, "linked");
    assert_eq!(rig.log(), "", "nothing to complain about");
}

#[test]
fn v13_every_way_to_load_the_driver_meets_the_stand_in() {
    let rig = Rig::new(&Shape::default());
    for how in ["dlopen", "deepbind", "next", "dlmopen", "procaddress"] {
        story(&rig, how);
    }
    story(&rig, rig.lib().join("libcuda.so.1").to_str().unwrap());
    assert_eq!(rig.log(), "");
}

#[test]
fn a_rust_program_fills_and_verifies_the_pool() {
    let rig = Rig::new(&Shape::default());
    let mut witness = Command::new(crate::rig::artefact("tarn-witness"));
    witness.arg("--json").env_clear().env("LD_LIBRARY_PATH", rig.lib());
    let output = witness.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["devices"], 1, "{report}");
    assert_eq!(report["total_bytes"], rig.config.total_bytes().get(), "{report}");
    assert!(report["allocated_bytes"].as_u64().unwrap() > Bytes::gib(90).get(), "{report}");
    assert!(report["granules"].as_u64().unwrap() > 45_000 && report["mismatches"] == 0, "{report}");
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn v13_python_ctypes_meets_the_stand_in() {
    const SCRIPT: &str = "\
import ctypes
cuda = ctypes.CDLL('libcuda.so.1')
assert cuda.cuInit(0) == 0
count, total = ctypes.c_int(), ctypes.c_size_t()
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
assert cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == 0
print('devices=%d' % count.value)
print('total=%d' % total.value)
print('done=1')
";
    let rig = Rig::new(&Shape::default());
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT]).env_clear().env("LD_LIBRARY_PATH", rig.lib());
    if Command::new("python3").arg("-V").output().is_err() {
        // Nothing to ask on this machine; the C ways above stand for the loader.
        return;
    }
    let mut tenant = Tenant::start(python);
    tenant.end();
    assert_eq!((tenant.number("devices"), tenant.number("total")), (1, rig.config.total_bytes().get()));
}

/// What a tenant's own `CUDA_VISIBLE_DEVICES` gives.
fn visible(rig: &Rig, value: &str, devices: Option<u64>) {
    let mut tenant = rig.spawn_with("dlopen", &["see"], &[("CUDA_VISIBLE_DEVICES", value)]);
    tenant.end();
    match devices {
        Some(count) => {
            assert_eq!((tenant.number("result"), tenant.number("devices")), (0, count), "{value}");
            assert_eq!(tenant.number("total"), rig.config.total_bytes().get(), "{value}");
        }
        None => assert_eq!(tenant.number("result"), 100, "{value}"),
    }
}

#[test]
fn donors_stay_hidden_whatever_the_tenant_asks_for() {
    let rig = Rig::new(&Shape::default());
    visible(&rig, "0", Some(1));
    visible(&rig, "0,1,2,3", Some(1));
    visible(&rig, rig.config.primary.uuid.as_str(), Some(1));
    visible(&rig, rig.config.donors[0].uuid.as_str(), None);
    visible(&rig, "1", None);
    visible(&rig, "-1", None);
    visible(&rig, "", None);
}

#[test]
fn every_placement_policy_carries_the_whole_story() {
    use tarn_protocol::pool_config::Placement::{Balanced, Interleave, LocalFirst};
    for (placement, granule) in [(LocalFirst, 2), (Interleave, 256), (Balanced, 2)] {
        let shape =
            Shape { donor_bytes: Bytes::mib(24_320), ..Shape::placed(placement, Bytes::mib(granule)) };
        let rig = Rig::new(&shape);
        if placement == Interleave {
            let mut tenant = rig.spawn("dlopen", &["hold", &Bytes::gib(8).get().to_string()]);
            tenant.read_until("waiting");
            let leased = rig.observer().donors().into_iter().map(|donor| donor.leased_bytes);
            assert_eq!(leased.collect::<Vec<_>>(), [Bytes::gib(2).get(); 3], "a quarter on each card");
        }
        until("the holder is gone", || rig.donors_used() == 0);
        story(&rig, "dlopen");
    }
}

fn tells(what: &str) {
    let rig = Rig::new(&Shape::default());
    let mut tenant = rig.spawn("linked", &[what]);
    tenant.end();
    assert_eq!(tenant.number(what), 1);
    drop(tenant);
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn a_stitched_block_speaks_as_one_and_copies_across_its_seams() {
    tells("pointer");
}

#[test]
fn m9_stream_ordered_allocations_spill_and_are_freed_in_order() {
    tells("async");
}

#[test]
fn a_context_reset_takes_spilled_blocks_with_it() {
    tells("reset");
}

fn handles(shape: &Shape, rdma: u64) {
    let rig = Rig::new(shape);
    let mut tenant = rig.spawn("linked", &["vmm"]);
    tenant.read_until("waiting");
    assert_eq!(tenant.number("rdma"), rdma);
    assert!(rig.donors_used() >= Bytes::gib(16).get());
    let held = rig.observer().processes();
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].local_bytes + held[0].donor_bytes, Bytes::gib(40).get());
    tenant.say("go on");
    tenant.end();
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn v1_handles_are_made_by_threads_without_a_context_and_live_as_long_as_their_mappings() {
    handles(&Shape::default(), 0);
}

#[test]
fn handles_within_reach_of_network_cards_spill_to_donors_that_offer_it() {
    let cap_bytes = Some(Bytes::gib(24));
    handles(&Shape { preset: "h200-x2", donors: vec![1], cap_bytes, ..Shape::default() }, 1);
}

/// The pool of the hardware suite: one card that is primary and donors.
#[test]
fn a_trial_on_one_card_carries_the_whole_story() {
    let cap_bytes = Some(Bytes::gib(24));
    let shape = Shape { preset: "h200-x2", donors: vec![0, 0, 0], cap_bytes, ..Shape::default() };
    story(&Rig::new(&shape), "linked");
}

#[test]
fn the_cap_holds_over_all_processes_and_families() {
    let shape = Shape { donors: vec![], cap_bytes: Some(Bytes::gib(6)), ..Shape::default() };
    let rig = Rig::new(&shape);
    let half = Bytes::gib(4).get().to_string();
    let mut first = rig.spawn("dlopen", &["hold", &half]);
    first.read_until("waiting");
    assert_eq!(first.number("free"), Bytes::gib(2).get());
    let mut second = rig.spawn("dlopen", &["everything"]);
    second.read_until("waiting");
    assert_eq!(second.number("total"), Bytes::gib(6).get());
    assert_eq!(second.number("taken"), Bytes::gib(2).get());
    first.kill();
    second.say("go on");
}

/// Every line of the story, run with the driver found in `lib`.
fn answers(lib: &std::path::Path) -> Vec<String> {
    let mut command = Command::new(crate::rig::tenant(false));
    command
        .args(["dlopen", "nulls"])
        .env_clear()
        .env("LD_LIBRARY_PATH", lib)
        .env("CUDA_VISIBLE_DEVICES", "0");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "ended with {} after:\n{text}", output.status);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn m7_null_and_invalid_parameters_get_the_drivers_own_answer() {
    let rig = Rig::new(&Shape::default());
    let (ours, drivers) = (answers(&rig.lib()), answers(&rig.host.lib_dir()));
    assert!(ours.len() > 3 * 60, "{} cases", ours.len());
    // What this driver does not export at all is "not found" here.
    let expected = drivers.iter().map(|line| line.replace("=absent", "=500"));
    let differing: Vec<_> = ours.iter().zip(expected).filter(|(ours, driver)| *ours != driver).collect();
    assert!(differing.is_empty() && ours.len() == drivers.len(), "ours, driver's: {differing:#?}");
    for symbol in exported() {
        assert!(ours.iter().any(|line| line.split(' ').next() == Some(&symbol)), "{symbol} is not asked");
    }
}

/// What the stand-in exports: everything that it intercepts.
fn exported() -> Vec<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(crate::rig::artefact("libtarn_standin_cuda.so"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<String> = text.lines().filter(|name| name.starts_with("cu")).map(str::to_owned).collect();
    assert!(names.len() > 40, "{names:?}");
    names
}

/// What the resolver of the library in `lib` says of every form in the headers.
fn resolutions(lib: &std::path::Path) -> Vec<String> {
    let forms = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/data/driver_forms.tsv")).unwrap();
    let mut command = Command::new(crate::rig::tenant(false));
    command.args(["dlopen", "symbols"]).arg(lib.join("libcuda.so.1")).stdin(forms);
    let output = command.env_clear().env("LD_LIBRARY_PATH", lib).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn v11_the_resolver_substitutes_every_hooked_form_and_no_other() {
    let rig = Rig::new(&Shape::default());
    let ours = resolutions(&rig.lib());
    let drivers = resolutions(&rig.host.lib_dir());
    assert!(ours.len() > 600 && ours.len() == drivers.len());
    let verdicts = include_str!("../../data/verdicts.tsv");
    let hooked = |name: &str| {
        verdicts.lines().any(|line| line.split('\t').take(2).collect::<Vec<_>>() == [name, "hooked"])
    };
    for (our, driver) in ours.iter().zip(&drivers).filter(|(our, _)| our.contains(" result ")) {
        let (our_answer, our_owner) = our.rsplit_once(' ').unwrap();
        let (driver_answer, _) = driver.rsplit_once(' ').unwrap();
        assert_eq!(our_answer, driver_answer, "result and status are the driver's");
        let found = driver_answer.ends_with(" status 0");
        let expected = if !found {
            "none"
        } else if hooked(our.split(' ').next().unwrap()) {
            "standin"
        } else {
            "driver"
        };
        assert_eq!(our_owner, expected, "{our}");
    }
    assert_eq!(rig.log(), "", "no form is new to the table");
}

/// A driver newer than the table: its new form of a covered call is passed on and told in the log, and everything else is as it was.
#[test]
fn a_newer_form_of_a_call_is_passed_on_and_told() {
    const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
static int newer(void) { return 0; }
int cuGetProcAddress_v2(const char *name, void **at, int version, unsigned long long flags, int *status) {
  if (name && at && version >= 15000 && !strcmp(name, "cuMemAlloc")) { *at = (void *)newer; if (status) *status = 0; return 0; }
  int (*next)(const char *, void **, int, unsigned long long, int *) = dlsym(RTLD_NEXT, "cuGetProcAddress_v2");
  return next(name, at, version, flags, status);
}
"#;
    let rig = Rig::new(&Shape::default());
    let (source, real) = (rig.instance.join("newer.c"), rig.lib().join("libcuda-real.so.1"));
    std::fs::write(&source, SHIM).unwrap();
    std::fs::remove_file(&real).unwrap();
    // Linked against a name of its own, since the driver's is the stand-in's too; at run time the simulated driver lies there.
    let inner = rig.lib().join("libinner.so");
    let compile = |arguments: &[&std::ffi::OsStr]| {
        let mut cc = Command::new("cc");
        assert!(
            cc.args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"])
                .args(arguments)
                .status()
                .unwrap()
                .success()
        );
    };
    compile(&[inner.as_ref(), "-Wl,-soname,libinner.so".as_ref()]);
    compile(&[real.as_ref(), source.as_ref(), inner.as_ref()]);
    std::fs::remove_file(&inner).unwrap();
    std::os::unix::fs::symlink(rig.host.lib_dir().join("libcuda.so.1"), &inner).unwrap();
    let forms = rig.instance.join("forms");
    std::fs::write(&forms, "cuMemAlloc 15000 plain\ncuMemAlloc 3020 plain\ncuMemAlloc 15000 plain\n")
        .unwrap();
    let mut asks = Command::new(crate::rig::tenant(false));
    asks.args(["dlopen", "symbols"]).arg(rig.lib().join("libcuda.so.1")).env_clear();
    asks.env("LD_LIBRARY_PATH", rig.lib()).stdin(std::fs::File::open(&forms).unwrap());
    let output = asks.output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let owners: Vec<&str> = told
        .lines()
        .filter(|line| line.contains(" result 0 "))
        .filter_map(|line| line.rsplit(' ').next())
        .collect();
    assert_eq!(owners, ["driver", "standin", "driver"], "{told}");
    let log = rig.log();
    assert_eq!(log.matches("degraded: this driver has a newer form of cuMemAlloc").count(), 2, "{log}");
    let mut tenant = rig.spawn("dlopen", &["see"]);
    tenant.end();
    assert_eq!(tenant.number("total"), rig.config.total_bytes().get());
}
