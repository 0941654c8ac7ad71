// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A loop of marked steps that wait for the GPU in known ways, and that may hang.
//
// usage: waits STEPS HOST_US FORMS [HANG_AT [t]]
//   FORMS    the waits of a step, a letter each, every one behind a kernel of 300 us: s stream, d
//            device, e event, m blocking copy; the driver's: S stream, C context, E event; l: no
//            wait, and the kernel takes 0.7 s; w: 250 kernels before the first step; p: the price
//            of a wait that finds nothing to wait for
//   HANG_AT  at this step a collective is launched whose partner never comes
//   t        SIGTERM ends it by exit(), as a program that saves its work does
// Prints "launched N"; with p "price NS": what a call through a slot takes longer than the function
// itself, ns.
#include "gapprobe.h"
#include "sim.h"
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int cuStreamSynchronize(void *);
int cuCtxSynchronize(void);
int cuEventSynchronize(void *);

static void leave(int signal) {
    (void)signal;
    exit(0);
}

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

// The quickest of many batches: what other programs take of the CPU is in none of them.
static double quickest(int (*wait)(void *)) {
    double best = 1e18;
    for (int batch = 0; batch < 2000; batch++) {
        double from = now_ns();
        for (int n = 0; n < 100; n++) wait(NULL);
        double each = (now_ns() - from) / 100;
        if (each < best) best = each;
    }
    return best;
}

static int through_the_slot(void *stream) { return cudaStreamSynchronize(stream); }

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: waits STEPS HOST_US FORMS [HANG_AT [t]]\n");
        return 2;
    }
    long steps = atol(argv[1]), host_us = atol(argv[2]), launched = 0;
    long hang_at = argc > 4 ? atol(argv[4]) : -1;
    if (argc > 5) signal(SIGTERM, leave);
    if (hang_at >= 0) alarm(90); // a test that failed leaves nobody hanging
    void *work = kernel("work", 300), *long_work = kernel("long_work", 700e3), *all_reduce = kernel("ncclDevKernel_AllReduce", 3600e6);
    char *device, host[64] = {0};
    cudaEvent_t event;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc((void **)&device, 64));
    CHECK(cudaEventCreate(&event));
    for (int n = 0; strchr(argv[3], 'w') && n < 250; n++, launched++) launch(work, NULL);
    for (long step = 0; step < steps; step++) {
        gp_step();
        if (step == hang_at) launch(all_reduce, NULL);
        for (const char *form = argv[3]; *form && *form != 'p'; form++) {
            if (*form == 'w') continue;
            launch(*form == 'l' ? long_work : work, NULL);
            launched++;
            CHECK(cudaEventRecord(event, NULL));
            switch (*form) {
            case 's': CHECK(cudaStreamSynchronize(NULL)); break;
            case 'd': CHECK(cudaDeviceSynchronize()); break;
            case 'e': CHECK(cudaEventSynchronize(event)); break;
            case 'm': CHECK(cudaMemcpy(host, device, 64, 2)); break;
            case 'S': CHECK(cuStreamSynchronize(NULL)); break;
            case 'C': CHECK(cuCtxSynchronize()); break;
            case 'E': CHECK(cuEventSynchronize(event)); break;
            }
        }
        if (host_us) usleep(host_us);
    }
    if (strchr(argv[3], 'p')) {
        int (*itself)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "cudaStreamSynchronize");
        double direct = quickest(itself), through = quickest(through_the_slot);
        printf("price %.0f\n", through - direct);
    }
    printf("launched %ld\n", launched);
    return 0;
}
