/* V8: an all-reduce over every visible card, as torchrun and tensor-parallel servers do it: a ring of ranks, one a card.
 *
 *   ranks <how> handles | ipc | threads
 *
 * handles, ipc: a process a rank, which opens its neighbour's buffer by descriptor or by the classic handle. threads: one process with all
 * cards. Every rank takes its card by its own ordinal, holds (rank + 1) * HELD bytes more than the others' common share, and tells what the
 * driver says of it: `total R`, `fell R` (free bytes gone), `bad R` (wrong words of the sum). Everything is held until a line comes. */
#include "driver.h"
#include <sys/socket.h>

#define CALL(symbol, arguments, ...) ((CUresult (*) arguments)need(dlsym(library, #symbol), #symbol))(__VA_ARGS__)
enum { WORDS = 4096, RANKS = 8 };
#define CHUNK (WORDS * sizeof(uint64_t))
#define BUFFER (2 * MIB)
#define HELD (100 * MIB)
static void *library; static int n, to_next[RANKS], from_previous[RANKS], told[2], over[2]; static const char *way;
static CUdeviceptr shown[RANKS]; static pthread_barrier_t ready;
struct line { int rank; size_t total, fell, bad; };

static void give(int r, const void *data, size_t bytes, int fd) {
  char room[CMSG_SPACE(sizeof fd)]; struct iovec part = { (void *)data, bytes }; struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
  if (fd >= 0) { m.msg_control = room; m.msg_controllen = sizeof room; struct cmsghdr *c = CMSG_FIRSTHDR(&m); c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof fd); memcpy(CMSG_DATA(c), &fd, sizeof fd); }
  WANT(sendmsg(r, &m, 0) == (ssize_t)bytes);
}
static int take(int r, void *data, size_t bytes) {
  char room[CMSG_SPACE(sizeof(int))]; int fd = -1; struct iovec part = { data, bytes }; struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
  WANT(recvmsg(r, &m, 0) == (ssize_t)bytes); struct cmsghdr *c = CMSG_FIRSTHDR(&m); if (c && c->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(c), sizeof fd); return fd;
}
/* Memory of one card, opened to whoever uses it from this process. */
static CUdeviceptr map(CUhandle handle, const int *users, int count) {
  CUdeviceptr at; CUmemAccessDesc access[2]; for (int i = 0; i < count; i++) access[i] = (CUmemAccessDesc){ { 1, users[i] }, 3 };
  OK(p_cuMemAddressReserve(&at, BUFFER, 0, 0, 0)); OK(p_cuMemMap(at, BUFFER, 0, handle, 0)); OK(p_cuMemSetAccess(at, BUFFER, access, count)); return at;
}

/* Where the previous rank puts what it has for this one, and where this one puts it for the next. */
static void meet(int r, CUdeviceptr *mine, CUdeviceptr *nexts) {
  int next = (r + 1) % n, users[] = { r, (r + n - 1) % n }; CUmemAllocationProp prop = { 1, 1, { 1, r }, 0, 0, 0, 0, { 0 } }; CUhandle handle; char byte = 0;
  if (!strcmp(way, "ipc")) {
    CUipcMemHandle h, other; OK(p_cuMemAlloc_v2(mine, BUFFER)); OK(p_cuIpcGetMemHandle(&h, *mine));
    give(from_previous[r], &h, sizeof h, -1); take(to_next[r], &other, sizeof other); OK(p_cuIpcOpenMemHandle_v2(nexts, other, 1)); return;
  }
  OK(p_cuMemCreate(&handle, BUFFER, &prop, 0));
  if (!strcmp(way, "threads")) { *mine = map(handle, users, 2); OK(p_cuMemRelease(handle)); shown[r] = *mine; pthread_barrier_wait(&ready); *nexts = shown[next]; return; }
  int fd; *mine = map(handle, users, 1); OK(p_cuMemExportToShareableHandle(&fd, handle, 1, 0)); OK(p_cuMemRelease(handle));
  give(from_previous[r], &byte, 1, fd); close(fd); fd = take(to_next[r], &byte, 1); WANT(fd >= 0);
  OK(p_cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1)); close(fd); *nexts = map(handle, users, 1); OK(p_cuMemRelease(handle));
}

