/* What frameworks do to memory: weights first, then activations, through each of the three ways that PyTorch takes memory.
 *
 *   loading <how> eager | expandable | async  WEIGHT_MIB COUNT  ACTIVATION_MIB COUNT  said | slept MS | straight
 *   loading <how> products  WEIGHT_MIB COUNT  INPUT_MIB  said | slept MS | straight
 *   loading <how> bursts  WEIGHT_MIB COUNT  THREADS ROUNDS
 *
 * Nothing is freed in between, as with a caching allocator; `said` tells the pool that the model is loaded, `slept` pauses as a program does that has
 * other things to do, `straight` does neither. Told: where the weights and where the activations lie.
 *
 * `products` is what a model does with expandable segments: weights, at once the workspace of the first product (32 MiB, kept), then, after the pause
 * if there is one, input and output of INPUT_MIB and of four and sixteen times that, each pair given back to the segment before the next.
 * Told of each size: bytes that lie far.
 *
 * `bursts` holds weights while threads take and end a few handles at once in every order that the interface allows. Memory may be out; every byte is
 * checked. Told: bursts that were near, far, and refused. */
#include "driver.h"
#include "../../include/tarn.h"

enum way { EAGER, EXPANDABLE, ASYNC };
#define HANDLE (20 * MIB) /* of expandable segments */
#define BLOCKS_MAX 4096

static int (*residency)(uint64_t, tarn_residency_t *), (*loaded)(void);
static CUdeviceptr taken[BLOCKS_MAX];
static size_t taken_bytes[BLOCKS_MAX];
static int blocks, rdma;
static void *stream;

/* One segment of addresses, mapped handle by handle; what the last handle has left serves the next request. */
static CUdeviceptr segment;
static size_t segment_used, segment_mapped;
static CUhandle handles[BLOCKS_MAX];

static tarn_residency_t whole(void) {
  tarn_residency_t told;
  memset(&told, 0, sizeof told);
  told.size = sizeof told;
  OK(residency(0, &told));
  return told;
}

static CUdeviceptr expand(size_t bytes) {
  CUmemAllocationProp prop = { 1, 1, { 1, 0 }, 0, 0, rdma, 0, { 0 } };
  CUmemAccessDesc access = { { 1, 0 }, 3 };
  if (!segment) OK(p_cuMemAddressReserve(&segment, 256 * GIB, 0, 0, 0));
  CUdeviceptr at = segment + segment_used, grown = segment + segment_mapped;
  /* All handles of a request are made, then all are mapped, then all are opened in one call. */
  size_t from = segment_mapped / HANDLE, count = 0;
  for (segment_used += bytes; segment_mapped + count * HANDLE < segment_used; count++) OK(p_cuMemCreate(&handles[from + count], HANDLE, &prop, 0));
  for (size_t i = 0; i < count; i++) OK(p_cuMemMap(grown + i * HANDLE, HANDLE, 0, handles[from + i], 0));
  segment_mapped += count * HANDLE;
  if (count) OK(p_cuMemSetAccess(grown, count * HANDLE, &access, 1));
  return at;
}

static void take(enum way way, size_t bytes) {
  CUdeviceptr at;
  WANT(blocks < BLOCKS_MAX);
  if (way == EAGER) OK(p_cuMemAlloc_v2(&at, bytes));
  else if (way == ASYNC) OK(p_cuMemAllocAsync(&at, bytes, stream));
  else at = expand(bytes);
  fill(at, bytes, bytes / 4);
  taken[blocks] = at;
  taken_bytes[blocks++] = bytes;
}

static void give_back(enum way way) {
  if (way == EXPANDABLE) {
    for (size_t o = 0; o < segment_mapped; o += HANDLE) {
      OK(p_cuMemUnmap(segment + o, HANDLE));
      OK(p_cuMemRelease(handles[o / HANDLE]));
    }
    OK(p_cuMemAddressFree(segment, 256 * GIB));
    return;
  }
  for (int i = 0; i < blocks; i++) OK(way == ASYNC ? p_cuMemFreeAsync(taken[i], stream) : p_cuMemFree_v2(taken[i]));
  OK(p_cuStreamSynchronize(stream));
}

