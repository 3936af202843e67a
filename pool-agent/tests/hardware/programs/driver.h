/* The CUDA driver as a program without its headers finds it: by name, at run time. */
#pragma once
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;
/* Every call here passes integers and pointers only, at most eight: on 64-bit Linux each is one register or one slot. */
typedef int (*Call)(u64, u64, u64, u64, u64, u64, u64, u64);

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define P(pointer) ((u64)(pointer))
#define CU_(name, a, b, c, d, e, f, g, h, ...) \
  find(name)(P(a), P(b), P(c), P(d), P(e), P(f), P(g), P(h))
#define CU(...) CU_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0, 0, 0)
#define MUST(...) must(CU(__VA_ARGS__), #__VA_ARGS__)

static void *driver;

static Call find_or_null(const char *name) {
  if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) { printf("failed: %s\n", dlerror()); exit(2); }
  return (Call)dlsym(driver, name);
}

static Call find(const char *name) {
  Call call = find_or_null(name);
  if (!call) { printf("failed: the driver has no %s\n", name); exit(2); }
  return call;
}

static int must(int code, const char *what) {
  if (code) { printf("failed: %s gives %d\n", what, code); fflush(stdout); exit(2); }
  return code;
}

static inline u64 nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static int by_size(const void *a, const void *b) {
  u64 x = *(const u64 *)a, y = *(const u64 *)b;
  return x < y ? -1 : x > y;
}

static inline u64 median(u64 *values, int count) {
  qsort(values, count, sizeof *values, by_size);
  return values[count / 2];
}

static inline void open_context(void) {
  int device;
  void *context;
  MUST("cuInit", 0);
  MUST("cuDeviceGet", &device, 0);
  MUST("cuDevicePrimaryCtxRetain", &context, device);
  MUST("cuCtxSetCurrent", context);
}

/* CUmemAllocationProp, CUmemAccessDesc, CUmemPoolProps. */
typedef struct { int kind, handle_types, location, device; void *win32; unsigned char compression, rdma; unsigned short usage; char reserved[4]; } Prop;
typedef struct { int location, device, flags; } Access;
typedef struct { int kind, handle_types, location, device; void *win32; size_t most; unsigned short usage; char reserved[54]; } PoolProps;
