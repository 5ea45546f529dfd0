/* What a GPU says of its own health: all that a monitor polls. A healthy one has counted nothing. */
#include <stdio.h>
#include <time.h>

#include "words.h"

enum { UNCORRECTED = 1, DEVICE_MEMORY = 2, LINKS = 18, LAST_LINK_COUNTER = 3, TYPICAL_MARGIN = 40, HIGHEST_CLOCK = 1980 };

/* NVML's temperature limits are margins: what is left until the clocks are cut is 0 or less when it is too late. */
enum { SLOWDOWN_MARGIN = -2, SHUTDOWN_MARGIN = -8, CELSIUS_AT_NO_MARGIN = 87, MEMORY_IS_HOTTER = 10 };

/* Memory */

API int nvmlDeviceGetTotalEccErrors(long handle, int kind, int since, unsigned long long *count) {
    (void)since; /* one boot is all that a pretended GPU has lived through */
    *count = number_of(gpu_of(handle), kind == UNCORRECTED ? "ecc" : "correctable", 0);
    return answer(handle);
}
API int nvmlDeviceGetMemoryErrorCounter(long handle, int kind, int since, int place, unsigned long long *count) {
    int said = nvmlDeviceGetTotalEccErrors(handle, kind, since, count);
    if (place != DEVICE_MEMORY) *count = 0;
    return said;
}

struct rows {
    unsigned correctable, uncorrectable, pending, failed;
};
static struct rows remapped(long gpu) {
    struct rows rows = {0, 0, 0, 0};
    const char *told = find_of(gpu, "remap");
    if (told) sscanf(told, "%u,%u,%u,%u", &rows.correctable, &rows.uncorrectable, &rows.pending, &rows.failed);
    return rows;
}
API int nvmlDeviceGetRemappedRows(long handle, unsigned *corr, unsigned *unc, unsigned *pending, unsigned *failed) {
    struct rows rows = remapped(gpu_of(handle));
    *corr = rows.correctable, *unc = rows.uncorrectable, *pending = rows.pending, *failed = rows.failed;
    return answer(handle);
}

struct sram {
    unsigned version;
    uint64_t aggregate[3], recent[3], buckets[5];
    unsigned threshold_exceeded;
};
API int nvmlDeviceGetSramEccErrorStatus(long handle, struct sram *sram) {
    int said = answer(handle);
    if (said != SUCCESS) return said;
    if (sram->version != 0x01000068) return OTHER_VERSION;
    if (!find_of(gpu_of(handle), "sram")) return NO_PERMISSION; /* as real drivers answer whoever is not root */
    *sram = (struct sram){.version = sram->version, .aggregate = {0, 1, 0}, .recent = {0, 1, 0}};
    sram->threshold_exceeded = 1;
    return SUCCESS;
}

/* NVLink and the fabric */

API int nvmlDeviceGetNvLinkState(long handle, unsigned link, unsigned *active) {
    if (link >= LINKS) return INVALID;
    *active = number_of(gpu_of(handle), "nvlink", -1) != (long)link;
    return answer(handle);
}
API int nvmlDeviceGetNvLinkErrorCounter(long handle, unsigned link, unsigned counter, unsigned long long *count) {
    if (link >= LINKS || counter > LAST_LINK_COUNTER) return INVALID;
    *count = number_of(gpu_of(handle), "nvlinkerrors", 0);
    return answer(handle);
}

struct fabric {
    unsigned version;
    uint8_t cluster[16];
    unsigned status;
    uint32_t clique;
    uint32_t state, health;
    uint8_t summary; /* only in the third version of the struct */
};
API int nvmlDeviceGetGpuFabricInfoV(long handle, struct fabric *fabric) {
    unsigned state = 3, status = SUCCESS, summary = 1; /* completed, healthy */
    int third = fabric->version == 0x03000028;
    if (!(third && !find("old")) && fabric->version != 0x02000024) return OTHER_VERSION;
    const char *told = find_of(gpu_of(handle), "fabric");
    if (told) sscanf(told, "%u/%u/%u", &state, &status, &summary);
    fabric->state = state;
    fabric->status = status;
    fabric->clique = 0;
    /* Cells of two bits, 1 = it is so, 2 = it is not: slow, recovering, no route, timeouts. Then: configured well. */
    fabric->health = summary == 2 ? 0x19A : 0x1AA;
    if (third) fabric->summary = summary;
    return answer(handle);
}

/* Heat and clocks */

static int margin(long gpu) { return number_of(gpu, "margin", TYPICAL_MARGIN); }
static int celsius(long gpu) { return CELSIUS_AT_NO_MARGIN - margin(gpu); }

