// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A program that profiles itself twice through libxla_cuda_plugin_victim.so or libproton.so, with
// work before, between and after.
//
// usage: plugin_host PLUGIN EARLY FINALIZE: EARLY 1 maps the plugin before CUDA is used (as JAX
// does), 0 later, 2 later and profiles at once, FINALIZE 1 tears
// CUPTI down after the second profile, 2 after both. Prints the plugin's lines and "launched N";
// exit code 1 where a profile was wrong.
#include "sim.h"
#include <dlfcn.h>
#include <unistd.h>

enum { COUNT = 200 };
static void *function;

static void work(void) {
    for (int k = 0; k < COUNT; k++) launch(function, NULL);
    CHECK(cudaDeviceSynchronize());
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int early = atoi(argv[2]), finalize = atoi(argv[3]), wrong = 0;
    int (*profile)(void (*)(void), long, int);
    void *plugin = early == 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    function = kernel("jit_step", 10);
    work();
    if (!plugin) plugin = dlopen(argv[1], RTLD_NOW);
    if (!plugin) return 83;
    profile = dlsym(plugin, "xla_profile");
    if (!profile) profile = dlsym(plugin, "proton_profile");
    if (early != 2) {
        usleep(700000);
        work();
    }
    wrong |= profile(work, COUNT, finalize > 1);
    usleep(900000);
    work();
    usleep(100000);
    wrong |= profile(work, COUNT, finalize);
    usleep(900000);
    work();
    printf("launched %d\n", (early == 2 ? 5 : 6) * COUNT);
    return wrong;
}
