/* A tenant that grows, in nanoseconds: `name=value`, one a line.
 *   grow grow <GiB> <rounds>   over a primary with that much taken: 4 GiB more while the broker has granules ready, and at once after another 4 GiB
 *   grow watch <changes>       says when free memory changed, by the monotonic clock; before each change it says `ready` */
#include "driver.h"

enum { ROUNDS_MAX = 64 };

static u64 taken_ns(u64 *at, u64 bytes) {
  u64 then = nanoseconds();
  MUST("cuMemAlloc_v2", at, bytes);
  return nanoseconds() - then;
}

/* One donor lease keeps the broker making granules ahead; it rests between its steps, so a second is ample for 4 GiB. */
static void grow(u64 primary, int rounds) {
  static u64 ready[ROUNDS_MAX], cold[ROUNDS_MAX];
  u64 weights, first, second, third;
  MUST("cuMemAlloc_v2", &weights, primary);
  MUST("cuMemAlloc_v2", &first, 2 * GIB);
  for (int round = 0; round < rounds; round++) {
    usleep(1500000);
    ready[round] = taken_ns(&second, 4 * GIB);
    cold[round] = taken_ns(&third, 4 * GIB);
    MUST("cuMemFree_v2", second);
    MUST("cuMemFree_v2", third);
  }
  printf("ready_4GiB=%llu\ncold_4GiB=%llu\n", median(ready, rounds), median(cold, rounds));
}

static u64 free_now(void) {
  u64 unused, total;
  MUST("cuMemGetInfo_v2", &unused, &total);
  return unused;
}

static void watch(int changes) {
  for (int change = 0; change < changes; change++) {
    u64 before = free_now(), now;
    printf("ready\n");
    for (now = before; now == before;) now = free_now();
    printf("seen=%llu\n", nanoseconds());
  }
}

int main(int argc, char **argv) {
  setvbuf(stdout, 0, _IOLBF, 0);
  open_context();
  if (argc > 3 && !strcmp(argv[1], "grow")) {
    int rounds = atoi(argv[3]);
    grow(strtoull(argv[2], 0, 10) * GIB, rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX);
  } else if (argc > 2 && !strcmp(argv[1], "watch")) {
    watch(atoi(argv[2]));
  } else {
    return 2;
  }
  printf("end\n");
  return 0;
}
