// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A program that asks for CUDA, gets none, and does its work without.
//
// usage: no_cuda plain | injected: injected calls InitializeInjection first, for a driver that
// fails after it has loaded
// the injection library. Asks three times through each API, the second time on another thread;
// prints what came back.
#define _GNU_SOURCE
#include "sim.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static void *ask(void *unused) {
    int count = -1, *memory = NULL;
    printf("cuInit %d", cuInit(0));
    printf(" count %d", cudaGetDeviceCount(&count));
    printf(" malloc %d", cudaMalloc((void **)&memory, 64));
    printf(" synchronize %d\n", cudaDeviceSynchronize());
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    int (*inject)(void) = dlsym(RTLD_DEFAULT, "InitializeInjection");
    if (!strcmp(argv[1], "injected") && inject) inject();
    ask(NULL);
    pthread_t other;
    pthread_create(&other, NULL, ask, NULL);
    pthread_join(other, NULL);
    usleep(300000);
    ask(NULL);
    printf("worked without\n");
    return 7;
}
