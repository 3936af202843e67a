"""What a Python program of the suite says: `check <name> ok|failed <detail>`, `digest <name> <hex>`, `figure <name> <number>`."""

import hashlib


def check(name, ok, detail=""):
    print(f"check {name} {'ok' if ok else 'failed'} {detail}", flush=True)


def digest(name, array):
    """Of a NumPy array's bytes, or of a Torch tensor's; compared with the same program's on the bare card."""
    if hasattr(array, "detach"):
        import torch

        array = array.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy()
    print(f"digest {name} {hashlib.sha256(array.tobytes()).hexdigest()[:24]}", flush=True)


def figure(name, value):
    print(f"figure {name} {value:.6g}", flush=True)
