"""Unmodified programs on a block larger than the primary: CUDA runtime, PyTorch, a memory checker."""

import importlib.util
import shutil
import sys

from rig import GIB, MIB, PROGRAMS, Failed, Pool, Skipped, run

BLOCK_GIB, CAP_GIB = 30, 24
TORCH = {
    "eager": {},
    "expandable_segments": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "cudaMallocAsync": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
}


def checks(machine, table):
    runs = [(f"CUDA runtime, {kind} cudart", lambda part, kind=kind: runtime(machine, part, kind)) for kind in ("static", "shared")]
    runs.append(("compute-sanitizer memcheck", lambda part: sanitizer(machine)))
    runs += [(f"PyTorch, {name}", lambda part, name=name: torch(machine, part, name, TORCH[name])) for name in TORCH]
    # Each holds up to 34 GiB of the card.
    table.together(runs, at_once=3)


def ended(done, prefix, table):
    """Adds a row for each check a program printed; returns its digests."""
    digests = {}
    for line in done.stdout.splitlines():
        if line.startswith("check "):
            name, result, detail = split(line)
            table.add(f"{prefix}: {name}", result, detail)
        if line.startswith("digest "):
            name, value = line[len("digest ") :].rsplit(" ", 1)
            digests[name] = value
    if done.returncode:
        raise Failed(f"ended with {done.returncode}: {done.stdout[-200:]} {done.stderr[-6000:]}")
    return digests


def split(line):
    for word, result in ((" ok ", "passed"), (" failed ", "failed")):
        if word in line + " ":
            name, detail = (line + " ").split(word, 1)
            return name[len("check ") :], result, detail
    return line, "failed", "unreadable"


def runtime(machine, table, kind):
    program = machine.compile("runtime.cu", f"-cudart={kind}")
    pool = Pool(machine, f"runtime-{kind}")
    try:
        ended(run([program, "all", BLOCK_GIB, CAP_GIB], pool.env()), f"cudart {kind}", table)
        if pool.log():
            return f"log: {pool.log()[:300]}"
    finally:
        pool.close()


def sanitizer(machine):
    checker = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if not checker:
        raise Skipped("no compute-sanitizer")
    program = machine.compile("runtime.cu", "-cudart=static")
    pool = Pool(machine, "sanitizer", cap=128 * MIB, donor_bytes=256 * MIB, reserve_bytes=32 * MIB)
    try:
        done = run([checker, "--tool", "memcheck", "--report-api-errors", "no", program, "small"], pool.env())
    finally:
        pool.close()
    out = done.stdout + done.stderr
    failed = [line for line in out.splitlines() if line.startswith("check ") and " failed " in line + " "]
    if failed or "end" not in out.splitlines():
        raise Failed(f"{failed} {out[-400:]}")
    summary = [line for line in out.splitlines() if "ERROR SUMMARY" in line]
    # Calls that are refused on purpose are not reported; bad accesses are.
    if not summary or " 0 errors" not in summary[-1]:
        raise Failed(out[-600:])
    return summary[-1].strip("= ")


def torch(machine, table, name, settings):
    if importlib.util.find_spec("torch") is None:
        raise Skipped("no PyTorch")
    program = [sys.executable, PROGRAMS / "torch_pool.py", BLOCK_GIB]
    bare = run([*program, 0], machine.bare_env(**settings))
    expected = ended(bare, f"torch {name}, bare card", Quiet())
    # Memory that is allocated in stream order under capture cannot be mapped: it must find room on the primary, in the reserve.
    captured = {"reserve_bytes": 4 * GIB} if name == "cudaMallocAsync" else {}
    pool = Pool(machine, f"torch-{name}", **captured)
    try:
        found = ended(run([*program, pool.total], pool.env(**settings)), f"torch {name}", table)
    finally:
        pool.close()
    differ = {key for key in expected if expected[key] != found.get(key)}
    if differ or not expected:
        raise Failed(f"results differ from the bare card: {sorted(differ)}")
    return f"{len(expected)} results bit-equal to the bare card" + (f"; log: {pool.log()[:300]}" if pool.log() else "")


class Quiet:
    """The bare run's own checks must hold too, but need no rows."""

    def add(self, check, result, detail=""):
        if result != "passed":
            raise Failed(f"{check}: {detail}")
