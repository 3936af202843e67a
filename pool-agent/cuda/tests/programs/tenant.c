/* An unmodified program of the CUDA driver API: nothing here knows of pools.
 *
 *   tenant <how> <what> [arguments]
 *
 * <what> is one of the stories below; driver.h tells the rest. */
#include "driver.h"

static void *look(const char *name);

/* Takes everything in large, then smaller blocks, writes and verifies all of it, gives it back. */
static void story_everything(void) {
  static CUdeviceptr at[4096]; static size_t size[4096]; int n = 0; size_t taken = 0, total, f, t; int count; unsigned char uuid[16];
  start();
  OK(p_cuDeviceGetCount(&count)); OK(p_cuDeviceTotalMem_v2(&total, device)); OK(p_cuDeviceGetUuid_v2(uuid, device)); OK(p_cuMemGetInfo_v2(&f, &t));
  printf("devices=%d\ntotal=%zu\ninfo_total=%zu\nfree=%zu\nuuid=", count, total, t, f); for (int i = 0; i < 16; i++) printf("%02x", uuid[i]); printf("\n");
  size_t before = f;
  for (size_t step = 20 * GIB; step >= 2 * MIB; step /= 4) { step &= ~(2 * MIB - 1); for (; n < 4096; n++) { CUresult r = p_cuMemAlloc_v2(&at[n], step); if (r == 2) break; if (r) DIE("alloc -> %d", r); size[n] = step; taken += step; } }
  printf("blocks=%d\ntaken=%zu\nfree_when_full=%zu\n", n, taken, free_bytes());
  for (int i = 0; i < n; i++) fill(at[i], size[i], 16 * MIB);
  size_t bad = 0; for (int i = 0; i < n; i++) bad += check(at[i], size[i], 16 * MIB);
  printf("bad=%zu\n", bad);
  await_line();
  for (int i = 0; i < n; i++) OK(p_cuMemFree_v2(at[i]));
  WANT(free_bytes() == before);
  printf("freed=1\n");
}

/* Holds one block, for tests that kill things around it. Commands on stdin: check, more, try BYTES, free. */
static void story_hold(size_t bytes) {
  CUdeviceptr at; start(); OK(p_cuMemAlloc_v2(&at, bytes)); fill(at, bytes, 2 * MIB);
  char line[64];
  for (;;) {
    printf("free=%zu\nwaiting\n", free_bytes()); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) _exit(3);
    if (!strncmp(line, "check", 5)) printf("bad=%zu\n", check(at, bytes, 2 * MIB));
    else if (!strncmp(line, "try", 3)) { CUdeviceptr extra; CUresult r = p_cuMemAlloc_v2(&extra, strtoull(line + 4, 0, 10)); printf("try=%d\n", r); if (!r) OK(p_cuMemFree_v2(extra)); }
    else if (!strncmp(line, "more", 4)) { CUdeviceptr extra; CUresult r = p_cuMemAlloc_v2(&extra, 30 * GIB); printf("more=%d\n", r); if (!r) OK(p_cuMemFree_v2(extra)); }
    else if (!strncmp(line, "free", 4)) { OK(p_cuMemFree_v2(at)); printf("freed=1\n"); fflush(stdout); return; }
  }
}

/* One stitched block: what it says of itself, and copies across its seams. */
static void story_pointer(void) {
  CUdeviceptr at, base, start_at; size_t size, range; int ordinal = -1, managed = -1; unsigned char legacy = 9; unsigned long long id1, id2; void *ctx; size_t bytes = 30 * GIB + 12345;
  start(); OK(p_cuMemAlloc_v2(&at, bytes));
  CUdeviceptr places[] = { at, at + 1, at + 22 * GIB, at + 29 * GIB, at + bytes - 1 };
  for (int i = 0; i < 5; i++) {
    CUdeviceptr q = places[i];
    OK(p_cuMemGetAddressRange_v2(&base, &size, q)); WANT(base == at && size == bytes);
    OK(p_cuMemGetAddressRange_v2(0, &size, q)); OK(p_cuMemGetAddressRange_v2(&base, 0, q));
    OK(p_cuPointerGetAttribute(&ordinal, 9, q)); WANT(ordinal == 0);
    OK(p_cuPointerGetAttribute(&start_at, 11, q)); OK(p_cuPointerGetAttribute(&range, 12, q)); WANT(start_at == at && range == bytes);
    OK(p_cuPointerGetAttribute(&legacy, 10, q)); WANT(legacy == 1);
    OK(p_cuPointerGetAttribute(&id1, 7, at)); OK(p_cuPointerGetAttribute(&id2, 7, q)); WANT(id1 == id2);
    ordinal = managed = -1; int names[] = { 9, 11, 12, 1 }; void *to[] = { &ordinal, &start_at, &range, &ctx };
    OK(p_cuPointerGetAttributes(4, names, to, q)); WANT(ordinal == 0 && start_at == at && range == bytes && ctx == context);
  }
  CUipcMemHandle handle; CUdeviceptr again; OK(p_cuIpcGetMemHandle(&handle, at + 22 * GIB)); WANT(p_cuIpcOpenMemHandle_v2(&again, handle, 1) == 201);
  WANT(p_cuMemFree_v2(at + 4096) == 1); unsigned long long token[2]; WANT(p_cuPointerGetAttribute(token, 5, at + 22 * GIB) == 801);
  CUresult (*checkpoint)(int, void *) = (CUresult (*)(int, void *))look("cuCheckpointProcessCheckpoint"); WANT(checkpoint && checkpoint(getpid(), 0) == 801);
  /* A copy over every seam, front to back. */
  fill(at, 64 * MIB, MIB);
  for (size_t o = GIB; o + 64 * MIB < bytes; o += 4 * GIB) { OK(p_cuMemcpyDtoD_v2(at + o, at, 64 * MIB)); uint64_t w; for (size_t p = 0; p < 64 * MIB; p += MIB) { OK(p_cuMemcpyDtoH_v2(&w, at + o + p, 8)); WANT(w == mark(at + p)); } }
  static char line[4 * MIB], back[4 * MIB]; for (size_t i = 0; i < sizeof line; i++) line[i] = (char)(i * 7 + i / 4096);
  for (size_t o = 22 * GIB; o < 25 * GIB; o += 64 * MIB + 4096) { OK(p_cuMemcpyHtoD_v2(at + o, line, sizeof line)); memset(back, 0, sizeof back); OK(p_cuMemcpyDtoH_v2(back, at + o, sizeof back)); WANT(!memcmp(line, back, sizeof line)); }
  OK(p_cuMemFree_v2(at)); WANT(p_cuMemFree_v2(at) == 1); WANT(checkpoint(getpid(), 0) == 401);
  CUdeviceptr sheet; size_t pitch; OK(p_cuMemAllocPitch_v2(&sheet, &pitch, 100000, 300000, 4)); WANT(pitch % 512 == 0); OK(p_cuMemGetAddressRange_v2(&base, &size, sheet)); WANT(size == pitch * 300000);
  OK(p_cuMemFree_v2(sheet));
  printf("pointer=1\n");
}

