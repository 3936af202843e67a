// An unmodified program of the CUDA runtime, on a block larger than the primary. Each line `check <name> ok|failed <detail>`.
//   runtime all <block GiB> <primary GiB>    everything
//   runtime small                            the same kinds of access on little memory, for slow checkers
//   runtime hold <block GiB>                 fills a block, prints `ready`, awaits a line, then proves it intact and goes on
//   runtime speed <block GiB>                kernel launch and bandwidth figures, `name=value`
//   runtime mapped <block GiB> <first GiB>   the same on a block that this program maps from two handles, as a pool without a pool
//   runtime open <handle> <bytes>            what `all` runs in another process, on the block that the handle names
//   runtime stain <GiB>                      fills that much with 0xA5, prints `ready`, awaits a line
//   runtime sniff <GiB>                      takes that much and tells how many words of it are not zero
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using Word = unsigned long long;
constexpr size_t MiB = size_t{1} << 20, GiB = size_t{1} << 30;
static int failures;

#define MUST(call) do { cudaError_t code = (call); if (code != cudaSuccess) { \
    printf("check %s failed %s\n", #call, cudaGetErrorName(code)); fflush(stdout); exit(1); } } while (0)

static void check(const char *name, bool ok, const char *format = "", ...) {
  char detail[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  printf("check %s %s %s\n", name, ok ? "ok" : "failed", detail);
  fflush(stdout);
  failures += !ok;
}

__host__ __device__ inline Word mix(Word at, Word seed) {
  Word value = (at + 1) * 0x9E3779B97F4A7C15ull ^ seed;
  value ^= value >> 29;
  return value * 0xBF58476D1CE4E5B9ull;
}

__global__ void fill(Word *to, size_t words, Word seed, size_t first) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words; i += size_t(gridDim.x) * blockDim.x)
    to[i] = mix(first + i, seed);
}

__global__ void differ(const Word *from, size_t words, Word seed, size_t first, Word *bad) {
  Word mine = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words; i += size_t(gridDim.x) * blockDim.x)
    mine += from[i] != mix(first + i, seed);
  if (mine) atomicAdd(bad, mine);
}

__global__ void sum(const ulonglong2 *from, size_t pairs, Word *into) {
  Word mine = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < pairs; i += size_t(gridDim.x) * blockDim.x)
    mine += from[i].x ^ from[i].y;
  if (mine == 42) atomicAdd(into, mine);
}

// A counter of each kind at each place; every thread adds to all places.
struct Counters { unsigned added; float floated; Word wide; unsigned swapped, greatest, bits; };
__global__ void count(char *block, size_t stride, int places) {
  unsigned self = blockIdx.x * blockDim.x + threadIdx.x;
  for (int place = 0; place < places; place++) {
    auto *counters = reinterpret_cast<Counters *>(block + place * stride);
    atomicAdd(&counters->added, 1u);
    atomicAdd(&counters->floated, 1.0f);
    atomicAdd_system(&counters->wide, Word{3});
    atomicMax(&counters->greatest, self);
    atomicOr(&counters->bits, 1u << (self % 32));
    for (unsigned seen = counters->swapped, old;; seen = old)
      if ((old = atomicCAS(&counters->swapped, seen, seen + 2)) == seen) break;
  }
}
__global__ void nothing() {}

static Word *bad_words;
static Word bad(const void *at, size_t bytes, Word seed, size_t first = 0) {
  *bad_words = 0;
  differ<<<1024, 256>>>(static_cast<const Word *>(at), bytes / 8, seed, first, bad_words);
  MUST(cudaDeviceSynchronize());
  return *bad_words;
}
static void write(void *at, size_t bytes, Word seed) {
  fill<<<2048, 256>>>(static_cast<Word *>(at), bytes / 8, seed, 0);
  MUST(cudaDeviceSynchronize());
}

