"""What the real driver answers of stitched and recycled memory, what pointers into a block say, and whether bytes leak between processes."""

from checks.crashes import Child
from rig import GIB, Failed, Pool, facts

# Of a block that straddles cards, what must be as for one native block. The rest is the driver's word on mapped memory, and is noted.
AGREE = {
    "range", "context", "memory_type", "device_pointer", "host_pointer", "buffer_id", "managed", "ordinal", "range_start", "range_size",
    "mapped", "four_at_once", "mempool",
}


def checks(machine, table):
    table.attempt("facts of the driver (noted)", lambda: of_driver(machine, table))
    table.attempt("pointers into a block that straddles", lambda: pointers(machine, table))
    for how in ("exits", "is killed"):
        table.attempt(f"a process that {how} leaves nothing to read", lambda how=how: residue(machine, table, how))
    table.attempt("checkpoint of a process, native and straddling (noted)", lambda: checkpoint(machine, table))


def of_driver(machine, table):
    found = facts([machine.compile("facts.c")], machine.bare_env())
    for name, value in found.items():
        table.note(name, value)
    return ", ".join(f"{name}={value}" for name, value in found.items())


def pointers(machine, table):
    program = machine.compile("pointers.c")
    pool = Pool(machine, "pointers", cap=2 * GIB, donor_bytes=2 * GIB)
    try:
        bare = facts([program, 3 << 10, 64], machine.bare_env())
        pooled = facts([program, 3 << 10, 64], pool.env())
    finally:
        pool.close()
    differ = {name: (bare[name], pooled.get(name)) for name in bare if bare[name] != pooled.get(name)}
    table.note("pointers", {"native": bare, "straddling": pooled})
    wrong = {name: both for name, both in differ.items() if name.split("_", 1)[-1] in AGREE}
    if wrong:
        raise Failed(f"native and straddling: {wrong}")
    told = {name.removeprefix("front_"): both for name, both in differ.items() if not name.startswith(("middle_", "end_"))}
    return f"{len(bare) - len(differ)} of {len(bare)} answers as for a native block; others, native → straddling: " + ", ".join(
        f"{name} {one}→{other}" for name, (one, other) in told.items()
    )


def residue(machine, table, how):
    program = machine.compile("runtime.cu", "-cudart=static")
    pool = Pool(machine, f"residue-{how.split()[-1]}")
    child = Child([program, "stain", 90], pool.env())
    try:
        if (line := child.line()) != "ready":
            raise Failed(line)
        if how == "exits":
            child.say("go")
            child.wait()
        else:
            child.kill()
        found = facts([program, "sniff", 90], pool.env())
    finally:
        child.kill()
        pool.close()
    table.note(f"residue_after_{how.replace(' ', '_')}", found)
    if int(found["nonzero_words"]):
        raise Failed(f"{found}")
    return f"{found['taken_mib']} MiB written with 0xA5, taken by the next process: 0 of its words are not zero"


def checkpoint(machine, table):
    program, found = machine.compile("checkpoint.c"), {}
    pool = Pool(machine, "checkpoint", cap=1 * GIB, donors=1, donor_bytes=2 * GIB)
    try:
        for kind, env, percent in (("native", machine.bare_env(), 1), ("straddling", pool.env(), 70)):
            child = Child([machine.artefacts / "tarn-witness", "--json", "--hold", "--fill-percent", str(percent)], env)
            try:
                child.line()
                found[kind] = facts([program, child.pid], machine.bare_env(), timeout=30)
            finally:
                child.kill()
    finally:
        pool.close()
    table.note("checkpoint", found)
    return str(found)
