#!/usr/bin/env python3
"""The hardware suite: the pooled device on a real driver, one table out. See README.md."""

import argparse
import concurrent.futures
import json
import pathlib
import re
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import rig  # noqa: E402
from checks import agreement, clients, costs, crashes, driver_facts, frameworks, identity, pool_programs, programs, speed  # noqa: E402

GROUPS = {
    "identity": identity.checks,
    "facts": driver_facts.checks,
    "agreement": agreement.checks,
    "programs": programs.checks,
    "frameworks": frameworks.checks,
    "pool": pool_programs.checks,
    "crashes": crashes.checks,
}
BENCHES = {
    "costs": costs.checks,
    "clients": clients.checks,
    "speed": speed.checks,
}
AT_ONCE = 7


class Table:
    """Rows of (check, result, detail), and figures by name. `kept` is called after each change, so that a run cut short leaves both."""

    def __init__(self, kept=lambda: None, match=""):
        self.rows, self.figures, self.since, self.kept, self.match = [], {}, time.monotonic(), kept, match

    def add(self, check, result, detail=""):
        now = time.monotonic()
        spent, self.since = now - self.since, now
        detail = " ".join(str(detail).split())
        self.rows.append({"check": check, "result": result, "seconds": round(spent, 1), "detail": detail})
        print(f"{result:8} {spent:6.1f} s  {check}  {detail}", flush=True)
        self.kept()

    def together(self, checks, at_once=AT_ONCE):
        """Runs checks that measure nothing side by side, each on a table of its own; their rows then follow here in order."""
        parts = [Table(match=self.match) for _ in checks]
        with concurrent.futures.ThreadPoolExecutor(at_once) as crew:
            done = [crew.submit(part.attempt, name, lambda part=part, act=act: act(part)) for part, (name, act) in zip(parts, checks)]
            for part, each in zip(parts, done):
                each.result()
                self.rows += part.rows
                self.figures.update(part.figures)
                self.kept()

    def attempt(self, check, act):
        """Runs a check: what it returns is the detail; what it raises is the result."""
        if not re.search(self.match, check):
            return
        try:
            self.add(check, "passed", act() or "")
        except rig.Skipped as reason:
            self.add(check, "skipped", reason)
        except Exception as reason:  # noqa: BLE001 - a broken check is a failed check, and the rest goes on
            self.add(check, "failed", f"{type(reason).__name__}: {reason}"[-600:])
            self.note(f"failed: {check}", f"{reason}")

    def note(self, name, value):
        self.figures[name] = value

    def markdown(self):
        lines = ["| check | result | detail |", "|---|---|---|"]
        lines += [f"| {row['check']} | {row['result']} | {row['detail']} |".replace("\\|", "/") for row in self.rows]
        return "\n".join(lines) + "\n"


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artefacts", default="target/release", help="where broker, stand-ins and witness were built")
    parser.add_argument("--driver-dir", help="where the real libcuda.so.1 lies; default: the loader's own")
    parser.add_argument("--bench", action="store_true", help="measure, in place of checking")
    parser.add_argument("--only", help="groups, comma-separated: " + " ".join(GROUPS | BENCHES))
    parser.add_argument("--match", default="", help="only checks whose name has this expression")
    parser.add_argument("--out", help="write table.md and results.json here")
    return parser.parse_args()


def main():
    chosen = options()
    driver = rig.driver_directory(chosen.driver_dir)
    if driver is None:
        print("skipped: no NVIDIA driver on this machine; `cargo test` runs the same code on a simulated one")
        return 0
    names = chosen.only.split(",") if chosen.only else BENCHES if chosen.bench else GROUPS
    table, work = Table(match=chosen.match), tempfile.mkdtemp(prefix="tarn-hardware-")
    try:
        machine = rig.Machine(chosen.artefacts, driver, work)
        if chosen.out:
            table.kept = lambda: keep(pathlib.Path(chosen.out), machine, table)
        print(f"{machine.card['name']} {machine.card['uuid']} {machine.card['total'] >> 20} MiB, driver {machine.driver_version}", flush=True)
        for name in names:
            try:
                (GROUPS | BENCHES)[name](machine, table)
            except Exception as reason:  # noqa: BLE001 - one group less, the rest goes on
                result = "skipped" if isinstance(reason, rig.Skipped) else "failed"
                table.add(f"{name}: the group", result, f"{type(reason).__name__}: {reason}"[-600:])
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("\n" + table.markdown())
    count = lambda result: sum(row["result"] == result for row in table.rows)
    print(f"{count('passed')} passed, {count('failed')} failed, {count('skipped')} skipped")
    return 1 if count("failed") else 0


def keep(out, machine, table):
    """Writes what is known by now."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(table.markdown())
    document = {"card": machine.card, "driver": machine.driver_version, "rows": table.rows, "figures": table.figures}
    (out / "results.json").write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    sys.exit(main())
