// SPDX-License-Identifier: Apache-2.0
// Forks after CUDA was initialised, as a DataLoader with fork workers does: CHILDREN children do
// host work and leave.
//
// usage: fork_after CHILDREN [WAY]: WAY is how a child leaves, "exit" (runs exit handlers), "_exit"
// or "exec" (true).
// Each child also asks the driver for a launch and expects an error, as CUDA gives after fork.
// Prints "launched N".
#include "sim.h"
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    long children = argc > 1 ? atol(argv[1]) : 2;
    const char *way = argc > 2 ? argv[2] : "exit";
    void *function = kernel("parent_work", 20);
    long launched = 0;
    for (int k = 0; k < 100; k++, launched++) launch(function, NULL);
    CHECK(cudaDeviceSynchronize());
    for (long c = 0; c < children; c++) {
        pid_t child = fork();
        if (child == 0) {
            dim3 one = {1, 1, 1};
            if (cudaLaunchKernel(function, one, one, NULL, 0, NULL) == 0) _exit(91);
            usleep(20000);
            if (!strcmp(way, "_exit")) _exit(0);
            if (!strcmp(way, "exec")) execlp("true", "true", (char *)NULL);
            exit(0);
        }
        int status = 0;
        for (int k = 0; k < 10; k++, launched++) launch(function, NULL);
        waitpid(child, &status, 0);
        if (status != 0) {
            fprintf(stderr, "child: status %x\n", status);
            return 92;
        }
    }
    CHECK(cudaDeviceSynchronize());
    printf("launched %ld\n", launched);
    return 0;
}
