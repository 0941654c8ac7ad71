// SPDX-License-Identifier: Apache-2.0
// A program that profiles itself with CUPTI half-way, as torch.profiler (Kineto) does in a PyTorch
// process: libcupti is among its NEEDED libraries, the calls go through the PLT, the subscription
// is taken once and never released.
//
// usage: kineto_cupti [KERNELS] [PROFILES] [HOW]
//   KERNELS   launched before, during and after each profile (100)
//   PROFILES  how many profiles (2)
//   HOW       plt (default), or dlsym: resolves CUPTI itself, as XLA and Triton do, unsubscribes
//             after each profile; or subscribe: takes the subscription and asks for no records; or
//             kinds_first: switches its kinds on before it registers its buffers; or teardown: as
//             Kineto with TEARDOWN_CUPTI=1, asks for callbacks after each profile and tears CUPTI
//             down in the exit of the next call of the runtime; teardown_late: that call comes
//             after a pause
// Prints a line per profile: "profile N: subscribe R, kernels K of E, copies C of F, others O",
// then "launched N"; with teardown how often that was done before. Exit code 1 when a profile
// missed an event or saw one that is not its own.
#include "sim.h"
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

typedef int (*any)();
int cuptiSubscribe(void **, void (*)(void), void *);
int cuptiUnsubscribe(void *);
int cuptiActivityRegisterCallbacks(void (*)(uint8_t **, size_t *, size_t *),
                                   void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
int cuptiActivityEnable(int);
int cuptiActivityDisable(int);
int cuptiActivityFlushAll(uint32_t);
int cuptiActivityGetNextRecord(uint8_t *, size_t, uint8_t **);
int cuptiEnableDomain(uint32_t, void *, int);
int cuptiFinalize(void);

static any subscribe = (any)cuptiSubscribe, unsubscribe = (any)cuptiUnsubscribe, enable = (any)cuptiActivityEnable,
           disable = (any)cuptiActivityDisable, flush = (any)cuptiActivityFlushAll,
           register_buffers = (any)cuptiActivityRegisterCallbacks, next = (any)cuptiActivityGetNextRecord;
static long kernels, copies, others, torn_down;
static int held = -1, is_to_be_torn_down;
static void *subscriber;

static void requested(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 4 << 20;
    *buffer = aligned_alloc(8, *size);
    *records = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    uint8_t *record = NULL;
    while (valid && next(buffer, valid, &record) == 0) {
        int kind = *(int *)record;
        if (kind == 10) kernels++;
        else if (kind == 1) copies++;
        else if (kind == 38) others++;  // SYNCHRONIZATION is not among what Kineto enables: somebody else's
    }
    free(buffer);
}

static void called(void *user, int domain, uint32_t call, const int *site) {
    if (!is_to_be_torn_down || domain != 2 || *site != 1) return;  // RUNTIME_API, CUPTI_API_EXIT
    unsubscribe(subscriber);
    cuptiFinalize();
    is_to_be_torn_down = 0;
    held = -1;
    torn_down++;
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 100, profiles = argc > 2 ? atol(argv[2]) : 2, launched = 0;
    int by_dlsym = argc > 3 && !strcmp(argv[3], "dlsym"), code = 0;
    int records = argc <= 3 || strcmp(argv[3], "subscribe"), kinds_first = argc > 3 && !strcmp(argv[3], "kinds_first");
    int tears_down = argc > 3 && !strncmp(argv[3], "teardown", 8), late = argc > 3 && !strcmp(argv[3], "teardown_late");
    void *function = kernel("torch_kernel", 5), *device, *host;
    static const int kinds[] = {1, 2, 10, 39, 5, 4, 17};
    if (by_dlsym) {
        void *cupti = dlopen("libcupti.so", RTLD_LAZY);
        subscribe = (any)dlsym(cupti, "cuptiSubscribe");
        unsubscribe = (any)dlsym(cupti, "cuptiUnsubscribe");
        enable = (any)dlsym(cupti, "cuptiActivityEnable");
        disable = (any)dlsym(cupti, "cuptiActivityDisable");
        flush = (any)dlsym(cupti, "cuptiActivityFlushAll");
        register_buffers = (any)dlsym(cupti, "cuptiActivityRegisterCallbacks");
        next = (any)dlsym(cupti, "cuptiActivityGetNextRecord");
    }
    CHECK(cudaMalloc(&device, 1 << 20));
    CHECK(cudaMallocHost(&host, 1 << 20));
    for (long profile = 0; profile < profiles; profile++) {
        for (long k = 0; k < count; k++, launched++) launch(function, NULL);
        CHECK(cudaDeviceSynchronize());
        usleep(50000);
        kernels = copies = others = 0;
        if (held != 0) held = subscribe(&subscriber, (void (*)(void))called, NULL);
        if (records && !kinds_first) register_buffers(requested, completed);
        for (size_t k = 0; records && k < sizeof kinds / sizeof *kinds; k++) enable(kinds[k]);
        if (kinds_first) register_buffers(requested, completed);
        for (long k = 0; k < count; k++, launched++) launch(function, NULL);
        for (int k = 0; k < 5; k++) CHECK(cudaMemcpyAsync(device, host, 1 << 20, 1, NULL));
        CHECK(cudaDeviceSynchronize());
        for (size_t k = 0; records && k < sizeof kinds / sizeof *kinds; k++) disable(kinds[k]);
        if (records) flush(1);
        if (by_dlsym && held == 0) {
            unsubscribe(subscriber);
            held = -1;
        }
        printf("profile %ld: subscribe %d, kernels %ld of %ld, copies %ld of 5, others %ld\n", profile,
               held == -1 ? 0 : held, kernels, count, copies, others);
        if (held > 0 || kernels != records * count || copies != records * 5 || others) code = 1;
        if (tears_down && held == 0) {
            cuptiEnableDomain(1, subscriber, 2);
            flush(1);
            is_to_be_torn_down = 1;
            if (late) usleep(300000);
        }
        for (long k = 0; k < count; k++, launched++) launch(function, NULL);
        CHECK(cudaDeviceSynchronize());
        usleep(300000);
    }
    if (tears_down) printf("torn down %ld\n", torn_down);
    printf("launched %ld\n", launched);
    return code;
}