/* Reduce-scatter, then all-gather. Every step has a place of its own in the receiver's buffer, so nobody has to wait for room. */
static void all_reduce(int r, CUdeviceptr vector, CUdeviceptr mine, CUdeviceptr nexts) {
  static _Thread_local uint64_t own[WORDS], came[WORDS]; char byte = 1;
  for (int s = 0; s < 2 * (n - 1); s++) {
    int turn = s - (s >= n - 1 ? n - 1 : 0), gather = s >= n - 1, out = ((r - turn + gather) % n + n) % n, in = ((r - turn - 1 + gather) % n + n) % n;
    OK(p_cuMemcpyDtoD_v2(nexts + s * CHUNK, vector + out * CHUNK, CHUNK)); OK(CALL(cuCtxSynchronize, (void))); give(to_next[r], &byte, 1, -1); take(from_previous[r], &byte, 1);
    OK(p_cuMemcpyDtoH_v2(came, mine + s * CHUNK, CHUNK)); OK(p_cuMemcpyDtoH_v2(own, vector + in * CHUNK, CHUNK));
    for (int w = 0; w < WORDS; w++) own[w] = gather ? came[w] : own[w] + came[w];
    OK(p_cuMemcpyHtoD_v2(vector + in * CHUNK, own, CHUNK));
  }
}
static uint64_t word(int rank, size_t i) { return (rank + 1) * (i * 2654435761u + 7); }
static void *rank(void *number) {
  static _Thread_local uint64_t host[RANKS * WORDS]; int r = (intptr_t)number; CUdevice card; void *ctx; CUdeviceptr vector, extra, mine, nexts; size_t before, after, t; struct line l = { .rank = r };
  OK(p_cuInit(0)); OK(p_cuDeviceGet(&card, r)); WANT(card == r); OK(p_cuDevicePrimaryCtxRetain(&ctx, card)); OK(p_cuCtxSetCurrent(ctx));
  OK(CALL(cuCtxGetDevice, (CUdevice *), &card)); WANT(card == r); OK(p_cuDeviceTotalMem_v2(&l.total, r)); OK(p_cuMemGetInfo_v2(&before, &t)); WANT(t == l.total);
  OK(p_cuMemAlloc_v2(&extra, (r + 1) * HELD)); OK(p_cuMemGetInfo_v2(&after, &t)); l.fell = before - after; int ordinal = -1; OK(p_cuPointerGetAttribute(&ordinal, 9, extra)); WANT(ordinal == r);
  OK(p_cuMemAlloc_v2(&vector, n * CHUNK)); meet(r, &mine, &nexts); OK(p_cuPointerGetAttribute(&ordinal, 9, mine)); WANT(ordinal == r);
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < n * WORDS; i++) host[i] = word(r, i) + round;
    OK(p_cuMemcpyHtoD_v2(vector, host, n * CHUNK)); all_reduce(r, vector, mine, nexts); OK(p_cuMemcpyDtoH_v2(host, vector, n * CHUNK));
    for (int i = 0; i < n * WORDS; i++) { uint64_t sum = 0; for (int k = 0; k < n; k++) sum += word(k, i) + round; l.bad += host[i] != sum; }
    /* The next round writes where this one was read. */
    char byte = 2; for (int turn = 0; turn < n; turn++) { give(to_next[r], &byte, 1, -1); take(from_previous[r], &byte, 1); }
  }
  char byte; WANT(write(told[1], &l, sizeof l) == sizeof l); WANT(read(over[0], &byte, 1) == 0); return 0;
}

int main(int c, char **v) {
  if (c < 3) return 2;
  setvbuf(stdout, 0, _IOLBF, 0); resolve(v[1]); way = v[2]; library = dlopen("libcuda.so.1", RTLD_NOW); int status, bad = 0, ends[2]; pthread_t threads[RANKS];
  /* How many there are is asked in a child, since processes are forked before the driver starts. */
  pid_t asks = fork(); if (!asks) { int count; OK(p_cuInit(0)); OK(p_cuDeviceGetCount(&count)); _exit(count); }
  waitpid(asks, &status, 0); n = WEXITSTATUS(status); printf("ranks=%d\n", n); WANT(n >= 1 && n <= RANKS && !pipe(told) && !pipe(over)); pthread_barrier_init(&ready, 0, n);
  for (int r = 0; r < n; r++) { WANT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends)); to_next[r] = ends[0]; from_previous[(r + 1) % n] = ends[1]; }
  for (intptr_t r = 0; r < n; r++) { if (!strcmp(way, "threads")) pthread_create(&threads[r], 0, rank, (void *)r); else if (!fork()) { close(over[1]); rank((void *)r); _exit(0); } }
  for (int i = 0; i < n; i++) { struct line l; WANT(read(told[0], &l, sizeof l) == sizeof l); printf("total %d=%zu\nfell %d=%zu\nbad %d=%zu\n", l.rank, l.total, l.rank, l.fell, l.rank, l.bad); }
  await_line(); close(over[1]);
  if (!strcmp(way, "threads")) for (int r = 0; r < n; r++) pthread_join(threads[r], 0); else while (wait(&status) > 0) bad += status != 0;
  WANT(!bad); printf("done=1\n");
  return 0;
}