API int nvmlDeviceGetTemperature(long handle, int sensor, unsigned *degrees) {
    (void)sensor;
    *degrees = celsius(gpu_of(handle));
    return answer(handle);
}
struct temperature {
    unsigned version, sensor;
    int degrees;
};
API int nvmlDeviceGetTemperatureV(long handle, struct temperature *temperature) {
    if (find("old")) return NO_SUCH_FUNCTION; /* what nvidia-ml-py makes of a missing symbol */
    if (temperature->version != 0x0100000C) return OTHER_VERSION;
    temperature->degrees = celsius(gpu_of(handle));
    return answer(handle);
}
struct margin {
    unsigned version;
    int degrees;
};
API int nvmlDeviceGetMarginTemperature(long handle, struct margin *left) {
    if (find("old")) return NO_SUCH_FUNCTION;
    if (left->version != 0x01000008) return OTHER_VERSION;
    left->degrees = margin(gpu_of(handle));
    return answer(handle);
}
API int nvmlDeviceGetCurrentClocksEventReasons(long handle, unsigned long long *reasons) {
    *reasons = number_of(gpu_of(handle), "reasons", 0);
    return answer(handle);
}
API int nvmlDeviceGetClockInfo(long handle, int of, unsigned *megahertz) {
    (void)of;
    *megahertz = number_of(gpu_of(handle), "clock", HIGHEST_CLOCK);
    return answer(handle);
}
API int nvmlDeviceGetMaxClockInfo(long handle, int of, unsigned *megahertz) {
    (void)of;
    *megahertz = HIGHEST_CLOCK;
    return answer(handle);
}

/* PCIe */

API int nvmlDeviceGetCurrPcieLinkGeneration(long handle, unsigned *generation) {
    *generation = number_of(gpu_of(handle), "pciegen", 5);
    return answer(handle);
}
API int nvmlDeviceGetMaxPcieLinkGeneration(long handle, unsigned *generation) {
    *generation = 5;
    return answer(handle);
}
API int nvmlDeviceGetCurrPcieLinkWidth(long handle, unsigned *lanes) {
    *lanes = number_of(gpu_of(handle), "pciewidth", 16);
    return answer(handle);
}
API int nvmlDeviceGetMaxPcieLinkWidth(long handle, unsigned *lanes) {
    *lanes = 16;
    return answer(handle);
}
API int nvmlDeviceGetPcieReplayCounter(long handle, unsigned *count) {
    *count = number_of(gpu_of(handle), "replays", 0);
    return answer(handle);
}

/* Field values: by number what has no function of its own */

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3, SIGNED_INT = 5 };
struct field {
    uint32_t id, scope;
    int64_t at, took;
    uint32_t type, result;
    union {
        double real;
        unsigned ui;
        unsigned long long ull;
        int si;
    } value;
};

static unsigned whole(struct field *field, unsigned value) {
    field->type = UNSIGNED_INT;
    field->value.ui = value;
    return SUCCESS;
}
static unsigned signed_whole(struct field *field, int value) {
    field->type = SIGNED_INT;
    field->value.si = value;
    return SUCCESS;
}
static unsigned counter(struct field *field, unsigned long long value) {
    field->type = UNSIGNED_LONG_LONG;
    field->value.ull = value;
    return SUCCESS;
}

static unsigned read_field(long gpu, struct field *field) {
    int old = find("old") != NULL;
    switch (field->id) {
        case 74: return counter(field, number_of(gpu, "powercap", 0)); /* ns below the wanted clocks, as 75 */
        case 75: return counter(field, number_of(gpu, "swthermal", 0));
        case 82: return whole(field, celsius(gpu) + MEMORY_IS_HOTTER);
        case 94: return whole(field, number_of(gpu, "replays", 0));
        case 142: return whole(field, remapped(gpu).correctable);
        case 143: return whole(field, remapped(gpu).uncorrectable);
        case 144: return whole(field, remapped(gpu).pending);
        case 145: return whole(field, remapped(gpu).failed);
        case 161: /* NVLink replays, recoveries, CRC errors */
        case 162:
        case 163: return field->scope < LINKS ? counter(field, number_of(gpu, "nvlinkerrors", 0)) : INVALID;
        case 193: return signed_whole(field, SHUTDOWN_MARGIN);
        case 194: return signed_whole(field, SLOWDOWN_MARGIN);
        case 230: return old ? NOT_SUPPORTED : whole(field, number_of(gpu, "action", 0));
        case 269: return old ? NOT_SUPPORTED : counter(field, number_of(gpu, "swthermal", 0));
        case 270: return old ? NOT_SUPPORTED : counter(field, number_of(gpu, "thermal", 0));
        case 271: return old ? NOT_SUPPORTED : counter(field, number_of(gpu, "powerbrake", 0));
        default: return NOT_SUPPORTED;
    }
}

API int nvmlDeviceGetFieldValues(long handle, int count, struct field *fields) {
    int said = answer(handle);
    if (said != SUCCESS) return said;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        fields[i].at = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
        fields[i].result = read_field(gpu_of(handle), &fields[i]);
    }
    return SUCCESS;
}
