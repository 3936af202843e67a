// The rules of the hardware driver, one line each; the expected values stand in the Rust test.
#include "driver.h"

static int faked_count(int *count) { *count = 1; return 0; }

int main(void) {
  ptr block, second, handle, other, address, base, retained; size_t size, free_before, free_after, total; unsigned one = 1;
  char ipc[64]; int flag = -1; void *context;
  SAY("before_init", cuDeviceGetCount(&flag));
  MUST(cuInit(0));
  SAY("null_count", cuDeviceGetCount(NULL));
  SAY("no_context", cuMemAlloc_v2(&block, MIB));
  if (cuSimIntegrity) {
    SAY("integrity", cuSimIntegrity(cuDeviceGetCount));
    SAY("faked", cuSimIntegrity(faked_count));
  }
  prop p = on_device(0, 1);
  SAY("create_without_context", cuMemCreate(&handle, 4 * MIB, &p, 0));
  SAY("odd_size", cuMemCreate(&other, 3 * MIB, &p, 0));
  MUST(cuCtxCreate_v2(&context, 0, 0));
  MUST(cuMemCreate(&other, 8 * MIB, &p, 0));
  MUST(cuMemAddressReserve(&address, 12 * MIB, 0, 0, 0));
  SAY("offset", cuMemMap(address, 2 * MIB, 2 * MIB, handle, 0));
  MUST(cuMemMap(address, 4 * MIB, 0, handle, 0));
  MUST(cuMemMap(address + 4 * MIB, 8 * MIB, 0, other, 0));
  SAY("no_access", cuMemcpyHtoD_v2(address, &one, 4));
  access_desc grant = { 1, 0, 3 };
  MUST(cuMemSetAccess(address, 12 * MIB, &grant, 1));
  char seam[8] = "seam-ok", back[8] = { 0 };
  MUST(cuMemcpyHtoD_v2(address + 4 * MIB - 4, seam, 8));
  MUST(cuMemcpyDtoH_v2(back, address + 4 * MIB - 4, 8));
  SAY("seam", !memcmp(seam, back, 8));
  MUST(cuMemGetAddressRange_v2(&base, &size, address + 6 * MIB));
  SAY("segment_offset_mib", (base - address) / MIB);
  SAY("segment_mib", size / MIB);
  MUST(cuPointerGetAttribute(&base, 11, address + 6 * MIB));
  MUST(cuPointerGetAttribute(&size, 12, address + 6 * MIB));
  SAY("range_offset_mib", (base - address) / MIB);
  SAY("range_mib", size / MIB);
  SAY("sync_memops", cuPointerSetAttribute(&one, 6, address));
  SAY("ipc_of_stitched", cuIpcGetMemHandle(ipc, address));
  MUST(cuPointerGetAttribute(&flag, 10, address));
  SAY("ipc_capable_stitched", flag);
  MUST(cuMemRetainAllocationHandle(&retained, address));
  SAY("retained_is_same", retained == handle);
  MUST(cuMemRelease(retained));
  SAY("partial_unmap", cuMemUnmap(address, 2 * MIB));
  SAY("free_mapped_range", cuMemAddressFree(address, 12 * MIB));
  MUST(cuMemUnmap(address, 12 * MIB));
  MUST(cuMemAddressFree(address, 12 * MIB));
  MUST(cuMemRelease(handle));
  MUST(cuMemRelease(other));
  SAY("released_twice", cuMemRelease(other));
  MUST(cuMemGetInfo_v2(&free_before, &total));
  MUST(cuMemAlloc_v2(&block, 10 * MIB));
  SAY("ipc_of_native", cuIpcGetMemHandle(ipc, block));
  SAY("interior_free", cuMemFree_v2(block + 4096));
  SAY("null_out", cuMemAlloc_v2(NULL, MIB));
  SAY("zero_size", cuMemAlloc_v2(&second, 0));
  SAY("too_large", cuMemAlloc_v2(&second, total));
  MUST(cuMemGetInfo_v2(&free_after, NULL));
  SAY("charged_mib", (free_before - free_after) / MIB);
  MUST(cuMemFree_v2(block));
  SAY("double_free", cuMemFree_v2(block));
  SAY("free_null", cuMemFree_v2(0));
  MUST(cuMemGetInfo_v2(&free_after, &total));
  SAY("returned", free_before == free_after);
  MUST(cuCtxDestroy_v2(context));
  SAY("after_destroy", cuMemAlloc_v2(&block, MIB));
}
