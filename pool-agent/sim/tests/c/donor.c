// A process without context lends memory of device 1 to a process that sees device 0 only.
// argv[1]: "plain", or "die": the lender kills itself once the borrower has the memory.
#include <signal.h>
#include "driver.h"

static void lend(int socket, int die) {
  prop p = on_device(1, 1);
  ptr handle; int descriptor; char byte;
  MUST(cuInit(0));
  MUST(cuMemCreate(&handle, 64 * MIB, &p, 0));
  MUST(cuMemExportToShareableHandle(&descriptor, handle, 1, 0));
  send_descriptor(socket, descriptor);
  close(descriptor);
  if (read(socket, &byte, 1) != 1) exit(2);
  if (die) kill(getpid(), SIGKILL);
  MUST(cuMemRelease(handle));
  exit(0);
}

int main(int count, char **arguments) {
  int sockets[2], status, devices, ordinal = -1;
  int die = count > 1 && !strcmp(arguments[1], "die");
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets)) return 2;
  pid_t lender = fork();
  if (!lender) lend(sockets[1], die);
  close(sockets[1]); // a lender that fails must not leave this process waiting
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  MUST(cuInit(0));
  MUST(cuDeviceGetCount(&devices));
  SAY("devices", devices);
  void *context; ptr handle, address;
  MUST(cuCtxCreate_v2(&context, 0, 0));
  int descriptor = receive_descriptor(sockets[0]);
  int imported = cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor, 1);
  SAY("imported", imported);
  if (imported) return 0;
  close(descriptor);
  SAY("mapped", map_for_device_0(&address, 64 * MIB, handle));
  uint64_t written = 0x1234567890abcdef, read_back = 0;
  MUST(cuMemcpyHtoD_v2(address + 63 * MIB, &written, sizeof written));
  if (write(sockets[0], "x", 1) != 1) return 2;
  waitpid(lender, &status, 0);
  SAY("lender_killed", WIFSIGNALED(status));
  MUST(cuMemcpyDtoH_v2(&read_back, address + 63 * MIB, sizeof read_back));
  SAY("same", written == read_back);
  MUST(cuPointerGetAttribute(&ordinal, 9, address));
  SAY("ordinal", ordinal);
  printf("ready\n"); fflush(stdout);
  char line[8];
  if (!fgets(line, sizeof line, stdin)) return 2;
  MUST(cuMemRelease(handle)); // the mapping still holds the bytes
  printf("released\n"); fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) return 2;
  MUST(cuMemUnmap(address, 64 * MIB));
  printf("unmapped\n"); fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) return 2;
}
