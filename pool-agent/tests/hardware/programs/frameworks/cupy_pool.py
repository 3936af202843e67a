"""CuPy beyond the primary: its own pool, then the driver's stream-ordered one.    cupy_pool.py <primary GiB> <pool bytes or 0>"""

import pathlib
import sys

import cupy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import check, digest  # noqa: E402

SCRAMBLE = cupy.ElementwiseKernel("uint32 x", "uint32 y", "y = (x ^ (x >> 15)) * 2246822519u; y ^= y >> 13", "scramble")
COUNT = cupy.RawKernel(
    r"""
extern "C" __global__ void histogram(const unsigned *from, size_t count, unsigned long long *into) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
    atomicAdd(into + (from[i] >> 24), 1ull);
}""",
    "histogram",
)


def work(name, primary):
    count = primary * 5 // 4 // 4
    numbers = SCRAMBLE(cupy.arange(count, dtype=cupy.uint32))
    bins = cupy.zeros(256, dtype=cupy.uint64)
    COUNT((512,), (256,), (numbers, count, bins))
    check(f"{name}: every element counted once", int(bins.sum()) == count, f"{count >> 20} Mi elements")
    digest(f"{name}: histogram", cupy.asnumpy(bins))
    digest(f"{name}: sorted tail", cupy.asnumpy(cupy.sort(numbers[-(1 << 24) :])[:: 1 << 10]))
    left = (numbers[: 1 << 24].reshape(4096, 4096) % 97).astype(cupy.float32) - 48
    right = (numbers[-(1 << 24) :].reshape(4096, 4096) % 89).astype(cupy.float32) - 44
    digest(f"{name}: product over the seam", cupy.asnumpy(left @ right))
    digest(f"{name}: transform", cupy.asnumpy(cupy.fft.fft(right[:256])))


def main():
    primary = int(sys.argv[1]) << 30
    work("own pool", primary)
    pool = cupy.get_default_memory_pool()
    check("held more than the primary", pool.total_bytes() > primary, f"{pool.total_bytes() >> 20} MiB")
    pool.free_all_blocks()
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    work("stream-ordered", primary)
    cupy.cuda.set_allocator(pool.malloc)
    try:
        cupy.empty(1 << 42, dtype=cupy.uint8)
        check("out of memory", False, "4 TiB were given")
    except cupy.cuda.memory.OutOfMemoryError as error:
        check("out of memory", True, str(error)[:80])
    check("goes on after it", int(cupy.ones(1000).sum()) == 1000)


main()
