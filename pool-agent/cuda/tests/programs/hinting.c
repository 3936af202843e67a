/* A program that knows of its pool: hints, residency, and blocks that move under their address.
 *
 *   hinting <how> hints | moves | where BYTES | decode SEED STEPS | overflow BYTES   */
#include "driver.h"
#include "../../include/tarn.h"

static int (*abi)(void), (*hint)(uint64_t, int), (*residency)(uint64_t, tarn_residency_t *), (*blocks)(uint64_t *, size_t, size_t *), (*migrate)(uint64_t, int, uint64_t *);
static tarn_residency_t look(CUdeviceptr at) { tarn_residency_t r; memset(&r, 0, sizeof r); r.size = sizeof r; OK(residency(at, &r)); return r; }
static CUdeviceptr take(int placement, size_t bytes) { CUdeviceptr at; OK(hint(TARN_SCOPE, placement)); OK(p_cuMemAlloc_v2(&at, bytes)); OK(hint(TARN_SCOPE, TARN_DEFAULT)); fill(at, bytes, MIB); return at; }
static void *elsewhere(void *nothing) { CUdeviceptr at; (void)nothing; OK(p_cuCtxSetCurrent(context)); OK(p_cuMemAlloc_v2(&at, GIB)); WANT(look(at).donor_bytes == 0); OK(p_cuMemFree_v2(at)); return 0; }

static void hints(void) {
  CUdeviceptr cold = take(TARN_COLD, GIB), hot = take(TARN_HOT, GIB), interleaved = take(TARN_INTERLEAVE, GIB), balanced = take(TARN_BALANCED, GIB), small; tarn_residency_t r; size_t count; uint64_t starts[2];
  r = look(cold); WANT(r.flags == TARN_SPILLED && r.donor_bytes == GIB && r.local_bytes == 0 && r.hint == TARN_COLD && r.start == cold && r.bytes == GIB && r.of_donor[0] == GIB);
  r = look(hot); WANT(r.flags == 0 && r.local_bytes == GIB && r.donor_bytes == 0);
  CUdeviceptr even[] = { interleaved, balanced };
  for (int i = 0; i < 2; i++) { r = look(even[i]); WANT(r.local_bytes && r.of_donor[0] && r.of_donor[1] && r.of_donor[2] && r.local_bytes + r.donor_bytes == GIB); }
  OK(hint(TARN_SCOPE, TARN_COLD)); OK(p_cuMemAlloc_v2(&small, 4096)); WANT(look(small).flags == 0);
  pthread_t thread; pthread_create(&thread, 0, elsewhere, 0); pthread_join(thread, 0); OK(hint(TARN_SCOPE, TARN_DEFAULT));
  r = look(0); WANT(r.segments == 3 && r.local_bytes >= GIB && r.donor_bytes > GIB && r.bytes == r.local_bytes + r.donor_bytes);
  OK(blocks(0, 0, &count)); WANT(count == 3); OK(blocks(starts, 2, &count)); WANT(count == 3 && starts[0] < starts[1]);
  r.size = 8; WANT(residency(cold, &r) == 1 && residency(cold, 0) == 1); r.size = sizeof r; WANT(residency(12345, &r) == 1);
  WANT(hint(12345, TARN_HOT) == 1 && hint(TARN_SCOPE, 9) == 1 && hint(hot, TARN_COLD) == 801 && migrate(hot, TARN_COLD, 0) == 801 && migrate(12345, TARN_HOT, 0) == 1 && migrate(cold + 4096, TARN_HOT, 0) == 1 && migrate(cold, TARN_BALANCED, 0) == 801 && migrate(cold, 17, 0) == 1);
  OK(p_cuMemFree_v2(cold)); OK(p_cuMemFree_v2(hot)); OK(p_cuMemFree_v2(interleaved)); OK(p_cuMemFree_v2(balanced)); OK(p_cuMemFree_v2(small)); WANT(look(0).bytes == 0);
}