static void whole_block(char *block, size_t bytes, size_t primary) {
  write(block, bytes, 1);
  check("kernel writes and reads the block", bad(block, bytes, 1) == 0, "%zu GiB", bytes / GiB);
  size_t half = bytes / 2 / 8 * 8;
  MUST(cudaMemcpy(block + bytes - half, block, half, cudaMemcpyDeviceToDevice));
  check("copy front to back", bad(block + bytes - half, half, 1) == 0);
  write(block, bytes, 2);

  // One host copy each way that crosses where the primary ends.
  size_t from = (primary > 2 * GiB ? primary - 2 * GiB : 0), length = bytes - from < 3 * GiB ? bytes - from : 3 * GiB;
  std::vector<Word> host(length / 8);
  MUST(cudaMemcpy(host.data(), block + from, length, cudaMemcpyDeviceToHost));
  size_t wrong = 0;
  for (size_t i = 0; i < host.size(); i++) wrong += host[i] != mix(from / 8 + i, 2);
  check("copy to the host across the seam", wrong == 0, "%zu MiB, %zu bad words", length / MiB, wrong);
  for (size_t i = 0; i < host.size(); i++) host[i] = mix(i, 7);
  MUST(cudaMemcpy(block + from, host.data(), length, cudaMemcpyHostToDevice));
  check("copy from the host across the seam", bad(block + from, length, 7) == 0);
  check("neighbours of that copy are untouched",
        bad(block, from, 2) == 0 && bad(block + from + length, bytes - from - length, 2, (from + length) / 8) == 0);

  size_t pitch = 1 * MiB, width = 1 * MiB - 4096, rows = bytes / 2 / pitch;
  MUST(cudaMemset(block, 0, bytes));
  write(block, rows * pitch, 3);
  MUST(cudaMemcpy2D(block + rows * pitch, pitch, block, pitch, width, rows, cudaMemcpyDeviceToDevice));
  Word rows_bad = 0;
  for (size_t row = 0; row < rows; row += 97)
    rows_bad += bad(block + (rows + row) * pitch, width, 3, row * pitch / 8);
  check("two-dimensional copy across the seam", rows_bad == 0, "%zu rows", rows);
  MUST(cudaMemset(block, 0xA5, bytes));
  std::vector<unsigned char> sample(bytes / (64 * MiB));
  MUST(cudaMemcpy2D(sample.data(), 1, block, 64 * MiB, 1, sample.size(), cudaMemcpyDeviceToHost));
  size_t unset = 0;
  for (unsigned char byte : sample) unset += byte != 0xA5;
  check("memset over the block", unset == 0);
}

// A box, a peer, a stream's and an array's copy: each starts before the primary's end, less a reserve, and ends behind it.
static void copies(char *block, size_t bytes, size_t primary) {
  size_t length = 1 * GiB, from = primary - 768 * MiB, to = bytes - length, row = 8192 * 16, rows = length / row;
  write(block, bytes, 31);
  auto right = [&](size_t at) { return bad(block + at, length, 31, from / 8) == 0; };
  cudaMemcpy3DParms box{};
  box.srcPtr = make_cudaPitchedPtr(block + from, 4096, 4096, 128);
  box.dstPtr = make_cudaPitchedPtr(block + to, 4096, 4096, 128);
  box.extent = make_cudaExtent(4096, 128, length / 4096 / 128);
  box.kind = cudaMemcpyDeviceToDevice;
  MUST(cudaMemcpy3D(&box));
  bool boxed = right(to);
  MUST(cudaMemset(block + to, 0, length));
  MUST(cudaMemcpyPeer(block + to, 0, block + from, 0, length));
  bool peered = right(to);
  MUST(cudaMemset(block + to, 0, length));
  MUST(cudaMemcpyAsync(block + to, block + from, length, cudaMemcpyDefault, cudaStreamPerThread));
  MUST(cudaStreamSynchronize(cudaStreamPerThread));
  bool ordered = right(to);
  MUST(cudaMemset(block + to, 0, length));
  cudaArray_t array;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
  MUST(cudaMallocArray(&array, &format, 8192, rows));
  MUST(cudaMemcpy2DToArray(array, 0, 0, block + from, row, row, rows, cudaMemcpyDeviceToDevice));
  MUST(cudaMemcpy2DFromArray(block + to, row, array, 0, 0, row, rows, cudaMemcpyDeviceToDevice));
  MUST(cudaFreeArray(array));
  bool arrayed = right(to);
  check("box, peer, per-thread stream and array copies over the seam", boxed && peered && ordered && arrayed, "%d%d%d%d", boxed, peered, ordered, arrayed);
}

static void atomics(char *block, size_t bytes) {
  constexpr int blocks = 64, threads = 256;
  constexpr unsigned all = blocks * threads;
  size_t stride = bytes / 64;
  stride -= stride % 256;
  MUST(cudaMemset(block, 0, bytes));
  count<<<blocks, threads>>>(block, stride, 64);
  MUST(cudaDeviceSynchronize());
  int wrong = 0;
  for (int place = 0; place < 64; place++) {
    Counters got;
    MUST(cudaMemcpy(&got, block + place * stride, sizeof got, cudaMemcpyDeviceToHost));
    wrong += got.added != all || got.floated != float(all) || got.wide != 3ull * all || got.swapped != 2 * all ||
             got.greatest != all - 1 || got.bits != ~0u;
  }
  check("atomics add, float, 64 bit, CAS, max, or: exact sums", wrong == 0, "%d of 64 places wrong", wrong);
}

