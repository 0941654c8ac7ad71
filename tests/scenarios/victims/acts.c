// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A program that does what a list tells it, step by step: tests/promises.rs draws programs and
// their mended forms, and this one does them.
//
// usage: acts LIST UNMARKED: a line of LIST is one act, all times in ns; the first UNMARKED steps
// are not marked.
//   t NS  launches         s NS  is elsewhere   f NS  fetches data, in a range that says so      h
//         THREAD  what follows is this thread's (0, 1)
//   l STREAM KERNEL NS     launches             g N   one graph of the next N acts (l, w)
//   i STREAM BYTES PINNED  copies to the device: pageable, or pinned and a step ahead, on a stream
//                          of its own
//   o BYTES PINNED ASIDE   copies to the host: pageable, or pinned on a stream of its own, and
//                          ASIDE nobody waits
//   v LATER                .item(): four bytes and a wait for them; LATER nobody waits
//   y  cudaDeviceSynchronize      x  cudaFree      m  cudaMalloc
//   w STREAM ON LATE       lets a stream wait for what another was given so far; LATE: for what was
//                          long ago
//   e                      the step ends
// Streams: 0 main, 1 beside it. Where it may, it runs before other programs of the machine
// (SCHED_FIFO). Prints "done N NS" (CLOCK_MONOTONIC) as each step's host is through, "late NS" and
// "pushed NS": by how much its host was later than it meant to be, and how long it was kept from a
// CPU, in the marked steps; "launched N".
#define _GNU_SOURCE
#include "gapprobe.h"
#include "sim.h"
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAIN, SIDE, AHEAD, OUT, STREAMS };
enum { TO_DEVICE = 1, TO_HOST = 2, STAGE = 1 << 29 };

struct act { char what; long a, b, c; void *made; };

static struct act *acts;
static long count, at, step, steps, unmarked, launched, *done, late, pushed_before;
static cudaStream_t streams[STREAMS];
static cudaEvent_t event, past, arrived;
static char *device, *pageable, *pinned;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turns = PTHREAD_COND_INITIALIZER;
static long turn, handed_over;
static int tids[2];

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

// The host works: a thread that sleeps may be held to a rate from outside, and is taken to be
// (analyzer/verdict/src/replay/pace.rs).
static void pass(long ns) {
    long until = now() + ns, reached;
    while ((reached = now()) < until) continue;
    if (step >= unmarked) late += reached - until;
}

// ns that both threads stood in a queue for a CPU.
static long pushed(void) {
    long sum = 0;
    for (int n = 0; n < 2; n++) {
        char path[64];
        long ran = 0, stood = 0;
        snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tids[n]);
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%ld %ld", &ran, &stood) == 2) sum += stood;
        if (f) fclose(f);
    }
    return sum;
}

static void wait_for(int stream, int on) {
    CHECK(cudaEventRecord(event, streams[on]));
    CHECK(cudaStreamWaitEvent(streams[stream], event, 0));
}

static void copy(void *to, const void *from, long bytes, int direction, int stream) {
    CHECK(cudaMemcpyAsync(to, from, bytes, direction, streams[stream]));
}

static void act(struct act *a) {
    switch (a->what) {
    case 't': return pass(a->a);
    case 's': return pass(a->a);
    case 'f':
        gapprobe_range_push("next_batch");
        pass(a->a);
        return gapprobe_range_pop();
    case 'l': launched++; return launch(a->made, streams[a->a]);
    case 'g':
        launched += a->b;
        at += a->a;
        CHECK(cudaGraphLaunch(a->made, streams[MAIN]));
        return;
    case 'i':
        if (!a->c) return copy(device, pageable, a->b, TO_DEVICE, a->a);
        CHECK(cudaStreamWaitEvent(streams[a->a], arrived, 0)); // what was copied in the step before
        return copy(device, pinned, a->b, TO_DEVICE, AHEAD);
    case 'o':
        if (!a->b) return copy(pageable, device, a->a, TO_HOST, MAIN);
        wait_for(OUT, MAIN);
        copy(pinned, device, a->a, TO_HOST, OUT);
        if (!a->c) CHECK(cudaStreamSynchronize(streams[OUT]));
        return;
    case 'v':
        copy(a->a ? pinned : pageable, device, 4, TO_HOST, MAIN);
        if (!a->a) CHECK(cudaStreamSynchronize(streams[MAIN]));
        return;
    case 'y': CHECK(cudaDeviceSynchronize()); return;
    case 'x': CHECK(cudaFree(a->made)); return;
    case 'm': CHECK(cudaMalloc(&a->made, 4096)); return;
    case 'w':
        if (!a->c) return wait_for(a->a, a->b);
        CHECK(cudaStreamWaitEvent(streams[a->a], past, 0));
        return;
    case 'e':
        done[step++] = now();
        CHECK(cudaEventRecord(arrived, streams[AHEAD]));
        if (step == unmarked) pushed_before = pushed();
        if (step >= unmarked && step < steps) gapprobe_step();
        return;
    }
    fprintf(stderr, "acts: what is %c?\n", a->what);
    exit(91);
}

