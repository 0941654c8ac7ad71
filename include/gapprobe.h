/* SPDX-License-Identifier: Apache-2.0
 * gapprobe's C ABI: what a program may tell the profiler that is preloaded into it.
 *
 * The functions are weak references: without libgapprobe.so in the process they are absent, and the inline wrappers
 * below do nothing. No linking, no dependency. Any thread may call them; each costs about 30 ns when preloaded.
 */
#ifndef GAPPROBE_H
#define GAPPROBE_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GAPPROBE_WEAK __attribute__((weak))
#else
#error "gapprobe.h needs weak symbols (GCC or Clang on Linux)"
#endif

/* The library's own functions. */
extern void gapprobe_step(void) GAPPROBE_WEAK;
extern void gapprobe_range_push(const char *name) GAPPROBE_WEAK;
extern void gapprobe_range_pop(void) GAPPROBE_WEAK;
extern void gapprobe_capture(int on) GAPPROBE_WEAK;
extern int gapprobe_version(void) GAPPROBE_WEAK;

/* A training step begins here (and the one before ends). Call it at the same place of every step. */
static inline void gp_step(void) {
    if (gapprobe_step) gapprobe_step();
}

/* A named range on the calling thread; ranges nest (64 deep). 96 bytes of the name are kept. */
static inline void gp_range_push(const char *name) {
    if (gapprobe_range_push) gapprobe_range_push(name);
}
static inline void gp_range_pop(void) {
    if (gapprobe_range_pop) gapprobe_range_pop();
}

/* Recording off (0) or on (1) from here. The span between is reported as not observed. */
static inline void gp_capture(int on) {
    if (gapprobe_capture) gapprobe_capture(on);
}

/* Version of the preloaded library (major * 10000 + minor * 100 + patch), 0 where there is none. */
static inline int gp_version(void) {
    return gapprobe_version ? gapprobe_version() : 0;
}

#ifdef __cplusplus
}
#endif
#endif
