// argv[1] processes call cuInit at a barrier; prints the slowest in microseconds.
#include <time.h>
#include "driver.h"

int main(int count, char **arguments) {
  int processes = atoi(arguments[1]), barrier[2], results[2]; long worst = 0;
  if (count < 2 || pipe(barrier) || pipe(results)) return 2;
  for (int i = 0; i < processes; i++) {
    if (fork()) continue;
    char byte; struct timespec from, to;
    close(barrier[1]);
    if (read(barrier[0], &byte, 1) != 0) _exit(2); // end of file is the start
    clock_gettime(CLOCK_MONOTONIC, &from);
    int code = cuInit(0);
    clock_gettime(CLOCK_MONOTONIC, &to);
    long microseconds = code ? -1 : (to.tv_sec - from.tv_sec) * 1000000L + (to.tv_nsec - from.tv_nsec) / 1000;
    _exit(write(results[1], &microseconds, sizeof microseconds) != sizeof microseconds);
  }
  close(barrier[0]); close(barrier[1]);
  int refused = 0;
  for (int i = 0; i < processes; i++) {
    long microseconds;
    if (read(results[0], &microseconds, sizeof microseconds) != sizeof microseconds) return 2;
    refused += microseconds < 0;
    if (microseconds > worst) worst = microseconds;
  }
  while (wait(NULL) > 0) {}
  SAY("refused", refused);
  SAY("worst_us", worst);
}
