"""Triton kernels over operands on both sides of the seam.    triton_pool.py <primary GiB> <pool bytes or 0>"""

import pathlib
import sys

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import check, digest  # noqa: E402


@triton.jit
def scramble(to, count, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    x = at.to(tl.uint32)
    x = (x ^ (x >> 15)) * 2246822519
    tl.store(to + at, (x ^ (x >> 13)).to(tl.int32, bitcast=True), mask=at < count)


@triton.jit
def bins(source, into, count, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    seen = tl.load(source + at, mask=at < count, other=0)
    tl.atomic_add(into + (seen & 255), tl.full((SIZE,), 1, tl.int64), mask=at < count)


@triton.jit
def product(a, b, c, width: tl.constexpr, SIZE: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    columns = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    deep = tl.arange(0, DEPTH)
    total = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    for first in range(0, width, DEPTH):
        left = tl.load(a + rows[:, None] * width + (first + deep)[None, :])
        right = tl.load(b + (first + deep)[:, None] * width + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * width + columns[None, :], total.to(tl.float16))


def main():
    primary = int(sys.argv[1]) << 30
    count = primary * 5 // 4 // 4
    numbers = torch.empty(count, dtype=torch.int32, device="cuda")
    scramble[(triton.cdiv(count, 4096),)](numbers, count, SIZE=4096)
    digest("scrambled", numbers[:: 1 << 12])
    found = torch.zeros(256, dtype=torch.int64, device="cuda")
    bins[(triton.cdiv(count, 4096),)](numbers, found, count, SIZE=4096)
    check("atomics: every element counted once", int(found.sum()) == count, f"{count >> 20} Mi elements")
    digest("bins", found)
    width = 4096
    tile = lambda part: ((part.view(width, width) & 127).to(torch.float16) - 64) / 64
    a, b = tile(numbers[: 1 << 24]), tile(numbers[-(1 << 24) :])
    place = numbers[-(1 << 25) : -(1 << 24)].view(torch.float16)[: width * width].view(width, width)
    product[(width // 128, width // 128)](a, b, place, width, SIZE=128, DEPTH=64, num_warps=8)
    reference = a @ b
    difference = (place.float() - reference.float()).norm() / reference.float().norm()
    check("product agrees with cuBLAS", float(difference) < 4e-3, f"relative {float(difference):.1e}")
    digest("product", place)


main()
