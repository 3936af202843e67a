//! Who holds which bytes, for how long.

use crate::driver::bench::{Bench, Running, artefacts, eventually, number};

#[test]
fn the_witness_fills_and_verifies_a_card() {
    let bench = Bench::new("rtx4090-x8-seed");
    let output = bench.command(&artefacts().join("tarn-witness")).arg("--json").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["mismatches"], 0);
    assert_eq!(report["devices"], 8);
    assert!(report["allocated_bytes"].as_u64() > Some(22 << 30));
    assert_eq!(bench.used_mib(0), 0);
}

#[test]
fn m1_a_killed_process_gives_everything_back_at_once() {
    let bench = Bench::new("rtx4090-x8-seed");
    let mut command = bench.command(&artefacts().join("tarn-witness"));
    command.args(["--json", "--hold"]);
    let mut witness = Running::start(command);
    witness.until("{");
    assert!(bench.used_mib(0) > 23_000);
    assert_eq!(bench.host.processes(0).unwrap()[0].0, witness.child.id());
    witness.kill();
    assert_eq!(bench.used_mib(0), 0);
    assert!(bench.host.processes(0).unwrap().is_empty());
}

#[test]
fn lent_memory_lives_until_the_last_handle_and_mapping_and_shows_no_process() {
    let bench = Bench::new("rtx4090-x8-seed");
    let mut borrower = Running::start(bench.command(&bench.compile("donor")));
    let facts = borrower.until("ready");
    assert_eq!(number(&facts, "devices"), 1);
    assert_eq!((number(&facts, "imported"), number(&facts, "mapped")), (0, 0));
    assert_eq!((number(&facts, "same"), number(&facts, "ordinal")), (1, 0));
    assert_eq!(bench.used_mib(1), 64);
    assert!(bench.host.processes(1).unwrap().is_empty());
    borrower.go_on();
    borrower.until("released");
    assert_eq!(bench.used_mib(1), 64, "the mapping still holds it");
    borrower.go_on();
    borrower.until("unmapped");
    assert_eq!(bench.used_mib(1), 0);
}

#[test]
fn a_lender_killed_takes_no_running_mapping_with_it() {
    let bench = Bench::new("rtx4090-x8-seed");
    let mut command = bench.command(&bench.compile("donor"));
    command.arg("die");
    let mut borrower = Running::start(command);
    let facts = borrower.until("ready");
    assert_eq!((number(&facts, "lender_killed"), number(&facts, "same")), (1, 1));
    assert_eq!(bench.used_mib(1), 64);
    borrower.kill();
    assert_eq!(bench.used_mib(1), 0);
}

#[test]
fn an_open_descriptor_alone_keeps_memory() {
    let bench = Bench::new("rtx4090-x8-seed");
    let mut program = Running::start(bench.command(&bench.compile("descriptor")));
    program.until("released");
    assert_eq!(bench.used_mib(1), 32);
    program.go_on();
    program.until("closed");
    assert_eq!(bench.used_mib(1), 0);
}

#[test]
fn importing_memory_of_a_masked_card_is_an_invalid_device() {
    let bench = Bench::new("rtx4090-x8-seed");
    // The lender must see the card and the borrower must not, so the node goes once the lender has its handle.
    let node = bench.host.device_node(1);
    let program = bench.compile("masked");
    let mut program = Running::start(bench.command(&program));
    program.until("lent");
    std::fs::remove_file(node).unwrap();
    program.go_on();
    assert_eq!(number(&program.until("imported"), "imported"), 101);
}

#[test]
fn m1_random_allocation_in_killed_processes_leaves_no_byte_behind() {
    let bench = Bench::new("rtx4090-x8-seed");
    let program = bench.compile("churn");
    for round in 0..4 {
        let mut running: Vec<Running> = (0..3)
            .map(|at| {
                let mut command = bench.command(&program);
                command.arg((round * 10 + at).to_string());
                let mut churn = Running::start(command);
                churn.until("started");
                churn
            })
            .collect();
        eventually("the processes allocate", || bench.used_mib(0) > 2000);
        for churn in &mut running {
            churn.kill();
            let (used, total) = (bench.used_mib(0), bench.host.gpus()[0].memory_bytes >> 20);
            assert!(used <= total);
        }
        assert_eq!(bench.used_mib(0), 0, "round {round}");
    }
}
