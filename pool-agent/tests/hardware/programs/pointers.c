/* What pointers into a large allocation say of themselves: `pointers <MiB> [<MiB taken before>]`. Addresses and identities are told
 * relative to the allocation, so that a native block and one that straddles cards can be compared: `name=code:value`, one a line. */
#include "driver.h"

static const char *names[] = {
  0, "context", "memory_type", "device_pointer", "host_pointer", "p2p_tokens", "sync_memops", "buffer_id", "managed", "ordinal",
  "legacy_ipc", "range_start", "range_size", "mapped", "handle_types", "rdma_capable", "access_flags", "mempool", "mapping_size",
  "mapping_base", "memory_block_id", "hw_decompress",
};
enum { LAST = sizeof names / sizeof *names - 1 };

static void of(u64 block, u64 offset, const char *place, u64 *id) {
  u64 at = block + offset, base = 0, context = 0;
  size_t size = 0;
  int code = CU("cuMemGetAddressRange_v2", &base, &size, at);
  printf("%s_range=%d:%+lld+%llu\n", place, code, (long long)(base - block), (u64)size);
  CU("cuCtxGetCurrent", &context);
  for (int which = 1; which <= LAST; which++) {
    u64 value[4] = {0};
    code = CU("cuPointerGetAttribute", value, which, at);
    u64 shown = value[0];
    if (which == 1) shown = shown == context;
    if (which == 3 || which == 11 || which == 19) shown -= block;
    if (which == 7 || which == 20) { shown = offset && shown == id[which]; if (!offset) id[which] = value[0]; }
    if (which == 5) shown = 0;
    printf("%s_%s=%d:%llu\n", place, names[which], code, code ? 0 : shown);
  }
  int wanted[] = {9, 2, 11, 12};
  u64 out[4] = {0};
  void *to[] = {&out[0], &out[1], &out[2], &out[3]};
  code = CU("cuPointerGetAttributes", 4, wanted, to, at);
  printf("%s_four_at_once=%d:%llu/%llu/%llu/%llu\n", place, code, out[0] & 0xffffffff, out[1] & 0xffffffff, out[2] - block, out[3]);
}

int main(int argc, char **argv) {
  u64 bytes = (argc > 1 ? strtoull(argv[1], 0, 10) : 64) * MIB, before = (argc > 2 ? strtoull(argv[2], 0, 10) : 0) * MIB;
  u64 block, taken, id[LAST + 1] = {0};
  int yes = 1, file = -1;
  char token[64];
  open_context();
  if (before) MUST("cuMemAlloc_v2", &taken, before);
  MUST("cuMemAlloc_v2", &block, bytes);
  of(block, 0, "front", id);
  of(block, bytes / 2 + 4096, "middle", id);
  of(block, bytes - 8, "end", id);
  printf("set_sync_memops=%d\n", CU("cuPointerSetAttribute", &yes, 6, block));
  printf("ipc=%d\n", CU("cuIpcGetMemHandle", token, block));
  printf("dmabuf=%d\n", CU("cuMemGetHandleForAddressRange", &file, block, bytes, 1, 0));
  u64 handle = 0;
  int code = CU("cuMemRetainAllocationHandle", &handle, block);
  printf("retain=%d\n", code);
  if (!code) MUST("cuMemRelease", handle);
  MUST("cuMemFree_v2", block);
  u64 value;
  printf("after_free=%d\n", CU("cuPointerGetAttribute", &value, 9, block));
  printf("end\n");
  return 0;
}
