//! A host in a temporary directory, programs to run on it, and waiting with a bound.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tarn_sim::Host;

/// Where cargo puts libraries and programs: two levels above this test.
pub fn artefacts() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

pub struct Bench {
    pub host: Host,
    pub directory: tempfile::TempDir,
}

/// What a program printed as `name=value` lines.
pub type Facts = HashMap<String, String>;

pub fn number(facts: &Facts, name: &str) -> i64 {
    facts.get(name).unwrap_or_else(|| panic!("no {name} in {facts:?}")).parse().unwrap()
}

impl Bench {
    pub fn new(preset: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::create(&directory.path().join("host"), preset, 1, &artefacts()).unwrap();
        Self { host, directory }
    }

    /// Compiles one of the programs in `tests/c`.
    pub fn compile(&self, name: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
        let program = self.directory.path().join(name);
        let library = self.host.lib_dir().join("libcuda.so.1");
        let status = Command::new("cc")
            .args(["-Wall", "-Wextra", "-O1", "-pthread", "-o"])
            .args([&program, &source, &library])
            .arg("-ldl")
            .status()
            .expect("a C compiler is installed");
        assert!(status.success());
        program
    }

    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.host.lib_dir()).env_remove("CUDA_VISIBLE_DEVICES");
        command
    }

    /// Runs a C program to its end.
    pub fn run(&self, name: &str, arguments: &[&str]) -> Facts {
        let output = self.command(&self.compile(name)).args(arguments).output().unwrap();
        let facts = facts(&String::from_utf8_lossy(&output.stdout));
        assert!(!facts.contains_key("failed"), "{name}: {facts:?}");
        assert!(output.status.success(), "{name}: {output:?}");
        facts
    }

    pub fn used_mib(&self, gpu: usize) -> u64 {
        self.host.used_bytes(&self.host.gpus()[gpu].uuid).unwrap().unwrap() >> 20
    }
}

pub fn facts(text: &str) -> Facts {
    text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// A program that stops at each line until it is told to go on; killed when dropped.
pub struct Running {
    pub child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Reads up to a line that starts so, and answers all that came before.
    pub fn until(&mut self, start: &str) -> Facts {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "ended before {start:?}: {text}");
            text.push_str(&line);
            if line.starts_with(start) {
                return facts(&text);
            }
        }
    }

    pub fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _may_be_gone = self.child.kill();
        let _may_be_gone = self.child.wait();
    }
}

/// Waits for a condition, ten seconds at most.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not within ten seconds: {what}");
}
