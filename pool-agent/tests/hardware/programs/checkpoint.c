/* Asks the driver to set a process's device state aside and to bring it back: `checkpoint <pid>`; `step=code`, one a line. */
#include "driver.h"

typedef struct { unsigned timeout_ms, reserved; u64 more[7]; } LockArgs;

int main(int argc, char **argv) {
  u64 pid = argc > 1 ? strtoull(argv[1], 0, 10) : 0;
  LockArgs lock = {.timeout_ms = 5000};
  MUST("cuInit", 0);
  if (!find_or_null("cuCheckpointProcessLock")) { printf("lock=absent\nend\n"); return 0; }
  int code = CU("cuCheckpointProcessLock", pid, &lock);
  printf("lock=%d\n", code);
  if (!code) {
    int aside = CU("cuCheckpointProcessCheckpoint", pid, 0);
    printf("aside=%d\n", aside);
    if (!aside) printf("back=%d\n", CU("cuCheckpointProcessRestore", pid, 0));
    printf("unlock=%d\n", CU("cuCheckpointProcessUnlock", pid, 0));
  }
  printf("end\n");
  return 0;
}
