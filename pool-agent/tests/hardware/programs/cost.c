/* What calls cost, in nanoseconds: medians, `name=value`, one a line. The same program runs bare and in a pool.
 *   cost start           how long the first calls of a process take
 *   cost calls           calls that a pool should not slow down
 *   cost spill <GiB>     with that much of the device already taken: allocations that go where there is room */
#include "driver.h"

enum { ROUNDS = 2001 };
static u64 spent[ROUNDS];

#define MEASURE(name, rounds, ...) do { \
    for (int round = 0; round < (rounds); round++) { u64 then = nanoseconds(); __VA_ARGS__; spent[round] = nanoseconds() - then; } \
    printf("%s=%llu\n", name, median(spent, rounds)); \
  } while (0)

static void pair(const char *label, u64 bytes, int rounds) {
  static u64 taking[ROUNDS], giving[ROUNDS];
  u64 at = 0;
  for (int round = -2; round < rounds; round++) {
    u64 then = nanoseconds();
    MUST("cuMemAlloc_v2", &at, bytes);
    u64 now = nanoseconds();
    MUST("cuMemFree_v2", at);
    if (round >= 0) { taking[round] = now - then; giving[round] = nanoseconds() - now; }
  }
  printf("alloc_%s=%llu\nfree_%s=%llu\n", label, median(taking, rounds), label, median(giving, rounds));
}

static void calls(void) {
  size_t unused, total;
  u64 at, value;
  void *stream;
  open_context();
  MUST("cuMemAlloc_v2", &at, 4 * MIB);
  Call info = find("cuMemGetInfo_v2"), whole = find("cuDeviceTotalMem_v2"), attribute = find("cuPointerGetAttribute");
  Call take = find("cuMemAllocAsync"), give = find("cuMemFreeAsync");
  for (int warm = 0; warm < 100; warm++) info(P(&unused), P(&total), 0, 0, 0, 0, 0, 0);
  MEASURE("memory_info", ROUNDS, info(P(&unused), P(&total), 0, 0, 0, 0, 0, 0));
  MEASURE("total_memory", ROUNDS, whole(P(&total), 0, 0, 0, 0, 0, 0, 0));
  MEASURE("pointer_attribute", ROUNDS, attribute(P(&value), 9, at, 0, 0, 0, 0, 0));
  pair("1KiB", 1024, 1001);
  pair("1MiB", MIB, 501);
  pair("2MiB", 2 * MIB, 501);
  pair("32MiB", 32 * MIB, 101);
  pair("64MiB", 64 * MIB, 101);
  pair("1GiB", GIB, 21);
  MUST("cuStreamCreate", &stream, 1);
  MEASURE("async_pair_1MiB", 501, {
    take(P(&at), MIB, P(stream), 0, 0, 0, 0, 0);
    give(at, P(stream), 0, 0, 0, 0, 0, 0);
  });
  MUST("cuStreamSynchronize", stream);
}

static void spill(u64 taken) {
  u64 first;
  open_context();
  MUST("cuMemAlloc_v2", &first, taken);
  pair("32MiB", 32 * MIB, 31);
  pair("64MiB", 64 * MIB, 31);
  pair("1GiB", GIB, 15);
  pair("8GiB", 8 * GIB, 7);
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "start")) {
    u64 begin = nanoseconds(), total;
    MUST("cuInit", 0);
    u64 initialised = nanoseconds();
    MUST("cuDeviceTotalMem_v2", &total, 0);
    printf("init=%llu\nfirst_total=%llu\n", initialised - begin, nanoseconds() - initialised);
  } else if (argc > 2 && !strcmp(argv[1], "spill")) {
    spill(strtoull(argv[2], 0, 10) * GIB);
  } else {
    calls();
  }
  printf("end\n");
  return 0;
}
