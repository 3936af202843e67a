//! The process itself, on the simulated driver.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tarn_protocol::broker_wire::{Op, Request};
use tarn_protocol::pool_config::PoolConfig;
use tarn_sim::Host;

use crate::bench_of_clients::{Client, config};

fn artefacts() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned()
}

#[test]
fn the_process_says_ready_opens_no_context_and_ends_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::create(&dir.path().join("host"), "rtx4090-x8-seed", 1, &artefacts())
        .expect("run `make build` first");
    let mut pool: PoolConfig = config(1, 1024);
    pool.primary.uuid = host.gpus()[0].uuid.parse().unwrap();
    pool.donors[0].uuid = host.gpus()[1].uuid.parse().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("pool.json"), serde_json::to_vec(&pool).unwrap()).unwrap();
    let mut broker = Command::new(env!("CARGO_BIN_EXE_tarn-broker"))
        .arg("--config")
        .arg(at("pool.json"))
        .arg("--socket")
        .arg(at("broker.sock"))
        .arg("--state")
        .arg(at("ledger.json"))
        .arg("--nvml")
        .arg(host.lib_dir().join("libnvidia-ml.so.1"))
        .env_clear()
        .env("LD_LIBRARY_PATH", host.lib_dir())
        .env("RUST_LOG", "warn")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(broker.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");

    let used = || host.used_bytes(&host.gpus()[1].uuid).unwrap().unwrap();
    assert_eq!(used(), 0, "nothing is allocated up front");
    let client = Client::hello(&at("broker.sock"), 1);
    let (reply, chunk) =
        client.ask(Request { bytes: 64 << 20, exact: 1, ..Request::new(Op::Lease) }).unwrap();
    assert!(reply.ok() && chunk.len() == 1);
    assert_eq!(used(), 64 << 20);
    assert!(host.processes(1).unwrap().is_empty(), "memory without a process");

    // SAFETY: a signal to our own child.
    unsafe { libc::kill(i32::try_from(broker.id()).unwrap(), libc::SIGTERM) };
    assert!(broker.wait().unwrap().success());
    assert!(client.hung_up());
}
