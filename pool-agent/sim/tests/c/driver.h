// The part of the driver API that the test programs use, declared by hand: no toolkit is needed to build them.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <sys/wait.h>

typedef uint64_t ptr;
typedef struct { int type, handle_types, location_type, location_id; void *win32; unsigned char flags[8]; } prop;
typedef struct { int location_type, location_id, flags; } access_desc;

int cuInit(unsigned);
int cuDeviceGetCount(int *);
int cuDeviceTotalMem_v2(size_t *, int);
int cuDeviceCanAccessPeer(int *, int, int);
int cuCtxCreate_v2(void **, unsigned, int);
int cuCtxDestroy_v2(void *);
int cuMemAlloc_v2(ptr *, size_t);
int cuMemFree_v2(ptr);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemcpyHtoD_v2(ptr, const void *, size_t);
int cuMemcpyDtoH_v2(void *, ptr, size_t);
int cuMemcpyDtoD_v2(ptr, ptr, size_t);
int cuMemsetD8_v2(ptr, unsigned char, size_t);
int cuMemCreate(ptr *, size_t, const prop *, uint64_t);
int cuMemRelease(ptr);
int cuMemAddressReserve(ptr *, size_t, size_t, ptr, uint64_t);
int cuMemAddressFree(ptr, size_t);
int cuMemMap(ptr, size_t, size_t, ptr, uint64_t);
int cuMemUnmap(ptr, size_t);
int cuMemSetAccess(ptr, size_t, const access_desc *, size_t);
int cuMemExportToShareableHandle(void *, ptr, int, uint64_t);
int cuMemImportFromShareableHandle(ptr *, void *, int);
int cuMemGetAddressRange_v2(ptr *, size_t *, ptr);
int cuMemRetainAllocationHandle(ptr *, ptr);
int cuPointerGetAttribute(void *, int, ptr);
int cuPointerSetAttribute(const void *, int, ptr);
int cuIpcGetMemHandle(void *, ptr);
int cuEventCreate(void **, unsigned);
int cuEventRecord(void *, void *);
int cuEventElapsedTime(float *, void *, void *);
int cuModuleLoadData(void **, const void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
// Only the simulated driver has it; the same programs run on hardware.
int cuSimIntegrity(int (*)(int *)) __attribute__((weak));

#define MIB ((size_t)1 << 20)
#define SAY(name, value) printf("%s=%lld\n", name, (long long)(value))
// Ends the program at the first call that fails.
#define MUST(call) do { int code_ = (call); if (code_) { printf("failed=%s code %d line %d\n", #call, code_, __LINE__); exit(1); } } while (0)

static inline prop on_device(int device, int handle_types) {
  prop p = { 1, handle_types, 1, device, 0, { 0 } };
  return p;
}

// Reserves, maps a handle of `bytes` and grants device 0 access; answers the first failing code.
static inline int map_for_device_0(ptr *address, size_t bytes, ptr handle) {
  access_desc grant = { 1, 0, 3 };
  int code = cuMemAddressReserve(address, bytes, 0, 0, 0);
  if (!code) code = cuMemMap(*address, bytes, 0, handle, 0);
  if (!code) code = cuMemSetAccess(*address, bytes, &grant, 1);
  return code;
}

static inline void send_descriptor(int socket, int descriptor) {
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
  struct iovec part = { &byte, 1 };
  struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET; header->cmsg_type = SCM_RIGHTS; header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  if (sendmsg(socket, &message, 0) != 1) exit(2);
}

static inline int receive_descriptor(int socket) {
  char byte, control[CMSG_SPACE(sizeof(int))];
  struct iovec part = { &byte, 1 };
  struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
  int descriptor = -1;
  if (recvmsg(socket, &message, 0) != 1) exit(2);
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header) memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}
