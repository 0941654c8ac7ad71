// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// Waits that name a stream: each is for the stream that the launch before it went to.
//
// usage: streams ROUNDS: each makes a stream (whose handle may be that of the one before, which is
// gone), waits for it and lets it wait for an
// event, by the runtime and by the driver; the same with one that stays, and with the default
// stream. Prints "launched N".
#include "sim.h"

int cuStreamSynchronize(cudaStream_t);
int cuStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
int cudaStreamDestroy(cudaStream_t);

static void *work;
static cudaEvent_t event;
static long launched;

static void waits(cudaStream_t stream) {
    launch(work, stream);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaEventRecord(event, NULL));
    CHECK(cudaStreamWaitEvent(stream, event, 0));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamWaitEvent(stream, event, 0));
    launched++;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 10;
    cudaStream_t stays;
    CHECK(cudaSetDevice(0));
    work = kernel("work", 10);
    CHECK(cudaEventCreate(&event));
    CHECK(cudaStreamCreate(&stays));
    for (long round = 0; round < rounds; round++) {
        cudaStream_t goes;
        CHECK(cudaStreamCreate(&goes));
        waits(goes);
        waits(stays);
        CHECK(cudaStreamDestroy(goes));
        waits(NULL);
    }
    CHECK(cudaDeviceSynchronize());
    printf("launched %ld\n", launched);
    return 0;
}
