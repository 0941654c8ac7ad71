// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A library that uses the GPU in its constructor: while it is loaded, and the loader's lock is
// held.
#include "sim.h"

__attribute__((constructor)) static void begin(void) {
    void *function = kernel("at_load", 5);
    for (int n = 0; n < 20; n++) launch(function, NULL);
    CHECK(cudaDeviceSynchronize());
}