/* Stream-ordered allocation past the primary, freed in stream order and by the plain free. */
static void story_async(void) {
  void *stream; CUdeviceptr at[8]; start(); size_t before = free_bytes(); OK(p_cuStreamCreate(&stream, 0));
  for (int i = 0; i < 8; i++) { OK(p_cuMemAllocAsync(&at[i], 8 * GIB, i % 2 ? stream : 0)); fill(at[i], 8 * GIB, 256 * MIB); }
  for (int i = 0; i < 8; i++) WANT(check(at[i], 8 * GIB, 256 * MIB) == 0);
  for (int i = 0; i < 7; i++) OK(p_cuMemFreeAsync(at[i], i % 2 ? stream : 0));
  OK(p_cuMemFree_v2(at[7])); OK(p_cuStreamSynchronize(stream)); OK(p_cuStreamSynchronize(0));
  printf("async=1\n"); (void)before;
}

/* Physical handles made by threads without a context, past the primary, kept alive by mappings after release. Where the card
 * offers that network cards reach them, that is asked for, as frameworks do. */
static int vmm_rdma; static CUdeviceptr vmm_at; static CUhandle vmm_handles[64]; static atomic_int vmm_next;
static void *vmm_thread(void *nothing) {
  CUmemAllocationProp prop = { 1, 1, { 1, 0 }, 0, 0, vmm_rdma, 0, { 0 } }; CUmemAccessDesc access = { { 1, 0 }, 3 }; (void)nothing;
  for (int i; (i = atomic_fetch_add(&vmm_next, 1)) < 40;) { OK(p_cuMemCreate(&vmm_handles[i], GIB, &prop, 0)); OK(p_cuMemMap(vmm_at + i * GIB, GIB, 0, vmm_handles[i], 0)); OK(p_cuMemSetAccess(vmm_at + i * GIB, GIB, &access, 1)); }
  return 0;
}
static void story_vmm(void) {
  pthread_t thread[8]; start(); size_t before = free_bytes(); OK(p_cuCtxSetCurrent(0));
  OK(p_cuDeviceGetAttribute(&vmm_rdma, 110, device)); printf("rdma=%d\n", vmm_rdma);
  OK(p_cuMemAddressReserve(&vmm_at, 48 * GIB, 0, 0, 0));
  for (int i = 0; i < 8; i++) pthread_create(&thread[i], 0, vmm_thread, 0);
  for (int i = 0; i < 8; i++) pthread_join(thread[i], 0);
  OK(p_cuCtxSetCurrent(context)); fill(vmm_at, 40 * GIB, 64 * MIB); WANT(check(vmm_at, 40 * GIB, 64 * MIB) == 0);
  size_t held = free_bytes(); WANT(before - held >= 40 * GIB);
  for (int i = 0; i < 40; i++) { CUmemAllocationProp prop; OK(p_cuMemGetAllocationPropertiesFromHandle(&prop, vmm_handles[i])); WANT(prop.location.id == 0 && prop.location.type == 1 && prop.rdma == vmm_rdma && prop.handle_types == 1); OK(p_cuMemRelease(vmm_handles[i])); }
  WANT(free_bytes() == held); WANT(check(vmm_at, 40 * GIB, 64 * MIB) == 0);
  await_line();
  OK(p_cuMemUnmap(vmm_at, 40 * GIB)); OK(p_cuMemAddressFree(vmm_at, 48 * GIB)); WANT(free_bytes() == before);
  printf("vmm=1\n");
}

/* One handle that no card has room for: mapped whole, looked at from every side, kept alive by its mapping, brought back by it. */
static void story_compound(size_t bytes) {
  CUmemAllocationProp prop = { 1, 1, { 1, 0 }, 0, 0, 0, 0, { 0 } }, said; CUmemAccessDesc access = { { 1, 0 }, 3 }; CUhandle handle, again; CUdeviceptr at, base; size_t size; int fd = -1;
  start(); size_t before = free_bytes(); OK(p_cuMemCreate(&handle, bytes, &prop, 0)); WANT(before - free_bytes() == bytes);
  OK(p_cuMemGetAllocationPropertiesFromHandle(&said, handle)); WANT(said.location.type == 1 && said.location.id == 0 && said.handle_types == 1);
  WANT(p_cuMemExportToShareableHandle(&fd, handle, 1, 0) == 801); OK(p_cuMemAddressReserve(&at, bytes + GIB, 0, 0, 0));
  WANT(p_cuMemMap(at, GIB, 0, handle, 0) == 1 && p_cuMemMap(at, bytes, 2 * MIB, handle, 0) == 1); OK(p_cuMemMap(at, bytes, 0, handle, 0)); WANT(p_cuMemMap(at, bytes, 0, handle, 0) != 0); OK(p_cuMemSetAccess(at, bytes, &access, 1));
  fill(at, bytes, 64 * MIB); WANT(check(at, bytes, 64 * MIB) == 0);
  OK(p_cuMemGetAddressRange_v2(&base, &size, at + bytes - 1)); WANT(base == at && size == bytes);
  OK(p_cuMemRelease(handle)); WANT(p_cuMemRelease(handle) != 0); WANT(check(at, bytes, 64 * MIB) == 0 && before - free_bytes() == bytes);
  CUresult (*retain)(CUhandle *, void *) = (CUresult (*)(CUhandle *, void *))look("cuMemRetainAllocationHandle"); OK(retain(&again, (void *)(uintptr_t)(at + bytes / 2)));
  OK(p_cuMemGetAllocationPropertiesFromHandle(&said, again)); await_line();
  WANT(p_cuMemUnmap(at, bytes - 2 * MIB) == 1 && p_cuMemUnmap(at + 2 * MIB, 2 * MIB) == 1); WANT(check(at, bytes, 64 * MIB) == 0);
  OK(p_cuMemUnmap(at, bytes)); WANT(before - free_bytes() == bytes); OK(p_cuMemMap(at + GIB, bytes, 0, again, 0)); OK(p_cuMemSetAccess(at + GIB, bytes, &access, 1)); uint64_t word; OK(p_cuMemcpyDtoH_v2(&word, at + GIB, 8)); WANT(word == mark(at));
  OK(p_cuMemUnmap(at + GIB, bytes)); OK(p_cuMemRelease(again)); WANT(free_bytes() == before); OK(p_cuMemAddressFree(at, bytes + GIB));
  /* More than everything is refused and leaves nothing behind. */
  WANT(p_cuMemCreate(&handle, before + GIB, &prop, 0) == 2 && free_bytes() == before);
  printf("compound=1\n");
}

