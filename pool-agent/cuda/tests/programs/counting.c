/* M1: random allocations, reallocations and frees by many threads, with books that somebody else can read at any moment.
 *
 *   counting <how> <books> <threads> <most bytes>
 *
 * <books> is a file of eight 64-bit numbers, mapped here and read there: bytes and blocks asked for, given, going and gone. What is asked
 * for is noted before the call and what is given after it, so that whoever reads `given` before a look and `going` after it knows a sum
 * that the look cannot be below, and the other way round. A line on stdin ends it; everything is then freed. */
#include "driver.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { ASKED, GIVEN, GOING, GONE };
static _Atomic uint64_t *books;
static atomic_int over; static atomic_long refused, blocks; static size_t most;
static void note(int what, size_t bytes) { atomic_fetch_add(&books[2 * what], bytes); atomic_fetch_add(&books[2 * what + 1], 1); }

struct block { CUdeviceptr at; size_t size; };
static void begin(struct block *b, size_t size) {
  note(ASKED, size); CUresult e = p_cuMemAlloc_v2(&b->at, size);
  if (e == 2) { atomic_fetch_add(&refused, 1); b->at = 0; /* Neither given nor asked for any longer. */ note(GOING, size); note(GIVEN, size); note(GONE, size); return; }
  if (e) DIE("alloc -> %d", e);
  b->size = size; note(GIVEN, size); atomic_fetch_add(&blocks, 1); fill(b->at, size, size / 4 + 8);
}
static void end(struct block *b) { WANT(check(b->at, b->size, b->size / 4 + 8) == 0); note(GOING, b->size); OK(p_cuMemFree_v2(b->at)); note(GONE, b->size); b->at = 0; }
/* A larger or smaller block with what was in the old one. */
static void again(struct block *b, size_t size) {
  struct block next = { 0, 0 }; begin(&next, size); if (!next.at) return;
  size_t kept = size < b->size ? size : b->size; uint64_t first, second; OK(p_cuMemcpyDtoD_v2(next.at, b->at, kept));
  OK(p_cuMemcpyDtoH_v2(&first, b->at, 8)); OK(p_cuMemcpyDtoH_v2(&second, next.at, 8)); WANT(first == second);
  fill(next.at, size, size / 4 + 8); end(b); *b = next;
}
static void *thread(void *number) {
  struct block held[6] = { 0 }; uint64_t s = ((uint64_t)(uintptr_t)number + getpid()) * 0x9E3779B97F4A7C15ull + 1; OK(p_cuCtxSetCurrent(context));
  while (!atomic_load(&over)) {
    s ^= s << 13; s ^= s >> 7; s ^= s << 17; struct block *b = &held[s % 6]; size_t size = (s >> 8) % 3 ? (s >> 16) % most + 16 : (s >> 16) % (64 * 1024) + 16;
    if (!b->at) begin(b, size); else if ((s >> 40) % 3 == 0) again(b, size); else end(b);
  }
  for (int i = 0; i < 6; i++) if (held[i].at) end(&held[i]);
  return 0;
}

int main(int c, char **v) {
  if (c < 5) return 2;
  setvbuf(stdout, 0, _IOLBF, 0); resolve(v[1]); most = strtoull(v[4], 0, 10); int threads = atoi(v[3]); pthread_t ids[64];
  int file = open(v[2], O_RDWR); WANT(file >= 0); books = mmap(0, 64, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0); WANT(books != MAP_FAILED);
  start(); printf("started=1\n");
  for (intptr_t i = 0; i < threads; i++) pthread_create(&ids[i], 0, thread, (void *)i);
  await_line(); atomic_store(&over, 1);
  for (int i = 0; i < threads; i++) pthread_join(ids[i], 0);
  printf("blocks=%ld\nrefused=%ld\ndone=1\n", blocks, refused);
  return 0;
}
