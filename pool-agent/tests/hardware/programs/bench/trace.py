"""Which of a product's allocations costs its speed when it lies far from the card: weight, input, output or workspace.

Runs on the bare card, without a pool. Each allocation in turn is placed in far memory (see far.c) while the others stay local.
    trace.py <library of far.c>
"""

import os
import pathlib
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":32768:1")

import torch  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import check, figure  # noqa: E402

WIDTH = 8192
BATCHES = (1, 64, 512, 2048)
PARTS = ("weight", "input", "output", "workspace")


def milliseconds(work, rounds):
    times = []
    for _ in range(rounds + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times[1:])[rounds // 2]


def main():
    allocator = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "far_malloc", "far_free")
    far = torch.cuda.MemPool(allocator.allocator())

    def made(shape, distant):
        if not distant:
            return torch.randn(shape, dtype=torch.bfloat16, device="cuda")
        with torch.cuda.use_mem_pool(far):
            place = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
        return place.copy_(torch.randn(shape, dtype=torch.bfloat16, device="cuda"))

    line = made((1 << 27,), True)
    figure("far_read_gb_per_s", line.numel() * 2 / milliseconds(lambda: line.view(torch.int32).max(), 3) / 1e6)
    figure("far_write_gb_per_s", line.numel() * 2 / milliseconds(lambda: line.fill_(1), 3) / 1e6)
    del line
    for batch in BATCHES:
        local = None
        for distant in (None, *PARTS):
            weight = made((WIDTH, WIDTH), distant == "weight")
            source = made((batch, WIDTH), distant == "input")
            out = made((batch, WIDTH), distant == "output")
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()
            if distant == "workspace":
                before = torch.cuda.memory_allocated()
                with torch.cuda.use_mem_pool(far):
                    torch.mm(source, weight, out=out)
                figure(f"workspace_{batch}_bytes", torch.cuda.memory_allocated() - before)
            spent = milliseconds(lambda: torch.mm(source, weight, out=out), 5)
            figure(f"{distant or 'local'}_{batch}_ms", spent)
            local = local or out.float().norm().item()
            del weight, source, out
    check("products were computed", local > 0)


main()
