/* Memory between processes: one owns it, others open it. Commands come on stdin, one a line.
 *
 *   sharing <how> owner       take BYTES | handle I | check I | free I
 *   sharing <how> opener      open HEX | check | write | again HEX | close
 *   sharing <how> exporter    a child imports what its parent exports
 *
 * Words in memory follow from the offset alone, since the address is another in each process. */
#include "driver.h"
#include <sys/socket.h>

static uint64_t word(size_t offset, int salt) { return (offset + salt + 1) * 0xBF58476D1CE4E5B9ull ^ offset; }
static size_t stride(size_t bytes) { return bytes / 61 / 8 * 8 + 8; }
static void put(CUdeviceptr at, size_t bytes, int salt) { for (size_t o = 0; o + 8 <= bytes; o += stride(bytes)) { uint64_t w = word(o, salt); OK(p_cuMemcpyHtoD_v2(at + o, &w, 8)); } }
static size_t wrong(CUdeviceptr at, size_t bytes, int salt) { size_t bad = 0; for (size_t o = 0; o + 8 <= bytes; o += stride(bytes)) { uint64_t w; OK(p_cuMemcpyDtoH_v2(&w, at + o, 8)); bad += w != word(o, salt); } return bad; }
static CUipcMemHandle parse(const char *text) { CUipcMemHandle h; for (int i = 0; i < 64; i++) { unsigned b = 0; sscanf(text + 2 * i, "%2x", &b); h.bytes[i] = b; } return h; }

static CUdeviceptr taken[512]; static size_t sizes[512]; static int count;
static void owner(void) {
  char line[256]; start(); printf("count=0\n");
  for (;;) {
    printf("waiting\n"); fflush(stdout); if (!fgets(line, sizeof line, stdin)) return; int i = 0; sscanf(line, "%*s %d", &i);
    if (!strncmp(line, "take", 4)) { sizes[count] = strtoull(line + 5, 0, 10); OK(p_cuMemAlloc_v2(&taken[count], sizes[count])); put(taken[count], sizes[count], 0); printf("count=%d\n", ++count); }
    else if (!strncmp(line, "handle", 6)) { CUipcMemHandle h; CUresult r = p_cuIpcGetMemHandle(&h, taken[i]); printf("got=%d\nhandle=", r); for (int b = 0; b < 64; b++) printf("%02x", h.bytes[b]); printf("\n"); }
    else if (!strncmp(line, "check", 5)) printf("bad=%zu\n", wrong(taken[i], sizes[i], 7));
    else if (!strncmp(line, "free", 4)) { OK(p_cuMemFree_v2(taken[i])); printf("freed=%d\n", i); }
    else return;
  }
}

static void opener(void) {
  char line[256]; CUdeviceptr at = 0, base, other, held[512]; size_t bytes = 0; int many = 0; start();
  for (;;) {
    printf("waiting\n"); fflush(stdout); if (!fgets(line, sizeof line, stdin)) return;
    if (!strncmp(line, "open", 4)) { CUresult r = p_cuIpcOpenMemHandle_v2(&other, parse(line + 5), 1); printf("open=%d\n", r); if (!r) { at = other; OK(p_cuMemGetAddressRange_v2(&base, &bytes, at)); WANT(base == at); printf("bytes=%zu\n", bytes); } }
    else if (!strncmp(line, "again", 5)) { OK(p_cuIpcOpenMemHandle_v2(&other, parse(line + 6), 1)); WANT(other == at); WANT(p_cuMemFree_v2(at) == 1); OK(p_cuIpcCloseMemHandle(at)); WANT(wrong(at, bytes, 7) == 0); printf("again=1\n"); }
    else if (!strncmp(line, "keep", 4)) { OK(p_cuIpcOpenMemHandle_v2(&held[many], parse(line + 5), 1)); OK(p_cuMemGetAddressRange_v2(&base, &bytes, held[many])); WANT(wrong(held[many], bytes, 0) == 0); printf("kept=%d\n", ++many); }
    else if (!strncmp(line, "drop", 4)) { for (int i = 0; i < many; i++) OK(p_cuIpcCloseMemHandle(held[i])); printf("dropped=%d\n", many); }
    else if (!strncmp(line, "check", 5)) printf("bad=%zu\n", wrong(at, bytes, 0));
    else if (!strncmp(line, "write", 5)) { put(at, bytes, 7); printf("wrote=1\n"); }
    else if (!strncmp(line, "close", 5)) { OK(p_cuIpcCloseMemHandle(at)); WANT(p_cuIpcCloseMemHandle(at) == 1); printf("closed=1\n"); }
    else return;
  }
}