/* What may go wrong with such handles, and their neighbours: every refusal leaves everything as it was. */
static void story_compound_edges(void) {
  CUmemAllocationProp prop = { 1, 1, { 1, 0 }, 0, 0, 0, 0, { 0 } }; CUmemAccessDesc access = { { 1, 0 }, 3 }; CUhandle big[3], small, foreign; CUdeviceptr at, base; size_t bytes = 30 * GIB, size; int fd = -1; start(); size_t before = free_bytes();
  OK(p_cuMemCreate(&small, GIB, &prop, 0)); OK(p_cuMemExportToShareableHandle(&fd, small, 1, 0)); OK(p_cuMemImportFromShareableHandle(&foreign, (void *)(uintptr_t)fd, 1)); close(fd); for (int i = 0; i < 3; i++) OK(p_cuMemCreate(&big[i], bytes, &prop, 0));
  size_t held = free_bytes(); WANT(before - held == 3 * bytes + GIB);
  OK(p_cuMemAddressReserve(&at, 128 * GIB, 0, 0, 0));
  /* A neighbour in the middle: what was mapped up to there goes again, and the neighbour stays. */
  OK(p_cuMemMap(at + 29 * GIB, GIB, 0, small, 0)); OK(p_cuMemSetAccess(at + 29 * GIB, GIB, &access, 1)); fill(at + 29 * GIB, GIB, 64 * MIB); WANT(p_cuMemMap(at, bytes, 0, big[0], 0) != 0); WANT(p_cuMemGetAddressRange_v2(&base, &size, at) != 0); WANT(check(at + 29 * GIB, GIB, 64 * MIB) == 0); WANT(p_cuMemSetAccess(at, bytes, &access, 1) != 0);
  WANT(p_cuMemMap(at, bytes + 2 * MIB, 0, big[0], 0) != 0 && p_cuMemMap(at, bytes - 2 * MIB, 0, big[0], 0) != 0 && p_cuMemMap(at, bytes, 0, big[0], 1) != 0 && p_cuMemMap(at + 120 * GIB, bytes, 0, big[0], 0) != 0 && p_cuMemMap(at + 4096, bytes, 0, big[0], 0) != 0);
  /* [small][big 0][big 1][imported]: a range goes with every whole mapping in it, and not at all when it cuts one. */
  CUdeviceptr first = at + 30 * GIB, second = at + 60 * GIB, last = at + 90 * GIB; OK(p_cuMemMap(first, bytes, 0, big[0], 0)); OK(p_cuMemMap(second, bytes, 0, big[1], 0)); OK(p_cuMemMap(last, GIB, 0, foreign, 0)); OK(p_cuMemSetAccess(first, 61 * GIB, &access, 1));
  /* One buffer to whoever asks, another than its neighbour. */
  unsigned long long id, other, types; CUdeviceptr where; size_t length; int kind, ordinal; CUdeviceptr places[] = { first, first + GIB, first + 29 * GIB, second - 1 };
  OK(p_cuPointerGetAttribute(&other, 7, second)); OK(p_cuPointerGetAttribute(&id, 7, first)); WANT(id != other);
  for (int i = 0; i < 4; i++) {
    CUdeviceptr q = places[i]; unsigned long long mine = 0; OK(p_cuPointerGetAttribute(&mine, 7, q)); WANT(mine == id); OK(p_cuPointerGetAttribute(&where, 19, q)); OK(p_cuPointerGetAttribute(&length, 18, q)); WANT(where == first && length == bytes); OK(p_cuPointerGetAttribute(&types, 14, q)); WANT(types == 0);
    OK(p_cuPointerGetAttribute(&kind, 2, q)); OK(p_cuPointerGetAttribute(&ordinal, 9, q)); WANT(kind == 2 && ordinal == 0); OK(p_cuMemGetAddressRange_v2(&base, &size, q)); WANT(base == first && size == bytes);
    mine = 0; kind = 9; int names[] = { 7, 2, 18 }; void *to[] = { &mine, &kind, &length }; OK(p_cuPointerGetAttributes(3, names, to, q)); WANT(mine == id && kind == 2 && length == bytes);
    unsigned long long token[2]; WANT(p_cuPointerGetAttribute(token, 5, q) == 801); CUipcMemHandle handle; WANT(p_cuIpcGetMemHandle(&handle, q) != 0);
    CUresult (*dmabuf)(void *, CUdeviceptr, size_t, int, unsigned long long) = (CUresult (*)(void *, CUdeviceptr, size_t, int, unsigned long long))look("cuMemGetHandleForAddressRange"); WANT(dmabuf(&fd, q, 4096, 1, 0) == 801);
  }
  fill(first, 61 * GIB, 64 * MIB);
  WANT(p_cuMemUnmap(at + 29 * GIB + 2 * MIB, bytes + GIB) != 0 && p_cuMemUnmap(at + 29 * GIB, 30 * GIB) != 0 && p_cuMemUnmap(first, 60 * GIB + 2 * MIB) != 0 && p_cuMemUnmap(at + 28 * GIB, 32 * GIB) != 0); WANT(check(first, 61 * GIB, 64 * MIB) == 0 && free_bytes() == held);
  OK(p_cuMemGetAddressRange_v2(&base, &size, second - 1)); WANT(base == first && size == bytes);
  /* In any order: handles first, mappings first, one of each. */
  OK(p_cuMemRelease(big[0])); OK(p_cuMemRelease(foreign)); WANT(free_bytes() == held); OK(p_cuMemRelease(big[2])); WANT(free_bytes() == held + bytes);
  OK(p_cuMemUnmap(first, 61 * GIB)); WANT(free_bytes() == held + 2 * bytes); OK(p_cuMemUnmap(at + 29 * GIB, GIB)); WANT(p_cuMemUnmap(first, bytes) != 0); OK(p_cuMemRelease(big[1])); OK(p_cuMemRelease(small)); WANT(free_bytes() == before); WANT(p_cuMemRelease(big[1]) != 0 && p_cuMemMap(first, bytes, 0, big[1], 0) != 0);
  OK(p_cuMemAddressFree(at, 128 * GIB));
  printf("compound_edges=1\n");
}

