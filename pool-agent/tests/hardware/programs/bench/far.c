/* Memory that is far from the card, for Torch's pluggable allocator: pinned host memory that kernels reach over the host link. It stands
 * for a donor where there is only one card: every access by a kernel crosses a link, as it would cross to a donor. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

typedef int (*Alloc)(void **, size_t, unsigned);
typedef int (*Free)(void *);

static void *driver(const char *name) {
  static void *library;
  if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
  return library ? dlsym(library, name) : NULL;
}

void *far_malloc(size_t bytes, int device, void *stream) {
  void *at = NULL;
  (void)device, (void)stream;
  Alloc alloc = (Alloc)driver("cuMemHostAlloc");
  return alloc && !alloc(&at, bytes, 1 | 2) ? at : NULL; /* portable, mapped: the device's address is the host's */
}

void far_free(void *at, size_t bytes, int device, void *stream) {
  (void)bytes, (void)device, (void)stream;
  Free release = (Free)driver("cuMemFreeHost");
  if (release) release(at);
}
