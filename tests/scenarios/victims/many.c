// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// Many launches from several threads over three streams, one in ten kernels from a graph of 20
// nodes.
//
// usage: many THREADS LAUNCHES: each thread gives the device LAUNCHES kernels. Prints "launched N".
#include "sim.h"
#include <pthread.h>

enum { STREAMS = 3, NODES = 20, BATCH = 180 };
static cudaStream_t streams[STREAMS];
static cudaGraphExec_t graph;
static void *function;
static long launches;
static pthread_mutex_t graph_turn = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *argument) {
    long thread = (long)argument, done = 0;
    for (long round = 0; done < launches; round++) {
        cudaStream_t stream = streams[(thread + round) % STREAMS];
        for (int k = 0; k < BATCH && done < launches; k++, done++) launch(function, stream);
        if (done + NODES <= launches) {
            pthread_mutex_lock(&graph_turn);
            CHECK(cudaGraphLaunch(graph, stream));
            pthread_mutex_unlock(&graph_turn);
            done += NODES;
        }
        if (round % 16 == 15) CHECK(cudaStreamSynchronize(stream));
    }
    return NULL;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 4;
    pthread_t ids[64];
    cudaGraph_t captured;
    launches = argc > 2 ? atol(argv[2]) : 1000;
    function = kernel("many", 1.5);
    void *node = kernel("node", 1);
    for (int s = 0; s < STREAMS; s++) CHECK(cudaStreamCreateWithFlags(&streams[s], 1));
    CHECK(cudaStreamBeginCapture(streams[0], 0));
    for (int n = 0; n < NODES; n++) launch(node, streams[0]);
    CHECK(cudaStreamEndCapture(streams[0], &captured));
    CHECK(cudaGraphInstantiateWithFlags(&graph, captured, 0));
    for (long t = 0; t < threads; t++) pthread_create(&ids[t], NULL, work, (void *)t);
    for (long t = 0; t < threads; t++) pthread_join(ids[t], NULL);
    CHECK(cudaDeviceSynchronize());
    printf("launched %ld\n", threads * launches);
    return 0;
}
