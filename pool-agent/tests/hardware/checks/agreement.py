"""M7: every intercepted call with NULL and invalid arguments answers as the real driver does."""

from rig import Failed, Pool, run


def checks(machine, table):
    program = machine.compile("agree.c")
    pool = Pool(machine, "agreement")
    try:
        bare, pooled = answers(program, machine.bare_env()), answers(program, pool.env())
        table.note("agree_bare", bare)
        table.attempt("NULL and invalid arguments: as the real driver", lambda: compare(bare, pooled))
    finally:
        pool.close()


def answers(program, env):
    """Label to `code marks`. A case that kills the process is a "crash"; the rest follows in a new process."""
    found, first = {}, 0
    while True:
        done = run([program, first], env)
        lines = done.stdout.splitlines()
        if lines and lines[-1].startswith("failed"):
            raise Failed(lines[-1])
        for line in lines:
            if line == "end":
                return found
            number, rest = line.split(" ", 1)
            label, *answer = rest.rsplit(" ", 2)
            if rest.endswith(" "):
                label, answer = rest.strip(), ["crash"]
            found[label] = " ".join(answer)
            first = int(number) + 1
        if not lines:
            raise Failed(f"ended with {done.returncode} before the first case: {done.stderr[-200:]}")


def compare(bare, pooled):
    # A function that this driver does not have: the stand-in exports it and says "not found".
    agree = lambda real, ours: real == ours or (real == "absent -" and ours == "500 ....")
    wrong = [f"{label}: bare {bare[label]}, pooled {pooled.get(label)}" for label in bare if not agree(bare[label], pooled.get(label))]
    if wrong:
        raise Failed(f"{len(wrong)} of {len(bare)} differ: " + "; ".join(wrong))
    crashes = sum(answer == "crash" for answer in bare.values())
    return f"{len(bare)} cases agree ({crashes} crash in the real driver too)"