static void moves(void) {
  size_t before = free_bytes(), bytes = GIB + 12345; CUdeviceptr at = take(TARN_COLD, bytes), base; size_t size; uint64_t moved = 9; tarn_residency_t r;
  size_t held = free_bytes();
  for (int round = 0; round < 2; round++) {
    OK(migrate(at, TARN_HOT, &moved)); r = look(at); WANT(moved == r.local_bytes && r.donor_bytes == 0 && moved > GIB); WANT(check(at, bytes, MIB) == 0); WANT(free_bytes() == held);
    OK(migrate(at, TARN_HOT, &moved)); WANT(moved == 0);
    OK(hint(at, TARN_COLD)); OK(migrate(at, TARN_DEFAULT, &moved)); r = look(at); WANT(r.local_bytes == 0 && r.donor_bytes == moved && moved > GIB); WANT(check(at, bytes, MIB) == 0);
    OK(p_cuMemGetAddressRange_v2(&base, &size, at + GIB / 2)); WANT(base == at && size == bytes);
  }
  /* With little room what fits moves, and nothing is lost. */
  CUdeviceptr full = take(TARN_HOT, 23 * GIB); CUresult some = migrate(at, TARN_HOT, &moved); WANT(some == 0 || some == 2); WANT(look(at).local_bytes == moved); WANT(check(at, bytes, MIB) == 0); OK(p_cuMemFree_v2(full)); OK(migrate(at, TARN_COLD, &moved)); WANT(check(at, bytes, MIB) == 0);
  /* Nor while a capture runs, nor what existed then, nor what others may open. */
  void *stream, *graph; OK(p_cuStreamCreate(&stream, 1)); OK(p_cuStreamBeginCapture_v2(stream, 2)); WANT(migrate(at, TARN_HOT, 0) == 801); OK(p_cuStreamEndCapture(stream, &graph)); WANT(migrate(at, TARN_HOT, 0) == 801); WANT(look(at).flags == (TARN_SPILLED | TARN_PINNED));
  CUdeviceptr later = take(TARN_COLD, GIB); OK(migrate(later, TARN_HOT, &moved)); WANT(moved == GIB); OK(migrate(later, TARN_COLD, &moved)); CUipcMemHandle handle; OK(p_cuIpcGetMemHandle(&handle, later)); WANT(look(later).flags == (TARN_SPILLED | TARN_SHARED) && migrate(later, TARN_HOT, 0) == 801);
  OK(p_cuMemFree_v2(at)); OK(p_cuMemFree_v2(later)); WANT(free_bytes() == before);
}

/* Replays the allocations of a server that decodes: sequences of many lengths come, grow by chunks of cache and end, each at its own time,
 * over weights that fill the primary. The same seed gives the same trace. */
static uint64_t dice; static uint64_t roll(uint64_t n) { dice ^= dice << 13; dice ^= dice >> 7; dice ^= dice << 17; return dice % n; }
static void decode(uint64_t seed, int steps) {
  static struct { CUdeviceptr at[64]; size_t bytes[64], chunk; int n, length; } running[40]; size_t most = 0, worst = 0; dice = seed * 0x9E3779B97F4A7C15ull + 1; CUdeviceptr weights; OK(p_cuMemAlloc_v2(&weights, 23 * GIB));
  for (int step = 0; step < steps; step++) {
    int i = roll(40);
    if (running[i].n >= running[i].length) {
      for (int b = 0; b < running[i].n; b++) OK(p_cuMemFree_v2(running[i].at[b]));
      running[i].n = 0; running[i].length = 1 + roll(24); running[i].chunk = 64 * MIB + roll(192) * MIB + roll(MIB);
    }
    int b = running[i].n; CUresult r = p_cuMemAlloc_v2(&running[i].at[b], running[i].chunk); if (r == 2) { running[i].length = b; continue; } if (r) DIE("alloc -> %d", r);
    running[i].bytes[b] = running[i].chunk; running[i].n++;
    if (step % 25) continue;
    size_t mapped = 0, live = 0; for (int s = 0; s < 40; s++) for (int k = 0; k < running[s].n; k++) { tarn_residency_t t = look(running[s].at[k]); if (t.flags & TARN_SPILLED) { mapped += t.local_bytes + t.donor_bytes; live += running[s].bytes[k]; } }
    most = mapped > most ? mapped : most;
    if (mapped > 4 * GIB && (mapped - live) * 1000 / mapped > worst) worst = (mapped - live) * 1000 / mapped;
  }
  printf("spilled_most=%zu\nwaste_permille=%zu\n", most, worst);
}