/* Far bytes between two addresses of the segment. */
static unsigned long long far_between(CUdeviceptr from, CUdeviceptr to) {
  unsigned long long found = 0;
  while (from < to) {
    tarn_residency_t told;
    memset(&told, 0, sizeof told);
    told.size = sizeof told;
    OK(residency(from, &told));
    WANT(told.flags == TARN_MAPPED && told.start <= from && from < told.start + told.bytes && told.local_bytes + told.donor_bytes == told.bytes);
    CUdeviceptr end = told.start + told.bytes < to ? told.start + told.bytes : to;
    if (told.donor_bytes) found += end - from;
    from = end;
  }
  return found;
}

static void products(size_t weight, int count, size_t input, const char *rest, const char *ms) {
  size_t before = free_bytes();
  for (int i = 0; i < count; i++) take(EXPANDABLE, weight);
  printf("weights_far=%llu\n", far_between(segment, segment + segment_used));
  CUdeviceptr workspace = segment + segment_used;
  take(EXPANDABLE, 32 * MIB);
  printf("workspace_far=%llu\n", far_between(workspace, workspace + 32 * MIB));
  if (!strcmp(rest, "said")) OK(loaded());
  else if (!strcmp(rest, "slept")) usleep(atoi(ms) * 1000);
  size_t kept = segment_used;
  int kept_blocks = blocks;
  for (int times = 1; times <= 16; times *= 4) {
    for (int pair = 0; pair < 2; pair++) take(EXPANDABLE, input * times);
    printf("far_%d=%llu\n", times, far_between(segment + kept, segment + segment_used));
    for (int i = kept_blocks; i < blocks; i++) WANT(check(taken[i], taken_bytes[i], taken_bytes[i] / 4) == 0);
    blocks = kept_blocks;
    segment_used = kept;
  }
  size_t bad = 0;
  for (int i = 0; i < blocks; i++) bad += check(taken[i], taken_bytes[i], taken_bytes[i] / 4);
  printf("bad=%zu\n", bad);
  give_back(EXPANDABLE);
  WANT(free_bytes() == before);
}

static int rounds;
static atomic_long near_bursts, far_bursts, refused_bursts;

static void *burst_thread(void *number) {
  CUmemAllocationProp prop = { 1, 1, { 1, 0 }, 0, 0, rdma, 0, { 0 } }, said;
  CUmemAccessDesc access = { { 1, 0 }, 3 };
  uint64_t dice = (uint64_t)(uintptr_t)number * 0x9E3779B97F4A7C15ull + 77;
  CUdeviceptr at, elsewhere;
  OK(p_cuCtxSetCurrent(context));
  OK(p_cuMemAddressReserve(&at, 4 * HANDLE, 0, 0, 0));
  OK(p_cuMemAddressReserve(&elsewhere, HANDLE, 0, 0, 0));
  for (int r = 0; r < rounds; r++) {
    dice ^= dice << 13; dice ^= dice >> 7; dice ^= dice << 17;
    int n = 1 + dice % 4, made = 0, early = dice >> 8 & 1, exported = -1, twice = !(dice >> 9 & 7), late = dice >> 12 & 1;
    CUhandle of[4];
    CUresult code = 0;
    while (made < n && !(code = p_cuMemCreate(&of[made], HANDLE, &prop, 0))) made++;
    if (made < n) {
      WANT(code == 2);
      while (made) OK(p_cuMemRelease(of[--made]));
      atomic_fetch_add(&refused_bursts, 1);
      continue;
    }
    size_t bytes = n * HANDLE;
    for (int i = 0; i < n; i++) OK(p_cuMemMap(at + i * HANDLE, HANDLE, 0, of[i], 0));
    WANT(p_cuMemMap(at, HANDLE, 0, of[0], 0) != 0);
    if (!(dice >> 16 & 3)) { CUresult e = p_cuMemExportToShareableHandle(&exported, of[0], 1, 0); WANT(e == 0 || e == 2); if (e) exported = -1; }
    if (twice) OK(p_cuMemMap(elsewhere, HANDLE, 0, of[n - 1], 0));
    if (early) for (int i = 0; i < n; i++) OK(p_cuMemRelease(of[i]));
    OK(p_cuMemSetAccess(at, bytes, &access, 1));
    fill(at, bytes, 2 * MIB);
    if (!early) for (int i = 0; i < n; i++) { OK(p_cuMemGetAllocationPropertiesFromHandle(&said, of[i])); WANT(said.location.type == 1 && said.location.id == 0 && said.handle_types == 1); }
    atomic_fetch_add(far_between(at, at + bytes) ? &far_bursts : &near_bursts, 1);
    if (twice) { uint64_t word; OK(p_cuMemSetAccess(elsewhere, HANDLE, &access, 1)); OK(p_cuMemcpyDtoH_v2(&word, elsewhere, 8)); WANT(word == mark(at + (n - 1) * HANDLE)); OK(p_cuMemUnmap(elsewhere, HANDLE)); }
    WANT(check(at, bytes, 2 * MIB) == 0);
    if (exported >= 0) {
      CUhandle theirs; uint64_t word;
      OK(p_cuMemImportFromShareableHandle(&theirs, (void *)(uintptr_t)exported, 1)); close(exported);
      OK(p_cuMemMap(elsewhere, HANDLE, 0, theirs, 0)); OK(p_cuMemSetAccess(elsewhere, HANDLE, &access, 1)); OK(p_cuMemcpyDtoH_v2(&word, elsewhere, 8)); WANT(word == mark(at));
      OK(p_cuMemUnmap(elsewhere, HANDLE)); OK(p_cuMemRelease(theirs));
    }
    if (!early && !late) for (int i = 0; i < n; i++) OK(p_cuMemRelease(of[i]));
    OK(p_cuMemUnmap(at, bytes));
    if (!early && late) for (int i = 0; i < n; i++) OK(p_cuMemRelease(of[i]));
  }
  OK(p_cuMemAddressFree(at, 4 * HANDLE));
  OK(p_cuMemAddressFree(elsewhere, HANDLE));
  return 0;
}

