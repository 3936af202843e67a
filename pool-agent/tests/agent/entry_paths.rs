//! M4, M10: every way into an instance and every window of it shows the same pool, and is held to the same cap.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tarn_protocol::control::{DesiredInstance, InstanceSpec};
use tarn_protocol::units::Bytes;

use crate::host::{TestHost, artefact, processes_with};

fn figure(output: &Output, name: &str) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("total_bytes"));
    let line = line.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)));
    let value: serde_json::Value = serde_json::from_str(line).unwrap();
    value[name].as_u64().unwrap()
}

fn total(output: &Output) -> u64 {
    figure(output, "total_bytes")
}

/// A shell line by every way in that loses the environment: login shells, another session, what cron and a service manager give.
fn ways(line: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["/bin/sh", "-lc", line],
        vec!["/usr/bin/env", "-i", "/bin/sh", "-c", line],
        vec!["/usr/bin/env", "-i", "/bin/sh", "-lc", line],
        vec!["/usr/bin/env", "-i", "HOME=/", "LOGNAME=root", "SHELL=/bin/sh", "/bin/sh", "-c", line],
        vec!["/usr/bin/setsid", "--wait", "/usr/bin/env", "-i", "/bin/sh", "-c", line],
        vec!["/bin/su", "-", "-c", line],
    ]
}

/// The control files of the cgroups that hold a process on behalf of `instance`.
fn cgroups(pid: u32, instance: &DesiredInstance) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let own = text.lines().filter(|line| line.contains(instance.instance_id.as_str()));
    let paths = own.map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controller, path) = (parts.next().unwrap(), parts.next().unwrap());
        let mounted = Path::new("/sys/fs/cgroup").join(controller.trim_start_matches("name="));
        mounted.join(path.trim_start_matches('/')).join("cgroup.procs")
    });
    paths.collect()
}

/// From the host, as an operator debugs: into the namespaces of `pid`, after `joined` cgroups.
fn nsenter(pid: u32, joined: &[PathBuf], line: &str) -> Output {
    let mut steps: Vec<String> = joined.iter().map(|file| format!("echo $$ > {}", file.display())).collect();
    steps.push(format!("exec nsenter -t {pid} -m -u -i -p /usr/bin/env -i /bin/sh -c '{line}'"));
    let enter = steps.join(" && ");
    Command::new("/bin/sh").args(["-c", &enter]).output().unwrap()
}

#[test]
fn m4_the_pool_depends_on_no_inherited_environment() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let instance = host.instance(&[0, 1, 2, 3], &["/bin/sleep", "86401"]);
    let neighbour = host.instance(&[4], &["/bin/sleep", "1000"]);
    host.control_plane.want(&instance);
    host.control_plane.want(&neighbour);
    host.await_running(&instance);
    host.await_running(&neighbour);
    let witness = artefact("tarn-witness");
    let witness = witness.to_str().unwrap();
    let small = [witness, "--fill-percent", "1", "--block-gib", "1", "--json"];
    let plain = total(&host.exec(&instance, &small));
    assert!(plain >= 95 << 30, "{plain}");
    let empty = [["/usr/bin/env", "-i"].as_slice(), small.as_slice()].concat();
    assert_eq!(total(&host.exec(&instance, &empty)), plain);
    let shell = small.join(" ");
    for way in ways(&shell) {
        assert_eq!(total(&host.exec(&instance, &way)), plain, "{way:?}");
    }
    let inside = processes_with("86401")[0];
    let joined = cgroups(inside, &instance);
    assert_eq!(total(&nsenter(inside, &joined, &shell)), plain);
    if !joined.is_empty() {
        // Who is not held by the instance's limits gets none of its donors, and is told so truthfully.
        let outside = total(&nsenter(inside, &[], &shell));
        assert!(outside < 25 << 30, "{outside}");
    }

    let listing = host.exec(&instance, &["/bin/ls", host.state_dir().join("instances").to_str().unwrap()]);
    assert_eq!(String::from_utf8_lossy(&listing.stdout).trim(), instance.instance_id.as_str());
    let secret = host.state_dir().join("identity.json");
    assert!(!host.exec(&instance, &["/bin/cat", secret.to_str().unwrap()]).status.success());
    let foreign = host.sim.device_node(5);
    assert!(!host.exec(&instance, &["/bin/cat", foreign.to_str().unwrap()]).status.success());
    let own = host.sim.device_node(1);
    assert!(host.exec(&instance, &["/bin/cat", own.to_str().unwrap()]).status.success());
    let one = total(&host.exec(&neighbour, &empty));
    assert!(one < 25 << 30, "{one}");
    host.remove(&instance);
    host.remove(&neighbour);
}

