/* What the real driver says of memory that it was handed in pieces: `name=value`, one a line.
 * Runs on the bare card; the stand-in and the simulated driver are written to agree with these answers. */
#include "driver.h"

static u64 large = 4 * GIB;
static Prop prop = {1, 1, 1, 0};
static Access access_all = {1, 0, 3};

static void attribute(const char *label, int which, u64 at) {
  u64 value = 0;
  int code = CU("cuPointerGetAttribute", &value, which, at);
  printf("%s=%d:%#llx\n", label, code, value);
}

static void stitched(void) {
  u64 handles[2], at, base, value, piece = 32 * MIB;
  size_t bytes;
  MUST("cuMemAddressReserve", &at, 2 * piece, 2 * MIB, 0, 0);
  for (int i = 0; i < 2; i++) {
    MUST("cuMemCreate", &handles[i], piece, &prop, 0);
    MUST("cuMemMap", at + i * piece, piece, 0, handles[i], 0);
  }
  MUST("cuMemSetAccess", at, 2 * piece, &access_all, 1);
  for (int i = 0; i < 2; i++) {
    int code = CU("cuMemGetAddressRange_v2", &base, &bytes, at + i * piece + 4096);
    printf("stitched_range_%d=%d:+%lluMiB:%lluMiB\n", i, code, (base - at) / MIB, bytes / MIB);
    printf("stitched_start_%d=%d\n", i, CU("cuPointerGetAttribute", &value, 11, at + i * piece) || value != at);
    attribute(i ? "stitched_size_1" : "stitched_size_0", 12, at + i * piece);
    attribute(i ? "stitched_buffer_id_1" : "stitched_buffer_id_0", 7, at + i * piece);
  }
  attribute("stitched_memory_type", 2, at);
  attribute("stitched_sync_memops", 6, at);
  attribute("stitched_managed", 8, at);
  attribute("stitched_ordinal", 9, at);
  attribute("stitched_legacy_ipc", 10, at);
  attribute("stitched_mapped", 13, at);
  attribute("stitched_handle_types", 14, at);
  attribute("stitched_rdma_capable", 15, at);
  attribute("stitched_mempool", 17, at);
  int yes = 1, file = -1;
  char token[64];
  printf("stitched_set_sync_memops=%d\n", CU("cuPointerSetAttribute", &yes, 6, at));
  printf("stitched_ipc=%d\n", CU("cuIpcGetMemHandle", token, at));
  printf("stitched_dmabuf_whole=%d\n", CU("cuMemGetHandleForAddressRange", &file, at, 2 * piece, 1, 0));
  printf("stitched_dmabuf_piece=%d\n", CU("cuMemGetHandleForAddressRange", &file, at, piece, 1, 0));
  printf("stitched_partial_unmap=%d\n", CU("cuMemUnmap", at, 2 * MIB));
  printf("stitched_unmap_across=%d\n", CU("cuMemUnmap", at, 2 * piece));
  printf("map_at_offset=%d\n", CU("cuMemMap", at, 2 * MIB, 2 * MIB, handles[0], 0));
  for (int i = 0; i < 2; i++) MUST("cuMemRelease", handles[i]);
}

/* Bytes of a chunk that was released full of 0xA5 and made anew: how many sampled words are not zero. */
static void residue(void) {
  u64 handle, at, bytes = large, dirty = 0, words[512];
  for (int round = 0; round < 2; round++) {
    MUST("cuMemCreate", &handle, bytes, &prop, 0);
    MUST("cuMemAddressReserve", &at, bytes, 2 * MIB, 0, 0);
    MUST("cuMemMap", at, bytes, 0, handle, 0);
    MUST("cuMemSetAccess", at, bytes, &access_all, 1);
    for (u64 place = 0; round && place < bytes; place += 2 * MIB) {
      MUST("cuMemcpyDtoH_v2", words, at + place, sizeof words);
      for (int word = 0; word < 512; word++) dirty += words[word] != 0;
    }
    MUST("cuMemsetD8_v2", at, 0xA5, bytes);
    MUST("cuCtxSynchronize");
    MUST("cuMemUnmap", at, bytes);
    MUST("cuMemAddressFree", at, bytes);
    MUST("cuMemRelease", handle);
  }
  printf("residue_nonzero_words=%llu\n", dirty);
}

static u64 dirty_words(u64 handle, u64 bytes, int stain) {
  static u64 words[512];
  u64 at, dirty = 0;
  MUST("cuMemAddressReserve", &at, bytes, 2 * MIB, 0, 0);
  MUST("cuMemMap", at, bytes, 0, handle, 0);
  MUST("cuMemSetAccess", at, bytes, &access_all, 1);
  for (u64 place = 0; place < bytes; place += 2 * MIB) {
    MUST("cuMemcpyDtoH_v2", words, at + place, sizeof words);
    for (int word = 0; word < 512; word++) dirty += words[word] != 0;
  }
  MUST("cuMemsetD8_v2", at, stain, bytes);
  MUST("cuCtxSynchronize");
  MUST("cuMemUnmap", at, bytes);
  MUST("cuMemAddressFree", at, bytes);
  return dirty;
}

