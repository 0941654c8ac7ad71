// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A program that tells gapprobe what it does: steps, nested ranges on two threads, recording off
// for a while, and what it should not do: a pop too many, a hundred levels, a name of 500 bytes, a
// range left open.
//
// usage: marks STEPS. Prints "version N" of the library that is there (0: none), then "launched N".
#include "gapprobe.h"
#include "sim.h"
#include <pthread.h>
#include <string.h>

static void *function;

static void *helper(void *unused) {
    gp_range_push("helper");
    launch(function, NULL);
    gp_range_pop();
    return unused;
}

int main(int argc, char **argv) {
    long steps = argc > 1 ? atol(argv[1]) : 10, launched = 0;
    pthread_t thread;
    char name[501];
    function = kernel("marked", 20);
    printf("version %d\n", gp_version());
    launch(function, NULL);  // gapprobe begins with the first use of the device
    launched++;
    for (long step = 0; step < steps; step++) {
        gp_step();
        gp_range_push("forward");
        for (int layer = 0; layer < 4; layer++) {
            snprintf(name, sizeof name, "layer %d \xc3\xa4", layer);
            gp_range_push(name);
            launch(function, NULL);
            launched++;
            gp_range_pop();
        }
        gp_range_pop();
        CHECK(cudaDeviceSynchronize());
    }
    pthread_create(&thread, NULL, helper, NULL);
    pthread_join(thread, NULL);
    launched++;
    gp_capture(0);
    for (int k = 0; k < 50; k++, launched++) launch(function, NULL);
    CHECK(cudaDeviceSynchronize());
    gp_capture(1);
    gp_range_pop();
    for (int level = 0; level < 100; level++) gp_range_push("deep");
    for (int level = 0; level < 100; level++) gp_range_pop();
    memset(name, 'n', 500);
    name[500] = 0;
    gp_range_push(name);
    launch(function, NULL);
    launched++;
    CHECK(cudaDeviceSynchronize());
    printf("launched %ld\n", launched);
    return 0;
}
