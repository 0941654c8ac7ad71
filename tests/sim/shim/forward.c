// SPDX-License-Identifier: Apache-2.0
// What a shim library does at the first call of each export: finds the engine (libcuda.so.1), tells
// it which release this library stands for, and stores the target. Built once per library and
// release with
//   SIM_LIBRARY_CUPTI or SIM_LIBRARY_CUDART, SIM_RELEASE (1300), NAMES (a file with one NAME(x)
//   line per export).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#define NAME(x) #x,
static const char *const names[] = {
#include NAMES
};
#undef NAME

extern void *sim_slots[] __attribute__((visibility("hidden")));

#ifdef SIM_LIBRARY_CUPTI
// No driver mapped: CUPTI_ERROR_NOT_INITIALIZED, as CUPTI 11.8 to 12.9 answer; the version is known
// all the same. Never loads the driver itself, and never crashes (real releases do).
#define MODE (RTLD_LAZY | RTLD_NOLOAD)
static int without_engine(void) { return 15; }
static int version_without_engine(uint32_t *out) {
    *out = SIM_API_VERSION;
    return 0;
}
#else
// No driver at all: cudaErrorInsufficientDriver, as the real runtime answers.
#define MODE RTLD_LAZY
static int without_engine(void) { return 35; }
#endif

__attribute__((visibility("hidden"))) void *sim_resolve(unsigned number) {
    void *engine = dlopen("libcuda.so.1", MODE);
    if (!engine) {
#ifdef SIM_LIBRARY_CUPTI
        if (number == 0) return (void *)version_without_engine;
#endif
        return (void *)without_engine;
    }
#ifdef SIM_LIBRARY_CUPTI
    void (*tell)(uint32_t, const void *) = (void (*)(uint32_t, const void *))dlsym(engine, "sim_cupti_attach");
    if (tell) tell(SIM_RELEASE, sim_slots);
#else
    void (*tell)(int) = (void (*)(int))dlsym(engine, "sim_cudart_version");
    if (tell) tell(SIM_RELEASE / 100 * 1000 + SIM_RELEASE % 100 * 10);
#endif
    char name[96];
    snprintf(name, sizeof name, "sim_%s", names[number]);
    void *target = dlsym(engine, name);
    if (!target) return (void *)without_engine;
    __atomic_store_n(&sim_slots[number], target, __ATOMIC_RELEASE);
    return target;
}
