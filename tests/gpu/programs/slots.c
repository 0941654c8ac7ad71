/* SPDX-License-Identifier: Apache-2.0
 * Takes the slots through which a program's objects call CUDA (and PyTorch its own engine) away
 * from gapprobe and gives them back, while the program runs: what gapprobe's own code costs is the
 * difference between neighbouring blocks of steps in one process.
 *
 *     int slots_find(char *names, size_t size)   looks for slots that lead into libgapprobe.so: how
 *     many; their names, each once, into `names`
 *     void slots_lead(int ours)                  1: as they were found; 0: to the functions that
 *     they are named after
 *
 * Only names that begin with cuda, __cuda or cu and stand in libcudart or libcuda, and the two
 * functions of PyTorch's by which a kernel of a backward pass gets its line: the exports for other
 * profilers (cuptiSubscribe ...) stay. What a launcher has asked dlsym for is in a table of
 * its own and stays, too. Their pages stay writable: for measuring, not for use. Used by
 * switched.py. Build: gcc -O1 -shared -fPIC -o slots.so slots.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 4096
enum { ABS64 = 1, GLOB_DAT = 6, JUMP_SLOT = 7 }; /* R_X86_64_... */

struct slot { uintptr_t *at, ours, real; } slots[MOST];
static int count;
static uintptr_t low, high; /* where libgapprobe.so lies */
static char *names;
static size_t room;

static int is_gapprobe(const struct dl_phdr_info *o) { return o->dlpi_name && strstr(o->dlpi_name, "libgapprobe.so"); }

static int bounds(struct dl_phdr_info *o, size_t size, void *data) {
    (void)size, (void)data;
    if (!is_gapprobe(o)) return 0;
    for (int i = 0; i < o->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &o->dlpi_phdr[i];
        uintptr_t begin = o->dlpi_addr + p->p_vaddr, end = begin + p->p_memsz;
        if (p->p_type != PT_LOAD) continue;
        low = !low || begin < low ? begin : low;
        high = end > high ? end : high;
    }
    return 1;
}

static uintptr_t real_of(const char *name) {
    static const char *const libraries[] = {"libcudart.so.13", "libcudart.so.12", "libcuda.so.1", "libtorch_cpu.so"};
    static const char *const begins[] = {"cu", "__cuda", "_ZN2at15sequence_number", "_ZN5torch8autograd6Engine"};
    int is_one = 0;
    for (unsigned i = 0; i < sizeof begins / sizeof *begins; i++) is_one |= !strncmp(name, begins[i], strlen(begins[i]));
    if (!is_one) return 0;
    for (unsigned i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        void *library = dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD);
        void *found = library ? dlsym(library, name) : 0;
        if (library) dlclose(library);
        if (found && ((uintptr_t)found < low || (uintptr_t)found >= high)) return (uintptr_t)found;
    }
    return 0;
}

/* Its page can be written; gapprobe may have sealed it since the last time, where it found new
 * libraries. */
int slots_open(uintptr_t *at) {
    uintptr_t page = (uintptr_t)at & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
    return !mprotect((void *)page, (uintptr_t)(at + 1) - page, PROT_READ | PROT_WRITE);
}

static void note(const char *name) {
    char word[128];
    snprintf(word, sizeof word, "%s ", name);
    if (room && !strstr(names, word) && strlen(names) + strlen(word) < room) strcat(names, word);
}

/* (dlopen in a callback of dl_iterate_phdr waits for nobody: both locks are recursive, and this
 * thread has them) */
static int look(struct dl_phdr_info *o, size_t size, void *data) {
    (void)size, (void)data;
    const ElfW(Dyn) *dynamic = 0;
    for (int i = 0; i < o->dlpi_phnum; i++)
        if (o->dlpi_phdr[i].p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)(o->dlpi_addr + o->dlpi_phdr[i].p_vaddr);
    if (!dynamic || is_gapprobe(o)) return 0;
    const char *strings = 0;
    const ElfW(Sym) *symbols = 0;
    uintptr_t table[2] = {0, 0}, bytes[2] = {0, 0};
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        uintptr_t value = dynamic->d_un.d_val, address = value < o->dlpi_addr ? value + o->dlpi_addr : value;
        switch (dynamic->d_tag) {
        case DT_STRTAB: strings = (const char *)address; break;
        case DT_SYMTAB: symbols = (const ElfW(Sym) *)address; break;
        case DT_RELA: table[0] = address; break;
        case DT_RELASZ: bytes[0] = value; break;
        case DT_JMPREL: table[1] = address; break;
        case DT_PLTRELSZ: bytes[1] = value; break;
        }
    }
    if (!strings || !symbols) return 0;
    for (int t = 0; t < 2; t++)
        for (uintptr_t i = 0; table[t] && i < bytes[t] / sizeof(ElfW(Rela)); i++) {
            const ElfW(Rela) *r = (const ElfW(Rela) *)table[t] + i;
            unsigned kind = ELF64_R_TYPE(r->r_info), symbol = ELF64_R_SYM(r->r_info);
            uintptr_t *at = (uintptr_t *)(o->dlpi_addr + r->r_offset);
            if (!symbol || (kind != GLOB_DAT && kind != JUMP_SLOT && kind != ABS64)) continue;
            if (*at < low || *at >= high || count == MOST) continue;
            const char *name = strings + symbols[symbol].st_name;
            uintptr_t real = real_of(name);
            if (!real || !slots_open(at)) continue;
            slots[count].at = at, slots[count].ours = *at, slots[count++].real = real;
            note(name);
        }
    return 0;
}

int slots_find(char *into, size_t size) {
    count = 0, low = high = 0, names = into, room = size;
    if (size) *into = 0;
    dl_iterate_phdr(bounds, 0);
    if (low) dl_iterate_phdr(look, 0);
    return count;
}

void slots_lead(int ours) {
    for (int i = 0; i < count; i++)
        if (slots_open(slots[i].at)) __atomic_store_n(slots[i].at, ours ? slots[i].ours : slots[i].real, __ATOMIC_RELEASE);
}
