// Holds a descriptor of device 1; imports it again in a child, once its device node is gone.
#include "driver.h"

int main(void) {
  int sockets[2]; char line[8];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets)) return 2;
  if (!fork()) {
    ptr handle;
    int descriptor = receive_descriptor(sockets[1]);
    MUST(cuInit(0));
    SAY("imported", cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor, 1));
    return 0;
  }
  prop p = on_device(1, 1);
  ptr handle; int descriptor;
  MUST(cuInit(0));
  MUST(cuMemCreate(&handle, 2 * MIB, &p, 0));
  MUST(cuMemExportToShareableHandle(&descriptor, handle, 1, 0));
  printf("lent\n"); fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) return 2;
  send_descriptor(sockets[0], descriptor);
  wait(NULL);
}