// The two threads hand over to each other, as a main thread and autograd's do: on one CPU, where
// that takes the same time every time.
static void *play(void *me) {
    long own = (long)me;
    pthread_mutex_lock(&lock);
    tids[own] = (int)syscall(SYS_gettid);
    pthread_cond_broadcast(&turns);
    while (at < count || turn != own) {
        if (turn != own) {
            if (at >= count) break;
            pthread_cond_wait(&turns, &lock);
            if (turn == own && step >= unmarked && at < count) late += now() - handed_over;
            continue;
        }
        struct act *a = &acts[at++];
        if (a->what != 'h') {
            act(a);
        } else if (a->a != own) {
            turn = a->a;
            handed_over = now();
            pthread_cond_broadcast(&turns);
        }
    }
    pthread_cond_broadcast(&turns);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void read_list(const char *path) {
    FILE *f = fopen(path, "r");
    char line[128];
    if (!f) exit(92);
    for (long room = 0; fgets(line, sizeof line, f); count++) {
        if (count == room) acts = realloc(acts, (room = room * 2 + 1024) * sizeof *acts);
        struct act a = {0};
        sscanf(line, "%c %ld %ld %ld", &a.what, &a.a, &a.b, &a.c);
        acts[count] = a;
        steps += a.what == 'e';
    }
    fclose(f);
    done = calloc(steps, sizeof *done);
}

// What a program makes once: kernels, graphs, memory that will be freed.
static void prepare(void) {
    for (long n = 0; n < count; n++) {
        struct act *a = &acts[n];
        char name[32];
        snprintf(name, sizeof name, "kernel_%ld", a->b);
        if (a->what == 'l') a->made = kernel(name, a->c / 1e3);
        if (a->what == 'x') CHECK(cudaMalloc(&a->made, 4096));
    }
    for (long n = 0; n < count; n++) {
        struct act *g = &acts[n];
        cudaGraph_t graph;
        if (g->what != 'g') continue;
        CHECK(cudaStreamBeginCapture(streams[MAIN], 0));
        for (struct act *a = g + 1; a <= g + g->a; a++) {
            if (a->what == 'l') {
                launch(a->made, streams[MAIN]);
                g->b++;
            }
        }
        CHECK(cudaStreamEndCapture(streams[MAIN], &graph));
        CHECK(cudaGraphInstantiateWithFlags((cudaGraphExec_t *)&g->made, graph, 0));
        n += g->a;
    }
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: acts LIST UNMARKED\n");
        return 2;
    }
    struct sched_param first = {1};
    prctl(PR_SET_TIMERSLACK, 1);
    sched_setscheduler(0, SCHED_FIFO, &first); // where it may not it goes on as it is
    read_list(argv[1]);
    unmarked = atol(argv[2]);
    CHECK(cudaSetDevice(0));
    for (int n = 0; n < STREAMS; n++) CHECK(cudaStreamCreateWithFlags(&streams[n], 1));
    cudaEvent_t *events[] = {&event, &past, &arrived};
    for (int n = 0; n < 3; n++) {
        CHECK(cudaEventCreate(events[n]));
        CHECK(cudaEventRecord(*events[n], streams[MAIN]));
    }
    CHECK(cudaMalloc((void **)&device, STAGE));
    CHECK(cudaMallocHost((void **)&pinned, STAGE));
    pageable = calloc(1, STAGE);
    prepare();
    CHECK(cudaDeviceSynchronize());
    // both host threads have one CPU; the program was started on all of them and would have others
    // for workers: a thread of ours counts them when the GPU is first used, and must come first
    usleep(100000);
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(sched_getcpu(), &own);
    sched_setaffinity(0, sizeof own, &own);
    pthread_t autograd;
    pthread_create(&autograd, NULL, play, (void *)1);
    play((void *)0);
    long kept_off = pushed() - pushed_before;
    pthread_join(autograd, NULL);
    CHECK(cudaDeviceSynchronize());
    gapprobe_step();
    for (long n = 0; n < steps; n++) printf("done %ld %ld\n", n, done[n]);
    printf("late %ld\npushed %ld\n", late, kept_off);
    printf("launched %ld\n", launched);
    return 0;
}
