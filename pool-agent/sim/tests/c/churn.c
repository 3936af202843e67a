// Sixteen threads allocate and free at random until killed.
#include <pthread.h>
#include "driver.h"

static void *context;
int cuCtxSetCurrent(void *);

static void *work(void *seed) {
  unsigned state = (unsigned)(intptr_t)seed; ptr blocks[8] = { 0 };
  if (cuCtxSetCurrent(context)) exit(3);
  for (;;) {
    ptr *block = &blocks[rand_r(&state) % 8];
    if (*block) { MUST(cuMemFree_v2(*block)); *block = 0; continue; }
    int code = cuMemAlloc_v2(block, 1 + rand_r(&state) % (64 * MIB));
    if (code && code != 2) { printf("failed=%d\n", code); exit(1); }
    if (code) *block = 0;
  }
}

int main(int count, char **arguments) {
  MUST(cuInit(0));
  MUST(cuCtxCreate_v2(&context, 0, 0));
  printf("started\n"); fflush(stdout);
  for (intptr_t i = 1; i < 16; i++) { pthread_t thread; pthread_create(&thread, NULL, work, (void *)(i * 77 + (count > 1 ? atoi(arguments[1]) : 0))); }
  work((void *)1);
}
