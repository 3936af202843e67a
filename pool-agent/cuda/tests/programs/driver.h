/* The CUDA driver API for the test programs: prototypes, ways to find the functions, and how facts are told. Nothing here knows of pools.
 *
 * <how> says how the driver's functions are found. Facts are printed as `name=value`, one a line; `waiting` means that a line on stdin is
 * awaited. Any surprise is a line `failed …` and exit status 1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUhandle;
typedef struct { int type, id; } CUmemLocation;
typedef struct { int type, handle_types; CUmemLocation location; void *win32; unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } CUmemAllocationProp;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
typedef struct { unsigned char bytes[64]; } CUipcMemHandle;

#define CALLS(X) \
  X(cuInit, "cuInit", (unsigned)) \
  X(cuDeviceGetCount, "cuDeviceGetCount", (int *)) \
  X(cuDeviceGet, "cuDeviceGet", (CUdevice *, int)) \
  X(cuDeviceTotalMem_v2, "cuDeviceTotalMem", (size_t *, CUdevice)) \
  X(cuDeviceGetUuid_v2, "cuDeviceGetUuid", (unsigned char *, CUdevice)) \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (void **, CUdevice)) \
  X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", (CUdevice)) \
  X(cuCtxSetCurrent, "cuCtxSetCurrent", (void *)) \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, CUdevice)) \
  X(cuMemGetInfo_v2, "cuMemGetInfo", (size_t *, size_t *)) \
  X(cuMemAlloc_v2, "cuMemAlloc", (CUdeviceptr *, size_t)) \
  X(cuMemFree_v2, "cuMemFree", (CUdeviceptr)) \
  X(cuMemAllocPitch_v2, "cuMemAllocPitch", (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
  X(cuMemcpyHtoD_v2, "cuMemcpyHtoD", (CUdeviceptr, const void *, size_t)) \
  X(cuMemcpyDtoH_v2, "cuMemcpyDtoH", (void *, CUdeviceptr, size_t)) \
  X(cuMemcpyDtoD_v2, "cuMemcpyDtoD", (CUdeviceptr, CUdeviceptr, size_t)) \
  X(cuMemAllocAsync, "cuMemAllocAsync", (CUdeviceptr *, size_t, void *)) \
  X(cuMemFreeAsync, "cuMemFreeAsync", (CUdeviceptr, void *)) \
  X(cuDeviceGetMemPool, "cuDeviceGetMemPool", (void **, CUdevice)) \
  X(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", (void *, int, void *)) \
  X(cuMemPoolTrimTo, "cuMemPoolTrimTo", (void *, size_t)) \
  X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", (void *, int)) \
  X(cuStreamEndCapture, "cuStreamEndCapture", (void *, void **)) \
  X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (int *)) \
  X(cuStreamCreate, "cuStreamCreate", (void **, unsigned)) \
  X(cuStreamSynchronize, "cuStreamSynchronize", (void *)) \
  X(cuMemGetAddressRange_v2, "cuMemGetAddressRange", (CUdeviceptr *, size_t *, CUdeviceptr)) \
  X(cuPointerGetAttribute, "cuPointerGetAttribute", (void *, int, CUdeviceptr)) \
  X(cuPointerGetAttributes, "cuPointerGetAttributes", (unsigned, int *, void **, CUdeviceptr)) \
  X(cuIpcGetMemHandle, "cuIpcGetMemHandle", (void *, CUdeviceptr)) \
  X(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", (CUdeviceptr *, CUipcMemHandle, unsigned)) \
  X(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", (CUdeviceptr)) \
  X(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", (void *, CUhandle, int, unsigned long long)) \
  X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", (CUhandle *, void *, int)) \
  X(cuMemCreate, "cuMemCreate", (CUhandle *, size_t, const CUmemAllocationProp *, unsigned long long)) \
  X(cuMemRelease, "cuMemRelease", (CUhandle)) \
  X(cuMemAddressReserve, "cuMemAddressReserve", (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
  X(cuMemAddressFree, "cuMemAddressFree", (CUdeviceptr, size_t)) \
  X(cuMemMap, "cuMemMap", (CUdeviceptr, size_t, size_t, CUhandle, unsigned long long)) \
  X(cuMemUnmap, "cuMemUnmap", (CUdeviceptr, size_t)) \
  X(cuMemSetAccess, "cuMemSetAccess", (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)) \
  X(cuMemGetAllocationPropertiesFromHandle, "cuMemGetAllocationPropertiesFromHandle", (CUmemAllocationProp *, CUhandle))

#define DECLARE(symbol, base, arguments) static CUresult (*p_##symbol) arguments;
CALLS(DECLARE)
#ifdef LINKED
#define PROTOTYPE(symbol, base, arguments) extern CUresult symbol arguments;
CALLS(PROTOTYPE)
extern CUresult cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);
#endif

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define DIE(...) do { printf("failed "); printf(__VA_ARGS__); printf("\n"); fflush(stdout); _exit(1); } while (0)
#define OK(call) do { CUresult r_ = (call); if (r_) DIE("line %d: %s -> %d", __LINE__, #call, r_); } while (0)
#define WANT(condition) do { if (!(condition)) DIE("line %d: %s", __LINE__, #condition); } while (0)

static void *need(void *found, const char *name) { if (!found) DIE("no symbol %s", name); return found; }

static void resolve(const char *how) {
#ifdef LINKED
  if (!strcmp(how, "linked")) {
#define DIRECT(symbol, base, arguments) p_##symbol = symbol;
    CALLS(DIRECT)
    return;
  }
  if (!strcmp(how, "next")) {
#define NEXT(symbol, base, arguments) p_##symbol = need(dlsym(RTLD_NEXT, #symbol), #symbol);
    CALLS(NEXT)
    return;
  }
#endif
  void *library = 0;
  if (!strcmp(how, "dlopen") || !strcmp(how, "procaddress")) library = dlopen("libcuda.so.1", RTLD_NOW);
  else if (!strcmp(how, "deepbind")) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND);
  else if (!strcmp(how, "dlmopen")) library = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
  else if (how[0] == '/') library = dlopen(how, RTLD_NOW);
  if (!library) DIE("cannot load: %s", dlerror());
  if (!strcmp(how, "procaddress")) {
    CUresult (*get)(const char *, void **, int, unsigned long long, int *) = need(dlsym(library, "cuGetProcAddress_v2"), "cuGetProcAddress_v2");
    int status;
    /* The resolver itself is asked for first, as the runtime does. */
    OK(get("cuGetProcAddress", (void **)&get, 12000, 0, &status));
