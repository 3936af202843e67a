/* What the real driver says of memory that it was handed in pieces, and what each step costs: `name=value`, one a line.
 * Runs on the bare card; the stand-in and the simulated driver are written to agree with these answers. */
#include "driver.h"

static Prop prop = {1, 1, 1, 0};
static Access access_all = {1, 0, 3};

static void split(const char *label, u64 bytes, int rounds) {
  enum { CREATE, EXPORT, IMPORT, RESERVE, MAP, ACCESS, UNMAP, FREE, RELEASE, STEPS };
  static const char *names[] = {"create", "export", "import", "reserve", "map", "access", "unmap", "unreserve", "release"};
  static u64 spent[STEPS][64];
  for (int round = 0; round < rounds; round++) {
    u64 own, taken, at, then = nanoseconds(), now;
    int file = -1;
#define STEP(which, ...) MUST(__VA_ARGS__); now = nanoseconds(); spent[which][round] = now - then; then = now
    STEP(CREATE, "cuMemCreate", &own, bytes, &prop, 0);
    STEP(EXPORT, "cuMemExportToShareableHandle", &file, own, 1, 0);
    STEP(IMPORT, "cuMemImportFromShareableHandle", &taken, (u64)file, 1);
    close(file);
    then = nanoseconds();
    STEP(RESERVE, "cuMemAddressReserve", &at, bytes, 2 * MIB, 0, 0);
    STEP(MAP, "cuMemMap", at, bytes, 0, taken, 0);
    STEP(ACCESS, "cuMemSetAccess", at, bytes, &access_all, 1);
    STEP(UNMAP, "cuMemUnmap", at, bytes);
    STEP(FREE, "cuMemAddressFree", at, bytes);
    MUST("cuMemRelease", taken);
    STEP(RELEASE, "cuMemRelease", own);
  }
  for (int step = 0; step < STEPS; step++)
    printf("split_%s_%s_us=%.1f\n", label, names[step], median(spent[step], rounds) / 1e3);
}

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
  u64 handle, at, bytes = 4 * GIB, dirty = 0, words[512];
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

int main(void) {
  open_context();
  rdma();
  split("2MiB", 2 * MIB, 51);
  split("2MiB_again", 2 * MIB, 51);
  split("64MiB", 64 * MIB, 25);
  split("1GiB", GIB, 9);
  split("8GiB", 8 * GIB, 5);
  stitched();
  residue();
  printf("end\n");
  return 0;
}
