"""SIGKILL of a process gives everything back; SIGKILL of the broker takes nothing away."""

import json
import queue
import subprocess
import threading

from rig import GIB, MIB, Failed, Pool, until

from checks.programs import split


def checks(machine, table):
    table.attempt("kill -9 of a process gives everything back", lambda: process(machine, table))
    table.attempt("kill -9 of the broker under a verifying program", lambda: broker(machine))
    table.attempt("kill -9 of the broker under kernels", lambda: kernels(machine, table))


class Child:
    """A running program and its lines, read as they come."""

    def __init__(self, command, env):
        command = [str(part) for part in command]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid, self.lines = self.process.pid, queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def line(self, patience=120):
        try:
            line = self.lines.get(timeout=patience)
        except queue.Empty:
            line = None
        if line is None:
            raise Failed(f"the program said nothing more, exit {self.process.poll()}")
        return line

    def say(self, text):
        self.process.stdin.write(text + "\n")

    def wait(self):
        return self.process.wait(timeout=60)

    def kill(self):
        self.process.kill()
        self.process.wait()


def process(machine, table):
    before, pool = machine.used(), Pool(machine, "killed")
    child = Child([machine.artefacts / "tarn-witness", "--json", "--hold"], pool.env())
    try:
        held = json.loads(child.line())["allocated_bytes"]
        during = machine.used() - before
        (inside,) = machine.nvml(pool.env())["devices"]
        outside = machine.seen()
        table.note("kill_process", {"held": held, "card": during, "inside": inside, "outside": outside, "pid": child.pid})
        child.kill()
        until("the card is as before", lambda: abs(machine.used() - before) <= 64 * MIB)
        until("the pool is empty", lambda: machine.nvml(pool.env())["devices"][0]["used"] == 0)
        if during < held:
            raise Failed(f"{during} bytes on the card while {held} were held")
        if inside["used"] < held or inside["used"] > pool.total:
            raise Failed(f"NVML in the pool showed {inside['used']} used while {held} were held")
        pids = [pid for pid, _ in inside["processes"]]
        return f"{held >> 20} MiB held, card +{during >> 20} MiB, processes inside {pids} outside {len(outside['processes'])}; all given back"
    finally:
        child.kill()
        pool.close()


def broker(machine):
    pool = Pool(machine, "orphaned")
    child = Child([machine.artefacts / "tarn-witness", "--json", "--fill-percent", "60", "--loop-seconds", "8"], pool.env())
    try:
        until("the program holds donors' memory", lambda: machine.nvml(pool.env())["devices"][0]["used"] > 50 * GIB, 60)
        pool.kill_broker()
        seen = json.loads(child.line())
        if seen["mismatches"] or seen["passes"] < 2 or child.wait():
            raise Failed(f"{seen}, exit {child.process.returncode}")
        return f"{seen['passes']} passes over {seen['allocated_bytes'] >> 20} MiB, 0 bad words"
    finally:
        child.kill()
        pool.close()


def kernels(machine, table):
    program = machine.compile("runtime.cu", "-cudart=shared")
    before, pool = machine.used(), Pool(machine, "kernels")
    child = Child([program, "hold", 30], pool.env())

    def rows_until(stop):
        while (line := child.line()) != stop:
            if line.startswith("check "):
                name, result, detail = split(line)
                table.add(f"broker killed: {name}", result, detail)

    try:
        rows_until("ready")
        pool.kill_broker()
        child.say("go")
        rows_until("ready")
        pool.start_broker()
        child.say("go")
        rows_until("end")
        if child.wait():
            raise Failed(f"exit {child.process.returncode}")
        until("the card is as before", lambda: abs(machine.used() - before) <= 64 * MIB)
        return f"log: {pool.log()[:200]}" if pool.log() else ""
    finally:
        child.kill()
        pool.close()
