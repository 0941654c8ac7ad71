// SPDX-License-Identifier: Apache-2.0
// A library that profiles with CUPTI as Triton's Proton does: finds every function by dlsym in the
// libcupti of TRITON_CUPTI_LIB_PATH, subscribes, switches its kind on before it registers its
// buffers, flushes twice (the second time by force), and tears CUPTI down at the end of each
// session.
#include "own_buffers.h"
#include <dlfcn.h>

// A session around `work`; prints what was seen. Returns 0 where that is exactly `expected`
// kernels.
int proton_profile(void (*work)(void), long expected, int finalize) {
    char path[4096] = "libcupti.so";
    const char *own = getenv("TRITON_CUPTI_LIB_PATH");
    if (own) snprintf(path, sizeof path, "%s/libcupti.so", own);
    void *cupti = dlopen(path, RTLD_LAZY), *subscriber = NULL;
    if (!cupti) return 84;
    any flush = (any)dlsym(cupti, "cuptiActivityFlushAll");
    next = (any)dlsym(cupti, "cuptiActivityGetNextRecord");
    kernels = others = 0;
    int subscribed = ((any)dlsym(cupti, "cuptiSubscribe"))(&subscriber, called, NULL);
    ((any)dlsym(cupti, "cuptiActivityEnable"))(10);
    ((any)dlsym(cupti, "cuptiActivityRegisterCallbacks"))(requested, completed);
    work();
    flush(0);
    flush(1);
    ((any)dlsym(cupti, "cuptiActivityDisable"))(10);
    if (subscribed == 0) ((any)dlsym(cupti, "cuptiUnsubscribe"))(subscriber);
    if (finalize) ((any)dlsym(cupti, "cuptiFinalize"))();
    printf("proton: subscribe %d, kernels %ld of %ld, others %ld\n", subscribed, kernels, expected, others);
    return subscribed != 0 || kernels != expected || others != 0;
}
