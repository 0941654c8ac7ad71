// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A program that ends as the file `way` in its folder says, by the same command line every time:
// segv, abort, sigkill, sigterm, _exit, or, without the file, in order.
//
// usage: crashes. Launches 100 kernels, prints "launched 100".
#include "sim.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    char way[16] = "";
    FILE *file = fopen("way", "r");
    if (file && !fgets(way, sizeof way, file)) way[0] = 0;
    void *function = kernel("last words", 20);
    for (int n = 0; n < 100; n++) launch(function, NULL);
    CHECK(cudaDeviceSynchronize());
    printf("launched 100\n");
    fflush(stdout);
    usleep(100000);
    if (!strcmp(way, "segv")) raise(SIGSEGV);
    if (!strcmp(way, "abort")) abort();
    if (!strcmp(way, "sigkill")) raise(SIGKILL);
    if (!strcmp(way, "sigterm")) raise(SIGTERM);
    if (!strcmp(way, "_exit")) _exit(4);
    return 0;
}
