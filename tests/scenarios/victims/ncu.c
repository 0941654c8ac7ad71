// SPDX-License-Identifier: Apache-2.0
// Stands for Nsight Compute's launcher, which is known by its name: where CUDA_INJECTION64_PATH is
// set, here or in what it starts, there is no profile and exit code 1 ("Another tool/injection
// might be loaded since CUDA_INJECTION64_PATH is set", 2025.3 on an H100). It waits for what it
// started.
//
// usage: ncu PROGRAM [ARGUMENTS]     SIGN=NAME in the environment: what it starts has NAME, as a
//                                    tool's own sign
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *taken = getenv("CUDA_INJECTION64_PATH"), *sign = getenv("SIGN");
    int status = 0;
    pid_t child;
    if (taken) {
        fprintf(stderr, "==ERROR== Another tool/injection might be loaded since CUDA_INJECTION64_PATH is set to %s\n", taken);
        return 1;
    }
    if (argc < 2) return 2;
    child = fork();
    if (child == 0) {
        if (sign) setenv(sign, "49152", 1);
        execvp(argv[1], argv + 1);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return 3;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}
