// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// Closes stderr, opens a data file (which gets descriptor 2), then uses the device and writes its
// data.
//
// usage: stderr_is_data FILE. Prints "launched N".
#include "sim.h"
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    close(2);
    if (argc < 2 || open(argv[1], O_CREAT | O_WRONLY, 0644) != 2) return 80;
    void *function = kernel("work", 10);
    for (int row = 0; row < 100; row++) {
        launch(function, NULL);
        if (dprintf(2, "row %d\n", row) < 0) return 81;
    }
    CHECK(cudaDeviceSynchronize());
    printf("launched 100\n");
    return 0;
}
