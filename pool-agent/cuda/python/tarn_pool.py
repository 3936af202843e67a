"""The pool behind this process's CUDA device: where memory lies, and hints where it should. One file, ctypes alone.

    import tarn_pool
    if tarn_pool.present():
        with tarn_pool.placement("cold"):
            weights = load_weights()            # donors first
        print(tarn_pool.residency(weights.data_ptr()))
        tarn_pool.migrate(weights.data_ptr(), "hot")

On a bare card present() is False and hints do nothing. include/tarn.h says what each call means.
"""

import contextlib
import ctypes

PLACEMENTS = {"default": 0, "hot": 1, "cold": 2, "interleave": 3, "balanced": 4}
FLAGS = {"spilled": 1, "pinned": 2, "shared": 4, "opened": 8, "mapped": 16}


class PoolError(RuntimeError):
    """A call was refused; `code` is the CUresult."""

    def __init__(self, call, code):
        reasons = {1: "wrong argument", 2: "out of memory", 801: "not possible for this block"}
        super().__init__(f"{call}: {reasons.get(code, 'CUresult')} ({code})")
        self.code = code


class _Residency(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("start", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
        ("local_bytes", ctypes.c_uint64), ("donor_bytes", ctypes.c_uint64), ("host_bytes", ctypes.c_uint64),
        ("age_ms", ctypes.c_uint64), ("hint", ctypes.c_uint32), ("segments", ctypes.c_uint32),
        ("of_donor", ctypes.c_uint64 * 15),
    ]


def _load():
    try:
        library = ctypes.CDLL("libcuda.so.1")
        library.tarn_abi_version
    except (OSError, AttributeError):
        return None
    library.tarn_hint.argtypes = [ctypes.c_uint64, ctypes.c_int]
    library.tarn_residency.argtypes = [ctypes.c_uint64, ctypes.POINTER(_Residency)]
    library.tarn_blocks.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)]
    library.tarn_migrate.argtypes = [ctypes.c_uint64, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64)]
    return library


_library = _load()


def present():
    """Whether this process's device is a pool."""
    return _library is not None


def _call(name, *arguments):
    if _library is None:
        raise PoolError(name, 801)
    code = getattr(_library, name)(*arguments)
    if code:
        raise PoolError(name, code)


def hint(address, placement):
    """Says where a stitched block should be; address 0: what this thread allocates from now on."""
    if _library is not None:
        _call("tarn_hint", address, PLACEMENTS[placement])


@contextlib.contextmanager
def placement(name):
    """A hint for what this thread allocates inside the block."""
    hint(0, name)
    try:
        yield
    finally:
        hint(0, "default")


def loaded():
    """Says that the model is loaded: what comes from now on may use the primary's reserve."""
    if _library is not None:
        _call("tarn_loaded")


def residency(address=0):
    """Bytes by card of the block at `address`, or of the whole process, as a dictionary."""
    found = _Residency(size=ctypes.sizeof(_Residency))
    _call("tarn_residency", address, ctypes.byref(found))
    told = {name: getattr(found, name) for name, _ in _Residency._fields_ if name not in ("size", "flags", "of_donor", "hint")}
    told["hint"] = next(name for name, value in PLACEMENTS.items() if value == found.hint)
    told["of_donor"] = list(found.of_donor)
    told["flags"] = [name for name, bit in FLAGS.items() if found.flags & bit]
    return told


def blocks():
    """Addresses of this process's stitched blocks."""
    count = ctypes.c_size_t()
    _call("tarn_blocks", None, 0, ctypes.byref(count))
    starts = (ctypes.c_uint64 * count.value)()
    _call("tarn_blocks", starts, count.value, ctypes.byref(count))
    return list(starts)[: count.value]


def migrate(address, placement="default"):
    """Moves a stitched block under its address; returns the bytes that changed cards. No other thread may use it meanwhile."""
    moved = ctypes.c_uint64()
    _call("tarn_migrate", address, PLACEMENTS[placement], ctypes.byref(moved))
    return moved.value