// The block of another process: proven to hold 21, left holding 22.
static int opened(const char *text, size_t bytes) {
  cudaIpcMemHandle_t handle;
  for (size_t i = 0; i < sizeof handle; i++) sscanf(text + 2 * i, "%2hhx", reinterpret_cast<unsigned char *>(&handle) + i);
  void *at = nullptr;
  MUST(cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess));
  Word wrong = bad(at, bytes, 21);
  write(at, bytes, 22);
  MUST(cudaIpcCloseMemHandle(at));
  return wrong != 0;
}

static int in_another_process(const cudaIpcMemHandle_t &handle, size_t bytes) {
  char text[2 * sizeof handle + 1], size[32];
  for (size_t i = 0; i < sizeof handle; i++) snprintf(text + 2 * i, 3, "%02x", reinterpret_cast<const unsigned char *>(&handle)[i]);
  snprintf(size, sizeof size, "%zu", bytes);
  const char *arguments[] = {"runtime", "open", text, size, nullptr};
  pid_t child;
  int status = -1;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, const_cast<char *const *>(arguments), environ)) return -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

static void attributes(char *block, size_t bytes) {
  cudaPointerAttributes found{};
  MUST(cudaPointerGetAttributes(&found, block + bytes - 8));
  check("pointer attributes", found.device == 0 && found.type == cudaMemoryTypeDevice, "device %d", found.device);
  void *entry = nullptr;
  cudaDriverEntryPointQueryResult how;
  MUST(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry, 12000, cudaEnableDefault, &how));
  CUdeviceptr base = 0;
  size_t size = 0;
  auto range = reinterpret_cast<CUresult (*)(CUdeviceptr *, size_t *, CUdeviceptr)>(entry);
  CUresult code = range(&base, &size, reinterpret_cast<CUdeviceptr>(block) + bytes - 8);
  check("address range is the whole block", code == CUDA_SUCCESS && base == reinterpret_cast<CUdeviceptr>(block) && size == bytes,
        "%zu MiB", size / MiB);
  cudaIpcMemHandle_t handle;
  cudaError_t ipc = cudaIpcGetMemHandle(&handle, block);
  (void)cudaGetLastError();
  write(block, bytes, 21);
  int status = ipc == cudaSuccess ? in_another_process(handle, bytes) : -1;
  check("another process opens the block, reads it and writes it", status == 0 && bad(block, bytes, 22) == 0, "%s, %d", cudaGetErrorName(ipc), status);
  cudaError_t interior = cudaFree(block + 4096);
  (void)cudaGetLastError();
  check("an interior free is refused", interior == cudaErrorInvalidValue, "%s", cudaGetErrorName(interior));
}

static void graph(char *block, size_t bytes) {
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  write(block, bytes, 4);
  cudaGraph_t captured;
  cudaGraphExec_t ready;
  void *scratch = nullptr;
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  fill<<<512, 256, 0, stream>>>(reinterpret_cast<Word *>(block), bytes / 8, 5, 0);
  cudaError_t taken = cudaMallocAsync(&scratch, 64 * MiB, stream);
  if (taken == cudaSuccess) {
    fill<<<64, 256, 0, stream>>>(static_cast<Word *>(scratch), 64 * MiB / 8, 6, 0);
    MUST(cudaMemcpyAsync(block, scratch, 64 * MiB, cudaMemcpyDeviceToDevice, stream));
    MUST(cudaFreeAsync(scratch, stream));
  }
  MUST(cudaStreamEndCapture(stream, &captured));
  MUST(cudaGraphInstantiate(&ready, captured, 0));
  bool good = true;
  for (int replay = 0; replay < 3; replay++) {
    MUST(cudaGraphLaunch(ready, stream));
    MUST(cudaStreamSynchronize(stream));
    good = good && bad(block, 64 * MiB, taken == cudaSuccess ? 6 : 5) == 0 &&
           bad(block + 64 * MiB, bytes - 64 * MiB, 5, 8 * MiB) == 0;
    write(block, bytes, 4);
  }
  check("a graph with an allocation node replays over the block", good, "%s", cudaGetErrorName(taken));
  MUST(cudaGraphExecDestroy(ready));
  MUST(cudaGraphDestroy(captured));
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  taken = cudaMallocAsync(&scratch, bytes, stream);
  (void)cudaGetLastError();
  fill<<<512, 256, 0, stream>>>(reinterpret_cast<Word *>(block), 64 * MiB / 8, 8, 0);
  cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  check("a captured allocation larger than the primary is out of memory, and the capture goes on",
        taken == cudaErrorMemoryAllocation && ended == cudaSuccess, "%s, %s", cudaGetErrorName(taken), cudaGetErrorName(ended));
  if (ended == cudaSuccess) MUST(cudaGraphDestroy(captured));
  MUST(cudaStreamDestroy(stream));
  MUST(cudaDeviceGraphMemTrim(0));
}

