// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// Changes its current directory before or after its first use of the GPU, as daemons and launchers
// do.
//
// usage: goes_elsewhere FOLDER early|late [remove]. With "remove" the folder it was started in is
// removed then.
// Prints "launched 100".
#include "sim.h"
#include <string.h>
#include <unistd.h>

static void go(const char *folder, int is_to_remove) {
    char *started_in = getcwd(NULL, 0);
    if (chdir(folder) != 0) exit(81);
    if (is_to_remove && rmdir(started_in) != 0) exit(82);
    free(started_in);
}

int main(int argc, char **argv) {
    if (argc < 3) return 80;
    int is_early = strcmp(argv[2], "early") == 0;
    if (is_early) go(argv[1], argc > 3);
    void *function = kernel("work", 10);
    for (int k = 0; k < 100; k++) launch(function, NULL);
    CHECK(cudaDeviceSynchronize());
    if (!is_early) go(argv[1], argc > 3);
    printf("launched 100\n");
    return 0;
}
