"""Numba kernels on an array larger than the primary.    numba_pool.py <primary GiB> <pool bytes or 0>"""

import pathlib
import sys

import numpy

# NumPy 2.5 dropped names that the numba-cuda of the same image still asks for when it is imported; nothing here uses them.
for gone, kin in (("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid")):
    if not hasattr(numpy, gone):
        setattr(numpy, gone, getattr(numpy, kin))

from numba import cuda  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import check, digest  # noqa: E402


@cuda.jit
def fill(to):
    for at in range(cuda.grid(1), to.size, cuda.gridsize(1)):
        to[at] = (at * 2654435761) & 0xFFFFFFFF


@cuda.jit
def count(source, into):
    for at in range(cuda.grid(1), source.size, cuda.gridsize(1)):
        cuda.atomic.add(into, source[at] >> 24, 1)


def main():
    primary, pool_bytes = int(sys.argv[1]) << 30, int(sys.argv[2])
    free, total = cuda.current_context().get_memory_info()
    check("memory info", not pool_bytes or total == pool_bytes, f"{total / 2**20:.0f} MiB")
    size = primary * 5 // 4 // 4
    numbers = cuda.device_array(size, dtype=numpy.uint32)
    bins = cuda.to_device(numpy.zeros(256, dtype=numpy.int64))
    fill[1024, 256](numbers)
    count[1024, 256](numbers, bins)
    found = bins.copy_to_host()
    check("every element counted once", int(found.sum()) == size, f"{size >> 20} Mi elements")
    digest("bins", found)
    head, tail = numbers[: 1 << 20].copy_to_host(), numbers[size - (1 << 20) :].copy_to_host()
    digest("head", head)
    digest("tail", tail)


main()
