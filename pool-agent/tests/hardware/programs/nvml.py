"""What NVML says, as one JSON document; the loader decides whose NVML it is."""

import ctypes
import json

nvml = ctypes.CDLL("libnvidia-ml.so.1")


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")
    ]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


class Pci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16)] + [
        (name, ctypes.c_uint) for name in ("domain", "bus", "device", "device_id", "subsystem")
    ] + [("bus_id", ctypes.c_char * 32)]


def text(call, handle):
    room = ctypes.create_string_buffer(96)
    code = getattr(nvml, call)(handle, room, 96)
    return room.value.decode() if code == 0 else f"error {code}"


def device(index):
    handle = ctypes.c_void_p()
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    memory, second, minor, pci = Memory(), MemoryV2(version=ctypes.sizeof(MemoryV2) | 2 << 24), ctypes.c_uint(), Pci()
    codes = [
        nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)),
        nvml.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(second)),
    ]
    nvml.nvmlDeviceGetMinorNumber(handle, ctypes.byref(minor))
    nvml.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(pci))
    count, rows = ctypes.c_uint(1024), (Process * 1024)()
    listed = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), rows)
    return {
        "uuid": text("nvmlDeviceGetUUID", handle),
        "name": text("nvmlDeviceGetName", handle),
        "minor": minor.value,
        "pci": pci.bus_id.decode(),
        "codes": codes,
        "total": memory.total,
        "free": memory.free,
        "used": memory.used,
        "total_v2": second.total,
        "used_v2": second.used,
        "reserved_v2": second.reserved,
        "processes_code": listed,
        "processes": [[rows[at].pid, rows[at].used] for at in range(count.value if listed == 0 else 0)],
    }


nvml.nvmlInit_v2()
number = ctypes.c_uint()
nvml.nvmlDeviceGetCount_v2(ctypes.byref(number))
version = ctypes.create_string_buffer(96)
nvml.nvmlSystemGetDriverVersion(version, 96)
print(json.dumps({"driver": version.value.decode(), "devices": [device(at) for at in range(number.value)]}))
