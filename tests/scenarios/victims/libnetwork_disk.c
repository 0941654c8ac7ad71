// SPDX-License-Identifier: Apache-2.0
// Preloaded: below NETWORK_FOLDER the disk is another machine's. NETWORK_HOW:
//   late         from NETWORK_AFTER_MS after the start on it does not answer: each call that has to
//                ask it takes ten seconds
//   late_writes  as late, but files can be opened all the same
//   slow         each write takes NETWORK_WRITE_MS
//   odd          one call in three fails, with ESTALE or EIO (NETWORK_SEED: another third)
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static long began_ms;
__attribute__((constructor)) static void begin(void) { began_ms = now_ms(); }

// Does a call for this path fail? Takes its time first where the disk is late.
static int fails(const char *path, int opens) {
    static unsigned calls;
    const char *folder = getenv("NETWORK_FOLDER"), *how = getenv("NETWORK_HOW"), *number = getenv("NETWORK_SEED"), *after = getenv("NETWORK_AFTER_MS");
    if (!folder || !how || strncmp(path, folder, strlen(folder))) return 0;
    if (!strncmp(how, "late", 4)) {
        int answers = now_ms() - began_ms < (after ? atol(after) : 0) || (opens && !strcmp(how, "late_writes"));
        if (!answers) sleep(10);
        return 0;
    }
    if (!strcmp(how, "slow")) {
        const char *ms = getenv("NETWORK_WRITE_MS");
        if (!opens) usleep(ms ? atoi(ms) * 1000 : 0);
        return 0;
    }
    unsigned n = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) + (number ? atoi(number) * 7919u : 0);
    n = (n ^ n >> 7) * 2654435761u >> 16;
    errno = n & 1 ? ESTALE : EIO;
    return n / 2 % 3 == 0;
}

static int fails_at(int fd, int opens) {
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/thread-self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    name[length > 0 ? length : 0] = 0;
    return fails(name, opens);
}

ssize_t write(int fd, const void *bytes, size_t count) { return fails_at(fd, 0) ? -1 : NEXT(write)(fd, bytes, count); }
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return fails_at(fd, 0) ? -1 : NEXT(pwrite)(fd, bytes, count, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at) { return fails_at(fd, 0) ? -1 : NEXT(pwrite64)(fd, bytes, count, at); }
int fsync(int fd) { return fails_at(fd, 0) ? -1 : NEXT(fsync)(fd); }
int unlink(const char *path) { return fails(path, 0) ? -1 : NEXT(unlink)(path); }
int rename(const char *from, const char *to) { return fails(from, 0) ? -1 : NEXT(rename)(from, to); }
int link(const char *from, const char *to) { return fails(from, 0) ? -1 : NEXT(link)(from, to); }
int linkat(int in, const char *from, int at, const char *to, int flags) { return fails(from, 0) ? -1 : NEXT(linkat)(in, from, at, to, flags); }
DIR *opendir(const char *path) { return fails(path, 1) ? NULL : NEXT(opendir)(path); }

#define OPEN(name)                                                             \
    int name(const char *path, int flags, ...) {                               \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;              \
        va_end(rest);                                                          \
        return fails(path, 1) ? -1 : NEXT(name)(path, flags, mode);               \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                           \
    int name(int in, const char *path, int flags, ...) {                       \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;              \
        va_end(rest);                                                          \
        if (path[0] == '/' ? fails(path, 1) : fails_at(in, 1)) return -1;            \
        return NEXT(name)(in, path, flags, mode);                              \
    }
OPENAT(openat)
OPENAT(openat64)
