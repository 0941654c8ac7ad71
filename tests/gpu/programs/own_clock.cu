// SPDX-License-Identifier: Apache-2.0
// A launch-bound loop with the CUDA runtime linked in (nvcc's default): 200 small kernels, a value
// copied back, a wait.
//   --seconds S --out FILE     runs freely and keeps its own clock, as free.py
//   --answers PIPE [--held]    takes turns, as turns.py
// --gate: where it runs freely it waits for a line on stdin before it touches the GPU (a file
// `ready` says that it is there).
#include <ctype.h>
#include <vector>

#include "native.h"

enum { KERNELS = 200, LEAD = 2, WARM_UP = 6 };

__global__ void add(float* x, float by) { x[threadIdx.x] = x[threadIdx.x] * 0.999f + by; }
__global__ void last(float* x) { x[threadIdx.x] += 1.0f; }

struct Loop {
    cudaStream_t stream;
    float *x, *value;

    Loop() {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaMalloc((void**)&x, 32 * sizeof *x));
        CHECK(cudaMallocHost((void**)&value, sizeof *value));
        CHECK(cudaMemsetAsync(x, 0, 32 * sizeof *x, stream));
    }
    void step() {
        for (int k = 0; k < KERNELS; k++) add<<<1, 32, 0, stream>>>(x, 0.5f);
        last<<<1, 32, 0, stream>>>(x);
        CHECK(cudaMemcpyAsync(value, x, sizeof *value, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
};

static const char* text(int argc, char** argv, const char* name) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    return NULL;
}

static int has(int argc, char** argv, const char* name) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return 1;
    return 0;
}

static FILE* opened(const char* path) {
    FILE* f = fopen(path, "w");
    if (!f) {
        perror(path);
        exit(8);
    }
    return f;
}

static int run_freely(double seconds, const char* path) {
    Loop loop;
    std::vector<long long> at;
    const long long began = now_ns(CLOCK_MONOTONIC);
    for (;;) {
        at.push_back(now_ns(CLOCK_MONOTONIC) - began);
        if (at.back() >= seconds * 1e9) break;
        loop.step();
    }
    FILE* out = opened(path);
    fprintf(out, "{\"began_ns\": %lld, \"at_us\": [", began);
    for (size_t i = 0; i < at.size(); i++) fprintf(out, "%s%.3f", i ? ", " : "", at[i] / 1e3);
    fprintf(out, "]}\n");
    return fclose(out);
}

static int take_turns(const char* path, int held) {
    char line[64];
    FILE* answers = opened(path);
    if (held) {
        fprintf(answers, "{\"held\": true}\n");
        fflush(answers);
        if (!fgets(line, sizeof line, stdin)) return 0;
    }
    Loop loop;
    long all = 0;
    for (; all < WARM_UP; all++) loop.step();
    fprintf(answers, "{\"ready\": true}\n");
    fflush(answers);
    while (fgets(line, sizeof line, stdin) && isdigit((unsigned char)line[0])) {
        const long steps = atol(line);
        for (int i = 0; i < LEAD; i++) loop.step();
        std::vector<long long> at(1, now_ns(CLOCK_MONOTONIC));
        for (long i = 0; i < steps; i++) {
            loop.step();
            at.push_back(now_ns(CLOCK_MONOTONIC));
        }
        all += LEAD + steps;
        fprintf(answers, "{\"steps\": %ld, \"took_ms\": %.6f, \"all_steps\": %ld, \"steps_ms\": [", steps, (at.back() - at[0]) / 1e6, all);
        for (long i = 0; i < steps; i++) fprintf(answers, "%s%.6f", i ? ", " : "", (at[i + 1] - at[i]) / 1e6);
        fprintf(answers, "]}\n");
        fflush(answers);
    }
    return 0;
}

int main(int argc, char** argv) {
    const char* answers = text(argc, argv, "--answers");
    if (answers) return take_turns(answers, has(argc, argv, "--held"));
    const char *seconds = text(argc, argv, "--seconds"), *out = text(argc, argv, "--out");
    if (!seconds || !out) return 2;
    char line[64];
    if (has(argc, argv, "--gate")) {
        fclose(opened("ready"));
        if (!fgets(line, sizeof line, stdin)) return 0;
    }
    return run_freely(atof(seconds), out);
}
