#!/usr/bin/env python3
"""Shows that breaking an invariant's code is caught.

Every fault of faults.toml is put into one copy of the crates at once, behind a switch that is read from the environment when the
process starts. The copy is built once; then each fault is switched on in turn, and the tests of billing, provisioner and simulation
must fail. With all of them off they must pass.

  run.py --target DIR [--short] [--seeds N] [--only NAME]
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[3]
CRATES = {"billing": "tarn-billing", "provisioner": "tarn-provisioner", "api/simulation": "tarn-simulation"}
COPIED = [*CRATES, "pool-agent/protocol"]
SWITCH = """
/// Whether the deliberate fault of this number is on.
#[allow(clippy::disallowed_methods)]
pub(crate) fn fault_is_on(number: u32) -> bool {
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| std::env::var("FAULT").ok().and_then(|text| text.parse().ok()).unwrap_or(0)) == number
}
"""
SECONDS_MAX = 240


def faults():
    return tomllib.loads((ROOT / "api/simulation/mutants/faults.toml").read_text())["fault"]


def put_in(text, number, fault):
    within = fault.get("within", fault["find"]).strip("\n")
    if text.count(within) != 1 or within.count(fault["find"]) != 1:
        sys.exit(f"{fault['name']}: {fault['file']} does not have its place exactly once; renew faults.toml")
    switched = f"(if crate::fault_is_on({number}) {{ {fault['replace']} }} else {{ {fault['find']} }})"
    return text.replace(within, within.replace(fault["find"], switched))


def copy_with(target, chosen):
    source = target / "source"
    for crate in COPIED:
        shutil.copytree(ROOT / crate, source / crate, dirs_exist_ok=True, ignore=shutil.ignore_patterns("benches"))
    manifest = (ROOT / "Cargo.toml").read_text()
    members = ", ".join(f'"{crate}"' for crate in COPIED)
    manifest = re.sub(r"members = \[.*?\]", f"members = [{members}]", manifest, flags=re.S)
    # Profiles of crates that are not here.
    manifest = re.sub(r"\[profile\.dev\.package\.(?!tarn-(?:simulation|billing|provisioner)\])[^\]*]*\][^\n]*\nopt-level[^\n]*\n", "", manifest)
    (source / "Cargo.toml").write_text(manifest)
    shutil.copy(ROOT / "Cargo.lock", source / "Cargo.lock")
    bench = source / "provisioner/Cargo.toml"
    bench.write_text(re.sub(r"\[\[bench\]\]\nname[^\n]*\nharness[^\n]*\n", "", bench.read_text()))
    texts = {}
    for number, fault in chosen:
        path = source / fault["file"]
        texts[path] = put_in(texts.get(path) or path.read_text(), number, fault)
    for path, text in texts.items():
        path.write_text("#![allow(unused_parens, clippy::all)]\n" + text if path.name == "lib.rs" else text)
    for crate in ["billing", "provisioner"]:
        lib = source / crate / "src/lib.rs"
        lib.write_text(lib.read_text() + SWITCH)
    return source


def build(source, target):
    command = [os.environ.get("CARGO", "cargo"), "test", "--no-run", "--message-format=json"]
    command += [part for package in CRATES.values() for part in ("-p", package)]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target / "build"), "RUSTFLAGS": "-Awarnings"}
    done = subprocess.run(command, cwd=source, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("the copy does not build")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    built = [line for line in lines if line.get("executable") and line.get("profile", {}).get("test")]
    # The quickest first.
    order = list(CRATES.values())
    return sorted(built, key=lambda line: [name in line["package_id"] for name in order].index(True))


def outcome(built, number, seeds):
    """The names of the tests that fail with this fault on."""
    for line in built:
        directory = pathlib.Path(line["target"]["src_path"]).parent
        package = next(path for path in [directory, *directory.parents] if (path / "Cargo.toml").exists())
        environment = {**os.environ, "FAULT": str(number), "SEEDS": str(seeds), "PROPTEST_CASES": "64", "RUST_BACKTRACE": "0"}
        environment["SHRINK"] = "0"
        command = [line["executable"], "--test-threads", "2", "--skip", "the_table_of_invariants"]
        try:
            done = subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return ["ran for ever"]
        failed = re.findall(r"^test (\S+) \.\.\. FAILED", done.stdout, re.M)
        if done.returncode != 0:
            return failed or ["crashed"]
    return []


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--target", type=pathlib.Path, required=True)
    arguments.add_argument("--short", action="store_true")
    arguments.add_argument("--seeds", type=int, default=600)
    arguments.add_argument("--only")
    given = arguments.parse_args()
    chosen = list(enumerate(faults(), 1))
    source = copy_with(given.target.resolve(), chosen)
    built = build(source, given.target.resolve())
    if given.short:
        first = {}
        for number, fault in chosen:
            first.setdefault(fault["breaks"], (number, fault))
        chosen = list(first.values())
    if given.only:
        chosen = [(number, fault) for number, fault in chosen if fault["name"] == given.only]
    if healthy := outcome(built, 0, given.seeds):
        sys.exit(f"fails without any fault: {', '.join(healthy)}")
    survivors = []
    for number, fault in chosen:
        failed = outcome(built, number, given.seeds)
        print(f"{fault['breaks']:4} {fault['name']:36} {'SURVIVES' if not failed else 'caught by ' + ', '.join(failed[:3])}", flush=True)
        if not failed:
            survivors.append(fault["name"])
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} faults are caught")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
