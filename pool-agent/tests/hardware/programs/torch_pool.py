"""An unmodified PyTorch program: larger than the primary when told so, the same results as on the bare card.

Prints `check <name> ok|failed <detail>` and `digest <name> <hex>`; digests are compared with a run on the bare card.
    torch_pool.py <tensor GiB> <pool bytes or 0>
"""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tell import check, digest  # noqa: E402


def main():
    gib, pool_bytes = int(sys.argv[1]), int(sys.argv[2])
    device = torch.device("cuda:0")
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    check("mem_get_info", not pool_bytes or total == pool_bytes == properties.total_memory, f"{total >> 20} MiB")
    check("one device", torch.cuda.device_count() == 1, properties.name)

    count = gib << 27  # eight bytes each
    big = torch.arange(count, dtype=torch.int64, device=device)
    seen = int(big[::4096].sum().item())
    check("tensor", seen == sum_of(count, 4096), f"{gib} GiB")
    big.mul_(3).add_(1)
    tail = big[-1024:].cpu()
    check("arithmetic at its end", bool((tail == torch.arange(count - 1024, count) * 3 + 1).all()))

    generator = torch.Generator().manual_seed(7)
    make = lambda dtype: torch.randn(4096, 4096, generator=generator).to(dtype).to(device)
    for dtype in (torch.bfloat16, torch.float32):
        a, b = make(dtype), make(dtype)
        digest(f"matmul {dtype}", a @ b)
    # Operands inside the large tensor, on both sides of wherever the primary ends.
    weights = big.view(torch.bfloat16)
    for share in (0.1, 0.5, 0.78, 0.95):
        start = int(weights.numel() * share) // 4096 * 4096
        place = weights[start : start + 4096 * 4096].view(4096, 4096)
        place.copy_(make(torch.bfloat16))
        digest(f"matmul at {share}", make(torch.bfloat16) @ place)
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0)
    torch.manual_seed(3)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    layer = layer.to(device)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=1e-3, foreach=True)
    batch = torch.randn(8, 256, 1024, generator=generator).to(device)
    for _ in range(3):
        optimiser.zero_grad()
        loss = layer(batch).float().pow(2).mean()
        loss.backward()
        optimiser.step()
    check("three training steps", bool(torch.isfinite(loss)), f"loss {loss.item():.6f}")
    digest("gradient", layer.linear1.weight.grad)
    digest("weight", layer.linear1.weight)

    graph_replay(weights, make)
    del big, weights, place
    if not pool_bytes:
        return
    out_of_memory(device)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    again = torch.cuda.mem_get_info()[0]
    check("given back", again + (4 << 30) >= free, f"{again >> 20} of {free >> 20} MiB free")


def sum_of(count, step):
    terms = (count + step - 1) // step
    total = step * terms * (terms - 1) // 2
    return (total + (1 << 63)) % (1 << 64) - (1 << 63)


def graph_replay(weights, make):
    place = weights[-(4096 * 4096) :].view(4096, 4096)
    place.copy_(make(torch.bfloat16))
    still = make(torch.bfloat16)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            _ = torch.relu(still @ place) + still
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.relu(still @ place) + still
    fresh = make(torch.bfloat16)
    still.copy_(fresh)
    graph.replay()
    torch.cuda.synchronize()
    check("graph equals eager", bool((out == torch.relu(fresh @ place) + fresh).all()))
    digest("graph", out)


def out_of_memory(device):
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device=device)
        check("out of memory", False, "1 TiB was given")
    except torch.OutOfMemoryError as error:
        check("out of memory", True, str(error).split(". ")[1][:120])
    check("goes on after it", float(torch.ones(1000, device=device).sum()) == 1000.0)


main()
