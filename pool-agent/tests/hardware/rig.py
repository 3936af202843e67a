"""A pool on the card of this machine: its directory, its broker, and programs run inside it or beside it."""

import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
MIB, GIB = 1 << 20, 1 << 30
PATIENCE_S = 150
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Failed(Exception):
    """A check did not hold."""


class Skipped(Exception):
    """This machine lacks what the check needs."""


def until(what, holds, patience=20.0):
    """Waits for a condition, with a bound."""
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"not within {patience:.0f} s: {what}")
        time.sleep(0.02)


def driver_directory(named):
    """Where the real driver's libraries lie."""
    if named:
        return pathlib.Path(named).resolve()
    places = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    places += [line.split("=>")[1].strip().rsplit("/", 1)[0] for line in listed.splitlines() if "libcuda.so.1" in line]
    places += ["/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
    for place in filter(None, places):
        if (pathlib.Path(place) / "libcuda.so.1").exists():
            return pathlib.Path(place)
    return None


class Machine:
    """The card as it is, and what was built for this run."""

    def __init__(self, artefacts, driver, work):
        self.artefacts, self.driver, self.work = pathlib.Path(artefacts).resolve(), driver, pathlib.Path(work)
        for name in ("tarn-broker", "tarn-witness", "libtarn_standin_cuda.so", "libtarn_standin_nvml.so"):
            if not (self.artefacts / name).exists():
                sys.exit(f"{self.artefacts / name} is missing: run `make release` first")
        self.compiling = threading.Lock()
        self.card = self.nvml()["devices"][0]
        self.driver_version = self.nvml()["driver"]

    def bare_env(self, **more):
        paths = [str(self.driver), os.environ.get("LD_LIBRARY_PATH", "")]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths)), **more}

    def nvml(self, env=None):
        done = subprocess.run(
            [sys.executable, PROGRAMS / "nvml.py"], env=env or self.bare_env(), capture_output=True, text=True, timeout=60
        )
        if done.returncode:
            raise Failed(f"nvml.py: {done.stderr[-300:]}")
        return json.loads(done.stdout)

    def seen(self):
        """The card now, as the bare driver tells it."""
        return next(card for card in self.nvml()["devices"] if card["uuid"] == self.card["uuid"])

    def used(self):
        return self.seen()["used"]

    def compile(self, name, *options):
        """A C or CUDA program of the suite."""
        source = PROGRAMS / name
        target = self.work / "-".join([source.stem, *[option.strip("-").replace("=", "-") for option in options]])
        with self.compiling:
            if not target.exists():
                self.build(source, target, options)
        return target

    @staticmethod
    def build(source, target, options):
        if source.suffix == ".cu":
            nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
            if not nvcc:
                raise Skipped("no nvcc")
            command = [nvcc, "-std=c++17", "-O2", "-arch=native", *options, "-o", target, source]
        else:
            command = ["cc", "-std=gnu11", "-O1", "-Wall", *options, "-o", target, source, "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        if done.returncode:
            raise Failed(f"{source.name} does not compile: {(done.stderr or done.stdout)[-400:]}")


def run(command, env, timeout=PATIENCE_S):
    """Runs a program to its end; its exit is the caller's to judge."""
    return subprocess.run(
        [str(part) for part in command], env=env, capture_output=True, text=True, timeout=timeout, errors="replace"
    )


def facts(command, env, timeout=PATIENCE_S):
    """`name=value` lines of a program that must end well."""
    done = run(command, env, timeout)
    if done.returncode or not done.stdout.rstrip().endswith("end"):
        raise Failed(f"{pathlib.Path(str(command[0])).name} ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


class Pool:
    """One pool: a capped primary and donors, all on the one card. `far`: the donors' chunks are host memory, so that they lie behind a
    link; totals and rules are the same."""

    def __init__(self, machine, name, cap=24 * GIB, donors=3, donor_bytes=24 * GIB, far=False, host_tier=0, **policy):
        slug = re.sub(r"[^A-Za-z0-9]+", "-", name)[:40]  # a socket's path has little room
        self.machine, self.home = machine, machine.work / f"pool-{slug}"
        self.lib = self.home / "lib"
        self.lib.mkdir(parents=True)
        shutil.copy(machine.artefacts / "libtarn_standin_cuda.so", self.lib / "libcuda.so.1")
        shutil.copy(machine.artefacts / "libtarn_standin_nvml.so", self.lib / "libnvidia-ml.so.1")
        for library in ("libcuda", "libnvidia-ml"):
            (self.lib / f"{library}.so").symlink_to(f"{library}.so.1")
            real = (machine.driver / f"{library}.so.1").resolve() if machine.driver.name != "lib" else machine.driver / f"{library}.so.1"
            (self.lib / f"{library}-real.so.1").symlink_to(real)
        card = machine.card
        self.total, self.cap = cap + donors * donor_bytes, cap
        if card["total"] < self.total + 2 * GIB:
            raise Skipped(f"the card has {card['total'] >> 30} GiB, this pool takes {self.total >> 30}")
        donor = {
            "uuid": card["uuid"], "pci_bus_id": card["pci"], "minor": card["minor"], "reserved_bytes": donor_bytes,
            "link_class": "nvlink", "grade": "a", "read_mb_per_second": 1000, "certificate_id": None,
        }
        rules = {"placement": "local_first", "large_bytes": 64 * MIB, "granule_bytes": 2 * MIB, **policy}
        # What the product reckons where none is given.
        self.reserve = rules.get("reserve_bytes", max(cap // 16, min(GIB, cap // 8)))
        config = {
            "version": 1, "generation": 1, "donors_on_primary": True,
            "instance_id": "ins_" + ALPHABET[1] * 26, "lease_id": "lse_" + ALPHABET[2] * 26,
            "primary": {
                "uuid": card["uuid"], "pci_bus_id": card["pci"], "minor": card["minor"],
                "memory_bytes": card["total"], "cap_bytes": cap,
            },
            "donors": [donor] * donors,
            "policy": rules,
            "broker_socket": str(self.home / "broker.sock"), "standin_log": str(self.home / "standin.log"),
        }
        if host_tier:
            config["host_tier_bytes"] = host_tier
        (self.lib / "pool.json").write_text(json.dumps(config, indent=1))
        self.broker, self.broker_env = None, machine.bare_env()
        if far:
            self.broker_env["LD_LIBRARY_PATH"] = f"{self.far_driver()}:{self.lib}:{self.broker_env['LD_LIBRARY_PATH']}"
        self.start_broker()

    def far_driver(self):
        """A folder whose libcuda makes chunks of host memory. It is linked to a name that only the pool's folder has."""
        folder = self.home / "far"
        folder.mkdir()
        stub, source = folder / "libcuda-real.so.1", PROGRAMS / "far_broker.c"
        build = ["cc", "-shared", "-fPIC", "-O1", "-o"]
        subprocess.run([*build, stub, "-Wl,-soname,libcuda-real.so.1", "-x", "c", "/dev/null"], check=True, timeout=60)
        shared = ["-Wl,-soname,libcuda.so.1", "-Wl,--no-as-needed", stub, "-ldl"]
        subprocess.run([*build, folder / "libcuda.so.1", source, *shared], check=True, timeout=60)
        stub.unlink()
        (folder / "libcuda.so").symlink_to("libcuda.so.1")
        return folder

    def env(self, **more):
        bare = self.machine.bare_env(**more)
        return {**bare, "LD_LIBRARY_PATH": f"{self.lib}:{bare['LD_LIBRARY_PATH']}"}

    def start_broker(self):
        self.broker_log = open(self.home / "broker.log", "a", encoding="utf-8")
        self.broker = subprocess.Popen(
            [
                self.machine.artefacts / "tarn-broker", "--config", self.lib / "pool.json", "--socket", self.home / "broker.sock",
                "--state", self.home / "ledger.json", "--nvml", self.machine.driver / "libnvidia-ml.so.1",
            ],
            env=self.broker_env, stdout=subprocess.PIPE, stderr=self.broker_log, text=True,
        )
        ready, _, _ = select.select([self.broker.stdout], [], [], 60)
        if not ready or self.broker.stdout.readline() != "ready\n":
            raise Failed(f"the broker does not start: {(self.home / 'broker.log').read_text()[-400:]}")

    def resize(self, donor_bytes):
        """Donors give so much each from now on. Returns when the broker was told."""
        path = self.lib / "pool.json"
        config = json.loads(path.read_text())
        for donor in config["donors"]:
            donor["reserved_bytes"] = donor_bytes
        path.write_text(json.dumps(config, indent=1))
        told = time.monotonic_ns()
        self.broker.send_signal(signal.SIGHUP)
        return told

    def kill_broker(self):
        self.broker.send_signal(signal.SIGKILL)
        self.broker.wait()

    def log(self):
        path = self.home / "standin.log"
        return path.read_text() if path.exists() else ""

    def close(self):
        if self.broker and self.broker.poll() is None:
            self.broker.terminate()
            self.broker.wait(timeout=30)
