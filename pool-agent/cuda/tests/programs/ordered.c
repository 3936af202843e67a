/* Stream-ordered memory and captures.
 *
 *   ordered <how> reserve | kept | capture | node BYTES   */
#include "driver.h"

static void *stream, *pool;

/* Large requests first, then small ones, until there is nothing: what was taken is told, and waits. */
static void reserve(void) {
  static CUdeviceptr at[8192]; static size_t size[8192]; int n = 0; size_t before = free_bytes(), taken = 0;
  for (; n < 5; n++) { size[n] = 8 * GIB; OK(p_cuMemAllocAsync(&at[n], size[n], stream)); taken += size[n]; fill(at[n], size[n], GIB); }
  printf("before=%zu\nlarge=%zu\n", before, taken); await_line();
  for (size_t step = GIB; step >= 2 * MIB; step /= 8) for (; n < 8192; n++) { CUresult r = p_cuMemAllocAsync(&at[n], step, stream); if (r == 2) break; if (r) DIE("alloc -> %d", r); size[n] = step; taken += step; fill(at[n], step, step); }
  for (int i = 0; i < n; i++) WANT(check(at[i], size[i], size[i] > GIB ? GIB : size[i]) == 0);
  printf("taken=%zu\n", taken);
  for (int i = 0; i < n; i++) OK(p_cuMemFreeAsync(at[i], i % 2 ? stream : 0));
  OK(p_cuStreamSynchronize(0)); OK(p_cuStreamSynchronize(stream)); size_t after = free_bytes(); if (after != before) DIE("%zu free before, %zu after", before, after);
}

/* What a pool keeps counts, until it is trimmed or somebody needs it. */
static void kept(void) {
  unsigned long long all = ~0ull; CUdeviceptr at, other; size_t before = free_bytes();
  OK(p_cuMemPoolSetAttribute(pool, 4, &all));
  OK(p_cuMemAllocAsync(&at, 4 * GIB, stream)); OK(p_cuMemFreeAsync(at, stream)); OK(p_cuStreamSynchronize(stream));
  printf("kept=%zu\n", before - free_bytes()); await_line();
  OK(p_cuMemAllocAsync(&at, 3 * GIB, stream)); WANT(before - free_bytes() == 4 * GIB); OK(p_cuMemFree_v2(at)); WANT(before - free_bytes() == 4 * GIB);
  OK(p_cuMemPoolTrimTo(pool, GIB)); printf("trimmed=%zu\n", before - free_bytes());
  OK(p_cuMemAlloc_v2(&other, before - GIB / 2)); printf("given_way=%zu\n", before - free_bytes()); OK(p_cuMemFree_v2(other)); WANT(free_bytes() == before);
  for (int i = 0; i < 2000; i++) { OK(p_cuMemAllocAsync(&at, (i % 7 + 1) * 32 * MIB, stream)); OK(i % 3 ? p_cuMemFreeAsync(at, stream) : p_cuMemFree_v2(at)); }
  OK(p_cuMemPoolTrimTo(pool, 0)); WANT(free_bytes() == before);
}

/* A thread whose mode is relaxed may map while another captures. */
static int exchange(int mode) { OK(p_cuThreadExchangeStreamCaptureMode(&mode)); return mode; }
static void *bystander(void *wanted) { CUdeviceptr at; OK(p_cuCtxSetCurrent(context)); CUresult r = p_cuMemAlloc_v2(&at, 2 * GIB); WANT(r == *(int *)wanted); if (!r) OK(p_cuMemFree_v2(at)); return 0; }
static void beside(int wanted) { pthread_t thread; pthread_create(&thread, 0, bystander, &wanted); pthread_join(thread, 0); }
static void capture(void) {
  CUdeviceptr full, at; void *graph; OK(p_cuMemAlloc_v2(&full, 30 * GIB)); size_t before = free_bytes();
  /* Global: nobody but the relaxed. */
  OK(p_cuStreamBeginCapture_v2(stream, 0));
  WANT(p_cuMemAlloc_v2(&at, 2 * GIB) == 900 && at == 0); WANT(p_cuMemAllocAsync(&at, 2 * GIB, stream) == 2 && at == 0); WANT(p_cuMemFree_v2(full) == 900); beside(900);
  WANT(exchange(2) == 0); OK(p_cuMemAlloc_v2(&at, 2 * GIB)); fill(at, 2 * GIB, 64 * MIB); WANT(check(at, 2 * GIB, 64 * MIB) == 0); OK(p_cuMemFree_v2(at)); WANT(exchange(0) == 2);
  OK(p_cuStreamEndCapture(stream, &graph)); OK(p_cuMemAlloc_v2(&at, 2 * GIB)); OK(p_cuMemFree_v2(at));
  /* Thread-local: the others may. Relaxed: all may. */
  OK(p_cuStreamBeginCapture_v2(stream, 1)); WANT(p_cuMemAlloc_v2(&at, 2 * GIB) == 900); beside(0); OK(p_cuStreamEndCapture(stream, &graph));
  OK(p_cuStreamBeginCapture_v2(stream, 2)); OK(p_cuMemAlloc_v2(&at, 2 * GIB)); OK(p_cuMemFree_v2(at)); beside(0); OK(p_cuStreamEndCapture(stream, &graph));
  WANT(free_bytes() == before); OK(p_cuMemFree_v2(full));
}

/* An allocation that is captured takes memory when its graph runs. One that the primary can never hold is refused at once, and the capture goes on. */
static void node(size_t beyond) {
  CUdeviceptr at, fits; void *graph; size_t before = free_bytes();
  for (int mode = 0; mode < 3; mode++) {
    OK(p_cuStreamBeginCapture_v2(stream, mode));
    WANT(p_cuMemAllocAsync(&at, beyond, stream) == 2 && at == 0);
    OK(p_cuMemAllocAsync(&fits, GIB, stream)); OK(p_cuMemFreeAsync(fits, stream));
    WANT(p_cuMemAllocAsync(&at, beyond, stream) == 2 && at == 0);
    OK(p_cuStreamEndCapture(stream, &graph)); WANT(graph);
  }
  WANT(free_bytes() == before);
}

int main(int c, char **v) {
  if (c < 3) return 2;
  setvbuf(stdout, 0, _IOLBF, 0); resolve(v[1]); start(); OK(p_cuStreamCreate(&stream, 1)); OK(p_cuDeviceGetMemPool(&pool, device));
  if (!strcmp(v[2], "reserve")) reserve(); else if (!strcmp(v[2], "kept")) kept(); else if (!strcmp(v[2], "capture")) capture(); else if (!strcmp(v[2], "node") && c > 3) node(strtoull(v[3], 0, 10)); else return 2;
  printf("done=1\n");
  return 0;
}
