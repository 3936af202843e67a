//! M4: every way into an instance sees the same pool.

use crate::host::{TestHost, artefact};

fn total(output: &std::process::Output) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("total_bytes"));
    let line = line.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)));
    let value: serde_json::Value = serde_json::from_str(line).unwrap();
    value["total_bytes"].as_u64().unwrap()
}

#[test]
fn m4_the_pool_depends_on_no_inherited_environment() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let instance = host.instance(&[0, 1, 2, 3], &["/bin/sleep", "1000"]);
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
    for wrapped in [
        vec!["/usr/bin/env", "-i", "/bin/sh", "-c", &shell],
        vec!["/usr/bin/setsid", "--wait", "/usr/bin/env", "-i", "/bin/sh", "-c", &shell],
        vec!["/bin/su", "-", "-c", &shell],
    ] {
        assert_eq!(total(&host.exec(&instance, &wrapped)), plain, "{wrapped:?}");
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