/* Handles past the primary, exported to a child that was forked before the driver started. */
static void send_descriptor(int to, int fd) {
  char byte = 1, room[CMSG_SPACE(sizeof fd)]; struct iovec part = { &byte, 1 }; struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
  struct cmsghdr *c = CMSG_FIRSTHDR(&m); c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof fd); memcpy(CMSG_DATA(c), &fd, sizeof fd); WANT(sendmsg(to, &m, 0) == 1);
}
static int receive_descriptor(int from) {
  char byte, room[CMSG_SPACE(sizeof(int))]; int fd; struct iovec part = { &byte, 1 }; struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
  WANT(recvmsg(from, &m, 0) == 1); struct cmsghdr *c = CMSG_FIRSTHDR(&m); WANT(c && c->cmsg_type == SCM_RIGHTS); memcpy(&fd, CMSG_DATA(c), sizeof fd); return fd;
}
static CUdeviceptr mapped(CUhandle h) { CUdeviceptr at; CUmemAccessDesc access = { { 1, 0 }, 3 }; OK(p_cuMemAddressReserve(&at, GIB, 0, 0, 0)); OK(p_cuMemMap(at, GIB, 0, h, 0)); OK(p_cuMemSetAccess(at, GIB, &access, 1)); return at; }
static void exporter(void) {
  int pair[2]; char byte; WANT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair)); pid_t child = fork();
  if (!child) {
    int fd = receive_descriptor(pair[1]); start(); CUhandle h; OK(p_cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, 1)); close(fd);
    CUdeviceptr at = mapped(h); OK(p_cuMemRelease(h)); WANT(wrong(at, GIB, 0) == 0); put(at, GIB, 7); WANT(write(pair[1], "x", 1) == 1); WANT(read(pair[1], &byte, 1) == 1); _exit(0);
  }
  start(); CUmemAllocationProp prop = { 1, 1, { 1, 0 }, 0, 0, 0, 0, { 0 } }; CUhandle h[30]; CUdeviceptr last = 0; int fd = -1;
  for (int i = 0; i < 30; i++) { OK(p_cuMemCreate(&h[i], GIB, &prop, 0)); last = mapped(h[i]); }
  put(last, GIB, 0); WANT(p_cuMemExportToShareableHandle(&fd, h[29], 8, 0) != 0); WANT(p_cuMemExportToShareableHandle(&fd, h[29], 1, 1) != 0); OK(p_cuMemExportToShareableHandle(&fd, h[29], 1, 0));
  send_descriptor(pair[0], fd); close(fd); WANT(read(pair[0], &byte, 1) == 1); WANT(wrong(last, GIB, 7) == 0);
  printf("shared=1\n"); await_line();
  OK(p_cuMemRelease(h[29])); OK(p_cuMemUnmap(last, GIB)); printf("released=1\n"); await_line();
  WANT(write(pair[0], "x", 1) == 1); int status; waitpid(child, &status, 0); printf("child=%d\n", status);
}

int main(int c, char **v) {
  if (c < 3) return 2;
  setvbuf(stdout, 0, _IOLBF, 0);
  /* The exporter forks first: a child of a process that has the driver has none. */
  resolve(v[1]);
  if (!strcmp(v[2], "owner")) owner(); else if (!strcmp(v[2], "opener")) opener(); else if (!strcmp(v[2], "exporter")) exporter(); else return 2;
  printf("done=1\n");
  return 0;
}
