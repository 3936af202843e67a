//! V11, V13: however the driver gets into a program, and whatever driver it is.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tarn_protocol::units::Bytes;

use crate::rig::{Rig, Shape, artefact, until};

/// A context, and what the driver keeps for itself beside it.
const CONTEXT: Bytes = Bytes::mib(512);

#[test]
fn v13_the_cap_holds_however_the_driver_is_loaded() {
    let cap = Bytes::gib(6);
    let rig = Rig::new(&Shape { donors: vec![], cap_bytes: Some(cap), ..Shape::default() });
    let card = rig.cards[0];
    let path = rig.lib().join("libcuda.so.1");
    let ways = ["dlopen", "deepbind", "next", "dlmopen", "procaddress", "linked", path.to_str().unwrap()];
    for how in ways {
        let mut tenant = rig.spawn(how, &["everything"]);
        tenant.read_until("waiting");
        assert_eq!(tenant.number("total"), cap.get(), "{how}");
        let taken = tenant.number("taken");
        assert!(taken <= cap.get() && taken * 100 >= tenant.number("free") * 99, "{how}: {taken}");
        assert!(rig.used(card) <= cap.get() + CONTEXT.get(), "{how}: the card holds {}", rig.used(card));
        // What is full for one way is full for every other.
        let mut second = rig.spawn(ways[0], &["everything"]);
        second.read_until("waiting");
        assert_eq!(second.number("taken"), 0, "{how}: something was left beside {taken} bytes");
        second.say("go on");
        second.end();
        tenant.say("go on");
        tenant.end();
        until("the card is empty", || rig.used(card) == 0);
    }
}

fn compile(arguments: &[&Path], output: &Path, more: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(output).args(more).args(arguments);
    assert!(cc.arg("-ldl").status().expect("a C compiler is installed").success());
}

/// A pool whose tenants have a driver of long ago, with a broker that offers them donors.
fn on_an_old_driver() -> (Rig, PathBuf) {
    let rig = Rig::new(&Shape::default());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/olddriver.c");
    let real = rig.lib().join("libcuda-real.so.1");
    std::fs::remove_file(&real).unwrap();
    let total = format!("-DTOTAL={}ull", rig.config.primary.memory_bytes.get());
    compile(&[&source], &real, &[&total, "-DDRIVER", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
    let asker = rig.instance.join("asker");
    compile(&[&source], &asker, &[]);
    (rig, asker)
}

fn run(program: &Path, arguments: &[&str], environment: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C");
    for (name, value) in environment {
        command.env(name, value);
    }
    command.output().unwrap()
}

#[test]
fn v11_shell_tools_run_with_the_stand_in_before_them_on_an_old_driver() {
    let (rig, _) = on_an_old_driver();
    let (standin, lib) = (rig.lib().join("libcuda.so.1"), rig.lib());
    let listing = rig.lib();
    let listing = listing.to_str().unwrap();
    for (tool, arguments) in [
        ("/bin/ls", vec!["-l", "/etc/hosts"]),
        ("/bin/cat", vec!["/etc/hostname"]),
        ("/bin/sh", vec!["-c", "for n in 1 2 3; do echo $n; done | sort -r | head -n 2"]),
        ("/usr/bin/env", vec!["true"]),
        ("/usr/bin/find", vec![listing, "-maxdepth", "0"]),
        ("/bin/sh", vec!["-c", "exit 7"]),
    ] {
        let tool = Path::new(tool);
        let plain = run(tool, &arguments, &[]);
        let before = run(tool, &arguments, &[("LD_PRELOAD", &standin), ("LD_LIBRARY_PATH", &lib)]);
        let stderr = String::from_utf8_lossy(&before.stderr).into_owned();
        assert_eq!(before.status.code(), plain.status.code(), "{tool:?} {arguments:?}: {stderr}");
        assert_eq!((before.stdout, stderr.as_str()), (plain.stdout, ""), "{tool:?} {arguments:?}");
    }
    assert_eq!(rig.log(), "", "who never calls the driver is told nothing");
}

/// What the old driver has passes, what it lacks is "not found", and a pool that it cannot make is not promised.
#[test]
fn v11_an_old_driver_answers_for_itself_and_promises_no_pool() {
    let (rig, asker) = on_an_old_driver();
    let (bare, lib) = (rig.instance.join("bare"), rig.lib());
    std::fs::create_dir_all(&bare).unwrap();
    std::os::unix::fs::symlink(lib.join("libcuda-real.so.1"), bare.join("libcuda.so.1")).unwrap();
    let answers = |lib: &Path| {
        let output = run(&asker, &[], &[("LD_LIBRARY_PATH", lib)]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{} after:\n{text}", output.status);
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<HashMap<_, _>>()
    };
    let (ours, drivers) = (answers(&lib), answers(&bare));
    for (name, value) in &drivers {
        // A name that the driver does not have is one of ours, and says so.
        let expected = if value == "999" { "500" } else { value };
        assert_eq!(ours[name], *expected, "{name}");
    }
    let primary = rig.config.primary.memory_bytes.get().to_string();
    assert_eq!((&*ours["total"], &*ours["version"], &*ours["done"]), (&*primary, "9000", "1"));
}

/// Nothing of the driver has to be there when the library is loaded, whichever version of it.
#[test]
fn v11_the_stand_in_needs_no_symbol_of_the_driver_to_load() {
    let output = Command::new("nm")
        .args(["-D", "--undefined-only", "--format=just-symbols"])
        .arg(artefact("libtarn_standin_cuda.so"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().count() > 20, "{text}");
    let of_the_driver: Vec<&str> =
        text.lines().filter(|name| name.starts_with("cu") || name.starts_with("nvml")).collect();
    assert_eq!(of_the_driver, Vec::<&str>::new());
}
