/* A libcuda.so.1 for the broker of a trial alone: chunks are made of host memory, so that donors lie behind a link where there is one
 * card. All else is the real driver's, which is this library's one dependency; broker, stand-ins and programs are as ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

typedef struct { int kind, handle_types, location, device; void *win32; unsigned char compression, rdma; unsigned short usage; char reserved[4]; } Prop;
typedef int (*Create)(unsigned long long *, size_t, const Prop *, unsigned long long);
enum { HOST_NUMA = 3, NOT_INITIALIZED = 3 };

int cuMemCreate(unsigned long long *handle, size_t bytes, const Prop *prop, unsigned long long flags) {
  static Create real;
  if (!real) {
    void *driver = dlopen("libcuda-real.so.1", RTLD_NOW);
    real = driver ? (Create)dlsym(driver, "cuMemCreate") : NULL;
  }
  if (!real) return NOT_INITIALIZED;
  Prop far = *prop;
  far.location = HOST_NUMA;
  far.device = 0;
  far.rdma = 0;
  return real(handle, bytes, &far, flags);
}
