// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A program whose streams are closed and which writes to them all the same, as a library that logs
// does: whatever is opened under their numbers is written to.
//
// usage: closed_io STEPS
// Exits with 70 plus the number of streams that took what was written.
#include "sim.h"
#include <pthread.h>
#include <unistd.h>

static volatile int taken[3];

static void *logs(void *unused) {
    for (;;)
        for (int fd = 0; fd < 3; fd++)
            if (write(fd, "of the program\n", 15) > 0) taken[fd] = 1;
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    for (int fd = 0; fd < 3; fd++) close(fd);
    pthread_t thread;
    void *function = kernel("gemm", 20);
    pthread_create(&thread, NULL, logs, NULL);
    for (long step = 0; step < atol(argv[1]); step++) {
        for (int k = 0; k < 20; k++) launch(function, NULL);
        CHECK(cudaDeviceSynchronize());
    }
    return 70 + taken[0] + taken[1] + taken[2];
}
