// SPDX-License-Identifier: Apache-2.0
// link: -O2 -fomit-frame-pointer -fcf-protection=none -lcudart -lcuda
// CUDA called from functions of C, in every place that a stack can be. Function N fills N bytes and
// then waits, so that the recording tells by itself from where each call came: N is the size of the
// memset.
//
// usage: callers two|recursion|coroutine|handler|fork [ROUNDS]
//        callers waits [ROUNDS]                  waits for kernels that fill the GPU, in function_4: SYNC
//        callers launches [ROUNDS]              function N launches kernel_N, and `shared` with it;
//                                               2 `stubbed`, too, by a function of that name
//        callers threads THREADS [ROUNDS]
//        callers plugins A.so B.so [ROUNDS]     loads them in turn, one at a time; their functions
//        are 1001 and 1002
//        callers cost [CALLS]                    prints "call NS" for waits from one place
#define _GNU_SOURCE
#include "sim.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static void *memory;

#define WAITS(n)                                                    \
    __attribute__((noinline)) static void function_##n(void) {      \
        CHECK(cudaMemsetAsync(memory, 0, n, NULL));                 \
        CHECK(cudaStreamSynchronize(NULL));                         \
        __asm__ volatile("");                                       \
    }
WAITS(1)
WAITS(2)
WAITS(3)
WAITS(4)
static void (*const functions[])(void) = {function_1, function_2, function_3, function_4};

__attribute__((noinline)) static int recurse(int depth) {
    volatile char frame[64];
    frame[depth % 64] = 1;
    if (depth == 0) {
        function_3();
        return frame[0];
    }
    int below = recurse(depth - 1);
    if (depth % 50 == 0) function_4();
    return below + frame[depth % 64];
}

static void *kernels[4];

// As a kernel's own function on the host's side, that nvcc makes.
__attribute__((noinline)) void stubbed(void) {
    CHECK(cudaLaunchKernel(kernels[3], (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL));
    __asm__ volatile("");
}

#define LAUNCHES(n)                                                                                    \
    __attribute__((noinline)) static void launch_##n(void) {                                           \
        CHECK(cudaLaunchKernel(kernels[n], (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL));          \
        CHECK(cudaLaunchKernel(kernels[0], (dim3){1, 1, 1}, (dim3){n, 1, 1}, NULL, 0, NULL));          \
        if (n == 2) stubbed();                                                                         \
        __asm__ volatile("");                                                                          \
    }
LAUNCHES(1)
LAUNCHES(2)

static ucontext_t outside, inside;

static void coroutine(void) {
    for (int n = 0;; n++) {
        functions[n % 2]();
        swapcontext(&inside, &outside);
    }
}

static void handler(int number) {
    (void)number;
    function_2();
}

static pthread_barrier_t together;

static void *thread(void *number) {
    char *rest;
    long rounds = strtol(getenv("ROUNDS"), &rest, 10);
    functions[0]();
    pthread_barrier_wait(&together);  // each has its ring, or none is left
    for (long n = 0; n < rounds; n++) {
        functions[(long)number % 4]();
        usleep(300);
    }
    return NULL;
}

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    const char *mode = words[1];
    int is_threads = !strcmp(mode, "threads"), is_plugins = !strcmp(mode, "plugins");
    int at = 2 + is_threads + 2 * is_plugins;
    long rounds = count > at ? atol(words[at]) : 200;
    char text[32];
    snprintf(text, sizeof text, "%ld", rounds);
    setenv("ROUNDS", text, 1);
    CHECK(cudaMalloc(&memory, 4096));
    if (!strcmp(mode, "two")) {
        for (long n = 0; n < rounds; n++) {
            functions[n % 2]();
            usleep(300);
        }
    } else if (!strcmp(mode, "waits")) {
        void *gemm = kernel("gemm", 40);
        dim3 blocks = {4096, 1, 1}, threads = {256, 1, 1};
        for (long n = 0; n < rounds; n++) {
            for (int k = 0; k < 8; k++) {
                CHECK(cudaLaunchKernel(gemm, blocks, threads, NULL, 0, NULL));
                function_4();
            }
            for (int k = 0; k < 3; k++) CHECK(cudaLaunchKernel(gemm, blocks, threads, NULL, 0, NULL));
        }
    } else if (!strcmp(mode, "launches")) {
        kernels[0] = kernel("shared", 5), kernels[1] = kernel("kernel_1", 5), kernels[2] = kernel("kernel_2", 5);
        kernels[3] = kernel("stubbed", 5);
        for (long n = 0; n < rounds; n++) {
            launch_1();
            launch_2();
            usleep(300);
        }
        CHECK(cudaDeviceSynchronize());
    } else if (!strcmp(mode, "recursion")) {
        for (long n = 0; n < rounds; n++) {
            recurse(n * 7 % 500);
            usleep(300);
        }
    } else if (!strcmp(mode, "coroutine")) {
        // as small as a callback can live on; the page behind it is not mapped
        size_t bytes = 64 << 10;
        char *stack = aligned_alloc(4096, bytes);
        getcontext(&inside);
        inside.uc_stack.ss_sp = stack;
        inside.uc_stack.ss_size = bytes;
        inside.uc_link = &outside;
        makecontext(&inside, coroutine, 0);
        for (long n = 0; n < rounds; n++) {
            swapcontext(&outside, &inside);
            function_3();
            usleep(300);
        }
    } else if (!strcmp(mode, "handler")) {
        stack_t other = {.ss_sp = malloc(128 << 10), .ss_size = 128 << 10};
        sigaltstack(&other, NULL);
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
        sigaction(SIGUSR1, &action, NULL);
        for (long n = 0; n < rounds; n++) {
            raise(SIGUSR1);
            function_1();
            usleep(300);
        }
    } else if (!strcmp(mode, "fork")) {
        for (long n = 0; n < rounds; n++) {
            functions[n % 2]();
            if (n % 20 == 0) {
                pid_t child = fork();
                if (child == 0) {
                    cudaStreamSynchronize(NULL);
                    _exit(0);
                }
                waitpid(child, NULL, 0);
            }
        }
    } else if (is_threads) {
        long number = atol(words[2]);
        pthread_t all[64];
        pthread_barrier_init(&together, NULL, number < 64 ? number : 64);
        for (long n = 0; n < number && n < 64; n++) pthread_create(&all[n], NULL, thread, (void *)n);
        for (long n = 0; n < number && n < 64; n++) pthread_join(all[n], NULL);
    } else if (is_plugins) {
        for (long n = 0; n < rounds; n++) {
            void *library = dlopen(words[2 + n % 2], RTLD_NOW);
            if (!library) {
                fprintf(stderr, "%s\n", dlerror());
                return 3;
            }
            void (*entry)(void *) = (void (*)(void *))dlsym(library, "entry");
            for (int k = 0; k < 3; k++) entry(memory);
            if (n % 16 < 4) usleep(120000);  // now and then the recorder sees them one by one
            if (n % 16 < 2) entry(memory);
            if (n % 16 < 4) usleep(120000);
            dlclose(library);
        }
    } else if (!strcmp(mode, "cost")) {
        double best = 1e9;
        for (int block = 0; block < 40; block++) {
            double from = now_ns();
            for (long n = 0; n < rounds; n++) CHECK(cudaStreamSynchronize(NULL));
            double each = (now_ns() - from) / rounds;
            if (each < best) best = each;
            usleep(120000);  // the drain thread empties the ring
        }
        printf("call %.1f\n", best);
    } else {
        return 2;
    }
    printf("done\n");
    return 0;
}
