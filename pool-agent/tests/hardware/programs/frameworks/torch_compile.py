"""`torch.compile` with weights and activations beyond the primary: compiled equals the bare card's compiled, forward and backward.

    torch_compile.py <primary GiB> <pool bytes or 0>
"""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import check, digest  # noqa: E402


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.RMSNorm(width)
        self.up = torch.nn.Linear(width, 2 * width, bias=False)
        self.down = torch.nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x)), approximate="tanh"))


def main():
    primary = int(sys.argv[1]) << 30
    ballast = torch.full((primary // 8,), 7, dtype=torch.int64, device="cuda")
    torch.manual_seed(5)
    with torch.device("cuda"):
        model = torch.nn.Sequential(*[Block(4096) for _ in range(3)]).to(torch.bfloat16)
        batch = torch.randn(2048, 4096, dtype=torch.bfloat16)
    check("more than the primary is held", torch.cuda.memory_allocated() > primary, f"{torch.cuda.memory_allocated() >> 20} MiB")
    compiled = torch.compile(model)
    for step in range(2):
        model.zero_grad()
        out = compiled(batch)
        out.float().pow(2).mean().backward()
    eager = model(batch)
    close = torch.nn.functional.cosine_similarity(out.float().flatten(), eager.float().flatten(), dim=0).item()
    check("compiled agrees with eager", close > 0.9999, f"cosine {close:.6f}")
    digest("compiled output", out)
    digest("compiled gradient", model[0].up.weight.grad)
    replayed = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(3):
            graphed = replayed(batch).clone()
    digest("compiled with graphs", graphed)
    check("what lay on the primary is intact", bool((ballast[:: 1 << 16] == 7).all()))


main()
