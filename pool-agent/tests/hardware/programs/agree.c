/* Calls every intercepted function with NULL and invalid arguments and prints what each answers: `<number> <label> <code> <marks>`.
 * Marks say of each out-parameter whether it was left alone (.), zeroed by a
 * refusal (0) or written (w). A case that kills the process leaves its line without a code; the caller then starts
 * again behind it: `agree <first number>`. Bare and pooled runs must print the same. */
#include "driver.h"

enum { WORDS = 16 };
static u64 out[4][WORDS];
static int at, first;

static void try_call(const char *label, const char *name, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f) {
  if (at++ < first) return;
  printf("%d %s:%s ", at - 1, name, label);
  fflush(stdout);
  Call call = find_or_null(name);
  if (!call) { printf("absent -\n"); return; }
  memset(out, 0x5a, sizeof out);
  int code = call(a, b, c, d, e, f, 0, 0);
  char marks[5] = "....";
  for (int place = 0; place < 4; place++)
    for (int word = 0; word < WORDS; word++)
      if (out[place][word] != 0x5a5a5a5a5a5a5a5aull && marks[place] != 'w')
        marks[place] = code && !word && !(unsigned)out[place][word] ? '0' : 'w';
  printf("%d %s\n", code, marks);
  fflush(stdout);
}
#define TRY_(label, name, a, b, c, d, e, f, ...) try_call(label, name, P(a), P(b), P(c), P(d), P(e), P(f))
#define TRY(...) TRY_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define O0 out[0]
#define O1 out[1]

static void device_and_info(void) {
  const char *names[] = {"cuDeviceTotalMem_v2", "cuDeviceTotalMem"};
  for (int i = 0; i < 2; i++) {
    TRY("null", names[i], 0, 0);
    TRY("good", names[i], O0, 0);
    TRY("device 99", names[i], O0, 99);
    TRY("device -1", names[i], O0, -1);
  }
  const char *infos[] = {"cuMemGetInfo_v2", "cuMemGetInfo"};
  for (int i = 0; i < 2; i++) {
    TRY("null null", infos[i], 0, 0);
    TRY("free only", infos[i], O0, 0);
    TRY("total only", infos[i], 0, O1);
    TRY("both", infos[i], O0, O1);
  }
}

static void allocation(u64 native) {
  TRY("null", "cuMemAlloc_v2", 0, 4096);
  TRY("zero", "cuMemAlloc_v2", O0, 0);
  TRY("null zero", "cuMemAlloc_v2", 0, 0);
  TRY("1 PiB", "cuMemAlloc_v2", O0, 1ull << 50);
  TRY("all ones", "cuMemAlloc_v2", O0, ~0ull);
  TRY("null", "cuMemAlloc", 0, 4096);
  TRY("zero", "cuMemAlloc", O0, 0);
  TRY("null null", "cuMemAllocPitch_v2", 0, 0, 100, 10, 4);
  TRY("no pitch", "cuMemAllocPitch_v2", O0, 0, 100, 10, 4);
  TRY("no address", "cuMemAllocPitch_v2", 0, O1, 100, 10, 4);
  TRY("width 0", "cuMemAllocPitch_v2", O0, O1, 0, 10, 4);
  TRY("height 0", "cuMemAllocPitch_v2", O0, O1, 100, 0, 4);
  TRY("element 3", "cuMemAllocPitch_v2", O0, O1, 100, 10, 3);
  TRY("good", "cuMemAllocPitch_v2", O0, O1, 100, 10, 4);
  TRY("rows of 1 PiB", "cuMemAllocPitch_v2", O0, O1, 1ull << 50, 10, 4);
  TRY("overflow", "cuMemAllocPitch_v2", O0, O1, 1ull << 40, 1ull << 40, 4);
  TRY("null", "cuMemAllocManaged", 0, 4096, 1);
  TRY("zero", "cuMemAllocManaged", O0, 0, 1);
  TRY("flags 0", "cuMemAllocManaged", O0, 4096, 0);
  TRY("0", "cuMemFree_v2", 0);
  TRY("garbage", "cuMemFree_v2", 0x1234000);
  TRY("interior", "cuMemFree_v2", native + 4096);
  TRY("0", "cuMemFree", 0);
}

