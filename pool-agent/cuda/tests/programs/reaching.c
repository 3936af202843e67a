/* V16: kernels read and write memory that lies on other cards, without ever asking for peer access.
 *
 *   reaching <how> <ptx> owner | opener
 *
 * owner: blocks of every kind, from every context of the process; then commands on stdin: handle, check SEED, end.
 * opener: commands on stdin: open HEX, check SEED, write SEED, end. */
#include "kernels.h"
#include "../../include/tarn.h"

enum { WINDOW = 64 * 1024 };
static struct kernels k;
static void granted(CUdeviceptr at) { unsigned long long flags = 0; CUmemLocation here = { 1, 0 }; OK(CALL(cuMemGetAccess, (unsigned long long *, const CUmemLocation *, CUdeviceptr), &flags, &here, at)); WANT(flags == 3); }
/* Windows all over a range, each written and read by kernels; `step` is small enough to meet every card. */
static void all_written(CUdeviceptr at, size_t bytes, uint64_t seed) { for (size_t o = 0; o + WINDOW <= bytes; o += bytes / 96 / WINDOW * WINDOW) OK(written(&k, at + o, WINDOW, seed + o)); OK(written(&k, at + bytes - WINDOW, WINDOW, seed)); }
static uint64_t all_differing(CUdeviceptr at, size_t bytes, uint64_t seed) { uint64_t found = 0; for (size_t o = 0; o + WINDOW <= bytes; o += bytes / 96 / WINDOW * WINDOW) found += o + 2 * WINDOW > bytes ? 0 : differing(&k, at + o, WINDOW, seed + o); return found + differing(&k, at + bytes - WINDOW, WINDOW, seed); }
static void reached(CUdeviceptr at, size_t bytes, uint64_t seed, int mapped) {
  for (size_t o = 0; mapped && o < bytes; o += 64 * MIB) granted(at + o);
  all_written(at, bytes, seed); WANT(all_differing(at, bytes, seed) == 0); WANT(all_differing(at, bytes, seed + 1) != 0);
}
static tarn_residency_t residency(CUdeviceptr at) { tarn_residency_t r; memset(&r, 0, sizeof r); r.size = sizeof r; OK(CALL(tarn_residency, (uint64_t, tarn_residency_t *), at, &r)); return r; }
static void spread(CUdeviceptr at, int cards) { tarn_residency_t r = residency(at); int n = r.local_bytes > 0; for (int i = 0; i < 3; i++) n += r.of_donor[i] > 0; WANT(n >= cards); }

