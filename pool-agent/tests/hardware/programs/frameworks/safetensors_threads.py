"""Weights read by several threads at once into a pool that they overflow (V1).    safetensors_threads.py <primary GiB> <pool bytes or 0>"""

import concurrent.futures
import pathlib
import sys
import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import check, digest  # noqa: E402

SHARDS, TENSORS = 8, 3


def shard(at, bytes_each):
    """Numbers that say of which shard, tensor and place they are."""
    rows = bytes_each // TENSORS // 4096 // 4
    first = torch.arange(rows * 4096, dtype=torch.int32).view(rows, 4096)
    return {f"weight.{at}.{part}": first * 31 + at * 7 + part for part in range(TENSORS)}


def load(path, at, bytes_each):
    with safe_open(path, framework="pt", device="cuda:0") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}
    right = all(torch.equal(held[name].cpu(), tensor) for name, tensor in shard(at, bytes_each).items())
    return held, right


def main():
    primary = int(sys.argv[1]) << 30
    bytes_each = primary * 3 // 2 // SHARDS
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(SHARDS) as crew:
        paths = [f"{folder}/model-{at}.safetensors" for at in range(SHARDS)]
        for at, path in enumerate(paths):
            save_file(shard(at, bytes_each), path)
        loaded = list(crew.map(lambda at: load(paths[at], at, bytes_each), range(SHARDS)))
    held = sum(tensor.numel() * 4 for part, _ in loaded for tensor in part.values())
    check("more than the primary is held", held > primary, f"{held >> 20} MiB by {SHARDS} threads")
    check("every byte is as written", all(right for _, right in loaded))
    for part, _ in loaded:
        for name, tensor in part.items():
            digest(name, tensor[::257])


main()
