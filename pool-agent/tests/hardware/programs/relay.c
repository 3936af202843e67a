/* The steps of a donor's chunk between two processes without a context, as broker and tenant are: `relay <MiB> <rounds>`.
 * Medians in µs, `name=value`, one a line. */
#include "descriptor.h"
#include "driver.h"
#include <sys/wait.h>

enum { CREATE, EXPORT, SEND, RELEASE, IMPORT, CLOSE, LET_GO, STEPS, ROUNDS_MAX = 128 };
static const char *names[] = {"create", "export", "send_and_close", "release", "import", "close_last", "release_import"};
static u64 spent[STEPS][ROUNDS_MAX];

static void lend(int to, u64 bytes, int rounds) {
  Prop prop = {1, 1, 1, 0};
  char done;
  MUST("cuInit", 0);
  for (int round = 0; round < rounds; round++) {
    u64 handle, at[5];
    int file = -1;
    at[0] = nanoseconds();
    MUST("cuMemCreate", &handle, bytes, &prop, 0);
    at[1] = nanoseconds();
    MUST("cuMemExportToShareableHandle", &file, handle, 1, 0);
    at[2] = nanoseconds();
    send_file(to, file);
    close(file);
    at[3] = nanoseconds();
    if (read(to, &done, 1) != 1) exit(2);
    u64 then = nanoseconds();
    MUST("cuMemRelease", handle);
    at[4] = nanoseconds();
    spent[CREATE][round] = at[1] - at[0], spent[EXPORT][round] = at[2] - at[1], spent[SEND][round] = at[3] - at[2];
    spent[RELEASE][round] = at[4] - then;
  }
}

static void borrow(int from, int rounds) {
  MUST("cuInit", 0);
  for (int round = 0; round < rounds; round++) {
    u64 handle, at[4];
    int file = receive_file(from);
    at[0] = nanoseconds();
    MUST("cuMemImportFromShareableHandle", &handle, (u64)file, 1);
    at[1] = nanoseconds();
    close(file);
    at[2] = nanoseconds();
    MUST("cuMemRelease", handle);
    at[3] = nanoseconds();
    spent[IMPORT][round] = at[1] - at[0], spent[CLOSE][round] = at[2] - at[1], spent[LET_GO][round] = at[3] - at[2];
    if (write(from, "", 1) != 1) exit(2);
  }
}

static void told(int first, int last, int rounds) {
  for (int step = first; step <= last; step++) printf("%s=%.1f\n", names[step], median(spent[step], rounds) / 1e3);
  fflush(stdout);
}

int main(int argc, char **argv) {
  u64 bytes = (argc > 1 ? strtoull(argv[1], 0, 10) : 2) * MIB;
  int rounds = argc > 2 ? atoi(argv[2]) : 25, pair[2], status;
  if (rounds < 1 || rounds > ROUNDS_MAX || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair)) return 2;
  pid_t child = fork();
  if (!child) {
    close(pair[0]);
    borrow(pair[1], rounds);
    told(IMPORT, LET_GO, rounds);
    return 0;
  }
  close(pair[1]);
  lend(pair[0], bytes, rounds);
  waitpid(child, &status, 0);
  if (status) { printf("failed: the borrower\n"); return 2; }
  told(CREATE, RELEASE, rounds);
  printf("end\n");
  return 0;
}
