// SPDX-License-Identifier: Apache-2.0
// What gapprobe's own code costs a launch: blocks of empty launches on one pinned core, gapprobe's
// callbacks and buffer handlers swapped for empty ones (bare CUPTI) in every other block. Prints
// all blocks; the statistics are the runner's. Without gapprobe loaded all blocks are plain: the
// base.
#include "native.h"

__global__ void empty() {}

static void block(long launches, double* wall, double* cpu) {
    for (int i = 0; i < 64; i++) empty<<<1, 32>>>();  // past the switch, and the queue is not empty
    const long long w = now_ns(CLOCK_MONOTONIC), c = now_ns(CLOCK_THREAD_CPUTIME_ID);
    for (long i = 0; i < launches; i++) empty<<<1, 32>>>();
    *cpu = (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - c) / launches;
    *wall = (double)(now_ns(CLOCK_MONOTONIC) - w) / launches;
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
}

int main(int argc, char** argv) {
    const long pairs = option(argc, argv, "--pairs", 300), launches = option(argc, argv, "--launches", 800);
    const switch_fn bare = gapprobe_switch("gapprobe_test_bare");
    CHECK(cudaFree(0));
    empty<<<1, 32>>>();
    CHECK(cudaDeviceSynchronize());
    pin((int)option(argc, argv, "--core", -1));
    double* seen = (double*)calloc(pairs * 4, sizeof(double));
    for (int warm = 0; warm < 20; warm++) block(launches, &seen[0], &seen[1]);
    for (long k = 0; k < pairs; k++)
        for (int turn = 0; turn < 2; turn++) {
            const int is_bare = (int)((k + turn) & 1);  // A B, B A, A B ...
            if (bare) bare(is_bare);
            block(launches, &seen[k * 4 + is_bare * 2], &seen[k * 4 + is_bare * 2 + 1]);
        }
    if (bare) bare(0);
    printf("{\"program\": \"cost_launch\", \"switch\": %s, \"launches\": %ld, \"blocks\": [", bare ? "true" : "false", launches);
    for (long k = 0; k < pairs; k++)  // ours wall, ours cpu, bare wall, bare cpu: ns a launch
        printf("%s[%.1f, %.1f, %.1f, %.1f]", k ? ", " : "", seen[k * 4], seen[k * 4 + 1], seen[k * 4 + 2], seen[k * 4 + 3]);
    printf("]}\n");
    return 0;
}