/* Threads that make, map, write, read and end such handles, until the rounds are over; memory may be out at any time, and nothing else may go
 * wrong, whatever happens to the broker. */
static int spread_rounds; static size_t spread_bytes; static atomic_long spread_made, spread_oom;
static void *spread_thread(void *number) {
  CUmemAllocationProp prop = { 1, 1, { 1, 0 }, 0, 0, 0, 0, { 0 } }; CUmemAccessDesc access = { { 1, 0 }, 3 }; size_t bytes = spread_bytes + (intptr_t)number * 2 * MIB; CUdeviceptr at; OK(p_cuCtxSetCurrent(context)); OK(p_cuMemAddressReserve(&at, bytes, 0, 0, 0));
  for (int i = 0; i < spread_rounds; i++) {
    CUhandle handle = 0; CUresult r = p_cuMemCreate(&handle, bytes, &prop, 0); if (r == 2) { atomic_fetch_add(&spread_oom, 1); usleep(300); continue; } if (r) DIE("create -> %d", r);
    atomic_fetch_add(&spread_made, 1); OK(p_cuMemMap(at, bytes, 0, handle, 0)); if (i % 2) OK(p_cuMemRelease(handle)); OK(p_cuMemSetAccess(at, bytes, &access, 1)); fill(at, bytes, GIB); WANT(check(at, bytes, GIB) == 0); OK(p_cuMemUnmap(at, bytes)); if (!(i % 2)) OK(p_cuMemRelease(handle));
  }
  OK(p_cuMemAddressFree(at, bytes)); return 0;
}
static void story_spread(int threads, int rounds, size_t bytes) {
  pthread_t thread[64]; spread_rounds = rounds; spread_bytes = bytes; start(); printf("started=1\n"); fflush(stdout);
  for (intptr_t i = 0; i < threads; i++) pthread_create(&thread[i], 0, spread_thread, (void *)i);
  for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
  printf("made=%ld\noom=%ld\n", spread_made, spread_oom);
}

/* One handle of a size: what the driver says of the attempt, and what is free then. */
static void story_attempt(size_t bytes) {
  CUmemAllocationProp prop = { 1, 1, { 1, 0 }, 0, 0, 0, 0, { 0 } }; CUhandle handle; char line[64]; start(); size_t before = free_bytes();
  for (;;) {
    printf("waiting\n"); fflush(stdout); if (!fgets(line, sizeof line, stdin)) _exit(3); if (!strncmp(line, "end", 3)) return;
    CUresult r = p_cuMemCreate(&handle, bytes, &prop, 0); printf("attempt=%d\n", r); if (!r) OK(p_cuMemRelease(handle)); printf("lost=%zd\n", (ssize_t)(before - free_bytes()));
  }
}

/* What others left in memory: blocks are looked at for bytes that are not zero before anything is written. Commands on stdin: take BYTES (a
 * new block, by the allocator), handle BYTES (by the virtual memory interface, mapped for good), drop (the last block of the allocator), end. */
static size_t left_in(CUdeviceptr at, size_t bytes) { size_t found = 0; uint64_t w; for (size_t o = 0; o < bytes; o += MIB) { OK(p_cuMemcpyDtoH_v2(&w, at + o, 8)); found += w != 0; } return found; }
static void story_residue(void) {
  static CUdeviceptr at[512]; int n = 0; size_t bytes, seen = 0; char line[64]; start();
  for (;;) {
    printf("seen=%zu\nwaiting\n", seen); fflush(stdout); if (!fgets(line, sizeof line, stdin)) _exit(3);
    if (!strncmp(line, "end", 3)) return;
    if (!strncmp(line, "drop", 4)) { WANT(n > 0); OK(p_cuMemFree_v2(at[--n])); continue; }
    bytes = strtoull(strchr(line, ' '), 0, 10); CUdeviceptr fresh = 0;
    if (!strncmp(line, "take", 4)) { WANT(n < 512); OK(p_cuMemAlloc_v2(&fresh, bytes)); at[n++] = fresh; }
    else {
      CUmemAllocationProp prop = { 1, 1, { 1, 0 }, 0, 0, 0, 0, { 0 } }; CUmemAccessDesc access = { { 1, 0 }, 3 }; CUhandle handle;
      OK(p_cuMemCreate(&handle, bytes, &prop, 0)); OK(p_cuMemAddressReserve(&fresh, bytes, 0, 0, 0)); OK(p_cuMemMap(fresh, bytes, 0, handle, 0)); OK(p_cuMemSetAccess(fresh, bytes, &access, 1)); OK(p_cuMemRelease(handle));
    }
    seen += left_in(fresh, bytes); fill(fresh, bytes, MIB);
  }
}

/* M1: random allocations and frees by many threads, for a bounded number of rounds; every block keeps its own bytes. What lives at the
 * end is told and, with `pause`, held until a line comes. */
