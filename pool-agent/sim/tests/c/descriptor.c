// A descriptor alone keeps memory: the handle is released while the descriptor is still open.
#include "driver.h"

int main(void) {
  prop p = on_device(1, 1);
  ptr handle, again; int descriptor; char line[8];
  MUST(cuInit(0));
  MUST(cuMemCreate(&handle, 32 * MIB, &p, 0));
  MUST(cuMemExportToShareableHandle(&descriptor, handle, 1, 0));
  MUST(cuMemRelease(handle));
  printf("released\n"); fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) return 2;
  MUST(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)descriptor, 1));
  MUST(cuMemRelease(again));
  close(descriptor);
  printf("closed\n"); fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) return 2;
}
