// SPDX-License-Identifier: Apache-2.0
// Steps with the CUDA runtime linked in, nvcc's default: ten kernels and one that comes once, not
// marked. --threads N: so many threads do that side by side. Prints the steps, the launches, and
// what the kernels made of their numbers.
#include <thread>
#include <vector>

#include "native.h"

__global__ void add(float* x, float by) { x[threadIdx.x] = x[threadIdx.x] * 0.999f + by; }
__global__ void last(float* x) { x[threadIdx.x] += 1.0f; }

static void train(long steps, float by, float* result) {
    cudaStream_t stream;
    float* x;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc((void**)&x, 32 * sizeof *x));
    CHECK(cudaMemsetAsync(x, 0, 32 * sizeof *x, stream));
    for (long step = 0; step < steps; step++) {
        for (int k = 0; k < 10; k++) add<<<1, 32, 0, stream>>>(x, by);
        last<<<1, 32, 0, stream>>>(x);
        if (step % 8 == 7) CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(result, x, sizeof *x, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(x));
}

int main(int argc, char** argv) {
    const long steps = option(argc, argv, "--steps", 100000), threads = option(argc, argv, "--threads", 1);
    std::vector<float> results(threads);
    std::vector<std::thread> all;
    for (long n = 0; n < threads; n++) all.emplace_back(train, steps, 0.5f + n, &results[n]);
    for (auto& one : all) one.join();
    printf("{\"program\": \"static_steps\", \"true_steps\": %ld, \"launches\": %ld, \"result\": \"", steps, 11 * steps * threads);
    for (float one : results) printf("%a ", one);
    printf("\"}\n");
    return 0;
}
