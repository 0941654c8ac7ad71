// SPDX-License-Identifier: Apache-2.0
// Two devices (SIM_DEVICES=2): kernels on both, a peer copy, and a stream that waits for an event
// of another stream.
//
// usage: devices [ROUNDS]. Prints "launched N".
#include "sim.h"

int cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, cudaStream_t);

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 10, launched = 0;
    void *producer = kernel("producer", 200), *consumer = kernel("consumer", 50), *other = kernel("second_device", 80);
    void *here, *there;
    cudaStream_t first, second, remote;
    cudaEvent_t ready;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&there, 1 << 20));
    CHECK(cudaStreamCreateWithFlags(&remote, 1));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&here, 1 << 20));
    CHECK(cudaStreamCreateWithFlags(&first, 1));
    CHECK(cudaStreamCreateWithFlags(&second, 1));
    CHECK(cudaEventCreate(&ready));
    for (long round = 0; round < rounds; round++) {
        launch(producer, first);
        CHECK(cudaEventRecord(ready, first));
        CHECK(cudaStreamWaitEvent(second, ready, 0));
        launch(consumer, second);
        CHECK(cudaMemcpyPeerAsync(there, 1, here, 0, 1 << 20, second));
        CHECK(cudaEventSynchronize(ready));
        CHECK(cudaStreamSynchronize(second));
        CHECK(cudaSetDevice(1));
        launch(other, remote);
        CHECK(cudaStreamSynchronize(remote));
        CHECK(cudaSetDevice(0));
        launched += 3;
    }
    CHECK(cudaDeviceSynchronize());
    printf("launched %ld\n", launched);
    return 0;
}
