// Device 0 writes, reads and adds across its link to the device named by argv[2]; argv[1] is the PTX file.
#include "driver.h"

static void *function(void *module, const char *name) { void *f; MUST(cuModuleGetFunction(&f, module, name)); return f; }
static int launch(void *f, void **arguments) { return cuLaunchKernel(f, 16, 1, 1, 64, 1, 1, 0, NULL, arguments, NULL); }

int main(int count, char **arguments) {
  int peer = atoi(arguments[2]), can; void *context, *module, *from, *to; float ms;
  char *text = calloc(1, 1 << 16);
  FILE *file = fopen(arguments[1], "r");
  if (count < 3 || !file || !fread(text, 1, (1 << 16) - 1, file)) return 2;
  MUST(cuInit(0));
  MUST(cuCtxCreate_v2(&context, 0, 0));
  MUST(cuModuleLoadData(&module, text));
  MUST(cuDeviceCanAccessPeer(&can, 0, peer));
  SAY("can", can);
  prop p = on_device(peer, 1);
  ptr handle, address, counter, words = 16 * MIB / 4, seed = 9, adds = 4, local; uint64_t mismatches = 0; uint32_t sum = 0;
  MUST(cuMemCreate(&handle, 16 * MIB, &p, 0));
  int mapped = map_for_device_0(&address, 16 * MIB, handle);
  SAY("mapped", mapped);
  if (mapped) return 0;
  MUST(cuMemAlloc_v2(&counter, 8));
  MUST(cuMemsetD8_v2(counter, 0, 8));
  MUST(cuMemAlloc_v2(&local, 16 * MIB));
  void *write[] = { &address, &words, &seed }, *read[] = { &address, &words, &seed, &counter };
  SAY("write", launch(function(module, "tarn_probe_write"), write));
  SAY("read", launch(function(module, "tarn_probe_read"), read));
  MUST(cuMemcpyDtoH_v2(&mismatches, counter, 8));
  SAY("mismatches", mismatches);
  MUST(cuMemsetD8_v2(address, 0, 4));
  void *add[] = { &address, &adds };
  SAY("add", launch(function(module, "tarn_probe_atomics"), add));
  MUST(cuMemcpyDtoH_v2(&sum, address, 4));
  SAY("sum", sum);
  MUST(cuEventCreate(&from, 0));
  MUST(cuEventCreate(&to, 0));
  MUST(cuEventRecord(from, NULL));
  MUST(cuMemcpyDtoD_v2(address, local, 16 * MIB));
  MUST(cuEventRecord(to, NULL));
  MUST(cuEventElapsedTime(&ms, from, to));
  SAY("mbps", 16 * MIB / ms / 1000);
}
