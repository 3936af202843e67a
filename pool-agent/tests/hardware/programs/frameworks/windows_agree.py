"""While more than the primary is held: CUDA, NVML through pynvml and nvidia-smi tell one story.

    windows_agree.py <primary GiB> <pool bytes or 0>
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pynvml
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import check, digest  # noqa: E402


def smi(*query):
    if not shutil.which("nvidia-smi"):
        return None
    done = subprocess.run(["nvidia-smi", *query, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True)
    return [line.strip() for line in done.stdout.splitlines()]


def main():
    primary, pool_bytes = int(sys.argv[1]) << 30, int(sys.argv[2])
    held = torch.full((primary * 3 // 2 // 8,), 5, dtype=torch.int64, device="cuda")
    digest("sum", held[:: 1 << 16])
    free, total = torch.cuda.mem_get_info()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    if not pool_bytes:
        return
    check("one device everywhere", pynvml.nvmlDeviceGetCount() == 1 == torch.cuda.device_count())
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    check("one identity", pynvml.nvmlDeviceGetUUID(handle) == f"GPU-{uuid}", uuid)
    check("one total", total == memory.total == second.total == pool_bytes, f"{total >> 20} MiB")
    check("one figure of use", memory.used == second.used == total - free and memory.free == free,
          f"CUDA {(total - free) >> 20}, NVML {memory.used >> 20} and {second.used >> 20} MiB")
    (own,) = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    check("one process, with all that it holds", own.pid == os.getpid() and own.usedGpuMemory >= held.numel() * 8,
          f"pid {own.pid} of {os.getpid()}, {own.usedGpuMemory >> 20} MiB")
    told = smi("--query-gpu=memory.total,memory.used,memory.free,count")
    if told:
        ours = [str(pool_bytes >> 20), str(memory.used >> 20), str(memory.free >> 20), "1"]
        near = all(abs(int(a) - int(b)) <= 1 for a, b in zip(told[0].split(", "), ours))
        check("nvidia-smi says the same", len(told) == 1 and near, f"{told} for {ours}")
        listed = smi("--query-compute-apps=pid,used_memory")
        check("nvidia-smi lists the process", any(line.startswith(f"{os.getpid()},") for line in listed), f"{listed}")
    check("torch's own words", torch.cuda.device_memory_used() == memory.used, f"{torch.cuda.device_memory_used() >> 20} MiB")


main()