/* A handle that is kept and lent again, as a broker must not do: what the second borrower reads, and what zeroing it would take. */
static void recycled(void) {
  u64 own, first, second, bytes = large / 4, at, rounds = 8;
  int file = -1;
  MUST("cuMemCreate", &own, bytes, &prop, 0);
  MUST("cuMemExportToShareableHandle", &file, own, 1, 0);
  MUST("cuMemImportFromShareableHandle", &first, (u64)file, 1);
  dirty_words(first, bytes, 0xA5);
  MUST("cuMemRelease", first);
  MUST("cuMemImportFromShareableHandle", &second, (u64)file, 1);
  printf("recycled_nonzero_words=%llu\n", dirty_words(second, bytes, 0));
  printf("recycled_nonzero_words_after_zeroing=%llu\n", dirty_words(second, bytes, 0));
  MUST("cuMemRelease", second);
  close(file);
  MUST("cuMemRelease", own);
  MUST("cuMemAlloc_v2", &at, large);
  u64 then = nanoseconds();
  for (u64 round = 0; round < rounds; round++) MUST("cuMemsetD8Async", at, round, large, 0);
  MUST("cuCtxSynchronize");
  printf("zeroing_gb_per_s=%.0f\n", rounds * large / (double)(nanoseconds() - then));
  MUST("cuMemFree_v2", at);
}

/* Which memory lets a program ask that copies to it be synchronous: what libraries for network cards set on every buffer. */
static void sync_memops(void) {
  u64 native, at;
  int yes = 1;
  MUST("cuMemAlloc_v2", &native, 32 * MIB);
  printf("sync_memops_native=%d\n", CU("cuPointerSetAttribute", &yes, 6, native));
  MUST("cuMemFree_v2", native);
  for (int kind = 0; kind < 4; kind++) {
    u64 handle;
    Prop asked = {1, kind & 1, 1, 0, .rdma = kind >> 1};
    MUST("cuMemCreate", &handle, 32 * MIB, &asked, 0);
    MUST("cuMemAddressReserve", &at, 32 * MIB, 2 * MIB, 0, 0);
    MUST("cuMemMap", at, 32 * MIB, 0, handle, 0);
    MUST("cuMemSetAccess", at, 32 * MIB, &access_all, 1);
    printf("sync_memops_mapped_%s%s=%d\n", kind & 1 ? "exportable" : "plain", kind >> 1 ? "_rdma" : "", CU("cuPointerSetAttribute", &yes, 6, at));
    MUST("cuMemUnmap", at, 32 * MIB);
    MUST("cuMemAddressFree", at, 32 * MIB);
    MUST("cuMemRelease", handle);
  }
}

/* Whether memory that a network card may reach stays so behind a descriptor. */
static void rdma(void) {
  u64 own, taken, at, value = 0;
  int supported = 0, file = -1;
  Prop asked = {1, 1, 1, 0, .rdma = 1}, told;
  MUST("cuDeviceGetAttribute", &supported, 110, 0);
  printf("rdma_with_vmm_supported=%d\n", supported);
  if (!supported) return;
  MUST("cuMemCreate", &own, 32 * MIB, &asked, 0);
  MUST("cuMemExportToShareableHandle", &file, own, 1, 0);
  MUST("cuMemImportFromShareableHandle", &taken, (u64)file, 1);
  close(file);
  MUST("cuMemGetAllocationPropertiesFromHandle", &told, own);
  printf("rdma_created=%d handle_types %d\n", told.rdma, told.handle_types);
  MUST("cuMemGetAllocationPropertiesFromHandle", &told, taken);
  printf("rdma_imported=%d handle_types %d\n", told.rdma, told.handle_types);
  MUST("cuMemAddressReserve", &at, 32 * MIB, 2 * MIB, 0, 0);
  MUST("cuMemMap", at, 32 * MIB, 0, taken, 0);
  MUST("cuMemSetAccess", at, 32 * MIB, &access_all, 1);
  MUST("cuPointerGetAttribute", &value, 15, at);
  printf("export_of_import=%d\n", CU("cuMemExportToShareableHandle", &file, taken, 1, 0));
  printf("rdma_mapped_import=%llu\n", value & 1);
  printf("rdma_mapped_set_sync_memops=%d\n", CU("cuPointerSetAttribute", &supported, 6, at));
}

/* Whether memory of the host can stand in a donor's place: made, handed on as a descriptor, mapped for the card. */
static void host_memory(void) {
  u64 own, taken, at;
  int file = -1, code;
  Prop asked = {1, 1, 3, 0};
  printf("host_numa_create=%d\n", code = CU("cuMemCreate", &own, 32 * MIB, &asked, 0));
  if (code) return;
  printf("host_numa_export=%d\n", code = CU("cuMemExportToShareableHandle", &file, own, 1, 0));
  if (!code) printf("host_numa_import=%d\n", code = CU("cuMemImportFromShareableHandle", &taken, (u64)file, 1));
  if (code) return;
  MUST("cuMemAddressReserve", &at, 32 * MIB, 2 * MIB, 0, 0);
  MUST("cuMemMap", at, 32 * MIB, 0, taken, 0);
  printf("host_numa_access=%d\n", CU("cuMemSetAccess", at, 32 * MIB, &access_all, 1));
  attribute("host_numa_memory_type", 2, at);
  attribute("host_numa_ordinal", 9, at);
  printf("host_numa_memset=%d\n", CU("cuMemsetD8_v2", at, 1, 32 * MIB) || CU("cuCtxSynchronize"));
}

int main(void) {
  u64 total;
  open_context();
  MUST("cuDeviceTotalMem_v2", &total, 0);
  if (total < 64 * GIB) large = 256 * MIB;
  rdma();
  sync_memops();
  stitched();
  residue();
  recycled();
  host_memory();
  printf("end\n");
  return 0;
}
