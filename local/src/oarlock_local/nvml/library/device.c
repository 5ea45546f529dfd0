/* The library itself, which GPUs there are, and what anybody may ask of one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "words.h"

enum { LONGEST_NAME = 80 };

static int counted;

API int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (find("crash")) abort();
    while (find("hang")) usleep(NAP_MICROSECONDS);
    return number("noinit", SUCCESS);
}
API int nvmlShutdown(void) { return SUCCESS; }
API const char *nvmlErrorString(int error) { return error == LOST ? "GPU is lost" : "Some other error"; }

static int put(char *text, unsigned length, const char *value) {
    return snprintf(text, length, "%s", value) < (int)length ? SUCCESS : TOO_SMALL;
}

API int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    return put(text, length, find("old") ? "550.90.07" : "580.65.06");
}

/* Which GPUs */

static long there(void) { return number("gpus", 2); }

/* `before`, `node=`, `after`: the node's name keeps the GPUs of several nodes apart, and outlives a reboot. */
static void name_with_node(char *name, const char *before, const char *after) {
    const char *node = find("node");
    int length = node ? (int)strcspn(node, " \n") : 0;
    snprintf(name, LONGEST_NAME, "%s%.*s%s%s", before, length, node ? node : "", node ? "-" : "", after);
}

static void uuid_of(long gpu, char *uuid) {
    char end[32];
    snprintf(end, sizeof end, "%08ld", gpu);
    name_with_node(uuid, "GPU-", end);
}

API int nvmlDeviceGetCount_v2(unsigned *count) {
    counted++;
    *count = there();
    return SUCCESS;
}
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, long *handle) {
    hang_if_told();
    if (index >= there() || index >= MOST_GPUS) return INVALID;
    *handle = (long)index + 1;
    return find_of(index, "lost") || (find_of(index, "once") && counted < 2) ? LOST : SUCCESS;
}
API int nvmlDeviceGetHandleByUUID(const char *wanted, long *handle) {
    char uuid[LONGEST_NAME];
    for (long gpu = 0; gpu < there() && gpu < MOST_GPUS; gpu++) {
        uuid_of(gpu, uuid);
        if (!strcmp(uuid, wanted)) return nvmlDeviceGetHandleByIndex_v2(gpu, handle);
    }
    return NOT_FOUND;
}
API int nvmlDeviceGetIndex(long handle, unsigned *index) {
    hang_if_told();
    *index = gpu_of(handle);
    return SUCCESS;
}
API int nvmlDeviceGetUUID(long handle, char *text, unsigned length) {
    char uuid[LONGEST_NAME];
    hang_if_told();
    uuid_of(gpu_of(handle), uuid);
    return put(text, length, uuid);
}
API int nvmlDeviceGetSerial(long handle, char *text, unsigned length) {
    char serial[LONGEST_NAME], end[32];
    int said = answer(handle);
    if (said != SUCCESS) return said;
    snprintf(end, sizeof end, "16500%ld", gpu_of(handle));
    name_with_node(serial, "", end);
    return put(text, length, serial);
}
API int nvmlDeviceGetName(long handle, char *text, unsigned length) {
    int said = answer(handle);
    return said == SUCCESS ? put(text, length, "Pretended H100") : said;
}
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
API int nvmlDeviceGetPciInfo_v3(long handle, struct pci *pci) {
    hang_if_told();
    *pci = (struct pci){.bus = handle};
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", (unsigned char)handle);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02lX:00.0", handle);
    return SUCCESS;
}
API int nvmlDeviceGetModuleId(long handle, unsigned *module) {
    *module = gpu_of(handle);
    return answer(handle);
}

/* Who uses it, and how much */

API int nvmlDeviceGetMigMode(long handle, unsigned *current, unsigned *pending) {
    int said = answer(handle);
    *current = *pending = 1;
    return said != SUCCESS || find_of(gpu_of(handle), "mig") ? said : NOT_SUPPORTED;
}

static uint64_t used(long gpu) {
    long freed = counted < 2 ? number_of(gpu, "freed", 0) : 0;
    return (uint64_t)(number_of(gpu, "used", 0) + freed) << 20;
}
struct memory {
    uint64_t total, free, used;
};
API int nvmlDeviceGetMemoryInfo(long handle, struct memory *memory) {
    *memory = (struct memory){.total = 80ull << 30, .used = used(gpu_of(handle)) + (500ull << 20)};
    memory->free = memory->total - memory->used;
    return answer(handle);
}
struct memory2 {
    unsigned version;
    uint64_t total, reserved, free, used;
};
API int nvmlDeviceGetMemoryInfo_v2(long handle, struct memory2 *memory) {
    if (find("old")) return OTHER_VERSION;
    if (memory->version != 0x02000028) return INVALID;
    memory->total = 80ull << 30;
    memory->reserved = 500ull << 20;
    memory->used = used(gpu_of(handle));
    memory->free = memory->total - memory->reserved - memory->used;
    return answer(handle);
}

struct process {
    unsigned pid;
    uint64_t used;
    unsigned gpu_instance, compute_instance;
};
API int nvmlDeviceGetComputeRunningProcesses_v3(long handle, unsigned *count, struct process *processes) {
    unsigned running = find_of(gpu_of(handle), "process") != NULL;
    int enough = *count >= running;
    *count = running;
    if (running && enough) processes[0] = (struct process){.pid = 4711};
    return enough ? answer(handle) : TOO_SMALL;
}

/* Nobody computes on a pretended GPU: it is idle. */
API int nvmlDeviceGetPowerUsage(long handle, unsigned *milliwatts) {
    *milliwatts = 70000;
    return answer(handle);
}
struct utilization {
    unsigned gpu, memory;
};
API int nvmlDeviceGetUtilizationRates(long handle, struct utilization *percent) {
    *percent = (struct utilization){0, 0};
    return answer(handle);
}
