// SPDX-License-Identifier: Apache-2.0
// link: -Wl,--no-as-needed -lcupti -lcudart -lcuda
// A client of CUPTI as Kineto (linked, through the PLT) that profiles a program whose other threads
// never stop launching.
//
// usage: kineto_threads PROFILES
// Prints "profiles N, buffers of others M": M buffers were handed to it that it had not lent.
#include "sim.h"
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

int cuptiSubscribe(void **, void *, void *), cuptiActivityEnable(int), cuptiActivityDisable(int);
int cuptiActivityFlushAll(uint32_t), cuptiActivityRegisterCallbacks(void *, void *), cuptiUnsubscribe(void *);

enum { THREADS = 3, MOST = 1 << 16, SIZE = 64 << 10 };
static void *function, *lent[MOST];
static int stop, handed, foreign;

static void requested(uint8_t **buffer, size_t *size, size_t *records) {
    *buffer = aligned_alloc(8, SIZE);
    *size = SIZE;
    *records = 0;
    int n = __atomic_fetch_add(&handed, 1, __ATOMIC_SEQ_CST);
    if (n < MOST) __atomic_store_n(&lent[n], *buffer, __ATOMIC_SEQ_CST);
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    for (int n = __atomic_load_n(&handed, __ATOMIC_SEQ_CST); n-- > 0;) {
        void *own = buffer;
        if (n < MOST && __atomic_compare_exchange_n(&lent[n], &own, NULL, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            free(buffer);
            return;
        }
    }
    __atomic_fetch_add(&foreign, 1, __ATOMIC_SEQ_CST);  // the real one would free it, and die
}

static void called(void) {}

static void *work(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        for (int k = 0; k < 50; k++) launch(function, NULL);
        CHECK(cudaDeviceSynchronize());
    }
    return unused;
}

int main(int argc, char **argv) {
    long profiles = argc > 1 ? atol(argv[1]) : 10;
    pthread_t threads[THREADS];
    void *subscriber = NULL;
    function = kernel("torch_kernel", 2);
    launch(function, NULL);
    for (int t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, work, NULL);
    cuptiSubscribe(&subscriber, called, NULL);
    for (long profile = 0; profile < profiles; profile++) {
        usleep(5000);
        cuptiActivityRegisterCallbacks(requested, completed);
        cuptiActivityEnable(10);
        usleep(5000);
        cuptiActivityDisable(10);
        cuptiActivityFlushAll(1);
        if (profile % 8 == 7) usleep(450000);  // time for another client of CUPTI to come back
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    printf("profiles %ld, buffers of others %d\n", profiles, __atomic_load_n(&foreign, __ATOMIC_SEQ_CST));
    return 0;
}
