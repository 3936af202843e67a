"""Layers of 8192 × 8192 in bf16, in sets of 32 (4 GiB), until nine tenths of the device are full: how fast the first and the last set run.

    gemm.py <device GiB>
"""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import figure  # noqa: E402

WIDTH, LAYERS = 8192, 32


def seconds(weights, batch):
    source = torch.randn(batch, WIDTH, dtype=torch.bfloat16, device="cuda")
    times = []
    for _ in range(4):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for weight in weights:
            out = source @ weight
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    del out
    return sorted(times[1:])[1]


def main():
    sets = int(float(sys.argv[1]) * 0.9 // 4)
    held = []
    for _ in range(sets):
        held.append([torch.empty(WIDTH, WIDTH, dtype=torch.bfloat16, device="cuda").normal_(std=0.02) for _ in range(LAYERS)])
    figure("filled_gib", sets * 4)
    for name, weights in (("first", held[0]), ("last", held[-1])):
        figure(f"{name}_1_gb_per_s", LAYERS * WIDTH * WIDTH * 2 / seconds(weights, 1) / 1e9)
        for batch in (512, 2048, 8192):
            figure(f"{name}_{batch}_tflops", LAYERS * 2 * batch * WIDTH * WIDTH / seconds(weights, batch) / 1e12)


main()