#[test]
fn m4_the_cap_holds_on_every_way_in() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let witness = artefact("tarn-witness");
    let holder = format!("{} --fill-percent 50 --block-gib 1 --json --hold", witness.display());
    let plain = host.instance(&[0], &["/bin/sh", "-c", &format!("{holder} > held; : 86402")]);
    let (cap, held) = (Bytes::gib(4), Bytes::gib(2));
    let spec = InstanceSpec { cap_bytes: Some(cap), ..plain.spec.clone() };
    let instance = DesiredInstance { spec, ..plain };
    host.control_plane.want(&instance);
    host.await_running(&instance);
    let told = host.instance_dir(&instance).join("home/held");
    crate::control_plane::eventually("the holder never held", || {
        std::fs::read_to_string(&told).is_ok_and(|text| text.contains("allocated_bytes")).then_some(())
    });
    // Whoever comes now wants all of the cap, and gets what is left of it.
    let line = format!("{} --fill-percent 100 --block-gib 1 --json", witness.display());
    let check = |output: &Output, way: &str| {
        assert_eq!(total(output), cap.get(), "{way}");
        let taken = figure(output, "allocated_bytes");
        assert!(taken > 0 && taken <= cap.get() - held.get(), "{way}: {taken}");
    };
    for way in ways(&line) {
        check(&host.exec(&instance, &way), &format!("{way:?}"));
    }
    let inside = processes_with(&format!("{holder} > held; : 86402"))[0];
    check(&nsenter(inside, &cgroups(inside, &instance), &line), "nsenter");
    host.remove(&instance);
}

/// The program that looks through CUDA and NVML at once, and what it saw.
fn windows(host: &TestHost, instance: &DesiredInstance, taken: Bytes) -> Vec<HashMap<String, u64>> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("nvml/tests/windows.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("windows-{}", std::process::id()));
        let compiled = Command::new("cc").arg(source).arg("-o").arg(&program).arg("-ldl").status().unwrap();
        assert!(compiled.success());
        program
    });
    let output = host.exec(instance, &["/usr/bin/env", "-i", program.to_str().unwrap(), &taken.to_string()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.lines().count() == 3, "{text}");
    let figures = |line: &str| {
        let pairs = line.split(' ').filter_map(|word| word.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    };
    text.lines().map(figures).collect()
}

#[test]
fn m10_every_window_of_an_instance_and_the_agents_report_show_one_number() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let pool = host.instance(&[0, 1, 2, 3], &["/bin/sleep", "1000"]);
    let card = host.instance(&[4], &["/bin/sleep", "1000"]);
    for (instance, taken) in [(&pool, Bytes::gib(40)), (&card, Bytes::gib(4))] {
        host.control_plane.want(instance);
        host.await_running(instance);
        let told = crate::control_plane::eventually("no report of it", || {
            host.control_plane.with(|ledger| {
                let seen = ledger.last.as_ref()?.instances.iter();
                seen.filter(|seen| seen.instance_id == instance.instance_id).find_map(|seen| seen.pool_bytes)
            })
        });
        for moment in windows(&host, instance, taken) {
            for window in ["cuda-device", "cuda-total", "v1-total", "v2-total"] {
                assert_eq!(moment[window], told.get(), "{window}: {moment:?}");
            }
            for window in ["v1-free", "v2-free"] {
                assert_eq!(moment[window], moment["cuda-free"], "{window}: {moment:?}");
            }
        }
        host.remove(instance);
    }
}
