"""A chain of small kernels, bound by the processor: how many a second.    chain.py"""

import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import figure  # noqa: E402

ROUNDS, KERNELS = 20, 2000


def main():
    small = torch.ones(1024, device="cuda")
    times = []
    for _ in range(ROUNDS + 5):
        begin = time.perf_counter()
        for _ in range(KERNELS // 2):
            small = small * 1.0001 + 0.5
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    figure("small_kernels_per_s", KERNELS / sorted(times[5:])[ROUNDS // 2])
    figure("best_small_kernels_per_s", KERNELS / min(times))


main()
