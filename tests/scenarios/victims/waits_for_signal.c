// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// Blocks SIGUSR1 and waits for it while the device works, as job schedulers' preemption hooks do. A
// thread of anybody else's that does not block it would take the signal, and the process would die.
//
// usage: waits_for_signal ROUNDS. Prints "launched N".
#include "sim.h"
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 20;
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &wanted, NULL);
    void *function = kernel("work", 10);
    for (long round = 0; round < rounds; round++) {
        int got = 0;
        for (int k = 0; k < 10; k++) launch(function, NULL);
        CHECK(cudaDeviceSynchronize());
        kill(getpid(), SIGUSR1);
        usleep(5000);
        if (sigwait(&wanted, &got) != 0 || got != SIGUSR1) return 82;
    }
    printf("launched %ld\n", rounds * 10);
    return 0;
}
