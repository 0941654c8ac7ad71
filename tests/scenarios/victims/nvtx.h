/* SPDX-License-Identifier: Apache-2.0
 * What an object that holds NVTX v3 does, for victims: a table of function pointers of its own,
 * filled by the library that NVTX_INJECTION64_PATH names with the first call; calls through slots
 * that stayed empty do nothing. (Programs with the real headers are tested too: the Rust crate, the
 * Python package.)
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t colour_type;
    uint32_t colour;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
} nvtx_attributes;

typedef void (*nvtx_function)(void);
enum { NVTX_SLOTS = 16 };

/* One object's own slots of the modules CORE (1) and CORE2 (5). */
static nvtx_function nvtx_core[NVTX_SLOTS], nvtx_core2[NVTX_SLOTS];
static nvtx_function *nvtx_core_table[NVTX_SLOTS + 1], *nvtx_core2_table[NVTX_SLOTS + 1];

static int nvtx_module(uint32_t module, nvtx_function ***table, unsigned *size) {
    if (module != 1 && module != 5) return 0;
    for (int n = 1; n < NVTX_SLOTS; n++) {
        nvtx_core_table[n] = &nvtx_core[n];
        nvtx_core2_table[n] = &nvtx_core2[n];
    }
    *table = module == 1 ? nvtx_core_table : nvtx_core2_table;
    *size = NVTX_SLOTS;
    return 1;
}

static const void *nvtx_export(uint32_t table) {
    static const struct {
        size_t size;
        int (*module)(uint32_t, nvtx_function ***, unsigned *);
    } callbacks = {sizeof callbacks, nvtx_module};
    return table == 1 ? &callbacks : NULL;
}

/* The first call of the object; library: NULL for the one that NVTX_INJECTION64_PATH names. What
 * the tool answered. */
static int nvtx_load(void *library) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    if (!library && path) library = dlopen(path, RTLD_LAZY);
    int (*entry)(const void *(*)(uint32_t)) =
        library ? (int (*)(const void *(*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2") : NULL;
    return entry ? entry(nvtx_export) : -1;
}

#define NVTX_CALL(table, slot, neutral, type, ...) (table[slot] ? ((type)table[slot])(__VA_ARGS__) : (neutral))
#define NVTX_DO(table, slot, type, ...) ((void)(table[slot] ? (((type)table[slot])(__VA_ARGS__), 0) : 0))

#define nvtx_mark(name) NVTX_DO(nvtx_core, 2, void (*)(const char *), name)
#define nvtx_mark_ex(at) NVTX_DO(nvtx_core, 1, void (*)(const void *), at)
#define nvtx_start(name) NVTX_CALL(nvtx_core, 5, (uint64_t)0, uint64_t (*)(const char *), name)
#define nvtx_start_w(name) NVTX_CALL(nvtx_core, 6, (uint64_t)0, uint64_t (*)(const wchar_t *), name)
#define nvtx_start_ex(at) NVTX_CALL(nvtx_core, 4, (uint64_t)0, uint64_t (*)(const void *), at)
#define nvtx_end(id) NVTX_DO(nvtx_core, 7, void (*)(uint64_t), id)
#define nvtx_push(name) NVTX_CALL(nvtx_core, 9, -2, int (*)(const char *), name)
#define nvtx_push_w(name) NVTX_CALL(nvtx_core, 10, -2, int (*)(const wchar_t *), name)
#define nvtx_push_ex(at) NVTX_CALL(nvtx_core, 8, -2, int (*)(const void *), at)
#define nvtx_pop() NVTX_CALL(nvtx_core, 11, -2, int (*)(void), )
#define nvtx_name_thread(tid, name) NVTX_DO(nvtx_core, 14, void (*)(uint32_t, const char *), tid, name)
#define nvtx_domain_mark(d, at) NVTX_DO(nvtx_core2, 1, void (*)(void *, const void *), d, at)
#define nvtx_domain_start(d, at) NVTX_CALL(nvtx_core2, 2, (uint64_t)0, uint64_t (*)(void *, const void *), d, at)
#define nvtx_domain_end(d, id) NVTX_DO(nvtx_core2, 3, void (*)(void *, uint64_t), d, id)
#define nvtx_domain_push(d, at) NVTX_CALL(nvtx_core2, 4, -2, int (*)(void *, const void *), d, at)
#define nvtx_domain_pop(d) NVTX_CALL(nvtx_core2, 5, -2, int (*)(void *), d)
#define nvtx_register(d, text) NVTX_CALL(nvtx_core2, 10, NULL, void *(*)(void *, const char *), d, text)
#define nvtx_register_w(d, text) NVTX_CALL(nvtx_core2, 11, NULL, void *(*)(void *, const wchar_t *), d, text)
#define nvtx_domain(name) NVTX_CALL(nvtx_core2, 12, NULL, void *(*)(const char *), name)
#define nvtx_domain_destroy(d) NVTX_DO(nvtx_core2, 14, void (*)(void *), d)

/* Attributes with a message: 1 a C string, 2 a wide one, 3 registered. */
static inline nvtx_attributes nvtx_named(int type, const void *message) {
    nvtx_attributes a = {.version = 3, .size = sizeof a, .message_type = type, .message = message};
    return a;
}
