// SPDX-License-Identifier: Apache-2.0
// link: -rdynamic -lcudart -lcuda
// A thread replaces the environment of 2,000 variables 900 times a second, and what the
// old one lay in is unmapped at once; main begins with CUDA meanwhile and launches 200 kernels. It
// keeps its own readers out of the way, as a program does that locks around getenv and setenv.
// Prints "launched N".
#define _GNU_SOURCE
#include "sim.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES (256 << 10)

extern char **environ;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int is_over;

// In libc's place, for all of the program.
char *getenv(const char *name) {
    size_t length = strlen(name);
    char *value = NULL;
    pthread_mutex_lock(&lock);
    for (char **entry = environ; *entry && !value; entry++)
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=') value = strdup(*entry + length + 1);
    pthread_mutex_unlock(&lock);
    return value;
}

static void *replace(void *last) {
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char **entries = (char **)memory, *text = memory + BYTES / 2;
        pthread_mutex_lock(&lock);
        int n = 0;
        for (; environ[n]; n++) {
            entries[n] = strcpy(text, environ[n]);
            text += strlen(text) + 1;
        }
        environ = entries;
        if (last) munmap(last, BYTES);
        pthread_mutex_unlock(&lock);
        last = memory;
        usleep(1000);
    }
    return NULL;
}

int main(void) {
    pthread_t thread;
    char name[40];
    for (int n = 0; n < 2000; n++) {
        snprintf(name, sizeof name, "VARIABLE_%d", n);
        setenv(name, "value", 1);
    }
    pthread_create(&thread, NULL, replace, NULL);
    usleep(2000);
    CHECK(cuInit(0));
    void *function = kernel("replaced", 5);
    for (int n = 0; n < 200; n++) launch(function, NULL);
    CHECK(cudaDeviceSynchronize());
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    printf("launched 200\n");
    return 0;
}
