"""Many processes at once: importing one descriptor on the bare driver, and taking chunks of a pool."""

from rig import GIB, Pool, facts

CLIENTS = (1, 16, 256)


def checks(machine, table):
    table.attempt("one descriptor imported by 1, 16, 256 processes (noted)", lambda: imported(machine, table))
    table.attempt("chunks of 64 MiB leased by 1, 16, 256 processes (noted)", lambda: leased(machine, table))


def told(table, name, by_clients):
    table.note(name, by_clients)
    return "; ".join(
        f"{count}: take p50 {found['take_p50']} p99 {found['take_p99']} max {found['take_max']} µs, {found['per_second']}/s"
        for count, found in by_clients.items()
    )


def imported(machine, table):
    program = machine.compile("crowd.c")
    return told(table, "imported", {count: facts([program, "import", count, 16], machine.bare_env()) for count in CLIENTS})


def leased(machine, table):
    program = machine.compile("crowd.c")
    # A reserve as large as the primary: every chunk is a donor's.
    pool = Pool(machine, "clients", cap=2 * GIB, reserve_bytes=2 * GIB)
    try:
        return told(table, "leased", {count: facts([program, "lease", count, 8, 64], pool.env()) for count in CLIENTS})
    finally:
        pool.close()