static int churn_rounds; static size_t churn_most; static atomic_long churn_oom, churn_blocks;
static struct churn { CUdeviceptr at[6]; size_t size[6]; } churn_held[64];
static void churn_end(struct churn *held, int i) { WANT(check(held->at[i], held->size[i], held->size[i] / 4 + 8) == 0); OK(p_cuMemFree_v2(held->at[i])); held->at[i] = 0; }
static void *churn_thread(void *number) {
  struct churn *held = &churn_held[(intptr_t)number]; uint64_t s = ((uint64_t)(uintptr_t)number + getpid()) * 0x9E3779B97F4A7C15ull + 1; OK(p_cuCtxSetCurrent(context));
  for (int r = 0; r < churn_rounds; r++) {
    s ^= s << 13; s ^= s >> 7; s ^= s << 17; int i = s % 6;
    if (held->at[i]) { churn_end(held, i); continue; }
    size_t bytes = (s >> 8) % 3 ? (s >> 16) % churn_most + 16 : (s >> 16) % (64 * 1024) + 16; CUresult e = p_cuMemAlloc_v2(&held->at[i], bytes);
    if (e == 2) { held->at[i] = 0; atomic_fetch_add(&churn_oom, 1); continue; } if (e) DIE("alloc -> %d", e);
    held->size[i] = bytes; fill(held->at[i], bytes, bytes / 4 + 8); atomic_fetch_add(&churn_blocks, 1); free_bytes();
  }
  return 0;
}
static void story_churn(int threads, int rounds, size_t most, int pause) {
  pthread_t thread[64]; churn_rounds = rounds; churn_most = most; start(); printf("started=1\n"); fflush(stdout);
  for (intptr_t i = 0; i < threads; i++) pthread_create(&thread[i], 0, churn_thread, (void *)i);
  for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
  size_t live = 0, count = 0; for (int t = 0; t < threads; t++) for (int i = 0; i < 6; i++) if (churn_held[t].at[i]) { live += churn_held[t].size[i]; count++; }
  printf("live=%zu\nlive_blocks=%zu\nblocks=%ld\noom=%ld\n", live, count, churn_blocks, churn_oom);
  if (pause) await_line();
  for (int t = 0; t < threads; t++) for (int i = 0; i < 6; i++) if (churn_held[t].at[i]) churn_end(&churn_held[t], i);
}

/* M19: children released at once, each initialises the driver and asks for the total, which has to be `want`; prints the slowest and the wall time. */
static int by_time(const void *a, const void *b) { double d = *(double *)a - *(double *)b; return (d > 0) - (d < 0); }
static void story_barrier(int children, size_t want) {
  int gate[2], done[2]; WANT(!pipe(gate) && !pipe(done)); static double took[4096];
  for (int i = 0; i < children; i++) if (!fork()) {
    char c; close(gate[1]); if (read(gate[0], &c, 1) < 0) _exit(9); double t0 = now(); size_t total; int count;
    OK(p_cuInit(0)); OK(p_cuDeviceGetCount(&count)); OK(p_cuDeviceGet(&device, 0)); OK(p_cuDeviceTotalMem_v2(&total, device)); WANT(count == 1 && total == want);
    double t = now() - t0; WANT(write(done[1], &t, sizeof t) == sizeof t); _exit(0);
  }
  double t0 = now(); close(gate[1]); close(done[1]);
  for (int i = 0; i < children; i++) WANT(read(done[0], &took[i], sizeof(double)) == sizeof(double));
  double wall = now() - t0; qsort(took, children, sizeof(double), by_time); int status, bad = 0; while (wait(&status) > 0) bad += status != 0; WANT(!bad);
  printf("wall_us=%.0f\np50_us=%.0f\np99_us=%.0f\nmax_us=%.0f\n", wall * 1e6, took[children / 2] * 1e6, took[children * 99 / 100] * 1e6, took[children - 1] * 1e6);
}

/* A child forked after initialisation has no driver, and takes nothing of its parent with it. */
static void story_fork(void) {
  CUdeviceptr at; start(); OK(p_cuMemAlloc_v2(&at, 40 * GIB)); fill(at, 40 * GIB, GIB); fflush(stdout);
  pid_t child = fork();
  if (!child) { CUdeviceptr mine; CUresult r = p_cuMemAlloc_v2(&mine, 30 * GIB); _exit(r == 0 ? 7 : 0); }
  int status; waitpid(child, &status, 0); printf("child=%d\n", WEXITSTATUS(status));
  WANT(check(at, 40 * GIB, GIB) == 0); OK(p_cuMemFree_v2(at)); OK(p_cuMemAlloc_v2(&at, 40 * GIB)); OK(p_cuMemFree_v2(at)); printf("parent=1\n");
}

/* A program that has used up its descriptors is refused, and nothing of what was refused is gone. */
static void story_no_descriptors(size_t bytes, int tries) {
  CUdeviceptr at; int filler[4096], n = 0; struct rlimit few = { 64, 64 }; start(); OK(p_cuMemAlloc_v2(&at, bytes)); OK(p_cuMemFree_v2(at)); size_t before = free_bytes();
  WANT(!setrlimit(RLIMIT_NOFILE, &few)); while (n < 4096 && (filler[n] = open("/dev/null", O_RDONLY)) >= 0) n++;
  int refused = 0; for (int i = 0; i < tries; i++) { CUresult r = p_cuMemAlloc_v2(&at, bytes); if (!r) { OK(p_cuMemFree_v2(at)); } else { WANT(r == 2); refused++; } }
  printf("refused=%d\nleft=%zu\nbefore=%zu\n", refused, free_bytes(), before); await_line();
  while (n) close(filler[--n]);
  OK(p_cuMemAlloc_v2(&at, bytes)); fill(at, bytes, 16 * MIB); WANT(check(at, bytes, 16 * MIB) == 0); OK(p_cuMemFree_v2(at)); printf("again=1\n");
}

/* A program that closes descriptors it does not know, opens files of its own in their place and forks: the child has those files. */
static void story_own_files(void) {
  CUdeviceptr at; start(); OK(p_cuMemAlloc_v2(&at, 40 * GIB)); fflush(stdout); int mine = open("/dev/null", O_RDONLY), replaced = 0; WANT(mine >= 0);
  for (int fd = 3; fd < 256; fd++) { int type = 0; socklen_t length = sizeof type; if (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) && type == SOCK_SEQPACKET) { WANT(dup2(mine, fd) == fd); replaced = 1;
    pid_t child = fork(); if (!child) _exit(fcntl(fd, F_GETFD) < 0 ? 7 : 0);
    int status; waitpid(child, &status, 0); printf("child=%d\n", WEXITSTATUS(status)); } }
  WANT(replaced); OK(p_cuMemFree_v2(at)); printf("parent=1\n");
}

