/* M10: one program looks through every window at once. Usage: windows [<bytes to take> [pause]]
 * Prints one line a moment: "<moment> cuda-device=… cuda-total=… cuda-free=… v1-total=… v1-free=… v1-used=… v2-total=… v2-free=… v2-used=… own=…".
 * With bytes to take, the second moment holds them and the last has given them back; `pause` looks again at every line of stdin between. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef void *device;
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

static void *cuda, *nvml;
static device card;
static void *find(void *library, const char *name) {
    void *address = dlsym(library, name);
    if (!address) { printf("missing %s\n", name); exit(3); }
    return address;
}
#define CALL(library, name, signature, ...) do { \
    int code = ((int (*) signature)find(library, name))(__VA_ARGS__); \
    if (code) { printf("%s -> %d\n", name, code); exit(4); } \
} while (0)

static void look(const char *moment) {
    size_t device_total, total, free;
    struct memory one = {0};
    struct memory_v2 two = { .version = sizeof two | (2u << 24) };
    struct process list[64];
    unsigned length = 64;
    unsigned long long own = 0;
    CALL(cuda, "cuDeviceTotalMem_v2", (size_t *, int), &device_total, 0);
    CALL(cuda, "cuMemGetInfo_v2", (size_t *, size_t *), &free, &total);
    CALL(nvml, "nvmlDeviceGetMemoryInfo", (device, struct memory *), card, &one);
    CALL(nvml, "nvmlDeviceGetMemoryInfo_v2", (device, struct memory_v2 *), card, &two);
    CALL(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", (device, unsigned *, struct process *), card, &length, list);
    for (unsigned at = 0; at < length; at++) if (list[at].pid == (unsigned)getpid()) own = list[at].used;
    printf("%s cuda-device=%zu cuda-total=%zu cuda-free=%zu v1-total=%llu v1-free=%llu v1-used=%llu"
           " v2-total=%llu v2-free=%llu v2-used=%llu own=%llu\n",
           moment, device_total, total, free, one.total, one.free, one.used, two.total, two.free, two.used + two.reserved, own);
}

int main(int count, char **words) {
    void *context;
    unsigned long long at;
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!cuda || !nvml) { printf("dlopen %s\n", dlerror()); return 2; }
    /* Numba and others leave the version out: that must not lead past the pool. */
    if (dlopen("libcuda.so", RTLD_NOW) != cuda || dlopen("libnvidia-ml.so", RTLD_NOW) != nvml) { printf("another library without version\n"); return 5; }
    CALL(cuda, "cuInit", (unsigned), 0);
    CALL(nvml, "nvmlInit_v2", (void));
    CALL(nvml, "nvmlDeviceGetHandleByIndex_v2", (unsigned, device *), 0, &card);
    CALL(cuda, "cuDevicePrimaryCtxRetain", (void **, int), &context, 0);
    CALL(cuda, "cuCtxSetCurrent", (void *), context);
    look("before");
    if (count > 1) {
        CALL(cuda, "cuMemAlloc_v2", (unsigned long long *, size_t), &at, strtoull(words[1], 0, 10));
        look("during");
        for (char line[64]; count > 2 && fflush(stdout) == 0 && fgets(line, sizeof line, stdin);) look("again");
        CALL(cuda, "cuMemFree_v2", (unsigned long long), at);
        look("after");
    }
    return 0;
}
