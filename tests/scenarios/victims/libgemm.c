// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A BLAS of one function: stands before the one that a PyTorch for the CPU calls, and launches a
// kernel on the simulated driver for each product, named by its sizes in ascending order. So an
// operator's forward and both products of its backward launch kernels of one name.
#include "sim.h"
#include <string.h>

static struct { char name[48]; void *kernel; } known[256];
static cudaStream_t stream;
static cudaGraph_t graph;

static void *named(const char *name) {
    for (int n = 0; n < 256; n++) {
        if (known[n].kernel && !strcmp(known[n].name, name)) return known[n].kernel;
        if (known[n].kernel) continue;
        strcpy(known[n].name, name);
        return known[n].kernel = kernel(known[n].name, 20);
    }
    abort();
}

static int element(char transposed, int row, int column, int leading) {
    return transposed == 'n' || transposed == 'N' ? row + column * leading : column + row * leading;
}

void sgemm_(char *ta, char *tb, int *m, int *n, int *k, float *alpha, float *a, int *lda, float *b, int *ldb, float *beta,
            float *c, int *ldc) {
    int sizes[3] = {*m, *n, *k};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2; i++)
            if (sizes[i] > sizes[i + 1]) {
                int larger = sizes[i];
                sizes[i] = sizes[i + 1];
                sizes[i + 1] = larger;
            }
    char name[48];
    snprintf(name, sizeof name, "gemm_%d_%d_%d", sizes[0], sizes[1], sizes[2]);
    launch(named(name), stream);
    for (int i = 0; i < *m; i++)
        for (int j = 0; j < *n; j++) {
            float sum = 0;
            for (int l = 0; l < *k; l++) sum += a[element(*ta, i, l, *lda)] * b[element(*tb, l, j, *ldb)];
            float *out = &c[i + j * *ldc];
            *out = *alpha * sum + (*beta == 0 ? 0 : *beta * *out);
        }
}

void synchronize(void) { CHECK(cudaDeviceSynchronize()); }

void begin_capture(void) {
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, 0));
}

void end_capture(void) { CHECK(cudaStreamEndCapture(stream, &graph)); }

void replay(int times) {
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    for (int n = 0; n < times; n++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
}
