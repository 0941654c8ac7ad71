// SPDX-License-Identifier: Apache-2.0
// A relaxation on a grid in plain CUDA C++, the runtime linked statically, no Python: it waits for
// the GPU in every step to look at the residual, and the GPU waits for the host to launch the next
// one. The options are those of causes/frame.py.
//
//   --form slow    looks at it in every step        --form fixed   every 100 steps
//   --form win     both in turn, a block of each: what the fix really wins
#include <algorithm>
#include <string>
#include <vector>

#include "native.h"

// Two grids of 9 MB: a few microseconds a sweep, and as long again for the host to see the end and
// launch the next one.
static const int SIDE = 1536, SWEEPS = 4, WARMUP = 50, LOOK_EVERY = 100;
static const double BLOCK_MS = 100;

__global__ void sweep(const float* from, float* to, unsigned* residual, int look) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= SIDE - 1 || y >= SIDE - 1) return;
    const int i = y * SIDE + x;
    const float next = 0.25f * (from[i - 1] + from[i + 1] + from[i - SIDE] + from[i + SIDE]);
    to[i] = next;
    // one cell stands for all: it is the waiting that costs, not what is looked at
    if (look && x == SIDE / 2 && y == SIDE / 2) {
        *(volatile unsigned*)residual = __float_as_uint(fabsf(next - from[i]));
        __threadfence_system();
    }
}

struct Grid {
    float* cells[2];
    unsigned* residual;  // pinned, so that the host sees it without a copy
    cudaStream_t stream;
    unsigned seen;
};

static Grid made() {
    Grid g;
    const size_t bytes = sizeof(float) * SIDE * SIDE;
    std::vector<float> edge(SIDE, 1.0f);
    CHECK(cudaStreamCreateWithFlags(&g.stream, cudaStreamNonBlocking));
    for (float*& cells : g.cells) {
        CHECK(cudaMalloc(&cells, bytes));
        CHECK(cudaMemset(cells, 0, bytes));
        CHECK(cudaMemcpy(cells, edge.data(), sizeof(float) * SIDE, cudaMemcpyHostToDevice));
    }
    CHECK(cudaHostAlloc((void**)&g.residual, sizeof *g.residual, cudaHostAllocMapped));
    *g.residual = g.seen = 0;
    CHECK(cudaDeviceSynchronize());
    return g;
}

static void step(Grid& g, long i, int look_every) {
    const dim3 block(32, 8), blocks((SIDE + block.x - 1) / block.x, (SIDE + block.y - 1) / block.y);
    for (int s = 0; s < SWEEPS; s++)
        sweep<<<blocks, block, 0, g.stream>>>(g.cells[s % 2], g.cells[(s + 1) % 2], g.residual, s == SWEEPS - 1);
    if (i % look_every == look_every - 1) {
        CHECK(cudaStreamSynchronize(g.stream));
        g.seen = *g.residual;
    }
}

static double ms_a_step(Grid& g, int look_every, long steps) {
    CHECK(cudaDeviceSynchronize());
    const long long began = now_ns(CLOCK_MONOTONIC);
    for (long i = 0; i < steps; i++) step(g, i, look_every);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    return (now_ns(CLOCK_MONOTONIC) - began) / 1e6 / steps;
}

static bool has(int argc, char** argv, const char* name) {
    return std::any_of(argv + 1, argv + argc, [name](const char* a) { return strcmp(a, name) == 0; });
}

int main(int argc, char** argv) {
    const char** at = (const char**)std::find_if(argv + 1, argv + argc, [](const char* a) { return strcmp(a, "--form") == 0; });
    const std::string form = at + 1 < (const char**)argv + argc ? at[1] : "slow";
    const long steps = option(argc, argv, "--steps", 8000), rounds = option(argc, argv, "--rounds", 7);
    if (form != "slow" && form != "fixed" && form != "win") {
        fprintf(stderr, "native_sync: no form %s\n", form.c_str());
        return 2;
    }
    Grid g = made();
    if (has(argc, argv, "--gate")) {
        fclose(fopen("ready", "w"));
        getchar();
    }
    const int every[2] = {1, LOOK_EVERY};
    for (int look_every : every)
        if (form == "win") ms_a_step(g, look_every, WARMUP);
    if (form != "win") {
        for (long i = 0; i < WARMUP; i++) step(g, i, form == "slow" ? 1 : LOOK_EVERY);
        const double ms = ms_a_step(g, form == "slow" ? 1 : LOOK_EVERY, steps);
        printf("{\"program\": \"native_sync\", \"form\": \"%s\", \"true_steps\": %ld, \"step_ms\": %.6f, \"residual\": %u}\n",
               form.c_str(), WARMUP + steps, ms, g.seen);
        return 0;
    }
    std::string found[2];
    for (long k = 0; k < rounds; k++)
        for (int n = 0; n < 2; n++) {
            const int which = (n + k) % 2;
            const long length = std::max(LOOK_EVERY * 2L, (long)(BLOCK_MS / ms_a_step(g, every[which], LOOK_EVERY)) / LOOK_EVERY * LOOK_EVERY);
            found[which] += (found[which].empty() ? "" : ", ") + std::to_string(ms_a_step(g, every[which], length));
        }
    printf("{\"program\": \"native_sync\", \"form\": \"win\", \"rounds_ms\": {\"slow\": [%s], \"fixed\": [%s]}, \"residual\": %u}\n",
           found[0].c_str(), found[1].c_str(), g.seen);
    return 0;
}
