// SPDX-License-Identifier: Apache-2.0
// A program that trains through libxla_cuda_plugin_victim.so alone, as JAX does.
//
// usage: xla_host PLUGIN STEPS HOST_US early|late|later [profile | TRIES]: late: the plugin is
// mapped behind cuInit, as where JAX asked for the devices before; later: when
// the GPU is in use, and it compiles first; TRIES: so many launches before the first step, which
// XLA makes to see what is fast and shares out among ranks Prints what the plugin does, and
// "launched N".
#include "sim.h"
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int late = !strncmp(argv[4], "late", 4), later = !strcmp(argv[4], "later");
    void *context, *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (late) CHECK(((int (*)(unsigned))dlsym(driver, "cuInit"))(0));
    if (later) CHECK(((int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0));
    void *plugin = dlopen(argv[1], RTLD_NOW);
    if (!plugin) return 83;
    if (later) usleep(700000);
    long (*train)(long, long, int, long) = dlsym(plugin, "xla_train");
    long tries = argc > 5 ? atol(argv[5]) : 0;
    long launched = train(atol(argv[2]), atol(argv[3]), argc > 5 && !tries, tries);
    printf("launched %ld\n", launched);
    return launched < 0;
}
