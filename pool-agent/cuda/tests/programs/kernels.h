/* Kernels for the test programs: those that links are probed with, from the PTX file that the test names. */
#include "driver.h"

static void *of_driver(const char *name) { static void *library; if (!library) library = need(dlopen("libcuda.so.1", RTLD_NOW), "libcuda.so.1"); return need(dlsym(library, name), name); }
#define CALL(symbol, arguments, ...) ((CUresult (*) arguments)of_driver(#symbol))(__VA_ARGS__)

struct kernels { void *module, *write, *read, *atomics; CUdeviceptr counter; };

/* The kernels and a counter, in the calling thread's context. */
static struct kernels kernels(const char *file) {
  static char text[1 << 16]; struct kernels k; FILE *source = fopen(file, "r"); WANT(source && fread(text, 1, sizeof text - 1, source) > 0); fclose(source);
  OK(CALL(cuModuleLoadData, (void **, const void *), &k.module, text));
  OK(CALL(cuModuleGetFunction, (void **, void *, const char *), &k.write, k.module, "tarn_probe_write"));
  OK(CALL(cuModuleGetFunction, (void **, void *, const char *), &k.read, k.module, "tarn_probe_read"));
  OK(CALL(cuModuleGetFunction, (void **, void *, const char *), &k.atomics, k.module, "tarn_probe_atomics"));
  OK(p_cuMemAlloc_v2(&k.counter, 8)); return k;
}
static CUresult launch(void *kernel, void **arguments) { return CALL(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), kernel, 16, 1, 1, 64, 1, 1, 0, 0, arguments, 0); }
static __attribute__((unused)) CUresult written(struct kernels *k, CUdeviceptr at, size_t bytes, uint64_t seed) { uint64_t words = bytes / 4; void *arguments[] = { &at, &words, &seed }; return launch(k->write, arguments); }
/* Words that differ from what `written` leaves. */
static __attribute__((unused)) uint64_t differing(struct kernels *k, CUdeviceptr at, size_t bytes, uint64_t seed) {
  uint64_t words = bytes / 4, found = 0; void *arguments[] = { &at, &words, &seed, &k->counter };
  OK(p_cuMemcpyHtoD_v2(k->counter, &found, 8)); OK(launch(k->read, arguments)); OK(p_cuMemcpyDtoH_v2(&found, k->counter, 8)); return found;
}
