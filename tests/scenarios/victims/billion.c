// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// As many kernels as one likes (of 0.45 us: some two million a second), in steps of 1,000: launched
// one by one, then as the nodes of a graph.
//
// usage: billion PLAIN NODES. Prints after each tenth of the steps "tenth N rss KB threads T files
// F", then "launched N".
#include "sim.h"
#include <dirent.h>
#include <unistd.h>

enum { STEP = 1000, NAMES = 4 };
static void *functions[NAMES];
static cudaStream_t stream;

static long entries(const char *folder) {
    long count = 0;
    DIR *open = opendir(folder);
    while (open && readdir(open)) count++;
    if (open) closedir(open);
    return count - 3;  // itself, its parent, and for descriptors the one that looks
}

static void look(long tenth) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    if (file) fclose(file);
    printf("tenth %ld rss %ld threads %ld files %ld\n", tenth, resident * (sysconf(_SC_PAGESIZE) / 1024),
           entries("/proc/self/task") + 1, entries("/proc/self/fd"));
    fflush(stdout);
}

static void kernels(void) {
    for (int k = 0; k < STEP; k++) launch(functions[k % NAMES], stream);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long plain = atol(argv[1]) / STEP, nodes = atol(argv[2]) / STEP, steps = plain + nodes, next = 1;
    static const char *const names[NAMES] = {"gemm_forward", "gelu", "layer_norm", "gemm_backward"};
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    for (int n = 0; n < NAMES; n++) functions[n] = kernel(names[n], 0.45);
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
    CHECK(cudaStreamBeginCapture(stream, 0));
    kernels();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    for (long step = 0; step < steps; step++) {
        if (step < plain) kernels();
        else CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        if ((step + 1) * 10 >= next * steps) look(next++);
    }
    printf("launched %ld\n", steps * STEP);
    return 0;
}
