// SPDX-License-Identifier: Apache-2.0
// Two streams of one device, one RATIO times busier than the other, for tests of rings that are
// lapped.
//
// usage: two_streams QUIET RATIO KERNEL_US: QUIET launches on the quiet stream, QUIET x RATIO on
// the busy one.
// Prints "launched N".
#include "sim.h"

int main(int argc, char **argv) {
    long quiet = argc > 1 ? atol(argv[1]) : 10, ratio = argc > 2 ? atol(argv[2]) : 1000;
    double us = argc > 3 ? atof(argv[3]) : 2;
    cudaStream_t busy_stream, quiet_stream;
    void *busy = kernel("busy_kernel", us), *rare = kernel("rare_kernel", us * 50);
    CHECK(cudaStreamCreateWithFlags(&busy_stream, 1));
    CHECK(cudaStreamCreateWithFlags(&quiet_stream, 1));
    for (long n = 0; n < quiet; n++) {
        for (long k = 0; k < ratio; k++) launch(busy, busy_stream);
        launch(rare, quiet_stream);
    }
    CHECK(cudaDeviceSynchronize());
    printf("launched %ld\n", quiet * (ratio + 1));
    return 0;
}
