"""Tensors shared between processes by `torch.multiprocessing`: one on the primary, one beyond it.

The first must arrive whole. The second must arrive whole or be refused with an error that a program can catch; `figure spilled` is
1 or 0. Afterwards the program goes on.    torch_share.py <primary GiB> <pool bytes or 0>
"""

import pathlib
import sys

import torch
import torch.multiprocessing as processes

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import check, digest, figure  # noqa: E402


def receive(inbox, outbox):
    while (tensor := inbox.get()) is not None:
        total = int(tensor.sum().item())
        tensor.add_(1)
        torch.cuda.synchronize()
        outbox.put(total)
        del tensor


def exchange(tensor, inbox, outbox):
    expected = int(tensor.sum().item())
    inbox.put(tensor)
    seen = outbox.get(timeout=90)
    torch.cuda.synchronize()
    return seen == expected and int(tensor.sum().item()) == expected + tensor.numel()


def main():
    primary = int(sys.argv[1]) << 30
    context = processes.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(inbox, outbox), daemon=True)
    child.start()
    local = torch.arange(1 << 20, dtype=torch.int64, device="cuda")
    check("a tensor on the primary is shared and written by the other process", exchange(local, inbox, outbox))
    digest("shared", local)
    wide = torch.arange(primary * 5 // 4 // 8, dtype=torch.int64, device="cuda")
    try:
        # The handle is made here, so that a refusal is seen here and not in the queue's own thread.
        wide.untyped_storage()._share_cuda_()
        check("a tensor beyond the primary is shared and written by the other process", exchange(wide, inbox, outbox))
        figure("spilled", 1)
    except RuntimeError as error:
        words = str(error).splitlines()[0]
        check("a tensor beyond the primary is refused with an error", "CUDA error" in words or "cuda" in words.lower(), words)
        figure("spilled", 0)
    check("goes on after it", float(torch.ones(1000, device="cuda").sum()) == 1000.0)
    wide.fill_(3)
    digest("the wide tensor", wide[:: 1 << 12])
    inbox.put(None)
    child.join(timeout=60)
    check("the other process ends well", child.exitcode == 0, f"exit {child.exitcode}")


if __name__ == "__main__":
    main()