/* Sizes that no card has, and odd ones: each is refused, and nothing is gone for it. */
static void story_sizes(void) {
  size_t sizes[] = { SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 2 * MIB + 1, SIZE_MAX - 4 * MIB + 1, SIZE_MAX / 2, SIZE_MAX / 2 + 1, (size_t)1 << 47, (size_t)1 << 46, ((size_t)1 << 40) + 1, 200 * GIB + 3 };
  CUmemAllocationProp prop = { 1, 1, { 1, 0 }, 0, 0, 0, 0, { 0 } }; CUmemAccessDesc access = { { 1, 0 }, 3 }; CUdeviceptr at; CUhandle handle; CUdeviceptr held; size_t pitch; start(); OK(p_cuMemAlloc_v2(&held, 3 * GIB)); fill(held, 3 * GIB, 64 * MIB); size_t before = free_bytes();
  for (int round = 0; round < 3; round++) for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t n = sizes[i]; WANT(p_cuMemAlloc_v2(&at, n) && p_cuMemAllocAsync(&at, n, 0) && p_cuMemCreate(&handle, n, &prop, 0) && p_cuMemAllocPitch_v2(&at, &pitch, n, 1, 4) && p_cuMemAllocPitch_v2(&at, &pitch, 1 << 20, n, 4) && p_cuMemAllocPitch_v2(&at, &pitch, n, n, 4));
    if (free_bytes() != before) DIE("%zu free after a request of %zu, %zu before", free_bytes(), n, before);
    WANT(p_cuMemMap(4096, n, 0, 5, 0) && p_cuMemUnmap(4096, n) && p_cuMemUnmap(~0ull - 4095, n) && p_cuMemSetAccess(4096, n, &access, 1) && p_cuMemSetAccess(~0ull - 4095, n, &access, 1) && p_cuMemRelease(n) && p_cuMemFree_v2(n));
  }
  OK(p_cuMemCreate(&handle, 60 * GIB, &prop, 0)); OK(p_cuMemAddressReserve(&at, 60 * GIB, 0, 0, 0)); OK(p_cuMemMap(at, 60 * GIB, 0, handle, 0));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) { WANT(p_cuMemUnmap(at + 2 * MIB, sizes[i]) && p_cuMemUnmap(at + GIB, sizes[i]) && p_cuMemMap(at, sizes[i], 0, handle, 0) && p_cuMemMap(at + 2 * MIB, 60 * GIB, sizes[i], handle, 0)); }
  OK(p_cuMemSetAccess(at, 60 * GIB, &access, 1)); fill(at, 60 * GIB, GIB); WANT(check(at, 60 * GIB, GIB) == 0); OK(p_cuMemUnmap(at, 60 * GIB)); OK(p_cuMemRelease(handle)); OK(p_cuMemAddressFree(at, 60 * GIB));
  WANT(free_bytes() == before && check(held, 3 * GIB, 64 * MIB) == 0); OK(p_cuMemFree_v2(held)); printf("sizes=1\n");
}

/* A reset takes spilled blocks with it. */
static void story_reset(void) {
  CUdeviceptr at; start(); size_t before = free_bytes(); OK(p_cuMemAlloc_v2(&at, 60 * GIB)); OK(p_cuDevicePrimaryCtxReset_v2(device)); OK(p_cuDevicePrimaryCtxRetain(&context, device)); OK(p_cuCtxSetCurrent(context)); WANT(free_bytes() == before); printf("reset=1\n");
}

static void story_see(void) { CUresult r = p_cuInit(0); int count = -1; size_t total = 0; if (!r) r = p_cuDeviceGetCount(&count); if (!r) { OK(p_cuDeviceGet(&device, 0)); OK(p_cuDeviceTotalMem_v2(&total, device)); } printf("result=%d\ndevices=%d\ntotal=%zu\n", r, count, total); }