#define ASK(symbol, base, arguments) { void *at = 0; int found = 9; OK(get(base, &at, 12000, 0, &found)); WANT(found == 0); p_##symbol = need(at, base); }
    CALLS(ASK)
    return;
  }
#define LOOK(symbol, base, arguments) p_##symbol = need(dlsym(library, #symbol), #symbol);
  CALLS(LOOK)
}

static void *context;
static CUdevice device;
static __attribute__((unused)) double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static __attribute__((unused)) void start(void) { OK(p_cuInit(0)); OK(p_cuDeviceGet(&device, 0)); OK(p_cuDevicePrimaryCtxRetain(&context, device)); OK(p_cuCtxSetCurrent(context)); }
static __attribute__((unused)) size_t free_bytes(void) { size_t f, t; OK(p_cuMemGetInfo_v2(&f, &t)); WANT(f <= t); return f; }
static __attribute__((unused)) void await_line(void) { char line[64]; printf("waiting\n"); fflush(stdout); if (!fgets(line, sizeof line, stdin)) _exit(3); }
/* Donor frees do not await the broker, so a figure may be a moment old. */

static uint64_t mark(CUdeviceptr at) { return (at ^ 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull; }
static __attribute__((unused)) void fill(CUdeviceptr at, size_t bytes, size_t stride) { for (size_t o = 0; o + 16 <= bytes; o += stride) { uint64_t w = mark(at + o); OK(p_cuMemcpyHtoD_v2(at + o, &w, 8)); } uint64_t w = mark(at + bytes - 8); OK(p_cuMemcpyHtoD_v2(at + bytes - 8, &w, 8)); }
static __attribute__((unused)) size_t check(CUdeviceptr at, size_t bytes, size_t stride) { size_t bad = 0; uint64_t w; for (size_t o = 0; o + 16 <= bytes; o += stride) { OK(p_cuMemcpyDtoH_v2(&w, at + o, 8)); bad += w != mark(at + o); } OK(p_cuMemcpyDtoH_v2(&w, at + bytes - 8, 8)); bad += w != mark(at + bytes - 8); return bad; }
