/* SPDX-License-Identifier: Apache-2.0
 * gapprobe's C ABI: what a program may tell the profiler that is preloaded into it.
 *
 * Without libgapprobe.so in the process these functions do nothing. No linking, no dependency. Any
 * thread may call them; each costs about 30 ns when preloaded. Each has a short name too (gp_step
 * for gapprobe_step), which does the same.
 *
 * They are inline, and look for the library's functions of the same names through weak references:
 * a plain weak declaration under these names would be a call of address 0 in a program that runs
 * without the library.
 */
#ifndef GAPPROBE_H
#define GAPPROBE_H

#if !defined(__GNUC__)
#error "gapprobe.h needs weak symbols (GCC or Clang on Linux)"
#endif

/* Looked up when the program starts, through its table of addresses. Without noplt GNU ld settles a
 * weak reference when it links a program that is not position-independent (gcc -no-pie, GCC's
 * default on some systems): to null, library or not. */
#if defined(__has_attribute)
#if __has_attribute(noplt)
#define GAPPROBE_WEAK __attribute__((weak, noplt))
#endif
#endif
#ifndef GAPPROBE_WEAK
#define GAPPROBE_WEAK __attribute__((weak))
#endif

/* A function of the library, or null: the symbol `name`, which this header calls `name_preloaded`.
 */
#define GAPPROBE_PRELOADED(result, name, arguments) extern result name##_preloaded arguments __asm__(#name) GAPPROBE_WEAK

#ifdef __cplusplus
extern "C" {
#endif
GAPPROBE_PRELOADED(void, gapprobe_step, (void));
GAPPROBE_PRELOADED(void, gapprobe_range_push, (const char *name));
GAPPROBE_PRELOADED(void, gapprobe_range_pop, (void));
GAPPROBE_PRELOADED(void, gapprobe_capture, (int on));
GAPPROBE_PRELOADED(int, gapprobe_version, (void));
#ifdef __cplusplus
}
#endif

/* Ours have other symbols than the library's: by C++'s own rules, in C by this label. One symbol
 * for both would make a copy that is not inlined (-O0) define what it looks for. */
#ifdef __cplusplus
#define GAPPROBE_INLINE(result, name, arguments) static __inline__ result name arguments
#else
#define GAPPROBE_INLINE(result, name, arguments) \
    static __inline__ result name arguments __asm__(#name "_inline"); \
    static __inline__ result name arguments
#endif

/* A training step begins here (and the one before ends). Call it at the same place of every step.
 */
GAPPROBE_INLINE(void, gapprobe_step, (void)) {
    if (gapprobe_step_preloaded) gapprobe_step_preloaded();
}

/* A named range on the calling thread; ranges nest (64 deep). 96 bytes of the name are kept. */
GAPPROBE_INLINE(void, gapprobe_range_push, (const char *name)) {
    if (gapprobe_range_push_preloaded) gapprobe_range_push_preloaded(name);
}
GAPPROBE_INLINE(void, gapprobe_range_pop, (void)) {
    if (gapprobe_range_pop_preloaded) gapprobe_range_pop_preloaded();
}

/* Recording off (0) or on (1) from here. The span between is reported as not observed. */
GAPPROBE_INLINE(void, gapprobe_capture, (int on)) {
    if (gapprobe_capture_preloaded) gapprobe_capture_preloaded(on);
}

/* Version of the preloaded library (major * 10000 + minor * 100 + patch), 0 where there is none. */
GAPPROBE_INLINE(int, gapprobe_version, (void)) {
    return gapprobe_version_preloaded ? gapprobe_version_preloaded() : 0;
}

/* The short names. */
static __inline__ void gp_step(void) { gapprobe_step(); }
static __inline__ void gp_range_push(const char *name) { gapprobe_range_push(name); }
static __inline__ void gp_range_pop(void) { gapprobe_range_pop(); }
static __inline__ void gp_capture(int on) { gapprobe_capture(on); }
static __inline__ int gp_version(void) { return gapprobe_version(); }

#undef GAPPROBE_WEAK
#undef GAPPROBE_PRELOADED
#undef GAPPROBE_INLINE

#endif