static void bursts(size_t weight, int count, int threads) {
  pthread_t thread[64];
  for (int i = 0; i < count; i++) take(EXPANDABLE, weight);
  printf("started=1\n");
  fflush(stdout);
  for (intptr_t i = 0; i < threads; i++) pthread_create(&thread[i], 0, burst_thread, (void *)i);
  for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
  size_t bad = 0;
  for (int i = 0; i < blocks; i++) bad += check(taken[i], taken_bytes[i], taken_bytes[i] / 4);
  printf("near=%ld\nfar=%ld\nrefused=%ld\nbad=%zu\n", near_bursts, far_bursts, refused_bursts, bad);
  give_back(EXPANDABLE);
  WANT(whole().bytes == 0);
}

int main(int c, char **v) {
  if (c < 7) return 2;
  setvbuf(stdout, 0, _IOLBF, 0);
  resolve(v[1]);
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  residency = need(dlsym(library, "tarn_residency"), "tarn_residency");
  loaded = need(dlsym(library, "tarn_loaded"), "tarn_loaded");
  start();
  OK(p_cuStreamCreate(&stream, 1));
  OK(p_cuDeviceGetAttribute(&rdma, 110, device));
  if (!strcmp(v[2], "products")) {
    products(strtoull(v[3], 0, 10) * MIB, atoi(v[4]), strtoull(v[5], 0, 10) * MIB, v[6], c > 7 ? v[7] : "0");
    printf("done=1\n");
    return 0;
  }
  if (!strcmp(v[2], "bursts")) {
    rounds = atoi(v[6]);
    bursts(strtoull(v[3], 0, 10) * MIB, atoi(v[4]), atoi(v[5]));
    printf("done=1\n");
    return 0;
  }
  if (c < 8) return 2;
  enum way way = !strcmp(v[2], "eager") ? EAGER : !strcmp(v[2], "async") ? ASYNC : EXPANDABLE;
  size_t before = free_bytes();

  for (int i = 0; i < atoi(v[4]); i++) take(way, strtoull(v[3], 0, 10) * MIB);
  tarn_residency_t weights = whole();
  printf("weights_local=%llu\nweights_far=%llu\n", (unsigned long long)weights.local_bytes, (unsigned long long)weights.donor_bytes);

  if (!strcmp(v[7], "said")) OK(loaded());
  else if (!strcmp(v[7], "slept") && c > 8) usleep(atoi(v[8]) * 1000);
  for (int i = 0; i < atoi(v[6]); i++) take(way, strtoull(v[5], 0, 10) * MIB);
  tarn_residency_t all = whole();
  printf("activations_local=%llu\nactivations_far=%llu\n", (unsigned long long)(all.local_bytes - weights.local_bytes), (unsigned long long)(all.donor_bytes - weights.donor_bytes));

  size_t bad = 0;
  for (int i = 0; i < blocks; i++) bad += check(taken[i], taken_bytes[i], taken_bytes[i] / 4);
  printf("bad=%zu\n", bad);
  give_back(way);
  WANT(free_bytes() == before);
  printf("done=1\n");
  return 0;
}
