"""NCCL on the one device: by torch.distributed and, as vLLM does, through ctypes (V7).    nccl_one.py <primary GiB> <pool bytes or 0>"""

import ctypes
import os
import pathlib
import sys
import tempfile
import time

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import torch  # noqa: E402
import torch.distributed as distributed  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import check, digest  # noqa: E402


class Identity(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


def by_ctypes():
    (loaded,) = {line.split()[-1] for line in open("/proc/self/maps", encoding="utf-8") if "libnccl" in line}
    library = ctypes.CDLL(loaded)
    version, identity, communicator = ctypes.c_int(), Identity(), ctypes.c_void_p()
    library.ncclGetVersion(ctypes.byref(version))
    library.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, Identity, ctypes.c_int]
    code = library.ncclGetUniqueId(ctypes.byref(identity)) or library.ncclCommInitRank(ctypes.byref(communicator), 1, identity, 0)
    tensor = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    pointer, stream = ctypes.c_void_p(tensor.data_ptr()), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    library.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    code = code or library.ncclAllReduce(pointer, pointer, tensor.numel(), 7, 0, communicator, stream)
    torch.cuda.synchronize()
    library.ncclCommDestroy.argtypes = [ctypes.c_void_p]
    code = code or library.ncclCommDestroy(communicator)
    check("NCCL through ctypes", code == 0, f"version {version.value}, code {code}")
    digest("through ctypes", tensor)


def main():
    primary = int(sys.argv[1]) << 30
    begin = time.monotonic()
    distributed.init_process_group("nccl", init_method=f"file://{tempfile.mkdtemp()}/meeting", rank=0, world_size=1, device_id=torch.device("cuda:0"))
    wide = torch.arange(primary * 5 // 4 // 8, dtype=torch.int64, device="cuda")
    distributed.all_reduce(wide)
    torch.cuda.synchronize()
    check("all-reduce of more than the primary", bool((wide[:: 1 << 20].cpu() == torch.arange(0, wide.numel(), 1 << 20)).all()), f"{time.monotonic() - begin:.1f} s with its start")
    parts = [torch.empty_like(wide[: 1 << 26])]
    distributed.all_gather(parts, wide[-(1 << 26) :])
    digest("gathered tail", parts[0][:: 1 << 10])
    by_ctypes()
    distributed.destroy_process_group()


main()
