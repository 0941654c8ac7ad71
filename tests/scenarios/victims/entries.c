// SPDX-License-Identifier: Apache-2.0
// link: -rdynamic -lcudart -lcuda
// A program that calls whatever gapprobe offers to C: its own functions and every slot of NVTX's
// tables, from two threads, and forks. What they answer is not printed: without gapprobe it is
// another answer, or none.
//
// usage: entries. Prints "child 0", "launched N".
#include "gapprobe.h"
#include "nvtx.h"
#include "sim.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

extern void gapprobe_test_bare(int on) __attribute__((weak));

static void *function;
static long launched;

static void step(void) {
    gp_step();
    gp_range_push("step");
    launch(function, NULL);
    __sync_fetch_and_add(&launched, 1);
    gp_range_pop();
    CHECK(cudaDeviceSynchronize());
}

static void nvtx(void (*work)(void)) {
    void *domain = nvtx_domain("a domain");
    NVTX_CALL(nvtx_core2, 13, NULL, void *(*)(const wchar_t *), L"a wide domain");
    nvtx_attributes a = nvtx_named(3, nvtx_register(domain, "registered")), t = nvtx_named(1, "text");
    nvtx_register_w(domain, L"wide");
    NVTX_DO(nvtx_core, 15, void (*)(uint32_t, const wchar_t *), (uint32_t)getpid(), L"wide name");
    nvtx_name_thread(getpid(), "name");
    nvtx_mark("mark"), nvtx_mark_ex(&t);
    NVTX_DO(nvtx_core, 3, void (*)(const wchar_t *), L"wide mark");
    nvtx_end(nvtx_start("start")), nvtx_end(nvtx_start_w(L"wide start")), nvtx_end(nvtx_start_ex(&t));
    nvtx_push("push"), nvtx_push_w(L"wide push"), nvtx_push_ex(&a);
    work();
    nvtx_pop(), nvtx_pop(), nvtx_pop();
    nvtx_domain_mark(domain, &a);
    nvtx_domain_end(domain, nvtx_domain_start(domain, &a));
    nvtx_domain_push(domain, &t);
    work();
    nvtx_domain_pop(domain);
    nvtx_domain_destroy(domain);
}

static void *thread(void *unused) {
    nvtx(step);
    return unused;
}

int main(void) {
    pthread_t other;
    int status;
    nvtx_load(NULL);
    function = kernel("entry", 20);
    gp_version();
    step();
    for (int n = 0; n < 20; n++) {
        CUmodule module;
        CHECK(cuModuleLoadData(&module, "image"));
        step();
        CHECK(cuModuleUnload(module));
        nvtx(step);
    }
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    gp_capture(0);
    step();
    gp_capture(1);
    pid_t child = fork();
    if (child == 0) {
        nvtx(gp_step);  // CUDA cannot be used in a child
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", status);
    if (gapprobe_test_bare) gapprobe_test_bare(1), gapprobe_test_bare(0);
    for (int n = 0; n < 20; n++) step(), usleep(5000);
    printf("launched %ld\n", launched);
    return 0;
}
