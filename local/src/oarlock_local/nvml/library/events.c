/* Events: an event reaches each event set that was waiting for its type on that GPU, once, and none that came later.
 *
 * Events are words with a number that rises by one with each: `1:xid=79@4`, or `1:event=8/79@4` by type and data. A set
 * remembers, for each GPU and type that it is registered for, the last number that is not news to it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "words.h"

#define XID 0x8ull
/* All of an H100's; the power source is a laptop's, and so what cannot be registered for. */
#define SUPPORTED 0xFD1Full
#define SUPPORTED_BY_OLD 0x3D1Full

enum { TYPES = 16 };

struct set {
    long after[MOST_GPUS][TYPES]; /* -1 where it is not registered */
};
struct event {
    long gpu, number;
    unsigned long long type, data;
};
struct data {
    long handle;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

static int bit_of(unsigned long long type) { return __builtin_ctzll(type); }

/* Whether it is of one type that there is, on a GPU that there can be. */
static int is_known(const struct event *event) {
    int one_type = event->type && !(event->type & (event->type - 1)) && !(event->type & ~SUPPORTED);
    return one_type && event->gpu >= 0 && event->gpu < MOST_GPUS;
}

/* Read the first event at or behind `at`; returns where to look for the next, NULL after the last. */
static const char *next_event(const char *at, struct event *event) {
    while (*(at += strspn(at, " \n"))) {
        event->type = XID;
        int is_event = sscanf(at, "%ld:xid=%llu@%ld", &event->gpu, &event->data, &event->number) == 3 ||
                       sscanf(at, "%ld:event=%llu/%llu@%ld", &event->gpu, &event->type, &event->data,
                              &event->number) == 4;
        at += strcspn(at, " \n");
        if (is_event && is_known(event)) return at;
    }
    return NULL;
}

static long last_number(const char *text) {
    struct event event;
    const char *told = find_in(text, "seq");
    long last = told ? atol(told) : 0;
    for (const char *at = text; (at = next_event(at, &event));)
        if (event.number > last) last = event.number;
    return last;
}

static unsigned long long supported(void) { return find("old") ? SUPPORTED_BY_OLD : SUPPORTED; }

API int nvmlEventSetCreate(struct set **set) {
    if (find("noevents")) return NOT_SUPPORTED;
    *set = malloc(sizeof **set);
    if (!*set) abort();
    for (int gpu = 0; gpu < MOST_GPUS; gpu++)
        for (int bit = 0; bit < TYPES; bit++) (*set)->after[gpu][bit] = -1;
    return SUCCESS;
}
API int nvmlEventSetFree(struct set *set) {
    free(set);
    return SUCCESS;
}
API int nvmlDeviceGetSupportedEventTypes(long handle, unsigned long long *types) {
    *types = supported();
    return find("noevents") ? NOT_SUPPORTED : answer(handle);
}
API int nvmlDeviceRegisterEvents(long handle, unsigned long long types, struct set *set) {
    int said = answer(handle);
    if (said != SUCCESS) return said;
    if (find("noevents") || types & ~supported()) return NOT_SUPPORTED;
    long last = last_number(words());
    long *after = set->after[gpu_of(handle)];
    for (int bit = 0; bit < TYPES; bit++)
        if (types >> bit & 1 && after[bit] < 0) after[bit] = last;
    return SUCCESS;
}

/* Hand out the oldest event that is news to the set. */
static int take(struct set *set, const char *text, struct data *data) {
    struct event event, oldest = {.number = 0};
    for (const char *at = text; (at = next_event(at, &event));) {
        long after = set->after[event.gpu][bit_of(event.type)];
        if (after >= 0 && event.number > after && (!oldest.number || event.number < oldest.number)) oldest = event;
    }
    if (!oldest.number) return 0;
    set->after[oldest.gpu][bit_of(oldest.type)] = oldest.number;
    *data = (struct data){oldest.gpu + 1, oldest.type, oldest.data, ~0u, ~0u};
    return 1;
}

static int watches_a_lost_gpu(const struct set *set, const char *text) {
    for (int gpu = 0; gpu < MOST_GPUS; gpu++)
        for (int bit = 0; bit < TYPES; bit++)
            if (set->after[gpu][bit] >= 0 && find_of_in(text, gpu, "gone")) return 1;
    return 0;
}

static long long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

/* What has happened is told before a loss: an XID 79 and the end of its GPU come at the same moment. */
API int nvmlEventSetWait_v2(struct set *set, struct data *data, unsigned timeout) {
    for (long long end = milliseconds() + timeout;; usleep(NAP_MICROSECONDS)) {
        const char *text = words();
        if (find_in(text, "noevents")) return NOT_SUPPORTED;
        if (take(set, text, data)) return SUCCESS;
        if (watches_a_lost_gpu(set, text)) return LOST;
        if (milliseconds() >= end) return TIMED_OUT;
    }
}