// A block that spills is freed while kernels still write to it; what is taken right after must not be what they write to.
static void freed_in_flight(size_t primary) {
  cudaStream_t streams[2];
  for (auto &stream : streams) MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  size_t bytes = primary + primary / 8;
  char *first = nullptr, *second = nullptr;
  MUST(cudaMallocAsync(reinterpret_cast<void **>(&first), bytes, streams[0]));
  for (int round = 0; round < 20; round++)
    fill<<<256, 256, 0, streams[0]>>>(reinterpret_cast<Word *>(first), bytes / 8, 100 + round, 0);
  MUST(cudaFreeAsync(first, streams[0]));
  MUST(cudaMallocAsync(reinterpret_cast<void **>(&second), bytes, streams[1]));
  fill<<<256, 256, 0, streams[1]>>>(reinterpret_cast<Word *>(second), bytes / 8, 200, 0);
  MUST(cudaStreamSynchronize(streams[1]));
  MUST(cudaStreamSynchronize(streams[0]));
  check("a block freed under running kernels stays theirs until they end", bad(second, bytes, 200) == 0, "%zu MiB", bytes / MiB);
  MUST(cudaFreeAsync(second, streams[1]));
  for (auto &stream : streams) {
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaStreamDestroy(stream));
  }
}

static void ordered(size_t primary) {
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  size_t piece = primary >= 8 * GiB ? 2 * GiB : 8 * MiB, pieces = (primary + primary / 4) / piece + 1;
  std::vector<char *> held(pieces);
  for (size_t i = 0; i < pieces; i++) {
    MUST(cudaMallocAsync(reinterpret_cast<void **>(&held[i]), piece, stream));
    fill<<<512, 256, 0, stream>>>(reinterpret_cast<Word *>(held[i]), piece / 8, i, 0);
  }
  MUST(cudaStreamSynchronize(stream));
  Word wrong = 0;
  for (size_t i = 0; i < pieces; i++) wrong += bad(held[i], piece, i);
  check("cudaMallocAsync beyond the primary", wrong == 0, "%zu MiB in %zu pieces", pieces * piece / MiB, pieces);
  for (char *at : held) MUST(cudaFreeAsync(at, stream));
  MUST(cudaStreamSynchronize(stream));
  cudaMemPool_t pool;
  MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
  MUST(cudaMemPoolTrimTo(pool, 0));
  MUST(cudaStreamDestroy(stream));
}

static void kinds() {
  void *at = nullptr;
  size_t pitch = 0;
  MUST(cudaMallocPitch(&at, &pitch, 1000, 1000));
  check("pitched", pitch >= 1000 && bad_words, "pitch %zu", pitch);
  MUST(cudaFree(at));
  cudaPitchedPtr box;
  MUST(cudaMalloc3D(&box, make_cudaExtent(1000, 100, 100)));
  MUST(cudaFree(box.ptr));
  cudaArray_t array;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  MUST(cudaMallocArray(&array, &format, 1024, 1024));
  MUST(cudaFreeArray(array));
  MUST(cudaMallocManaged(&at, 16 * MiB));
  write(at, 16 * MiB, 9);
  bool good = static_cast<Word *>(at)[12345] == mix(12345, 9);
  MUST(cudaFree(at));
  cudaIpcMemHandle_t handle;
  MUST(cudaMalloc(&at, 4 * MiB));
  cudaError_t ipc = cudaIpcGetMemHandle(&handle, at);
  MUST(cudaFree(at));
  check("3D, array, managed; IPC handle of a native block", good && ipc == cudaSuccess, "%s", cudaGetErrorName(ipc));
}

