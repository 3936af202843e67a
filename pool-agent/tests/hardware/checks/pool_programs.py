"""Programs that share, hint, move and order memory in the pool: those of the stand-in's own tests, on the real driver."""

import subprocess

from rig import GIB, HERE, Failed, Pool

SOURCES = HERE.parents[1] / "cuda" / "tests" / "programs"
BLOCK = 30 * GIB


def checks(machine, table):
    pool = Pool(machine, "pool-programs")
    try:
        story = lambda name, what, lines="": table.attempt(f"{name} {what}", lambda: told(machine, pool, name, what, lines))
        for words in ("eager 128 240 128 3 said", "async 128 240 128 3 said", "expandable 120 256 120 4 said", "eager 32 1000 128 3 slept 500"):
            table.attempt(f"weights first, then activations: {words}", lambda words=words: loaded(machine, pool, words))
        story("hinting", "hints")
        story("hinting", "moves")
        story("hinting", "decode")
        story("ordered", "reserve", "go on\n")
        story("sharing", "exporter", "go on\ngo on\n")
        table.attempt("a straddling block opened by another process", lambda: shared(machine, pool))
        table.attempt("nothing was complained about", lambda: quiet(pool))
    finally:
        pool.close()
    table.attempt("memory of the host tier", lambda: overflowing(machine))


def program(machine, name):
    return machine.compile(SOURCES / f"{name}.c", "-pthread")


def told(machine, pool, name, what, lines):
    extra = ["1", "400"] if what == "decode" else []
    done = subprocess.run(
        [program(machine, name), "dlopen", what, *extra], env=pool.env(), input=lines, capture_output=True, text=True, timeout=150
    )
    if done.returncode or "done=1" not in done.stdout:
        raise Failed(f"ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
    return ", ".join(line for line in done.stdout.splitlines() if "=" in line and not line.startswith("done"))


def loaded(machine, pool, words):
    """Activations end on the primary, beside weights that fill it."""
    done = subprocess.run(
        [program(machine, "loading"), "dlopen", *words.split()], env=pool.env(), capture_output=True, text=True, timeout=150
    )
    if done.returncode or "done=1" not in done.stdout:
        raise Failed(f"ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
    told = {name: int(value) for name, value in (line.split("=") for line in done.stdout.splitlines())}
    detail = ", ".join(f"{name} {value >> 20} MiB" for name, value in told.items() if name.endswith(("local", "far")))
    if told["bad"] or told["activations_far"] or not told["weights_far"] or told["weights_local"] > pool.cap - pool.reserve:
        raise Failed(detail)
    return detail


class Talker:
    """A program that takes commands."""

    def __init__(self, machine, pool, role, name="sharing"):
        self.child = subprocess.Popen(
            [program(machine, name), "dlopen", *role.split()], env=pool.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.facts = {}
        self.hear()

    def hear(self):
        for line in self.child.stdout:
            if line.startswith("failed"):
                raise Failed(line.strip())
            if line == "waiting\n":
                return
            self.facts.update([line.strip().split("=", 1)] if "=" in line else [])
        raise Failed(f"ended with {self.child.wait()}")

    def ask(self, command, **expected):
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()
        self.hear()
        for name, value in expected.items():
            if self.facts.get(name) != str(value):
                raise Failed(f"{command.split()[0]}: {name}={self.facts.get(name)}, expected {value}")

    def end(self):
        self.child.kill()
        self.child.wait()


def shared(machine, pool):
    owner, opener = Talker(machine, pool, "owner"), Talker(machine, pool, "opener")
    try:
        owner.ask(f"take {BLOCK}")
        owner.ask("handle 0", got=0)
        opener.ask(f"open {owner.facts['handle']}", open=0, bytes=BLOCK)
        opener.ask("check", bad=0)
        opener.ask("write", wrote=1)
        owner.ask("check 0", bad=0)
        owner.ask("free 0", freed=0)
        opener.ask("close", closed=1)
    finally:
        owner.end()
        opener.end()
    return f"{BLOCK >> 30} GiB, written by one process and read by the other"


def overflowing(machine):
    """What no card has room for lies on the host, keeps its bytes past a broker's death, and is in no total."""
    tier = 4 * GIB
    pool = Pool(machine, "host-tier", cap=4 * GIB, donor_bytes=2 * GIB, host_tier=tier)
    talker = None
    try:
        talker = Talker(machine, pool, f"overflow {GIB}", "hinting")
        host, facts = int(talker.facts["host"]), talker.facts
        if int(facts["total"]) != pool.total or not tier - GIB <= host <= tier or int(facts["full"]) >= GIB:
            raise Failed(str(facts))
        talker.ask("check", bad=0)
        pool.kill_broker()
        talker.ask("check", bad=0)
        pool.start_broker()
        talker.ask("more", more=2)
        talker.ask("check", bad=0)
        quiet(pool)
        return f"{host >> 20} MiB beyond a full pool of {pool.total >> 30} GiB"
    finally:
        if talker:
            talker.end()
        pool.close()


def quiet(pool):
    lines = [line for line in pool.log().splitlines() if line]
    if lines:
        raise Failed("; ".join(lines)[:400])
