// A tenant who goes round the stand-in: opens the real driver by its file and makes a context on every card but the first.
// usage: escape <libcuda> hold|brief
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef int (*init_t)(unsigned);
typedef int (*count_t)(int *);
typedef int (*create_t)(void **, unsigned, int);
typedef int (*destroy_t)(void *);
typedef int (*alloc_t)(unsigned long long *, size_t);

int main(int count, char **arguments) {
  if (count < 3) return 2;
  void *driver = dlopen(arguments[1], RTLD_NOW);
  if (!driver) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  int cards = 0;
  ((init_t)dlsym(driver, "cuInit"))(0);
  ((count_t)dlsym(driver, "cuDeviceGetCount"))(&cards);
  void *contexts[64] = {0};
  int made = 0;
  for (int card = 1; card < cards && card < 64; card++) {
    unsigned long long block;
    int code = ((create_t)dlsym(driver, "cuCtxCreate_v2"))(&contexts[card], 0, card);
    if (code == 0) code = ((alloc_t)dlsym(driver, "cuMemAlloc_v2"))(&block, 64 << 20);
    printf("card=%d code=%d\n", card, code);
    made += code == 0;
  }
  fflush(stdout);
  if (!strcmp(arguments[2], "hold"))
    for (;;) pause();
  for (int card = 1; card < cards && card < 64; card++)
    if (contexts[card]) ((destroy_t)dlsym(driver, "cuCtxDestroy_v2"))(contexts[card]);
  return made ? 0 : 1;
}