static void ordered(u64 native) {
  TRY("null", "cuMemAllocAsync", 0, 4096, 0);
  TRY("zero", "cuMemAllocAsync", O0, 0, 0);
  TRY("1 PiB", "cuMemAllocAsync", O0, 1ull << 50, 0);
  TRY("null", "cuMemAllocAsync_ptsz", 0, 4096, 0);
  TRY("zero", "cuMemAllocAsync_ptsz", O0, 0, 0);
  TRY("null address", "cuMemAllocFromPoolAsync", 0, 4096, 0, 0);
  TRY("null pool", "cuMemAllocFromPoolAsync", O0, 4096, 0, 0);
  TRY("0", "cuMemFreeAsync", 0, 0);
  TRY("garbage", "cuMemFreeAsync", 0x1234000, 0);
  TRY("interior", "cuMemFreeAsync", native + 4096, 0);
  TRY("0", "cuMemFreeAsync_ptsz", 0, 0);
  PoolProps props = {1, 0, 1, 0};
  TRY("null null", "cuMemPoolCreate", 0, 0);
  TRY("no props", "cuMemPoolCreate", O0, 0);
  TRY("no pool", "cuMemPoolCreate", 0, &props);
  TRY("good", "cuMemPoolCreate", O0, &props);
  props.device = 7;
  TRY("device 7", "cuMemPoolCreate", O0, &props);
  TRY("null", "cuMemPoolDestroy", 0);
}

static void physical(u64 native, u64 handle) {
  Prop prop = {1, 0, 1, 0}, elsewhere = {1, 0, 1, 7}, kind = {9, 0, 1, 0};
  TRY("null handle", "cuMemCreate", 0, 2 * MIB, &prop, 0);
  TRY("null prop", "cuMemCreate", O0, 2 * MIB, 0, 0);
  TRY("zero", "cuMemCreate", O0, 0, &prop, 0);
  TRY("unaligned", "cuMemCreate", O0, 4096, &prop, 0);
  TRY("flags", "cuMemCreate", O0, 2 * MIB, &prop, 1);
  TRY("1 PiB", "cuMemCreate", O0, 1ull << 50, &prop, 0);
  TRY("device 7", "cuMemCreate", O0, 2 * MIB, &elsewhere, 0);
  TRY("kind 9", "cuMemCreate", O0, 2 * MIB, &kind, 0);
  TRY("0", "cuMemRelease", 0);
  TRY("null null", "cuMemRetainAllocationHandle", 0, 0);
  TRY("null handle", "cuMemRetainAllocationHandle", 0, native);
  TRY("native", "cuMemRetainAllocationHandle", O0, native);
  TRY("null address", "cuMemRetainAllocationHandle", O0, 0);
  TRY("handle 0", "cuMemMap", 0x7000000000ull, 2 * MIB, 0, 0, 0);
  TRY("address 0", "cuMemMap", 0, 2 * MIB, 0, handle, 0);
  TRY("offset", "cuMemMap", 0x7000000000ull, 2 * MIB, 4096, handle, 0);
  TRY("address 0", "cuMemUnmap", 0, 2 * MIB);
  TRY("native", "cuMemUnmap", native, 2 * MIB);
  TRY("null prop", "cuMemGetAllocationPropertiesFromHandle", 0, handle);
  TRY("handle 0", "cuMemGetAllocationPropertiesFromHandle", O0, 0);
  TRY("good", "cuMemGetAllocationPropertiesFromHandle", O0, handle);
}

