// SPDX-License-Identifier: Apache-2.0
// A launch as the compiler makes it, by the kernel's symbol: what residue.c, which is C, cannot do
// itself.
#include <cuda_runtime.h>

__global__ void empty() {}

extern "C" void launch_symbol(cudaStream_t stream) { empty<<<1, 1, 0, stream>>>(); }
