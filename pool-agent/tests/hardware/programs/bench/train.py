"""A training step whose working set fits the primary: tokens per second.    train.py"""

import pathlib
import sys
import time

import torch
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import figure  # noqa: E402

WIDTH, HEADS, LAYERS, WORDS, BATCH, LENGTH = 1024, 16, 16, 32000, 8, 1024


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = torch.nn.RMSNorm(WIDTH), torch.nn.RMSNorm(WIDTH)
        self.all = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.all(self.before(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.silu(self.up(self.between(x))))


def main():
    torch.manual_seed(2)
    with torch.device("cuda"):
        words = torch.nn.Embedding(WORDS, WIDTH)
        layers = torch.nn.Sequential(*[Layer() for _ in range(LAYERS)])
        head = torch.nn.Linear(WIDTH, WORDS, bias=False)
        text = torch.randint(0, WORDS, (BATCH, LENGTH + 1))
    model = torch.nn.ModuleList([words, layers, head]).to(torch.bfloat16)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        optimiser.zero_grad()
        out = head(layers(words(text[:, :-1])))
        functional.cross_entropy(out.view(-1, WORDS).float(), text[:, 1:].reshape(-1)).backward()
        optimiser.step()

    figure("train_tokens_per_s", BATCH * LENGTH * rate(step, 24))
    figure("train_peak_mib", torch.cuda.max_memory_allocated() >> 20)


def rate(work, rounds):
    for _ in range(max(2, rounds // 4)):
        work()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(rounds):
        work()
    torch.cuda.synchronize()
    return rounds / (time.perf_counter() - begin)


main()
