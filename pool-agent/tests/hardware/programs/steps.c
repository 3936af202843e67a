/* What each step of a chunk's life costs on the bare driver, by size and circumstance: medians in µs, `name=value`, one a line. */
#include "driver.h"

static Prop prop = {1, 0, 1, 0};
static Access access_all = {1, 0, 3};
enum { CREATE, EXPORT, IMPORT, CLOSE, RESERVE, MAP, ACCESS, UNMAP, FREE, RELEASE, STEPS };
static const char *names[] = {"create", "export", "import", "close", "reserve", "map", "access", "unmap", "unreserve", "release"};

static const struct { const char *label; u64 bytes; int rounds; } sizes[] = {
  {"2MiB", 2 * MIB, 51}, {"20MiB", 20 * MIB, 31}, {"64MiB", 64 * MIB, 25}, {"256MiB", 256 * MIB, 15},
  {"1GiB", GIB, 9}, {"8GiB", 8 * GIB, 5}, {"20GiB", 20 * GIB, 5},
};

/* A chunk's handle and descriptor in a process that has started the driver but opened no context, as a broker is. */
static void without_context(const char *label, u64 bytes, int rounds, int rdma) {
  static u64 create[64], export[64], import[64], close_one[64], close_two[64], release[64];
  prop.handle_types = 1;
  prop.rdma = rdma;
  for (int round = 0; round < rounds; round++) {
    u64 own, taken, at[7];
    int file = -1;
    at[0] = nanoseconds();
    MUST("cuMemCreate", &own, bytes, &prop, 0);
    at[1] = nanoseconds();
    MUST("cuMemExportToShareableHandle", &file, own, 1, 0);
    at[2] = nanoseconds();
    MUST("cuMemImportFromShareableHandle", &taken, (u64)file, 1);
    at[3] = nanoseconds();
    int copy = dup(file);
    at[4] = nanoseconds();
    close(copy);
    at[5] = nanoseconds();
    close(file);
    at[6] = nanoseconds();
    MUST("cuMemRelease", taken);
    u64 then = nanoseconds();
    MUST("cuMemRelease", own);
    release[round] = nanoseconds() - then;
    create[round] = at[1] - at[0], export[round] = at[2] - at[1], import[round] = at[3] - at[2];
    close_one[round] = at[5] - at[4], close_two[round] = at[6] - at[5];
  }
  struct { const char *step; u64 *times; } all[] = {{"create", create}, {"export", export}, {"import", import},
    {"close_copy", close_one}, {"close_last", close_two}, {"release", release}};
  for (int i = 0; i < 6; i++) printf("contextless_%s_%s=%.1f\n", label, all[i].step, median(all[i].times, rounds) / 1e3);
  prop.rdma = 0;
}

/* `exported`: by way of a descriptor, as a donor's chunk comes; else as local memory is made. */
static void life(const char *kind, const char *label, u64 bytes, int rounds, int exported, int pause_us) {
  static u64 spent[STEPS][64], whole[64];
  prop.handle_types = exported;
  for (int round = 0; round < rounds; round++) {
    u64 own, taken, at;
    int file = -1;
    if (pause_us) usleep(pause_us);
    u64 begin = nanoseconds(), then = begin, now;
#define STEP(which, ...) MUST(__VA_ARGS__); now = nanoseconds(); spent[which][round] = now - then; then = now
    STEP(CREATE, "cuMemCreate", &own, bytes, &prop, 0);
    taken = own;
    if (exported) {
      STEP(EXPORT, "cuMemExportToShareableHandle", &file, own, 1, 0);
      STEP(IMPORT, "cuMemImportFromShareableHandle", &taken, (u64)file, 1);
      close(file);
      now = nanoseconds();
      spent[CLOSE][round] = now - then;
      then = now;
    }
    STEP(RESERVE, "cuMemAddressReserve", &at, bytes, 2 * MIB, 0, 0);
    STEP(MAP, "cuMemMap", at, bytes, 0, taken, 0);
    STEP(ACCESS, "cuMemSetAccess", at, bytes, &access_all, 1);
    whole[round] = now - begin;
    STEP(UNMAP, "cuMemUnmap", at, bytes);
    STEP(FREE, "cuMemAddressFree", at, bytes);
    if (exported) MUST("cuMemRelease", taken);
    STEP(RELEASE, "cuMemRelease", own);
  }
  for (int step = 0; step < STEPS; step++)
    if (exported || (step != EXPORT && step != IMPORT && step != CLOSE))
      printf("%s_%s_%s=%.1f\n", kind, label, names[step], median(spent[step], rounds) / 1e3);
  printf("%s_%s_whole=%.1f\n", kind, label, median(whole, rounds) / 1e3);
}

static void native(const char *label, u64 bytes, int rounds) {
  static u64 taking[64], giving[64];
  for (int round = 0; round < rounds; round++) {
    u64 at, then = nanoseconds(), now;
    MUST("cuMemAlloc_v2", &at, bytes);
    now = nanoseconds();
    MUST("cuMemFree_v2", at);
    taking[round] = now - then;
    giving[round] = nanoseconds() - now;
  }
  printf("native_%s_whole=%.1f\nnative_%s_release=%.1f\n", label, median(taking, rounds) / 1e3, label, median(giving, rounds) / 1e3);
}

static void refusals(void) {
  static u64 create[64], alloc[64];
  for (int round = 0; round < 25; round++) {
    u64 none, then = nanoseconds(), now;
    prop.handle_types = 0;
    if (!CU("cuMemCreate", &none, 1024 * GIB, &prop, 0)) exit(2);
    now = nanoseconds();
    if (!CU("cuMemAlloc_v2", &none, 1024 * GIB)) exit(2);
    create[round] = now - then;
    alloc[round] = nanoseconds() - now;
  }
  printf("refused_create=%.1f\nrefused_alloc=%.1f\n", median(create, 25) / 1e3, median(alloc, 25) / 1e3);
}

int main(void) {
  int many = sizeof sizes / sizeof *sizes;
  u64 ballast, total;
  MUST("cuInit", 0);
  without_context("2MiB", 2 * MIB, 51, 0);
  without_context("64MiB", 64 * MIB, 25, 0);
  without_context("1GiB", GIB, 9, 0);
  int rdma = 0;
  MUST("cuDeviceGetAttribute", &rdma, 110, 0);
  if (rdma) without_context("64MiB_rdma", 64 * MIB, 25, 1);
  open_context();
  MUST("cuDeviceTotalMem_v2", &total, 0);
  while (many > 1 && sizes[many - 1].bytes * 2 > total) many--;
  for (int i = 0; i < many; i++) {
    native(sizes[i].label, sizes[i].bytes, sizes[i].rounds);
    life("local", sizes[i].label, sizes[i].bytes, sizes[i].rounds, 0, 0);
    life("chunk", sizes[i].label, sizes[i].bytes, sizes[i].rounds, 1, 0);
  }
  /* Circumstances that could make a small allocation dear. */
  life("local_rested", "2MiB", 2 * MIB, 25, 0, 20000);
  life("local_rested", "64MiB", 64 * MIB, 25, 0, 20000);
  MUST("cuMemAlloc_v2", &ballast, total / 4);
  life("local_beside", "2MiB", 2 * MIB, 25, 0, 0);
  MUST("cuMemFree_v2", ballast);
  life("local_after_large_free", "2MiB", 2 * MIB, 1, 0, 0);
  refusals();
  printf("end\n");
  return 0;
}