static void pointers(u64 native) {
  TRY("null null", "cuMemGetAddressRange_v2", 0, 0, native);
  TRY("base only", "cuMemGetAddressRange_v2", O0, 0, native);
  TRY("bytes only", "cuMemGetAddressRange_v2", 0, O1, native);
  TRY("garbage", "cuMemGetAddressRange_v2", O0, O1, 0x1234000);
  TRY("zero", "cuMemGetAddressRange_v2", O0, O1, 0);
  TRY("garbage", "cuMemGetAddressRange", O0, O1, 0x1234000);
  int attributes[] = {9, 11, 12, 10, 1, 7};
  for (int i = 0; i < 6; i++) {
    char label[32];
    snprintf(label, sizeof label, "null, attribute %d", attributes[i]);
    TRY(label, "cuPointerGetAttribute", 0, attributes[i], native);
    snprintf(label, sizeof label, "good, attribute %d", attributes[i]);
    TRY(label, "cuPointerGetAttribute", O0, attributes[i], native);
  }
  TRY("attribute 999", "cuPointerGetAttribute", O0, 999, native);
  TRY("garbage", "cuPointerGetAttribute", O0, 9, 0x1234000);
  void *places[] = {O0, O1}, *none[] = {0, 0};
  TRY("none", "cuPointerGetAttributes", 0, attributes, places, native);
  TRY("null attributes", "cuPointerGetAttributes", 2, 0, places, native);
  TRY("null data", "cuPointerGetAttributes", 2, attributes, 0, native);
  TRY("null places", "cuPointerGetAttributes", 2, attributes, none, native);
  TRY("good", "cuPointerGetAttributes", 2, attributes, places, native);
  for (int i = 1; i <= 20; i++) {
    char label[32];
    snprintf(label, sizeof label, "garbage, attribute %d", i);
    TRY(label, "cuPointerGetAttributes", 1, &i, places, 0x1234000);
  }
  int yes = 1;
  TRY("null", "cuPointerSetAttribute", 0, 6, native);
  TRY("attribute 9", "cuPointerSetAttribute", &yes, 9, native);
  TRY("good", "cuPointerSetAttribute", &yes, 6, native);
  TRY("null", "cuIpcGetMemHandle", 0, native);
  TRY("garbage", "cuIpcGetMemHandle", O0, 0x1234000);
  TRY("zero", "cuIpcGetMemHandle", O0, 0);
  TRY("good", "cuIpcGetMemHandle", O0, native);
  TRY("null", "cuMemGetHandleForAddressRange", 0, native, 2 * MIB, 1, 0);
  TRY("kind 99", "cuMemGetHandleForAddressRange", O0, native, 2 * MIB, 99, 0);
  TRY("garbage", "cuMemGetHandleForAddressRange", O0, 0x1234000, 2 * MIB, 1, 0);
}

static void resolver_and_contexts(void) {
  TRY("null name", "cuGetProcAddress_v2", 0, O0, 12000, 0, O1);
  TRY("null address", "cuGetProcAddress_v2", "cuMemAlloc", 0, 12000, 0, O1);
  TRY("null status", "cuGetProcAddress_v2", "cuMemAlloc", O0, 12000, 0, 0);
  TRY("unknown name", "cuGetProcAddress_v2", "cuNoSuchCall", O0, 12000, 0, O1);
  TRY("too old", "cuGetProcAddress_v2", "cuMemAllocAsync", O0, 9000, 0, O1);
  TRY("flags 99", "cuGetProcAddress_v2", "cuMemAlloc", O0, 12000, 99, O1);
  TRY("null name", "cuGetProcAddress", 0, O0, 12000, 0);
  TRY("null address", "cuGetProcAddress", "cuMemAlloc", 0, 12000, 0);
  TRY("null", "cuCtxDestroy_v2", 0);
  const char *names[] = {"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2"};
  for (int i = 0; i < 2; i++) {
    TRY("device 99", names[i], 99);
    TRY("device -1", names[i], -1);
  }
  MUST("cuCtxSetCurrent", 0);
  TRY("no context", "cuMemAlloc_v2", O0, 4096);
  TRY("no context", "cuMemGetInfo_v2", O0, O1);
  TRY("no context", "cuMemAllocPitch_v2", O0, O1, 100, 10, 4);
  TRY("no context", "cuMemAllocAsync", O0, 4096, 0);
  TRY("no context, garbage", "cuMemFree_v2", 0x1234000);
  TRY("no context", "cuDeviceTotalMem_v2", O0, 0);
  TRY("flags 1", "cuInit", 1);
}

int main(int argc, char **argv) {
  first = argc > 1 ? atoi(argv[1]) : 0;
  TRY("before init", "cuDeviceTotalMem_v2", O0, 0);
  TRY("before init", "cuMemGetInfo_v2", O0, O1);
  TRY("before init", "cuMemAlloc_v2", O0, 4096);
  TRY("before init", "cuMemFree_v2", 0);
  open_context();
  u64 native, handle;
  Prop prop = {1, 0, 1, 0};
  MUST("cuMemAlloc_v2", &native, 4 * MIB);
  MUST("cuMemCreate", &handle, 2 * MIB, &prop, 0);
  device_and_info();
  allocation(native);
  ordered(native);
  physical(native, handle);
  pointers(native);
  resolver_and_contexts();
  printf("end\n");
  return 0;
}
