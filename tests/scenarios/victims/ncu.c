// SPDX-License-Identifier: Apache-2.0
// Stands for Nsight Compute's launcher, which is known by its name alone: it starts no program where CUDA_INJECTION64_PATH is set
// ("Another tool/injection might be loaded since CUDA_INJECTION64_PATH is set", 2025.3 on an H100).
//
// usage: ncu PROGRAM [ARGUMENTS]
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *taken = getenv("CUDA_INJECTION64_PATH");
    if (taken) {
        fprintf(stderr, "==ERROR== Another tool/injection might be loaded since CUDA_INJECTION64_PATH is set to %s\n", taken);
        return 1;
    }
    if (argc < 2) return 2;
    execvp(argv[1], argv + 1);
    return 127;
}