/* M7: every intercepted call with NULL and invalid parameters. One line a case, for comparison with the bare driver. */
static void *look(const char *name) { static void *library; if (!library) library = dlopen("libcuda.so.1", RTLD_NOW); return dlsym(library, name); }
#define CASE(symbol, label, arguments, ...) do { CUresult (*f_) arguments = (CUresult (*) arguments)look(#symbol); if (f_) printf("%s %s=%d\n", #symbol, label, f_(__VA_ARGS__)); else printf("%s %s=absent\n", #symbol, label); fflush(stdout); } while (0)
static void nulls(void) {
  typedef unsigned U; typedef size_t Z; typedef CUdeviceptr P; typedef unsigned long long L; typedef void *V;
  const P bad = 0xdead0000000ull; Z z = 0, y = 0; P p = 0; CUhandle h = 0; int i = 0; V v = 0; U u = 0, w = 0; unsigned char buffer[256]; (void)z; (void)y; (void)i; (void)u; (void)w;
  CUmemAllocationProp good = { 1, 0, { 1, 0 }, 0, 0, 0, 0, { 0 } }, kind = good, far = good, host = good; kind.type = 77; far.location.id = 5; host.location.type = 0;
  CASE(cuInit, "flags", (U), 7);
  CASE(cuDeviceTotalMem_v2, "null", (Z *, int), 0, 0); CASE(cuDeviceTotalMem_v2, "device", (Z *, int), &z, 99); CASE(cuDeviceTotalMem_v2, "negative", (Z *, int), &z, -1);
  CASE(cuDeviceTotalMem, "null", (U *, int), 0, 0); CASE(cuDeviceTotalMem, "device", (U *, int), &u, 99);
  CASE(cuMemGetInfo_v2, "nulls", (Z *, Z *), 0, 0); CASE(cuMemGetInfo_v2, "no free", (Z *, Z *), 0, &z); CASE(cuMemGetInfo_v2, "no total", (Z *, Z *), &z, 0);
  CASE(cuMemGetInfo, "nulls", (U *, U *), 0, 0); CASE(cuMemGetInfo, "both", (U *, U *), &u, &w);
  CASE(cuMemAlloc_v2, "null", (P *, Z), 0, 4096); CASE(cuMemAlloc_v2, "zero", (P *, Z), &p, 0); CASE(cuMemAlloc_v2, "huge", (P *, Z), &p, (Z)-1); CASE(cuMemAlloc_v2, "half", (P *, Z), &p, (Z)1 << 62);
  CASE(cuMemAlloc, "null", (U *, U), 0, 4096); CASE(cuMemAlloc, "some", (U *, U), &u, 4096);
  CASE(cuMemAllocPitch_v2, "null", (P *, Z *, Z, Z, U), 0, &z, 64, 64, 4); CASE(cuMemAllocPitch_v2, "no pitch", (P *, Z *, Z, Z, U), &p, 0, 64, 64, 4); CASE(cuMemAllocPitch_v2, "element", (P *, Z *, Z, Z, U), &p, &z, 64, 64, 3); CASE(cuMemAllocPitch_v2, "width", (P *, Z *, Z, Z, U), &p, &z, 0, 64, 4); CASE(cuMemAllocPitch_v2, "height", (P *, Z *, Z, Z, U), &p, &z, 64, 0, 4);
  CASE(cuMemAllocManaged, "null", (P *, Z, U), 0, 4096, 1); CASE(cuMemAllocManaged, "flags", (P *, Z, U), &p, 4096, 9); CASE(cuMemAllocManaged, "zero", (P *, Z, U), &p, 0, 1);
  CASE(cuMemFree_v2, "null", (P), 0); CASE(cuMemFree_v2, "bad", (P), bad); CASE(cuMemFree, "bad", (U), 77);
  CASE(cuMemAllocAsync, "null", (P *, Z, V), 0, 4096, 0); CASE(cuMemAllocAsync, "zero", (P *, Z, V), &p, 0, 0); CASE(cuMemAllocAsync_ptsz, "null", (P *, Z, V), 0, 4096, 0);
  CASE(cuMemAllocFromPoolAsync, "null", (P *, Z, V, V), 0, 4096, 0, 0); CASE(cuMemAllocFromPoolAsync, "pool", (P *, Z, V, V), &p, 4096, 0, 0);
  CASE(cuMemFreeAsync, "null", (P, V), 0, 0); CASE(cuMemFreeAsync, "bad", (P, V), bad, 0); CASE(cuMemFreeAsync_ptsz, "bad", (P, V), bad, 0);
  CASE(cuMemPoolCreate, "null", (V *, const void *), 0, 0); CASE(cuMemPoolCreate, "no props", (V *, const void *), &v, 0); CASE(cuMemPoolDestroy, "null", (V), 0);
  CASE(cuMemCreate, "null", (CUhandle *, Z, const void *, L), 0, 2 * MIB, &good, 0); CASE(cuMemCreate, "no prop", (CUhandle *, Z, const void *, L), &h, 2 * MIB, 0, 0); CASE(cuMemCreate, "zero", (CUhandle *, Z, const void *, L), &h, 0, &good, 0); CASE(cuMemCreate, "odd", (CUhandle *, Z, const void *, L), &h, 4097, &good, 0); CASE(cuMemCreate, "flags", (CUhandle *, Z, const void *, L), &h, 2 * MIB, &good, 1); CASE(cuMemCreate, "kind", (CUhandle *, Z, const void *, L), &h, 2 * MIB, &kind, 0); CASE(cuMemCreate, "far", (CUhandle *, Z, const void *, L), &h, 2 * MIB, &far, 0); CASE(cuMemCreate, "nowhere", (CUhandle *, Z, const void *, L), &h, 2 * MIB, &host, 0);
  CASE(cuMemRelease, "zero", (CUhandle), 0); CASE(cuMemRelease, "bad", (CUhandle), 0x7777); CASE(cuMemRetainAllocationHandle, "null", (CUhandle *, V), 0, 0); CASE(cuMemRetainAllocationHandle, "bad", (CUhandle *, V), &h, (V)bad);
  CASE(cuMemMap, "bad", (P, Z, Z, CUhandle, L), bad, 2 * MIB, 0, 0x7777, 0); CUmemAccessDesc rights = { { 1, 0 }, 3 }; CASE(cuMemSetAccess, "null", (P, Z, const void *, Z), bad, 2 * MIB, 0, 1); CASE(cuMemSetAccess, "none", (P, Z, const void *, Z), bad, 2 * MIB, &rights, 0); CASE(cuMemSetAccess, "bad", (P, Z, const void *, Z), bad, 2 * MIB, &rights, 1); CASE(cuMemSetAccess, "zero", (P, Z, const void *, Z), 0, 0, &rights, 1); CASE(cuMemSetAccess, "all", (P, Z, const void *, Z), bad, (Z)-1, &rights, 1);
  CASE(cuMemUnmap, "bad", (P, Z), bad, 2 * MIB); CASE(cuMemUnmap, "zero", (P, Z), 0, 0);
  CASE(cuMemGetAllocationPropertiesFromHandle, "null", (void *, CUhandle), 0, 0x7777); CASE(cuMemGetAllocationPropertiesFromHandle, "bad", (void *, CUhandle), buffer, 0x7777);
  CASE(cuMemGetAddressRange_v2, "nulls", (P *, Z *, P), 0, 0, bad); CASE(cuMemGetAddressRange_v2, "bad", (P *, Z *, P), &p, &z, bad); CASE(cuMemGetAddressRange, "bad", (U *, U *, U), &u, &w, 77);
  CASE(cuPointerGetAttribute, "null", (V, int, P), 0, 9, bad); CASE(cuPointerGetAttribute, "bad", (V, int, P), buffer, 9, bad); CASE(cuPointerGetAttribute, "attribute", (V, int, P), buffer, 9999, bad);
  CASE(cuPointerGetAttributes, "nulls", (U, int *, V *, P), 1, 0, 0, bad); CASE(cuPointerGetAttributes, "none", (U, int *, V *, P), 0, &i, &v, bad); CASE(cuPointerSetAttribute, "null", (V, int, P), 0, 6, bad);
  CASE(cuIpcGetMemHandle, "null", (V, P), 0, bad); CASE(cuIpcGetMemHandle, "bad", (V, P), buffer, bad); CUipcMemHandle junk = { { 1, 2, 3 } }; CASE(cuIpcOpenMemHandle_v2, "null", (P *, CUipcMemHandle, U), 0, junk, 1); CASE(cuIpcOpenMemHandle_v2, "junk", (P *, CUipcMemHandle, U), &p, junk, 1); CASE(cuIpcOpenMemHandle, "null", (P *, CUipcMemHandle, U), 0, junk, 1); CASE(cuIpcOpenMemHandle, "junk", (P *, CUipcMemHandle, U), &p, junk, 1); CASE(cuIpcCloseMemHandle, "null", (P), 0); CASE(cuIpcCloseMemHandle, "bad", (P), bad); CASE(cuMemExportToShareableHandle, "null", (V, CUhandle, int, L), 0, 0x7777, 1, 0); CASE(cuMemExportToShareableHandle, "bad", (V, CUhandle, int, L), buffer, 0x7777, 1, 0); CASE(cuMemGetHandleForAddressRange, "null", (V, P, Z, int, L), 0, bad, 4096, 1, 0); CASE(cuMemGetHandleForAddressRange, "bad", (V, P, Z, int, L), buffer, bad, 4096, 1, 0);
  CASE(cuGetProcAddress, "nulls", (const char *, V *, int, L), 0, 0, 12000, 0); CASE(cuGetProcAddress, "absent", (const char *, V *, int, L), "cuNoSuchThing", &v, 12000, 0); CASE(cuGetProcAddress_v2, "nulls", (const char *, V *, int, L, int *), 0, 0, 12000, 0, 0); CASE(cuGetProcAddress_v2, "no status", (const char *, V *, int, L, int *), "cuMemAlloc", &v, 12000, 0, 0); CASE(cuGetProcAddress_v2, "flags", (const char *, V *, int, L, int *), "cuMemAlloc", &v, 12000, 999, &i); CASE(cuGetProcAddress_v2, "old", (const char *, V *, int, L, int *), "cuMemAllocAsync", &v, 10000, 0, &i); printf("old status=%d\n", i); CASE(cuGetProcAddress_v2, "absent", (const char *, V *, int, L, int *), "cuNoSuchThing", &v, 12000, 0, &i); printf("absent status=%d\n", i);
  CASE(cuMemAllocPitch, "nulls", (U *, U *, U, U, U), 0, 0, 64, 64, 4); CASE(cuMemAllocFromPoolAsync_ptsz, "null", (P *, Z, V, V), 0, 4096, 0, 0); CASE(cuMemAllocFromPoolAsync_ptsz, "pool", (P *, Z, V, V), &p, 4096, 0, 0);
  CASE(cuMemPoolTrimTo, "null", (V, Z), 0, 0); CASE(cuStreamBeginCapture, "null", (V), 0); CASE(cuStreamBeginCapture_ptsz, "null", (V), 0); CASE(cuStreamBeginCapture_v2, "null", (V, int), 0, 0); CASE(cuStreamBeginCapture_v2, "mode", (V, int), 0, 9); CASE(cuStreamBeginCapture_v2_ptsz, "null", (V, int), 0, 0); CASE(cuStreamBeginCaptureToGraph, "null", (V, V, V, V, Z, int), 0, 0, 0, 0, 0, 0); CASE(cuStreamBeginCaptureToGraph_ptsz, "null", (V, V, V, V, Z, int), 0, 0, 0, 0, 0, 0); CASE(cuStreamEndCapture, "null", (V, V *), 0, &v); CASE(cuStreamEndCapture_ptsz, "null", (V, V *), 0, &v);
  CASE(cuGraphInstantiate, "null", (V *, V, V *, char *, Z), 0, 0, 0, 0, 0); CASE(cuGraphInstantiate_v2, "null", (V *, V, V *, char *, Z), 0, 0, 0, 0, 0); CASE(cuGraphInstantiateWithFlags, "null", (V *, V, L), 0, 0, 0); CASE(cuGraphInstantiateWithParams, "null", (V *, V, V), 0, 0, 0); CASE(cuGraphInstantiateWithParams_ptsz, "null", (V *, V, V), 0, 0, 0);
  CASE(cuCheckpointProcessCheckpoint, "null", (int, V), 0, 0);
  CASE(cuCtxDestroy, "null", (V), 0); CASE(cuDevicePrimaryCtxRelease, "device", (int), 99); CASE(cuDevicePrimaryCtxReset, "device", (int), 99);
  CASE(cuCtxDestroy_v2, "null", (V), 0); CASE(cuDevicePrimaryCtxRelease_v2, "device", (int), 99); CASE(cuDevicePrimaryCtxReset_v2, "device", (int), 99);
}
static void story_nulls(void) { printf("-- before init=0\n"); nulls(); start(); OK(p_cuCtxSetCurrent(0)); printf("-- without context=0\n"); nulls(); OK(p_cuCtxSetCurrent(context)); printf("-- with context=0\n"); nulls(); }