static int everything(size_t bytes, size_t primary) {
  int devices = 0;
  size_t unused = 0, total = 0, before = 0;
  cudaDeviceProp properties;
  MUST(cudaGetDeviceCount(&devices));
  MUST(cudaGetDeviceProperties(&properties, 0));
  MUST(cudaMemGetInfo(&unused, &total));
  check("one device, one total", devices == 1 && properties.totalGlobalMem == total, "%zu MiB, %zu free", total / MiB, unused / MiB);
  kinds();
  MUST(cudaMemGetInfo(&before, &total));
  char *block = nullptr;
  MUST(cudaMalloc(&block, bytes));
  MUST(cudaMemGetInfo(&unused, &total));
  check("free falls by what was taken", before - unused >= bytes && before - unused <= bytes + 4 * MiB, "%zu MiB", (before - unused) / MiB);
  whole_block(block, bytes, primary);
  if (bytes >= primary + 2 * GiB) copies(block, bytes, primary);
  atomics(block, bytes);
  attributes(block, bytes);
  graph(block, bytes);
  MUST(cudaFree(block));
  cudaError_t twice = cudaFree(block);
  (void)cudaGetLastError();
  check("a double free is refused", twice == cudaErrorInvalidValue, "%s", cudaGetErrorName(twice));
  ordered(primary);
  freed_in_flight(primary);
  cudaError_t over = cudaMalloc(&block, total + GiB);
  (void)cudaGetLastError();
  check("more than everything is out of memory", over == cudaErrorMemoryAllocation, "%s", cudaGetErrorName(over));
  size_t after = 0;
  for (int look = 0; look < 1000 && after + 64 * MiB < before; look++) MUST(cudaMemGetInfo(&after, &total));
  check("everything is free again", after + 64 * MiB >= before, "%zu of %zu MiB", after / MiB, before / MiB);
  return failures != 0;
}

static int hold(size_t bytes) {
  char *block = nullptr, *more = nullptr, line[16];
  size_t unused, total, later;
  MUST(cudaMalloc(&block, bytes));
  write(block, bytes, 11);
  MUST(cudaMemGetInfo(&unused, &total));
  printf("ready\n");
  fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) return 1;
  check("data written before is intact", bad(block, bytes, 11) == 0, "%zu GiB", bytes / GiB);
  write(block, bytes, 12);
  check("it can be rewritten and read", bad(block, bytes, 12) == 0);
  cudaError_t large = cudaMalloc(&more, bytes);
  (void)cudaGetLastError();
  check("a new block of donors is out of memory", large == cudaErrorMemoryAllocation, "%s", cudaGetErrorName(large));
  MUST(cudaMalloc(&more, 16 * MiB));
  MUST(cudaMemGetInfo(&unused, &later));
  check("the total stays frozen", later == total, "%zu MiB, %zu free", later / MiB, unused / MiB);
  printf("ready\n");
  fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) return 1;
  cudaError_t again = cudaErrorMemoryAllocation;
  char *donor = nullptr;
  for (int attempt = 0; attempt < 100000 && again == cudaErrorMemoryAllocation; attempt++) again = cudaMalloc(&donor, bytes);
  check("a new broker lends again", again == cudaSuccess, "%s", cudaGetErrorName(again));
  check("the old block is still intact", bad(block, bytes, 12) == 0);
  MUST(cudaFree(block));
  if (again == cudaSuccess) MUST(cudaFree(donor));
  return failures != 0;
}

static float milliseconds(int rounds, void (*work)(void *), void *argument) {
  cudaEvent_t begin, end;
  float best = 1e30f, spent;
  MUST(cudaEventCreate(&begin));
  MUST(cudaEventCreate(&end));
  for (int round = 0; round < rounds; round++) {
    MUST(cudaEventRecord(begin));
    work(argument);
    MUST(cudaEventRecord(end));
    MUST(cudaEventSynchronize(end));
    MUST(cudaEventElapsedTime(&spent, begin, end));
    if (spent < best) best = spent;
  }
  return best;
}

