//! Hints by thread, by environment and by the Python module; residency; blocks that move under their address.

use std::process::Command;

use tarn_protocol::units::Bytes;

use crate::rig::{Rig, Shape, Tenant, until};

fn tells(what: &str) {
    let rig = Rig::new(&Shape::default());
    rig.spawn_program("hinting", "dlopen", &[what], &[]).end();
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
    assert_eq!(rig.log(), "");
}

#[test]
fn a_thread_says_where_its_memory_shall_be_and_asks_where_it_is() {
    tells("hints");
}

#[test]
fn a_block_moves_under_its_address_with_its_bytes() {
    tells("moves");
}

/// Where a block of `bytes` lies: bytes on the primary, on donors.
fn placed(rig: &Rig, bytes: Bytes, env: &[(&str, &str)]) -> (u64, u64) {
    let mut tenant = rig.spawn_program("hinting", "dlopen", &["where", &bytes.to_string()], env);
    tenant.end();
    (tenant.number("local"), tenant.number("donors"))
}

#[test]
fn the_environment_gives_the_defaults_of_a_process() {
    let rig = Rig::new(&Shape::default());
    let gib = Bytes::gib(1);
    assert_eq!(placed(&rig, gib, &[]), (gib.get(), 0));
    assert_eq!(placed(&rig, gib, &[("TARN_PLACEMENT", "cold")]), (0, gib.get()));
    let (local, donors) = placed(&rig, gib, &[("TARN_PLACEMENT", "balanced")]);
    assert!(local > 0 && local + donors == gib.get());
    let (local, donors) = placed(&rig, Bytes::gib(20), &[("TARN_RESERVE_MIB", "8192")]);
    assert!(local < Bytes::gib(16).get() && local + donors == Bytes::gib(20).get(), "{local} {donors}");
    assert_eq!(rig.log(), "");
    assert_eq!(placed(&rig, gib, &[("TARN_PLACEMENT", "mars"), ("TARN_LARGE_MIB", "-3")]), (gib.get(), 0));
    assert_eq!(rig.log().lines().count(), 2, "{}", rig.log());
}

#[test]
fn python_asks_through_one_file() {
    const SCRIPT: &str = "\
import ctypes, tarn_pool
assert tarn_pool.present()
cuda = ctypes.CDLL('libcuda.so.1')
context, at = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
with tarn_pool.placement('cold'):
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 30)) == 0
told = tarn_pool.residency(at.value)
assert told['donor_bytes'] == 1 << 30 and told['hint'] == 'cold' and told['flags'] == ['spilled'], told
assert tarn_pool.blocks() == [at.value]
assert tarn_pool.migrate(at.value, 'hot') == 1 << 30
assert tarn_pool.residency()['local_bytes'] == 1 << 30
try:
    tarn_pool.residency(1)
    raise SystemExit('an unknown address was described')
except tarn_pool.PoolError as refused:
    assert refused.code == 1
print('done=1')
";
    if Command::new("python3").arg("-V").output().is_err() {
        return; // Nothing to ask on this machine; the C program stands for the functions.
    }
    let rig = Rig::new(&Shape::default());
    let python = |lib: std::path::PathBuf, script: &str| {
        let mut python = Command::new("python3");
        python.args(["-B", "-c", script]).env_clear().env("LD_LIBRARY_PATH", lib);
        python.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/python"));
        Tenant::start(python).end();
    };
    python(rig.lib(), SCRIPT);
    python(
        rig.host.lib_dir(),
        "import tarn_pool\nassert not tarn_pool.present()\nwith tarn_pool.placement('hot'): pass\nprint('done=1')",
    );
}
