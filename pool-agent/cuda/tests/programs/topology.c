/* V17: what CUDA and NVML say of every pair of the visible devices, and what works between them.
 *
 *   topology <how> <ptx>
 *
 * Facts: `devices`, `uuid I`, `links I` (that are up), and for each ordered pair `can I J`, `rank`, `access`, `atomic`, `enable` (the code), `grant` (the code),
 * `wrote` (bytes arrived), `nvml` (read, write, NVLink and atomics status), `ancestor`. */
#include "kernels.h"

static void *nvml(const char *name) { static void *library; if (!library) library = need(dlopen("libnvidia-ml.so.1", RTLD_NOW), "libnvidia-ml.so.1"); return need(dlsym(library, name), name); }
#define NVML(symbol, arguments, ...) ((int (*) arguments)nvml(#symbol))(__VA_ARGS__)
enum { BYTES = 4 * MIB };
static void *contexts[16], *cards[16]; static struct kernels ks[16]; static int count;

static void identify(int i) {
  unsigned char u[16]; char text[64]; OK(p_cuDeviceGetUuid_v2(u, i)); int n = sprintf(text, "GPU-"); for (int b = 0; b < 16; b++) n += sprintf(text + n, "%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", u[b]);
  printf("uuid %d=%s\n", i, text); OK(NVML(nvmlDeviceGetHandleByUUID, (const char *, void **), text, &cards[i]));
  int up = 0; for (unsigned l = 0; l < 18; l++) { unsigned state = 0; up += NVML(nvmlDeviceGetNvLinkState, (void *, unsigned, unsigned *), cards[i], l, &state) == 0 && state == 1; } printf("links %d=%d\n", i, up);
}
/* Memory of `to`, opened to `from` and written there by its kernels: whether the bytes arrive. */
static void works(int from, int to) {
  CUmemAllocationProp prop = { 1, 1, { 1, to }, 0, 0, 0, 0, { 0 } }; CUmemAccessDesc access[2] = { { { 1, to }, 3 }, { { 1, from }, 3 } }; CUhandle handle; CUdeviceptr at;
  OK(p_cuCtxSetCurrent(contexts[from])); CUresult enabled = CALL(cuCtxEnablePeerAccess, (void *, unsigned), contexts[to], 0); if (!enabled) OK(CALL(cuCtxDisablePeerAccess, (void *), contexts[to]));
  OK(p_cuMemCreate(&handle, BYTES, &prop, 0)); OK(p_cuMemAddressReserve(&at, BYTES, 0, 0, 0)); OK(p_cuMemMap(at, BYTES, 0, handle, 0)); CUresult granted = p_cuMemSetAccess(at, BYTES, access, 2); int arrived = 0;
  if (!granted) { OK(written(&ks[from], at, BYTES, 5)); OK(p_cuCtxSetCurrent(contexts[to])); arrived = differing(&ks[to], at, BYTES, 5) == 0; }
  printf("enable %d %d=%d\ngrant %d %d=%d\nwrote %d %d=%d\n", from, to, enabled, from, to, granted, from, to, arrived);
  OK(p_cuMemUnmap(at, BYTES)); OK(p_cuMemRelease(handle)); OK(p_cuMemAddressFree(at, BYTES));
}
static void pair(int i, int j) {
  int can = 9, value = 9; unsigned ancestor = 999; const char *names[] = { "rank", "access", "atomic" };
  OK(CALL(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice), &can, i, j)); printf("can %d %d=%d\n", i, j, can);
  for (int a = 1; a <= 3; a++) { OK(CALL(cuDeviceGetP2PAttribute, (int *, int, CUdevice, CUdevice), &value, a, i, j)); printf("%s %d %d=%d\n", names[a - 1], i, j, value); }
  printf("nvml %d %d=", i, j); for (unsigned index = 0; index < 4; index++) { unsigned status = 99; int code = NVML(nvmlDeviceGetP2PStatus, (void *, void *, unsigned, unsigned *), cards[i], cards[j], index, &status); printf("%s%d", index ? "," : "", code ? -code : (int)status); } printf("\n");
  WANT(NVML(nvmlDeviceGetTopologyCommonAncestor, (void *, void *, unsigned *), cards[i], cards[j], &ancestor) == 0); printf("ancestor %d %d=%u\n", i, j, ancestor);
  works(i, j);
}

int main(int c, char **v) {
  if (c < 3) return 2;
  setvbuf(stdout, 0, _IOLBF, 0); resolve(v[1]); OK(p_cuInit(0)); WANT(NVML(nvmlInit_v2, (void)) == 0); OK(p_cuDeviceGetCount(&count)); WANT(count <= 16); printf("devices=%d\n", count);
  for (int i = 0; i < count; i++) { identify(i); OK(p_cuDevicePrimaryCtxRetain(&contexts[i], i)); OK(p_cuCtxSetCurrent(contexts[i])); ks[i] = kernels(v[2]); }
  for (int i = 0; i < count; i++) for (int j = 0; j < count; j++) if (i != j) pair(i, j);
  int can = 9, value = 9; WANT(CALL(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice), &can, 0, count) == 101 && CALL(cuDeviceGetP2PAttribute, (int *, int, CUdevice, CUdevice), &value, 2, count, 0) == 101);
  printf("done=1\n");
  return 0;
}
