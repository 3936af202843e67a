"""One device, one identity, one total, in every window."""

import json
import shutil

from rig import Failed, Pool, Skipped, facts, run


def checks(machine, table):
    pool = Pool(machine, "identity")
    try:
        table.attempt("CUDA: one device, the primary, the pool's total", lambda: cuda(machine, pool, table))
        table.attempt("NVML: the same by every call", lambda: nvml(machine, pool))
        table.attempt("nvidia-smi: the same in every form", lambda: smi(machine, pool))
        table.attempt("CUDA_VISIBLE_DEVICES shows the primary or nothing", lambda: visible(machine, pool))
        table.attempt("every way to the driver leads to the pool", lambda: loaders(machine, pool))
        table.attempt("without a broker: the primary alone", lambda: alone(machine))
        if pool.log():
            raise Failed(f"the log complains: {pool.log()[:300]}")
    finally:
        pool.close()


def witness(machine, env, *more):
    done = run([machine.artefacts / "tarn-witness", "--json", *more], env)
    if done.returncode:
        raise Failed(f"the witness ended with {done.returncode}: {done.stderr[-300:]}")
    return json.loads(done.stdout.splitlines()[-1])


def cuda(machine, pool, table):
    seen = witness(machine, pool.env())
    expected = {"devices": 1, "uuid": machine.card["uuid"], "total_bytes": pool.total, "mismatches": 0}
    wrong = {name: seen[name] for name, value in expected.items() if seen[name] != value}
    if wrong or seen["allocated_bytes"] < pool.total * 0.96:
        raise Failed(f"{wrong} of {seen}")
    table.note("witness", seen)
    return f"{seen['allocated_bytes'] >> 20} of {pool.total >> 20} MiB filled, {seen['granules']} granules, 0 bad words"


def nvml(machine, pool):
    (device,) = pool_devices(machine, pool)
    expected = {
        "uuid": machine.card["uuid"], "name": machine.card["name"], "pci": machine.card["pci"], "codes": [0, 0],
        "total": pool.total, "total_v2": pool.total, "used": 0, "used_v2": 0, "processes": [],
    }
    wrong = {name: device[name] for name, value in expected.items() if device[name] != value}
    if wrong:
        raise Failed(f"{wrong}")
    return f"total {device['total'] >> 20} MiB, used 0"


def pool_devices(machine, pool):
    return machine.nvml(pool.env())["devices"]


def smi(machine, pool):
    if not shutil.which("nvidia-smi"):
        raise Skipped("no nvidia-smi")
    total = pool.total >> 20
    forms = {
        "query": (["--query-gpu=count,uuid,memory.total,memory.used,memory.free", "--format=csv,noheader,nounits"], f"1, {machine.card['uuid']}, {total}, 0, {total}"),
        "list": (["-L"], machine.card["uuid"]),
        "table": ([], f"{total}MiB"),
        "xml": (["-q", "-x"], f"<total>{total} MiB</total>"),
        "memory": (["-q", "-d", "MEMORY"], f": {total} MiB"),
        "by uuid": (["-i", machine.card["uuid"], "--query-gpu=memory.total", "--format=csv,noheader,nounits"], f"{total}"),
    }
    for name, (arguments, wanted) in forms.items():
        done = run(["nvidia-smi", *arguments], pool.env())
        if done.returncode or wanted not in done.stdout:
            raise Failed(f"{name}: code {done.returncode}, no {wanted!r} in {done.stdout[:500]}")
    return f"{total} MiB in {len(forms)} forms"


def visible(machine, pool):
    def devices(value):
        done = run([machine.artefacts / "tarn-witness", "--json", "--fill-percent", "1"], pool.env(CUDA_VISIBLE_DEVICES=value))
        return json.loads(done.stdout.splitlines()[-1])["devices"] if done.returncode == 0 else 0

    uuid = machine.card["uuid"]
    expected = {"0": 1, "0,1,2,3": 1, uuid: 1, uuid[:12]: 1, "1": 0, "-1": 0, "": 0}
    wrong = {value: devices(value) for value, count in expected.items() if devices(value) != count}
    if wrong:
        raise Failed(f"{wrong}")
    return f"{len(expected)} values"


def loaders(machine, pool):
    program = machine.compile("loaders.c")
    bare, pooled = facts([program], machine.bare_env()), facts([program], pool.env())
    works = {way for way, told in bare.items() if told.isdigit()}
    wrong = {way: pooled.get(way) for way in works if pooled.get(way) != str(pool.total)}
    wrong |= {way: told for way, told in pooled.items() if told.isdigit() and int(told) != pool.total}
    if wrong:
        raise Failed(f"{wrong}")
    return f"{len(works)} of {len(bare)} ways work on the bare card and in the pool ({', '.join(sorted(set(bare) - works))} do not on the bare card)" if set(bare) - works else f"{len(works)} ways"


def alone(machine):
    pool = Pool(machine, "alone")
    pool.kill_broker()
    seen = witness(machine, pool.env(), "--fill-percent", "50")
    if seen["total_bytes"] != pool.cap or seen["mismatches"]:
        raise Failed(f"{seen}")
    (device,) = pool_devices(machine, pool)
    if device["total"] != pool.cap:
        raise Failed(f"NVML shows {device['total']}")
    return pool.log().splitlines()[0]
