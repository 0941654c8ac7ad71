// SPDX-License-Identifier: Apache-2.0
// A plain CUDA C++ program, the CUDA runtime linked statically: no libcudart, no libcupti in the
// process.
#include <vector>

#include "native.h"

__global__ void scale(float* x, float by, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * by + 1.0f;
}

int main() {
    const int n = 1 << 22, steps = 2000;
    std::vector<float> host(n, 1.0f);
    float* device;
    CHECK(cudaMalloc(&device, n * sizeof(float)));
    long kernels = 0;
    for (int i = 0; i < steps; i++) {
        if (i % 50 == 0) CHECK(cudaMemcpy(device, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
        for (int k = 0; k < 4; k++, kernels++) scale<<<(n + 255) / 256, 256>>>(device, 0.5f, n);
    }
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host.data(), device, n * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    printf("{\"program\": \"plain\", \"kernels\": %ld, \"first\": %.6f}\n", kernels, host[0]);
    return 0;
}
