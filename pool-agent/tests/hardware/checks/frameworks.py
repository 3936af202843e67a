"""Frameworks, unmodified, in a pool larger than its primary: every result equals the same program's on the bare card."""

import importlib.util
import sys
from dataclasses import dataclass, field

from checks.programs import Quiet, ended
from rig import GIB, PROGRAMS, Failed, Pool, Skipped, run

PRIMARY_GIB = 4


@dataclass
class Program:
    """A program, what it needs, and how it differs inside a pool."""

    name: str
    script: str
    needs: str
    settings: dict = field(default_factory=dict)
    bare: dict = field(default_factory=dict)
    donor_gib: int = 3
    policy: dict = field(default_factory=dict)


ALL = [
    Program("torch.compile", "torch_compile.py", "torch triton"),
    Program("torch.multiprocessing", "torch_share.py", "torch"),
    Program("torch.multiprocessing, expandable_segments", "torch_share.py", "torch", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    Program("transformers", "llama.py", "torch transformers", donor_gib=9),
    Program("CuPy", "cupy_pool.py", "cupy", donor_gib=6),
    Program("JAX, preallocating 75 %", "jax_pool.py", "jax", {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.75"}, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, 6),
    Program("JAX, on demand", "jax_pool.py", "jax", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, donor_gib=6),
    Program("Triton", "triton_pool.py", "torch triton"),
    Program("Numba", "numba_pool.py", "numba.cuda"),
    Program("safetensors, 8 threads", "safetensors_threads.py", "torch safetensors"),
    Program("safetensors, 8 threads, expandable_segments", "safetensors_threads.py", "torch safetensors", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    Program("NCCL, one rank", "nccl_one.py", "torch"),
    Program("pynvml and nvidia-smi", "windows_agree.py", "torch pynvml"),
]


def checks(machine, table):
    table.together([(program.name, lambda part, program=program: one(machine, part, program)) for program in ALL])


def one(machine, table, program):
    for package in program.needs.split():
        if not present(package):
            raise Skipped(f"no {package}")
    command = [sys.executable, PROGRAMS / "frameworks" / program.script, PRIMARY_GIB]
    alone = run([*command, 0], machine.bare_env(**program.settings, **program.bare), timeout=240)
    if alone.returncode:
        raise Skipped(f"does not run on the bare card: {(alone.stdout[-200:] + alone.stderr)[-400:]}")
    expected = ended(alone, f"{program.name}, bare card", Quiet())
    pool = Pool(machine, f"frameworks-{program.name}", cap=PRIMARY_GIB * GIB, donor_bytes=program.donor_gib * GIB, **program.policy)
    try:
        done = run([*command, pool.total], pool.env(**program.settings), timeout=240)
        found = ended(done, program.name, table)
    finally:
        pool.close()
    differ = sorted(name for name in expected if expected[name] != found.get(name))
    if differ or not expected:
        raise Failed(f"results differ from the bare card: {differ}; log: {pool.log()[:200]}")
    said = f"; log: {pool.log()[:300]}" if pool.log() else ""
    return f"{len(expected)} results bit-equal to the bare card{said}"


def present(package):
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
