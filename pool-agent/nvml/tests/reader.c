/* An ordinary NVML program: prints what it sees, one "key value" a line. Usage: reader <foreign uuid> <foreign pci bus id> */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef void *device;
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

static void *library;
#define CALL(name, signature) ((int (*) signature)find(name))
static void *find(const char *name) {
    void *address = dlsym(library, name);
    if (!address) { printf("missing %s\n", name); fflush(stdout); _Exit(3); }
    return address;
}

int main(int count, char **words) {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) { printf("dlopen %s\n", dlerror()); return 2; }
    printf("init %d\n", CALL("nvmlInit_v2", (void))());
    unsigned devices = 99;
    printf("count-status %d\n", CALL("nvmlDeviceGetCount_v2", (unsigned *))(&devices));
    printf("count %u\n", devices);
    device card = 0;
    printf("index-1 %d\n", CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned, device *))(1, &card));
    printf("index-0 %d\n", CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned, device *))(0, &card));
    char text[96] = "";
    CALL("nvmlDeviceGetUUID", (device, char *, unsigned))(card, text, sizeof text);
    printf("uuid %s\n", text);
    unsigned index = 99;
    CALL("nvmlDeviceGetIndex", (device, unsigned *))(card, &index);
    printf("index %u\n", index);
    struct memory memory = {0};
    printf("memory-status %d\n", CALL("nvmlDeviceGetMemoryInfo", (device, struct memory *))(card, &memory));
    printf("total %llu\nfree %llu\nused %llu\n", memory.total, memory.free, memory.used);
    struct memory_v2 second = { .version = sizeof second | (2u << 24) };
    printf("memory-v2-status %d\n", CALL("nvmlDeviceGetMemoryInfo_v2", (device, struct memory_v2 *))(card, &second));
    printf("total-v2 %llu\nfree-v2 %llu\nsum-v2 %llu\n", second.total, second.free, second.reserved + second.free + second.used);
    unsigned state = 0;
    printf("nvlink %d\n", CALL("nvmlDeviceGetNvLinkState", (device, unsigned, unsigned *))(card, 0, &state));
    struct process list[64];
    unsigned length = 64;
    printf("processes %d\n", CALL("nvmlDeviceGetComputeRunningProcesses_v3", (device, unsigned *, struct process *))(card, &length, list));
    if (count > 2) {
        device other = (device)1;
        printf("by-uuid %d\n", CALL("nvmlDeviceGetHandleByUUID", (const char *, device *))(words[1], &other));
        printf("by-uuid-handle %d\n", other != 0);
        printf("by-pci %d\n", CALL("nvmlDeviceGetHandleByPciBusId_v2", (const char *, device *))(words[2], &other));
        printf("own-uuid %d\n", CALL("nvmlDeviceGetHandleByUUID", (const char *, device *))(text, &other));
    }
    char name[96] = "";
    printf("name-status %d\n", CALL("nvmlDeviceGetName", (device, char *, unsigned))(card, name, sizeof name));
    printf("name %s\n", name);
    return 0;
}
