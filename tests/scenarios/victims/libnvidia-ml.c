// SPDX-License-Identifier: Apache-2.0
// A stand-in for NVIDIA's management library: two devices, in another order than the simulated
// driver's, known by their UUIDs ("SIMULATED-GPU-00" and "...01" in hexadecimal). FAKE_NVML: slow
// (reading the power takes 300 ms), hang (for ever), mig (the devices are cut into slices), uuid
// (no device by UUID), old (no counters), denied (they may not be read).
#include <stdlib.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

struct device {
    const char *uuid;
    unsigned number;
};

static struct device devices[2] = {{"GPU-53494d55-4c41-5445-442d-4750552d3031", 1},
                                   {"GPU-53494d55-4c41-5445-442d-4750552d3030", 0}};

static int is(const char *what) {
    const char *mode = getenv("FAKE_NVML");
    return mode && !strcmp(mode, what);
}

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **out) {
    for (int n = 0; n < 2 && !is("uuid"); n++)
        if (!strcmp(uuid, devices[n].uuid)) {
            *out = &devices[n];
            return 0;
        }
    return 6;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, struct device **out) {
    (void)address, (void)out;
    return 6;
}

int nvmlDeviceGetUtilizationRates(struct device *d, unsigned out[2]) {
    out[0] = 70 + d->number, out[1] = 5;
    return 0;
}

int nvmlDeviceGetPowerUsage(struct device *d, unsigned *out) {
    if (is("slow")) usleep(300000);
    if (is("hang")) pause();
    *out = 400000 + d->number;
    return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(struct device *d, unsigned *out) {
    *out = 700000 + d->number;
    return 0;
}

int nvmlDeviceGetClockInfo(struct device *d, unsigned which, unsigned *out) {
    *out = which == 1 ? 1500 + d->number : 1;
    return 0;
}

int nvmlDeviceGetMaxClockInfo(struct device *d, unsigned which, unsigned *out) {
    *out = which == 1 ? 1980 + d->number : 1;
    return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *d, unsigned long long *out) {
    *out = (1ull << 40) + 4 + d->number;
    return 0;
}

int nvmlDeviceGetMemoryInfo(struct device *d, unsigned long long out[3]) {
    out[0] = 80ull << 30, out[1] = 1, out[2] = (33ull << 30) + d->number;
    return 0;
}

int nvmlDeviceGetMigMode(struct device *d, unsigned *now, unsigned *pending) {
    (void)d;
    *now = *pending = is("mig");
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *d, unsigned *count, void *infos) {
    (void)infos;
    *count = 2 + d->number;
    return 7; // there is no room for them
}

struct sample {
    struct device *device;
    int taken;
};

struct metrics {
    unsigned version, count;
    struct sample *from, *to;
    struct {
        unsigned id;
        int result;
        double value;
        char *texts[3];
    } all[];
};

int nvmlGpmQueryDeviceSupport(struct device *d, unsigned support[2]) {
    (void)d;
    if (support[0] != 1) return 2;
    support[1] = !is("old");
    return 0;
}

int nvmlGpmSampleAlloc(struct sample **out) {
    *out = calloc(1, sizeof **out);
    return 0;
}

int nvmlGpmSampleGet(struct device *d, struct sample *out) {
    static int taken;
    if (is("denied")) return 4;
    out->device = d, out->taken = ++taken;
    return 0;
}

// Each metric's value is its id and a quarter; NVLink has none.
int nvmlGpmMetricsGet(struct metrics *m) {
    if (m->version != 1 || m->from->device != m->to->device || m->from->taken + 1 != m->to->taken) return 2;
    for (unsigned n = 0; n < m->count; n++) {
        m->all[n].result = m->all[n].id >= 60 ? 3 : 0;
        m->all[n].value = m->all[n].id + 0.25;
    }
    return 0;
}
