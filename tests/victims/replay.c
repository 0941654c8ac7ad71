// SPDX-License-Identifier: Apache-2.0
// Replays a recording of raw CUPTI records (SIM_REPLAY=FILE) to whatever profiler is in this
// process.
//
// usage: replay [SPEED]: 1 as recorded, 0 at once (default). Prints "replayed N" records.
#include "sim.h"

long simReplay(double speed);

int main(int argc, char **argv) {
    CHECK(cuInit(0));
    CHECK(cudaSetDevice(0));
    long records = simReplay(argc > 1 ? atof(argv[1]) : 0);
    printf("replayed %ld\n", records);
    return records < 0;
}
