"""Checks by subject: each module has `checks(machine, table)`, which adds its rows to the table."""
