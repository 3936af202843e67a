/* What frameworks do to memory: weights first, then activations, through each of the three ways that PyTorch takes memory.
 *
 *   loading <how> eager | expandable | async  WEIGHT_MIB COUNT  ACTIVATION_MIB COUNT  said | slept MS | straight
 *
 * Nothing is freed in between, as with a caching allocator; `said` tells the pool that the model is loaded, `slept` pauses as a program does that has
 * other things to do, `straight` does neither. Told: where the weights and where the activations lie. */
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
  CUdeviceptr at = segment + segment_used;
  for (segment_used += bytes; segment_mapped < segment_used; segment_mapped += HANDLE) {
    CUhandle *handle = &handles[segment_mapped / HANDLE];
    OK(p_cuMemCreate(handle, HANDLE, &prop, 0));
    OK(p_cuMemMap(segment + segment_mapped, HANDLE, 0, *handle, 0));
    OK(p_cuMemSetAccess(segment + segment_mapped, HANDLE, &access, 1));
  }
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

int main(int c, char **v) {
  if (c < 8) return 2;
  setvbuf(stdout, 0, _IOLBF, 0);
  resolve(v[1]);
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  residency = need(dlsym(library, "tarn_residency"), "tarn_residency");
  loaded = need(dlsym(library, "tarn_loaded"), "tarn_loaded");
  start();
  OK(p_cuStreamCreate(&stream, 1));
  OK(p_cuDeviceGetAttribute(&rdma, 110, device));
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