static CUdeviceptr block; static size_t bytes = 74 * GIB;
static void *in_a_thread(void *file) { (void)file; OK(p_cuCtxSetCurrent(context)); WANT(all_differing(block, bytes, 7) == 0); return 0; }
static void owner(const char *file) {
  void *own = 0, *stream; pthread_t thread; CUdevice other; int can = 9; CUdeviceptr at, small; CUhandle handles[40]; CUmemAllocationProp prop = { 1, 1, { 1, 0 }, 0, 0, 0, 0, { 0 } }; CUmemAccessDesc access[2] = { { { 1, 0 }, 3 }, { { 1, 1 }, 3 } };
  start(); k = kernels(file);
  /* One device there is, so there is nothing to enable, and nobody that could. */
  WANT(p_cuDeviceGet(&other, 1) == 101); WANT(CALL(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice), &can, 0, 1) == 101);
  OK(p_cuMemAlloc_v2(&block, bytes)); spread(block, 4); reached(block, bytes, 7, 1);
  /* Another thread, another context of the same process. */
  pthread_create(&thread, 0, in_a_thread, 0); pthread_join(thread, 0);
  struct kernels first = k; OK(CALL(cuCtxCreate_v2, (void **, unsigned, CUdevice), &own, 0, 0)); k = kernels(file); WANT(all_differing(block, bytes, 7) == 0); reached(block, bytes, 8, 1); OK(p_cuMemFree_v2(k.counter)); OK(CALL(cuCtxDestroy_v2, (void *), own)); OK(p_cuCtxSetCurrent(context)); k = first; WANT(all_differing(block, bytes, 8) == 0);
  /* In stream order. */
  OK(p_cuStreamCreate(&stream, 0)); OK(p_cuMemAllocAsync(&at, 12 * GIB, stream)); OK(p_cuStreamSynchronize(stream)); spread(at, 1); WANT(residency(at).donor_bytes > 0); reached(at, 12 * GIB, 9, 1); OK(p_cuMemFreeAsync(at, stream)); OK(p_cuStreamSynchronize(stream));
  /* Handles far away, opened one call for all of them; a device that is not there is refused, and spoils nothing. */
  OK(p_cuMemAddressReserve(&at, 16 * GIB, 0, 0, 0)); for (int i = 0; i < 16; i++) { OK(p_cuMemCreate(&handles[i], GIB, &prop, 0)); OK(p_cuMemMap(at + i * GIB, GIB, 0, handles[i], 0)); OK(p_cuMemRelease(handles[i])); }
  WANT(p_cuMemSetAccess(at, 16 * GIB, access, 2) == 101); OK(p_cuMemSetAccess(at, 16 * GIB, access, 1)); WANT(residency(at + 15 * GIB).donor_bytes > 0); reached(at, 16 * GIB, 10, 1); OK(p_cuMemUnmap(at, 16 * GIB)); OK(p_cuMemAddressFree(at, 16 * GIB));
  /* A handle over several cards. */
  OK(p_cuMemFree_v2(block)); OK(p_cuMemCreate(&handles[0], bytes, &prop, 0)); OK(p_cuMemAddressReserve(&at, bytes, 0, 0, 0)); OK(p_cuMemMap(at, bytes, 0, handles[0], 0)); OK(p_cuMemSetAccess(at, bytes, access, 1)); reached(at, bytes, 11, 1); OK(p_cuMemUnmap(at, bytes)); OK(p_cuMemRelease(handles[0])); OK(p_cuMemAddressFree(at, bytes));
  /* What moved is opened where it is now. */
  OK(p_cuMemAlloc_v2(&small, 4096)); OK(CALL(tarn_hint, (uint64_t, int), 0, TARN_COLD)); OK(p_cuMemAlloc_v2(&at, 512 * MIB)); OK(CALL(tarn_hint, (uint64_t, int), 0, TARN_DEFAULT)); WANT(residency(at).local_bytes == 0); reached(at, 512 * MIB, 12, 1);
  int places[] = { TARN_HOT, TARN_COLD }; for (int i = 0; i < 2; i++) { uint64_t moved = 0; OK(CALL(tarn_migrate, (uint64_t, int, uint64_t *), at, places[i], &moved)); WANT(moved > 0); WANT(all_differing(at, 512 * MIB, 12 + i) == 0); reached(at, 512 * MIB, 13 + i, 1); }
  OK(p_cuMemFree_v2(at)); OK(p_cuMemFree_v2(small)); OK(p_cuMemAlloc_v2(&block, bytes)); spread(block, 4); all_written(block, bytes, 20);
}

static CUipcMemHandle parse(const char *text) { CUipcMemHandle h; for (int i = 0; i < 64; i++) { unsigned b = 0; sscanf(text + 2 * i, "%2x", &b); h.bytes[i] = b; } return h; }
int main(int c, char **v) {
  char line[256]; int owns; if (c < 4) return 2;
  setvbuf(stdout, 0, _IOLBF, 0); resolve(v[1]); owns = !strcmp(v[3], "owner"); if (owns) owner(v[2]); else { start(); k = kernels(v[2]); }
  for (;;) {
    printf("waiting\n"); if (!fgets(line, sizeof line, stdin)) return 3; uint64_t seed = 0; sscanf(line, "%*s %lu", &seed);
    if (!strncmp(line, "handle", 6)) { CUipcMemHandle h; OK(p_cuIpcGetMemHandle(&h, block)); printf("handle="); for (int b = 0; b < 64; b++) printf("%02x", h.bytes[b]); printf("\n"); }
    else if (!strncmp(line, "open", 4)) { OK(p_cuIpcOpenMemHandle_v2(&block, parse(line + 5), 1)); for (size_t o = 0; o < bytes; o += GIB) granted(block + o); }
    else if (!strncmp(line, "check", 5)) printf("differing=%lu\n", all_differing(block, bytes, seed));
    else if (!strncmp(line, "write", 5)) all_written(block, bytes, seed);
    else break;
  }
  if (owns) OK(p_cuMemFree_v2(block)); else OK(p_cuIpcCloseMemHandle(block));
  printf("done=1\n");
  return 0;
}