struct Range { char *at; size_t bytes; };
static void bandwidth(char *at, size_t bytes) {
  Range range{at, bytes};
  write(range.at, bytes, 1);
  auto read = [](void *to) {
    auto *part = static_cast<Range *>(to);
    sum<<<132 * 16, 512>>>(reinterpret_cast<ulonglong2 *>(part->at), part->bytes / 16, bad_words);
  };
  auto store = [](void *to) { auto *part = static_cast<Range *>(to); fill<<<132 * 16, 512>>>(reinterpret_cast<Word *>(part->at), part->bytes / 8, 2, 0); };
  auto copy = [](void *to) { auto *part = static_cast<Range *>(to); MUST(cudaMemcpyAsync(part->at + part->bytes / 2, part->at, part->bytes / 2, cudaMemcpyDeviceToDevice)); };
  printf("read_gb_per_s=%.1f\n", bytes / milliseconds(9, read, &range) / 1e6);
  printf("write_gb_per_s=%.1f\n", bytes / milliseconds(9, store, &range) / 1e6);
  printf("copy_gb_per_s=%.1f\n", bytes / 2 / milliseconds(9, copy, &range) / 1e6);
}

static int speed(size_t bytes) {
  char *block = nullptr;
  auto launches = [](void *) { for (int i = 0; i < 10000; i++) nothing<<<1, 32>>>(); };
  printf("launch=%.1f\n", milliseconds(7, launches, nullptr) * 1e6 / 10000);
  MUST(cudaMalloc(&block, bytes));
  bandwidth(block, bytes);
  MUST(cudaFree(block));
  return 0;
}

template <typename Call> static Call entry(const char *name) {
  void *found = nullptr;
  cudaDriverEntryPointQueryResult how;
  MUST(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how));
  return reinterpret_cast<Call>(found);
}
#define DRIVER(name, ...) do { if (CUresult code = entry<decltype(&name)>(#name)(__VA_ARGS__)) { \
    printf("failed: %s gives %d\n", #name, code); exit(2); } } while (0)

static int mapped(size_t bytes, size_t first) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = 0;
  CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  size_t pieces[] = {first, bytes - first}, at = 0;
  CUdeviceptr block;
  MUST(cudaFree(nullptr));
  DRIVER(cuMemAddressReserve, &block, bytes, 2 * MiB, 0, 0);
  for (size_t piece : pieces) {
    CUmemGenericAllocationHandle handle;
    DRIVER(cuMemCreate, &handle, piece, &prop, 0);
    DRIVER(cuMemMap, block + at, piece, 0, handle, 0);
    DRIVER(cuMemRelease, handle);
    at += piece;
  }
  DRIVER(cuMemSetAccess, block, bytes, &access, 1);
  bandwidth(reinterpret_cast<char *>(block), bytes);
  return 0;
}

__global__ void not_zero(const Word *from, size_t words, Word *into) {
  Word mine = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words; i += size_t(gridDim.x) * blockDim.x) mine += from[i] != 0;
  if (mine) atomicAdd(into, mine);
}

static int residue(size_t bytes, bool stain) {
  Word dirty = 0;
  size_t piece = 6 * GiB, taken = 0;
  for (; taken < bytes; taken += piece) {
    char *at = nullptr;
    MUST(cudaMalloc(&at, piece));
    *bad_words = 0;
    if (stain) MUST(cudaMemset(at, 0xA5, piece));
    else not_zero<<<2048, 512>>>(reinterpret_cast<Word *>(at), piece / 8, bad_words);
    MUST(cudaDeviceSynchronize());
    dirty += *bad_words;
  }
  if (!stain) {
    printf("taken_mib=%zu\nnonzero_words=%llu\n", taken / MiB, dirty);
    return 0;
  }
  char line[16];
  printf("ready\n");
  fflush(stdout);
  return !fgets(line, sizeof line, stdin);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "all";
  if (argc > 3 && !strcmp(what, "open")) {
    MUST(cudaHostAlloc(&bad_words, 8, cudaHostAllocMapped));
    return opened(argv[2], strtoull(argv[3], nullptr, 10));
  }
  size_t bytes = (argc > 2 ? strtoull(argv[2], nullptr, 10) : 30) * GiB;
  size_t primary = (argc > 3 ? strtoull(argv[3], nullptr, 10) : 24) * GiB;
  MUST(cudaHostAlloc(&bad_words, 8, cudaHostAllocMapped));
  int code = !strcmp(what, "small")   ? everything(192 * MiB, 128 * MiB)
             : !strcmp(what, "hold")  ? hold(bytes)
             : !strcmp(what, "speed") ? speed(bytes)
             : !strcmp(what, "mapped") ? mapped(bytes, primary)
             : !strcmp(what, "stain") ? residue(bytes, true)
             : !strcmp(what, "sniff") ? residue(bytes, false)
                                      : everything(bytes, primary);
  printf("end\n");
  return code;
}