/* Takes blocks of one size until there is no more, and tells where they lie; commands on stdin: check, look, free. */
static void overflow(size_t bytes) {
  static CUdeviceptr at[4096]; size_t n = 0, f, t, total; char line[64];
  OK(p_cuDeviceTotalMem_v2(&total, device)); OK(p_cuMemGetInfo_v2(&f, &t)); WANT(total == t); printf("total=%zu\nfree=%zu\n", t, f);
  for (; n < 4096; n++) { CUresult r = p_cuMemAlloc_v2(&at[n], bytes); if (r == 2) break; if (r) DIE("alloc -> %d", r); fill(at[n], bytes, 16 * MIB); }
  printf("taken=%zu\nfull=%zu\n", n * bytes, free_bytes());
  for (;;) {
    tarn_residency_t r = look(0); uint64_t of_blocks = 0; for (size_t i = 0; i < n; i++) { int type = 0, ordinal = -1; of_blocks += look(at[i]).host_bytes; OK(p_cuPointerGetAttribute(&type, 2, at[i] + bytes - 1)); OK(p_cuPointerGetAttribute(&ordinal, 9, at[i] + bytes - 1)); WANT(type == 2 && ordinal == 0); }
    WANT(of_blocks == r.host_bytes); printf("local=%llu\ndonors=%llu\nhost=%llu\nwaiting\n", (unsigned long long)r.local_bytes, (unsigned long long)r.donor_bytes, (unsigned long long)r.host_bytes); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) _exit(3);
    if (!strncmp(line, "check", 5)) { size_t bad = 0; for (size_t i = 0; i < n; i++) bad += check(at[i], bytes, 16 * MIB); printf("bad=%zu\n", bad); }
    else if (!strncmp(line, "more", 4)) { CUdeviceptr extra; CUresult e = p_cuMemAlloc_v2(&extra, bytes); printf("more=%d\n", e); if (!e) OK(p_cuMemFree_v2(extra)); }
    else if (!strncmp(line, "free", 4)) { for (size_t i = 0; i < n; i++) OK(p_cuMemFree_v2(at[i])); WANT(look(0).bytes == 0); return; }
    else if (!strncmp(line, "drop", 4)) { for (; n; n--) OK(p_cuMemFree_v2(at[n - 1])); }
  }
}

int main(int c, char **v) {
  if (c < 3) return 2;
  setvbuf(stdout, 0, _IOLBF, 0); resolve(v[1]); void *library = dlopen("libcuda.so.1", RTLD_NOW);
  abi = need(dlsym(library, "tarn_abi_version"), "tarn_abi_version"); hint = need(dlsym(library, "tarn_hint"), "tarn_hint"); residency = need(dlsym(library, "tarn_residency"), "tarn_residency"); blocks = need(dlsym(library, "tarn_blocks"), "tarn_blocks"); migrate = need(dlsym(library, "tarn_migrate"), "tarn_migrate");
  WANT(abi() == TARN_ABI_VERSION); start();
  if (!strcmp(v[2], "hints")) hints(); else if (!strcmp(v[2], "moves")) moves();
  else if (!strcmp(v[2], "where")) { CUdeviceptr at; OK(p_cuMemAlloc_v2(&at, strtoull(v[3], 0, 10))); tarn_residency_t r = look(at); printf("local=%llu\ndonors=%llu\n", (unsigned long long)r.local_bytes, (unsigned long long)r.donor_bytes); }
  else if (!strcmp(v[2], "overflow")) overflow(strtoull(v[3], 0, 10));
  else if (!strcmp(v[2], "decode")) decode(strtoull(v[3], 0, 10), atoi(v[4]));
  else return 2;
  printf("done=1\n");
  return 0;
}
