/* SPDX-License-Identifier: Apache-2.0
 * How long gapprobe's own code takes in each step of a program: a clock before each of its
 * functions and one before each function that it hands on to, while the program runs. Between the
 * two readings of one and the two of the other lies what is gapprobe's.
 *
 *     int timed_find(char *names, size_t size)  puts the clocks where slots.c finds slots; how many
 *     functions have both; their names
 *     void timed_lead(int ours)                 1: through gapprobe; 0: past it, with both clocks
 *     (what the clocks take themselves)
 *     uint64_t timed_own(void)                  ticks so far, of all threads
 *     double timed_ticks_per_ns(void)
 *
 * A clock stands in a return address's place: what is called finds its arguments where they were,
 * whatever they are. What gapprobe hands on to it keeps in its own writable memory, where the word
 * is looked for and led to the second clock: for measuring, not for use. Used by switched.py.
 * Build: gcc -O1 -shared -fPIC -o timed.so timed.c slots.c -ldl
 */
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <x86intrin.h>

int slots_find(char *names, size_t size);
struct slot { uintptr_t *at, ours, real; };
extern struct slot slots[];
int slots_open(uintptr_t *at);

/* What stands in a function's place: `thunk` puts its own address into r11 and goes to
 * `timed_call`, which reads the clock and goes to `target`. */
struct clock {
    uint8_t thunk[24];
    uintptr_t target;
    uint64_t is_inner;
};
enum { MOST = 64 };
static struct clock *clocks; /* two of each: before gapprobe's function, before the one behind it */
static uintptr_t ours[MOST];
static int count;

/* A call under way: where it returns to, when it began, what it belongs to. 16 deep a thread. */
struct frame { uint64_t back, began, is_inner, unused; };
__attribute__((visibility("hidden"), tls_model("initial-exec"))) __thread struct frame timed_frames[16];
__attribute__((visibility("hidden"), tls_model("initial-exec"))) __thread uint64_t timed_depth;
__attribute__((visibility("hidden"))) uint64_t timed_ticks; /* before gapprobe's functions, less those before what they hand on to */

void timed_call(void);
__asm__(
    ".text\n.type timed_call,@function\n.globl timed_call\n.hidden timed_call\ntimed_call:\n"
    "  pushq %rax\n  pushq %rdx\n  pushq %rcx\n"
    "  movq timed_depth@gottpoff(%rip), %rax\n  movq %fs:(%rax), %rcx\n  incq %fs:(%rax)\n  shlq $5, %rcx\n"
    "  addq timed_frames@gottpoff(%rip), %rcx\n"
    "  movq 24(%rsp), %rax\n  movq %rax, %fs:(%rcx)\n"
    "  movq 32(%r11), %rax\n  movq %rax, %fs:16(%rcx)\n"
    "  leaq timed_return(%rip), %rax\n  movq %rax, 24(%rsp)\n"
    "  rdtsc\n  shlq $32, %rdx\n  orq %rdx, %rax\n  movq %rax, %fs:8(%rcx)\n"
    "  popq %rcx\n  popq %rdx\n  popq %rax\n  jmpq *24(%r11)\n"
    "timed_return:\n"
    "  subq $8, %rsp\n  pushq %rax\n  pushq %rdx\n  pushq %rcx\n"
    "  rdtsc\n  shlq $32, %rdx\n  orq %rax, %rdx\n"
    "  movq timed_depth@gottpoff(%rip), %rax\n  decq %fs:(%rax)\n  movq %fs:(%rax), %rcx\n  shlq $5, %rcx\n"
    "  addq timed_frames@gottpoff(%rip), %rcx\n"
    "  movq %fs:(%rcx), %rax\n  movq %rax, 24(%rsp)\n"
    "  subq %fs:8(%rcx), %rdx\n"
    "  cmpq $0, %fs:16(%rcx)\n  je 1f\n  negq %rdx\n1:\n"
    "  lock addq %rdx, timed_ticks(%rip)\n"
    "  popq %rcx\n  popq %rdx\n  popq %rax\n  ret\n"
    ".size timed_call,.-timed_call\n");

static void make(struct clock *c, uintptr_t target, int is_inner) {
    uintptr_t self = (uintptr_t)c, go = (uintptr_t)timed_call;
    uint8_t code[24] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0,                /* movabs $self, %r11 */
                        0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}; /* jmp *0(%rip) */
    memcpy(code + 2, &self, 8), memcpy(code + 16, &go, 8);
    memcpy(c->thunk, code, sizeof code);
    c->target = target, c->is_inner = is_inner;
}

struct search { uintptr_t from, to; int found; };

/* Leads each word of gapprobe's writable memory that is `from` to `to`. */
static int lead_words(struct dl_phdr_info *o, size_t size, void *data) {
    struct search *s = data;
    (void)size;
    if (!o->dlpi_name || !strstr(o->dlpi_name, "libgapprobe.so")) return 0;
    for (int i = 0; i < o->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &o->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_W)) continue;
        uintptr_t *at = (uintptr_t *)((o->dlpi_addr + p->p_vaddr + 7) & ~(uintptr_t)7), *end = (uintptr_t *)(o->dlpi_addr + p->p_vaddr + p->p_memsz);
        for (; at + 1 <= end; at++)
            if (*at == s->from) __atomic_store_n(at, s->to, __ATOMIC_RELEASE), s->found++;
    }
    return 1;
}

static int number_of(uintptr_t our) {
    for (int i = 0; i < count; i++)
        if (ours[i] == our) return i;
    return -1;
}

int timed_find(char *names, size_t size) {
    int all = slots_find(names, size);
    clocks = mmap(0, 2 * MOST * sizeof *clocks, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (clocks == MAP_FAILED) return 0;
    for (int s = 0; s < all; s++) {
        if (number_of(slots[s].ours) >= 0 || count == MOST) continue;
        struct clock *outer = clocks + 2 * count, *inner = outer + 1;
        struct search behind = {slots[s].real, (uintptr_t)inner, 0};
        make(inner, slots[s].real, 1), make(outer, slots[s].ours, 0);
        dl_iterate_phdr(lead_words, &behind);
        if (!behind.found) continue;
        ours[count++] = slots[s].ours;
    }
    for (int s = 0; s < all; s++) {
        int n = number_of(slots[s].ours);
        if (n >= 0 && slots_open(slots[s].at)) __atomic_store_n(slots[s].at, (uintptr_t)(clocks + 2 * n), __ATOMIC_RELEASE);
    }
    return count;
}

void timed_lead(int through) {
    for (int i = 0; i < count; i++)
        __atomic_store_n(&clocks[2 * i].target, through ? ours[i] : (uintptr_t)(clocks + 2 * i + 1), __ATOMIC_RELEASE);
}

uint64_t timed_own(void) { return __atomic_load_n(&timed_ticks, __ATOMIC_RELAXED); }

double timed_ticks_per_ns(void) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    uint64_t begin = __rdtsc();
    double ns;
    do {
        clock_gettime(CLOCK_MONOTONIC, &b);
        ns = (b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec);
    } while (ns < 5e7);
    return (__rdtsc() - begin) / ns;
}
