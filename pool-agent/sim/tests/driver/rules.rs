//! What a program may and may not do, with the hardware driver's answers: `rules.c` ran on an H200 with driver 580.159.04
//! and printed these values (all but the two integrity lines, which only the simulated driver can be asked).

use crate::driver::bench::{Bench, number};

#[test]
fn the_hardware_drivers_rules_hold() {
    let facts = Bench::new("h200-x2").run("rules", &[]);
    let expected = [
        ("before_init", 3),
        ("null_count", 1),
        ("no_context", 201),
        ("integrity", 0),
        ("faked", 103),
        ("create_without_context", 0),
        ("odd_size", 1),
        ("offset", 801),
        ("no_access", 1),
        ("seam", 1),
        ("segment_offset_mib", 4),
        ("segment_mib", 8),
        ("range_offset_mib", 0),
        ("range_mib", 12),
        ("sync_memops", 801),
        ("ipc_of_stitched", 1),
        ("ipc_capable_stitched", 0),
        ("retained_is_same", 1),
        ("partial_unmap", 1),
        ("free_mapped_range", 1),
        ("released_twice", 1),
        ("ipc_of_native", 0),
        ("interior_free", 1),
        ("null_out", 1),
        ("zero_size", 1),
        ("too_large", 2),
        ("charged_mib", 10),
        ("double_free", 1),
        ("free_null", 0),
        ("returned", 1),
        ("after_destroy", 201),
    ];
    for (name, value) in expected {
        assert_eq!(number(&facts, name), value, "{name}");
    }
}

#[test]
fn v11_every_exported_function_is_found_by_name_and_version() {
    let bench = Bench::new("h200-x2");
    let library = bench.host.lib_dir().join("libcuda.so.1");
    let listing =
        std::process::Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().unwrap();
    let listing = String::from_utf8(listing.stdout).unwrap();
    let names: Vec<&str> = listing.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| name.starts_with("cu")).collect();
    assert!(names.len() > 200);
    let mut child = bench
        .command(&bench.compile("exports"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), names.join("\n").as_bytes()).unwrap();
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(output, "done=1\n");
}

#[test]
fn visibility_is_what_the_variable_says_of_the_nodes_that_open() {
    let bench = Bench::new("rtx4090-x8-seed");
    let uuid = bench.host.gpus()[2].uuid.clone();
    let witness = crate::driver::bench::artefacts().join("tarn-witness");
    let devices = |variable: &str| {
        let mut command = bench.command(&witness);
        let output =
            command.env("CUDA_VISIBLE_DEVICES", variable).args(["--fill-percent", "1"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter(|line| line.starts_with("device ")).count()
    };
    for (variable, count) in [
        ("0,1", 2),
        (uuid.as_str(), 1),
        (&uuid[..12], 1),
        ("3,99,1", 1),
        ("-1", 0),
        ("", 0),
        ("0,0", 0),
        ("GPU-ffffffff", 0),
    ] {
        assert_eq!(devices(variable), count, "{variable:?}");
    }
    std::fs::remove_file(bench.host.device_node(2)).unwrap();
    assert_eq!(devices(&uuid), 0, "a masked card is not there");
    assert_eq!(devices("0,1,2,3,4,5,6,7"), 7);
}
