"""What the real driver answers of stitched memory, and what each step of a chunk's life costs."""

from rig import facts


def checks(machine, table):
    program = machine.compile("facts.c")

    def act():
        found = facts([program], machine.bare_env())
        for name, value in found.items():
            table.note(name, value)
        return ", ".join(f"{name}={value}" for name, value in found.items() if not name.startswith("split_"))

    table.attempt("facts of the driver (noted)", act)
