#!/usr/bin/env python3
"""The hardware suite: the pooled device on a real driver, one table out. See README.md."""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import rig  # noqa: E402
from checks import agreement, costs, crashes, driver_facts, identity, programs  # noqa: E402

GROUPS = {
    "identity": identity.checks,
    "facts": driver_facts.checks,
    "agreement": agreement.checks,
    "programs": programs.checks,
    "crashes": crashes.checks,
    "costs": costs.checks,
}


class Table:
    """Rows of (check, result, detail), and figures by name."""

    def __init__(self):
        self.rows, self.figures, self.since = [], {}, time.monotonic()

    def add(self, check, result, detail=""):
        now = time.monotonic()
        spent, self.since = now - self.since, now
        detail = " ".join(str(detail).split())
        self.rows.append({"check": check, "result": result, "seconds": round(spent, 1), "detail": detail})
        print(f"{result:8} {spent:6.1f} s  {check}  {detail}", flush=True)

    def attempt(self, check, act):
        """Runs a check: what it returns is the detail; what it raises is the result."""
        try:
            self.add(check, "passed", act() or "")
        except rig.Skipped as reason:
            self.add(check, "skipped", reason)
        except Exception as reason:  # noqa: BLE001 - a broken check is a failed check, and the rest goes on
            self.add(check, "failed", f"{type(reason).__name__}: {reason}"[-600:])

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
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, comma-separated: " + " ".join(GROUPS))
    parser.add_argument("--out", help="write table.md and results.json here")
    return parser.parse_args()


def main():
    chosen = options()
    driver = rig.driver_directory(chosen.driver_dir)
    if driver is None:
        print("skipped: no NVIDIA driver on this machine; `cargo test` runs the same code on a simulated one")
        return 0
    table, work = Table(), tempfile.mkdtemp(prefix="tarn-hardware-")
    try:
        machine = rig.Machine(chosen.artefacts, driver, work)
        card = machine.card
        print(f"{card['name']} {card['uuid']} {card['total'] >> 20} MiB, driver {machine.driver_version}", flush=True)
        for name in chosen.only.split(","):
            try:
                GROUPS[name](machine, table)
            except Exception as reason:  # noqa: BLE001 - one group less, the rest goes on
                result = "skipped" if isinstance(reason, rig.Skipped) else "failed"
                table.add(f"{name}: the group", result, f"{type(reason).__name__}: {reason}"[-600:])
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("\n" + table.markdown())
    count = lambda result: sum(row["result"] == result for row in table.rows)
    print(f"{count('passed')} passed, {count('failed')} failed, {count('skipped')} skipped")
    if chosen.out:
        out = pathlib.Path(chosen.out)
        out.mkdir(parents=True, exist_ok=True)
        (out / "table.md").write_text(table.markdown())
        document = {"card": card, "driver": machine.driver_version, "rows": table.rows, "figures": table.figures}
        (out / "results.json").write_text(json.dumps(document, indent=1))
    return 1 if count("failed") else 0


if __name__ == "__main__":
    sys.exit(main())
