/* M7: every function that the stand-in changes, with NULL and wrong arguments, before and after initialisation.
 * One line a case, "<moment> <symbol> <case> <code>", for comparison with the bare library; what a library lacks is "absent". */
#include <dlfcn.h>
#include <stdio.h>

typedef void *device;
static void *library;
static const char *moment;
#define CASE(symbol, label, signature, ...) do { \
    int (*call) signature = (int (*) signature)dlsym(library, #symbol); \
    if (call) printf("%s %s %s %d\n", moment, #symbol, label, call(__VA_ARGS__)); \
    else printf("%s %s %s absent\n", moment, #symbol, label); \
    fflush(stdout); \
} while (0)

/* Functions with one out-parameter after the device, and with a link number between them. */
#define ONE(symbol) CASE(symbol, "null", (device, void *), card, 0); CASE(symbol, "handle", (device, void *), 0, buffer)
#define LINK(symbol) CASE(symbol, "null", (device, unsigned, void *), card, 0, 0); CASE(symbol, "handle", (device, unsigned, void *), 0, 0, buffer); \
    CASE(symbol, "link", (device, unsigned, void *), card, 999, buffer)
#define LIST(symbol) CASE(symbol, "nulls", (device, unsigned *, void *), card, 0, 0); CASE(symbol, "handle", (device, unsigned *, void *), 0, &length, buffer)

static void cases(device card) {
    static char buffer[8192];
    unsigned length = 8, none = 0;
    device found;
    CASE(nvmlDeviceGetCount, "null", (unsigned *), 0);
    CASE(nvmlDeviceGetCount_v2, "null", (unsigned *), 0);
    CASE(nvmlDeviceGetHandleByIndex, "null", (unsigned, device *), 0, 0);
    CASE(nvmlDeviceGetHandleByIndex, "index", (unsigned, device *), 99, &found);
    CASE(nvmlDeviceGetHandleByIndex_v2, "null", (unsigned, device *), 0, 0);
    CASE(nvmlDeviceGetHandleByIndex_v2, "index", (unsigned, device *), 99, &found);
    CASE(nvmlDeviceGetHandleByUUID, "nulls", (const char *, device *), 0, 0);
    CASE(nvmlDeviceGetHandleByUUID, "null", (const char *, device *), 0, &found);
    CASE(nvmlDeviceGetHandleByUUID, "unknown", (const char *, device *), "GPU-no", &found);
    CASE(nvmlDeviceGetHandleByUUIDV, "nulls", (void *, device *), 0, 0);
    CASE(nvmlDeviceGetHandleBySerial, "nulls", (const char *, device *), 0, 0);
    CASE(nvmlDeviceGetHandleBySerial, "unknown", (const char *, device *), "none", &found);
    CASE(nvmlDeviceGetHandleByPciBusId, "nulls", (const char *, device *), 0, 0);
    CASE(nvmlDeviceGetHandleByPciBusId, "unknown", (const char *, device *), "0000:ff:1f.7", &found);
    CASE(nvmlDeviceGetHandleByPciBusId_v2, "nulls", (const char *, device *), 0, 0);
    CASE(nvmlDeviceGetHandleByPciBusId_v2, "unknown", (const char *, device *), "0000:ff:1f.7", &found);
    ONE(nvmlDeviceGetIndex);
    ONE(nvmlDeviceGetMemoryInfo);
    ONE(nvmlDeviceGetMemoryInfo_v2);
    CASE(nvmlDeviceGetMemoryInfo_v2, "version", (device, void *), card, buffer);
    CASE(nvmlDeviceGetTopologyNearestGpus, "null", (device, int, unsigned *, device *), card, 30, 0, 0);
    CASE(nvmlDeviceGetTopologyNearestGpus, "handle", (device, int, unsigned *, device *), 0, 30, &none, 0);
    CASE(nvmlSystemGetTopologyGpuSet, "null", (unsigned, unsigned *, device *), 0, 0, 0);
    LIST(nvmlDeviceGetComputeRunningProcesses);
    LIST(nvmlDeviceGetComputeRunningProcesses_v2);
    LIST(nvmlDeviceGetComputeRunningProcesses_v3);
    LIST(nvmlDeviceGetGraphicsRunningProcesses);
    LIST(nvmlDeviceGetGraphicsRunningProcesses_v2);
    LIST(nvmlDeviceGetGraphicsRunningProcesses_v3);
    LIST(nvmlDeviceGetMPSComputeRunningProcesses);
    LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2);
    LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3);
    LINK(nvmlDeviceGetNvLinkState);
    LINK(nvmlDeviceGetNvLinkVersion);
    CASE(nvmlDeviceGetNvLinkCapability, "null", (device, unsigned, int, unsigned *), card, 0, 0, 0);
    CASE(nvmlDeviceGetNvLinkCapability, "handle", (device, unsigned, int, unsigned *), 0, 0, 0, &length);
    LINK(nvmlDeviceGetNvLinkRemotePciInfo);
    LINK(nvmlDeviceGetNvLinkRemotePciInfo_v2);
    LINK(nvmlDeviceGetNvLinkRemoteDeviceType);
    ONE(nvmlDeviceGetGpuFabricInfo);
    ONE(nvmlDeviceGetGpuFabricInfoV);
}

int main(void) {
    device card = 0;
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) { printf("dlopen %s\n", dlerror()); return 2; }
    moment = "early";
    cases(card);
    if (((int (*)(void))dlsym(library, "nvmlInit_v2"))()) return 3;
    if (((int (*)(unsigned, device *))dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(0, &card)) return 4;
    moment = "ready";
    cases(card);
    if (((int (*)(void))dlsym(library, "nvmlShutdown"))()) return 5;
    moment = "late";
    cases(card);
    return 0;
}
