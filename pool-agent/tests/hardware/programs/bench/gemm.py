"""Layers of 8192 × 8192 in bf16, in sets, until nine tenths of the device are full: how fast the first and the last set run.

    gemm.py <device GiB> <layers in a set> <batches, comma-separated>
"""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import figure  # noqa: E402

WIDTH = 8192


def seconds(weights, batch, rounds):
    source = torch.randn(batch, WIDTH, dtype=torch.bfloat16, device="cuda")
    times = []
    for _ in range(rounds + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for weight in weights:
            out = source @ weight
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    del out
    return sorted(times[1:])[rounds // 2]


def main():
    layers, batches = int(sys.argv[2]), [int(batch) for batch in sys.argv[3].split(",")]
    set_gib = layers * WIDTH * WIDTH * 2 / 2**30
    held = []
    for _ in range(int(float(sys.argv[1]) * 0.9 // set_gib)):
        held.append([torch.empty(WIDTH, WIDTH, dtype=torch.bfloat16, device="cuda").normal_(std=0.02) for _ in range(layers)])
    figure("filled_gib", len(held) * set_gib)
    for name, weights, rounds in (("first", held[0], 3), ("last", held[-1], 1)):
        figure(f"{name}_1_gb_per_s", layers * WIDTH * WIDTH * 2 / seconds(weights, 1, rounds) / 1e9)
        for batch in batches if name == "first" else batches[:2]:
            figure(f"{name}_{batch}_tflops", layers * 2 * batch * WIDTH * WIDTH / seconds(weights, batch, rounds) / 1e12)


main()
