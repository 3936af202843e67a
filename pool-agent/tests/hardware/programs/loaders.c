/* Every way by which a program finds the driver must lead to one total (V13). `<way>=<bytes or the loader's refusal>`, one a line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*Init)(unsigned);
typedef int (*Total)(size_t *, int);
typedef int (*Resolve)(const char *, void **, int, unsigned long long, void *);

static void told(const char *way, void *library, void *init, void *total) {
  size_t bytes = 0;
  if (!library && !init) { printf("%s=refused\n", way); return; }
  if (!init) init = dlsym(library, "cuInit");
  if (!total) total = dlsym(library, "cuDeviceTotalMem_v2");
  int code = init ? ((Init)init)(0) : -1;
  if (!code) code = total ? ((Total)total)(&bytes, 0) : -1;
  printf("%s=%zu%s\n", way, bytes, code ? " failed" : "");
}

int main(void) {
  void *plain = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *found = NULL;
  told("dlopen", plain, NULL, NULL);
  told("without_version", dlopen("libcuda.so", RTLD_NOW), NULL, NULL);
  told("deepbind", dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND), NULL, NULL);
  told("lazy_local", dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL), NULL, NULL);
  told("dlmopen", dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW), NULL, NULL);
  told("rtld_default", plain, dlsym(RTLD_DEFAULT, "cuInit"), dlsym(RTLD_DEFAULT, "cuDeviceTotalMem_v2"));
  told("rtld_next", plain, dlsym(RTLD_NEXT, "cuInit"), dlsym(RTLD_NEXT, "cuDeviceTotalMem_v2"));
  Resolve resolve = (Resolve)dlsym(plain, "cuGetProcAddress_v2");
  if (resolve && !resolve("cuDeviceTotalMem", &found, 12000, 0, NULL)) told("by_address", plain, NULL, found);
  printf("end\n");
  return 0;
}
