/* V19: tiny kernels by every form of launch, in captures and out, while blocks come and go at the edge of a cap.
 *
 *   launching <how> <ptx> <most bytes>
 *
 * Each launch adds one to a word on the card, so what was lost or done twice shows. A line on stdin ends it. Facts: `owner` (the file that each
 * form of launch lives in, one fact a form), `launches`, `sum`, `blocks`, `refused`. */
#include "kernels.h"

enum { THREADS = 4, FORMS = 3 };
static const char *names[FORMS] = { "cuLaunchKernel", "cuLaunchCooperativeKernel", "cuLaunchKernelEx" };
static struct kernels k; static size_t most; static atomic_int over; static atomic_long launches, captured, blocks, refused; static CUdeviceptr word;
struct configuration { unsigned grid[3], block[3], shared; void *stream, *attributes; unsigned count; };

static void launch_by(int form, void *stream) {
  uint64_t once = 1; void *arguments[] = { &word, &once }; struct configuration c = { { 1, 1, 1 }, { 1, 1, 1 }, 0, stream, 0, 0 };
  if (form == 0) OK(CALL(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), k.atomics, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0));
  if (form == 1) OK(CALL(cuLaunchCooperativeKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **), k.atomics, 1, 1, 1, 1, 1, 1, 0, stream, arguments));
  if (form == 2) OK(CALL(cuLaunchKernelEx, (const struct configuration *, void *, void **, void **), &c, k.atomics, arguments, 0));
  atomic_fetch_add(&launches, 1);
}
static void *thread(void *number) {
  uint64_t s = ((uint64_t)(uintptr_t)number + getpid()) * 0x9E3779B97F4A7C15ull + 1; void *stream, *graph; CUdeviceptr held = 0, late; OK(p_cuCtxSetCurrent(context)); OK(p_cuStreamCreate(&stream, 1));
  for (int i = 0; !atomic_load(&over); i++) {
    s ^= s << 13; s ^= s >> 7; s ^= s << 17; launch_by(s % FORMS, (s >> 4) % 2 ? stream : 0);
    if (i % 8 == 3) { if (held) { OK(p_cuMemFree_v2(held)); held = 0; } else { CUresult r = p_cuMemAlloc_v2(&held, (s >> 16) % most + 16); if (r == 2) { held = 0; atomic_fetch_add(&refused, 1); } else { if (r) DIE("alloc -> %d", r); atomic_fetch_add(&blocks, 1); } } }
    /* Own to this thread, so that the others may go on; what it forbids leaves nothing behind. */
    if (i % 64 == 9) { OK(p_cuStreamBeginCapture_v2(stream, 1)); launch_by(s % FORMS, stream); WANT(p_cuMemAlloc_v2(&late, MIB) != 0); OK(p_cuStreamEndCapture(stream, &graph)); atomic_fetch_add(&captured, 1); }
  }
  if (held) OK(p_cuMemFree_v2(held));
  OK(p_cuStreamSynchronize(stream)); return 0;
}

int main(int c, char **v) {
  if (c < 4) return 2;
  setvbuf(stdout, 0, _IOLBF, 0); resolve(v[1]); start(); k = kernels(v[2]); most = strtoull(v[3], 0, 10); pthread_t ids[THREADS]; uint64_t zero = 0; uint32_t sum;
  for (int i = 0; i < FORMS; i++) { Dl_info info; WANT(dladdr(of_driver(names[i]), &info)); printf("%s=%s\n", names[i], info.dli_fname); }
  OK(p_cuMemAlloc_v2(&word, 8)); OK(p_cuMemcpyHtoD_v2(word, &zero, 8));
  for (intptr_t i = 0; i < THREADS; i++) pthread_create(&ids[i], 0, thread, (void *)i);
  await_line(); atomic_store(&over, 1); for (int i = 0; i < THREADS; i++) pthread_join(ids[i], 0);
  OK(p_cuMemcpyDtoH_v2(&sum, word, 4)); printf("launches=%ld\nsum=%u\ncaptured=%ld\nblocks=%ld\nrefused=%ld\n", launches, sum, captured, blocks, refused);
  OK(p_cuMemFree_v2(word)); OK(p_cuMemFree_v2(k.counter)); printf("free=%zu\ndone=1\n", free_bytes());
  return 0;
}
