// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A training step for Python to call (pauses.py): twelve launches and one that comes once, then a
// wait.
#include "sim.h"

static void *layer, *update;

void prepare(void) {
    CHECK(cudaSetDevice(0));
    layer = kernel("layer", 10);
    update = kernel("update", 20);
}

void step(void) {
    for (int n = 0; n < 12; n++) launch(layer, NULL);
    launch(update, NULL);
    CHECK(cudaStreamSynchronize(NULL));
}
