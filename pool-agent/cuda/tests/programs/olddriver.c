/* V11: a driver of long ago, and a program that asks through whatever library it is given.
 *
 * Compiled with -DDRIVER -DTOTAL=<bytes> it is the driver: no resolver, no virtual memory, no pools, and nothing that came after CUDA 9. */
#ifdef DRIVER
#include <stddef.h>
int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDriverGetVersion(int *version) { if (!version) return 1; *version = 9000; return 0; }
int cuDeviceGetCount(int *count) { if (!count) return 1; *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { if (!device) return 1; if (ordinal) return 101; *device = 0; return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { if (!bytes) return 1; if (device) return 101; *bytes = TOTAL; return 0; }
#else
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;
static void *look(const char *name) { return dlsym(library, name); }
/* 999: not even the name is there, as in the driver itself. */
#define ASK(name, arguments, ...) do { int (*f) arguments = (int (*) arguments)look(#name); printf("%s=%d\n", #name, f ? f(__VA_ARGS__) : 999); } while (0)

int main(void) {
  int number = -1, found = -1; size_t bytes = 0; unsigned long long at = 0; void *address = 0;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) { printf("failed %s\n", dlerror()); return 1; }
  ASK(cuInit, (unsigned), 0);
  ASK(cuDriverGetVersion, (int *), &number); printf("version=%d\n", number);
  ASK(cuDeviceGetCount, (int *), &number); printf("count=%d\n", number);
  ASK(cuDeviceTotalMem_v2, (size_t *, int), &bytes, 0); printf("total=%zu\n", bytes);
  ASK(cuMemAlloc_v2, (unsigned long long *, size_t), &at, 4096);
  ASK(cuMemAllocAsync, (unsigned long long *, size_t, void *), &at, 4096, 0);
  ASK(cuMemCreate, (unsigned long long *, size_t, const void *, unsigned long long), &at, 2 << 20, 0, 0);
  ASK(cuMemGetInfo_v2, (size_t *, size_t *), &bytes, &bytes);
  ASK(cuGetProcAddress_v2, (const char *, void **, int, unsigned long long, int *), "cuMemAlloc", &address, 12000, 0, &found);
  printf("done=1\n");
  return 0;
}
#endif