/* V11: asks the resolver for every form on stdin (name, version, flavour); prints what it said and whose function it is. */
static void story_symbols(const char *own) {
  CUresult (*get)(const char *, void **, int, unsigned long long, int *) = (CUresult (*)(const char *, void **, int, unsigned long long, int *))look("cuGetProcAddress_v2"); char line[256], name[128], flavour[16]; int version;
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "%127s %d %15s", name, &version, flavour) != 3) continue;
    void *at = 0; int status = -1; Dl_info info = { 0 }; CUresult r = get(name, &at, version, strcmp(flavour, "plain") ? 2 : 0, &status);
    if (at) dladdr(at, &info);
    printf("%s %d %s result %d status %d %s\n", name, version, flavour, r, status, !at ? "none" : info.dli_fname && !strcmp(info.dli_fname, own) ? "standin" : "driver");
  }
}

int main(int c, char **v) {
  if (c < 3) return 2;
  setvbuf(stdout, 0, _IOLBF, 0); resolve(v[1]); const char *what = v[2];
  if (!strcmp(what, "everything")) story_everything();
  else if (!strcmp(what, "hold")) story_hold(strtoull(v[3], 0, 10));
  else if (!strcmp(what, "pointer")) story_pointer();
  else if (!strcmp(what, "async")) story_async();
  else if (!strcmp(what, "vmm")) story_vmm();
  else if (!strcmp(what, "compound")) story_compound(strtoull(v[3], 0, 10));
  else if (!strcmp(what, "compound_edges")) story_compound_edges();
  else if (!strcmp(what, "spread")) story_spread(atoi(v[3]), atoi(v[4]), strtoull(v[5], 0, 10));
  else if (!strcmp(what, "attempt")) story_attempt(strtoull(v[3], 0, 10));
  else if (!strcmp(what, "residue")) story_residue();
  else if (!strcmp(what, "churn")) story_churn(atoi(v[3]), atoi(v[4]), strtoull(v[5], 0, 10), c > 6);
  else if (!strcmp(what, "barrier")) story_barrier(atoi(v[3]), strtoull(v[4], 0, 10));
  else if (!strcmp(what, "fork")) story_fork();
  else if (!strcmp(what, "no_descriptors")) story_no_descriptors(strtoull(v[3], 0, 10), atoi(v[4]));
  else if (!strcmp(what, "own_files")) story_own_files();
  else if (!strcmp(what, "sizes")) story_sizes();
  else if (!strcmp(what, "reset")) story_reset();
  else if (!strcmp(what, "see")) story_see();
  else if (!strcmp(what, "nulls")) story_nulls();
  else if (!strcmp(what, "symbols")) story_symbols(v[3]);
  else return 2;
  printf("done=1\n");
  return 0;
}
