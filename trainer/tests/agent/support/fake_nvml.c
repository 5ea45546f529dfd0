/* A libnvidia-ml.so.1 with the calls that the check before the start uses, and faults on order.
 *
 * FAKE_NVML holds words, separated by spaces:
 *   gpus=8         how many there are (default 2)
 *   old            a driver without recovery actions, and without the newer form of the memory call
 *   noinit=999     nvmlInit fails with this error
 *   hang, crash    nvmlInit never returns, or ends the process
 *   1:lost         the handle of GPU 1 can't be had any more
 *   1:gone         the handle can be had, but every question to it says that it is lost
 *   1:once         as lost, but only until the GPUs are counted again
 *   1:error=999    every question to it fails with this error
 *   1:action=4     its recovery action
 *   1:used=2048    MiB of its memory in use; 1:freed=2048 only until the GPUs are counted again
 *   1:process      a compute process is on it
 *   1:mig          it is partitioned
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INVALID = 2, SMALL = 7, LOST = 15, FIELD_ACTION = 230, UNSIGNED_INT = 1 };

static int counted;

static const char *find(const char *name) {
    const char *text = getenv("FAKE_NVML");
    size_t length = strlen(name);
    for (const char *at = text ? strstr(text, name) : NULL; at; at = strstr(at + 1, name))
        if ((at == text || at[-1] == ' ') && strchr("= ", at[length])) /* strchr also finds the terminating 0 */
            return at + length + (at[length] == '=');
    return NULL;
}

static const char *find_of(long gpu, const char *name) {
    char full[32];
    snprintf(full, sizeof full, "%ld:%s", gpu, name);
    return find(full);
}

static long number(const char *value, long otherwise) { return value ? atol(value) : otherwise; }

static int answer(long gpu) {
    if (find_of(gpu, "gone")) return LOST;
    return number(find_of(gpu, "error"), SUCCESS);
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (find("crash")) abort();
    while (find("hang")) pause();
    return number(find("noinit"), SUCCESS);
}
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int error) { return error == LOST ? "GPU is lost" : "Some other error"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    counted++;
    *count = number(find("gpus"), 2);
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, long *handle) {
    *handle = (long)index + 1; /* none is 0 */
    if (find_of(index, "lost") || (find_of(index, "once") && counted < 2)) return LOST;
    return SUCCESS;
}
int nvmlDeviceGetUUID(long handle, char *text, unsigned length) {
    snprintf(text, length, "GPU-%08ld", handle - 1);
    return SUCCESS;
}
int nvmlDeviceGetSerial(long handle, char *text, unsigned length) {
    snprintf(text, length, "16500%ld", handle - 1);
    return answer(handle - 1);
}
int nvmlDeviceGetName(long handle, char *text, unsigned length) {
    snprintf(text, length, "Pretended H100");
    return answer(handle - 1);
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(long handle, struct pci *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02lX:00.0", handle);
    return SUCCESS;
}
int nvmlDeviceGetMigMode(long handle, unsigned *current, unsigned *pending) {
    *current = *pending = find_of(handle - 1, "mig") != NULL;
    return find_of(handle - 1, "mig") ? SUCCESS : NOT_SUPPORTED;
}
struct field { uint32_t id, scope; int64_t at, took; uint32_t type, result; union { uint32_t ui; double d; } value; };
int nvmlDeviceGetFieldValues(long handle, int count, struct field *fields) {
    for (int i = 0; i < count; i++) {
        fields[i].result = find("old") || fields[i].id != FIELD_ACTION ? NOT_SUPPORTED : SUCCESS;
        fields[i].type = UNSIGNED_INT;
        fields[i].value.ui = number(find_of(handle - 1, "action"), 0);
    }
    return answer(handle - 1);
}
static uint64_t used(long gpu) {
    long freed = counted < 2 ? number(find_of(gpu, "freed"), 0) : 0;
    return (uint64_t)(number(find_of(gpu, "used"), 0) + freed) << 20;
}
struct memory { uint64_t total, free, used; };
int nvmlDeviceGetMemoryInfo(long handle, struct memory *memory) {
    *memory = (struct memory){80ull << 30, 0, used(handle - 1) + (500ull << 20)};
    return answer(handle - 1);
}
struct memory2 { unsigned version; uint64_t total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(long handle, struct memory2 *memory) {
    if (find("old")) return 25; /* ARGUMENT_VERSION_MISMATCH */
    if (memory->version != 0x02000028) return INVALID;
    memory->used = used(handle - 1);
    return answer(handle - 1);
}
struct process { unsigned pid; uint64_t used; unsigned gpu_instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(long handle, unsigned *count, struct process *processes) {
    unsigned there = find_of(handle - 1, "process") != NULL;
    int enough = *count >= there;
    *count = there;
    if (there && enough) processes[0] = (struct process){4711, 0, 0, 0};
    return enough ? answer(handle - 1) : SMALL;
}
