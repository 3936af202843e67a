"""What the pool costs: the same program bare and pooled, alternating in one run; ratios and added nanoseconds are noted."""

import statistics
import subprocess
import time

from rig import GIB, Failed, Pool, facts

ROUNDS = 4


def checks(machine, table):
    pool = Pool(machine, "costs")
    try:
        table.attempt("cost of calls (noted)", lambda: calls(machine, pool, table))
        table.attempt("cost of spilled allocations (noted)", lambda: spilled(machine, pool, table))
        table.attempt("growth of 4 GiB, and a quota that changes", lambda: growth(machine, table))
        table.attempt("launches and bandwidth (noted)", lambda: speed(machine, pool, table))
        table.attempt("start of 1 and of 256 processes (noted)", lambda: starts(machine, pool, table))
    finally:
        pool.close()


def alternating(command, machine, pool, rounds=ROUNDS):
    """Medians of each figure over rounds, in an order that favours neither: bare, pooled."""
    runs = {"bare": [], "pooled": []}
    for turn in range(rounds):
        for kind in ("bare", "pooled") if turn % 2 else ("pooled", "bare"):
            runs[kind].append(facts(command, machine.bare_env() if kind == "bare" else pool.env()))
    median = lambda kind, name: statistics.median(float(one[name]) for one in runs[kind])
    return {name: (median("bare", name), median("pooled", name)) for name in runs["bare"][0]}


def told(figures, table, group):
    table.note(group, figures)
    return ", ".join(f"{name} {bare:.0f}→{pooled:.0f} ({pooled / bare:.2f}×)" for name, (bare, pooled) in figures.items())


def calls(machine, pool, table):
    return "ns: " + told(alternating([machine.compile("cost.c"), "calls"], machine, pool, 8), table, "calls")


def spilled(machine, pool, table):
    taken = (pool.cap >> 30) - 1
    return "ns: " + told(alternating([machine.compile("cost.c"), "spill", taken], machine, pool), table, "spilled")


def growth(machine, table):
    """A pool that grows: 4 GiB out of what the broker made ahead, out of nothing, and how soon a changed quota is seen."""
    pool = Pool(machine, "growth")
    program = machine.compile("grow.c")
    try:
        found = {name: float(value) / 1e6 for name, value in facts([program, "grow", (pool.cap >> 30) - 1, 5], pool.env()).items()}
        watcher = subprocess.Popen([program, "watch", "4"], env=pool.env(), stdout=subprocess.PIPE, text=True)
        seen = []
        for number in range(4):
            watcher.stdout.readline()
            told = pool.resize((20 if number % 2 else 24) * GIB - 4 * GIB)
            seen.append((int(watcher.stdout.readline().split("=")[1]) - told) / 1e6)
        if watcher.wait(timeout=60):
            raise Failed("the program that watches the quota failed")
    finally:
        pool.close()
    found["quota_visible"] = statistics.median(seen)
    table.note("growth_ms", found)
    detail = ", ".join(f"{name} {value:.2f} ms" for name, value in found.items())
    if found["ready_4GiB"] > 50:
        raise Failed(f"4 GiB that were made ahead take more than 50 ms: {detail}")
    return detail


def speed(machine, pool, table):
    program = machine.compile("runtime.cu", "-cudart=static")
    figures = alternating([program, "speed", (pool.cap >> 30) + 8], machine, pool)
    detail = told(figures, table, "speed")
    slow = [name for name, (bare, pooled) in figures.items() if name.endswith("per_s") and pooled < bare * 0.9]
    if slow:
        raise Failed(f"slower than the bare card by more than a tenth: {slow}: {detail}")
    return detail


def starts(machine, pool, table):
    program = machine.compile("cost.c")
    one = alternating([program, "start"], machine, pool)
    walls = {}
    for kind, env in (("bare", machine.bare_env()), ("pooled", pool.env())):
        begin = time.monotonic()
        children = [subprocess.Popen([program, "start"], env=env, stdout=subprocess.DEVNULL) for _ in range(256)]
        codes = [child.wait(timeout=120) for child in children]
        walls[kind] = time.monotonic() - begin
        if any(codes):
            raise Failed(f"{sum(code != 0 for code in codes)} of 256 {kind} processes failed")
    table.note("start_256_seconds", walls)
    return f"ns: {told(one, table, 'start')}; 256 at once {walls['bare']:.2f} s bare, {walls['pooled']:.2f} s pooled"
