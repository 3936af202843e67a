/* Many processes ask for a chunk at the same moment; `name=value`, one a line.
 *   crowd import <clients> <rounds>          each imports one descriptor again and again, by the bare driver
 *   crowd lease <clients> <rounds> <MiB>     each takes a physical allocation and gives it back, through whatever driver is loaded
 * Times are of single calls, over all clients and rounds. */
#include "descriptor.h"
#include "driver.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { CLIENTS_MAX = 1024, ROUNDS_MAX = 64 };
typedef struct {
  pthread_barrier_t gate;
  u64 begin[CLIENTS_MAX], end[CLIENTS_MAX], started[CLIENTS_MAX];
  u64 taken[CLIENTS_MAX * ROUNDS_MAX], given[CLIENTS_MAX * ROUNDS_MAX];
} Books;
static Books *books;
static int clients, rounds;
static u64 bytes = 64 * MIB;

static void client(int self, int from, int leasing) {
  Prop prop = {1, 0, 1, 0};
  u64 handle, total, then = nanoseconds();
  MUST("cuInit", 0);
  MUST("cuDeviceTotalMem_v2", &total, 0);
  books->started[self] = nanoseconds() - then;
  int file = leasing ? -1 : receive_file(from);
  Call create = find("cuMemCreate"), import = find("cuMemImportFromShareableHandle"), release = find("cuMemRelease");
  pthread_barrier_wait(&books->gate);
  books->begin[self] = nanoseconds();
  for (int round = 0; round < rounds; round++) {
    then = nanoseconds();
    if (leasing) must(create(P(&handle), bytes, P(&prop), 0, 0, 0, 0, 0), "create");
    else must(import(P(&handle), file, 1, 0, 0, 0, 0, 0), "import");
    u64 now = nanoseconds();
    must(release(handle, 0, 0, 0, 0, 0, 0, 0), "release");
    books->taken[self * rounds + round] = now - then;
    books->given[self * rounds + round] = nanoseconds() - now;
  }
  books->end[self] = nanoseconds();
}

static void told(const char *what, u64 *times, int count) {
  qsort(times, count, sizeof *times, by_size);
  printf("%s_p50=%.1f\n%s_p99=%.1f\n%s_max=%.1f\n", what, times[count / 2] / 1e3, what, times[count * 99 / 100] / 1e3, what, times[count - 1] / 1e3);
}

int main(int argc, char **argv) {
  static int sockets[CLIENTS_MAX][2];
  static pid_t children[CLIENTS_MAX];
  int leasing = argc > 1 && !strcmp(argv[1], "lease"), failed = 0;
  clients = argc > 2 ? atoi(argv[2]) : 1;
  rounds = argc > 3 ? atoi(argv[3]) : 1;
  if (argc > 4) bytes = strtoull(argv[4], 0, 10) * MIB;
  if (clients < 1 || clients > CLIENTS_MAX || rounds < 1 || rounds > ROUNDS_MAX) { printf("failed: numbers\n"); return 2; }
  books = mmap(0, sizeof *books, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&books->gate, &shared, clients);
  /* A process that has started the driver must not fork: children first. */
  for (int i = 0; i < clients; i++) {
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets[i])) { perror("socketpair"); return 2; }
    if (!(children[i] = fork())) {
      close(sockets[i][0]);
      client(i, sockets[i][1], leasing);
      return 0;
    }
    close(sockets[i][1]);
  }
  if (!leasing) {
    Prop prop = {1, 1, 1, 0};
    u64 handle;
    int file = -1;
    MUST("cuInit", 0);
    MUST("cuMemCreate", &handle, bytes, &prop, 0);
    MUST("cuMemExportToShareableHandle", &file, handle, 1, 0);
    for (int i = 0; i < clients; i++) send_file(sockets[i][0], file);
  }
  /* One that fails never reaches the gate: the others must not wait for it for ever. */
  for (int left = clients; left > 0; left--) {
    int status;
    waitpid(-1, &status, 0);
    if (status && !failed++) for (int i = 0; i < clients; i++) kill(children[i], SIGKILL);
  }
  if (failed) { printf("failed: %d of %d clients\n", failed, clients); return 2; }
  u64 begin = ~0ull, end = 0;
  for (int i = 0; i < clients; i++) {
    if (books->begin[i] < begin) begin = books->begin[i];
    if (books->end[i] > end) end = books->end[i];
  }
  told("started", books->started, clients);
  told("take", books->taken, clients * rounds);
  told("give", books->given, clients * rounds);
  printf("wall_ms=%.2f\nper_second=%.0f\nend\n", (end - begin) / 1e6, clients * rounds / ((end - begin) / 1e9));
  return 0;
}
