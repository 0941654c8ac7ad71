# SPDX-License-Identifier: Apache-2.0
# Forwarders of a shim library: every exported name jumps through a slot of its own, all arguments untouched.
#
# A slot first holds a stub that asks sim_resolve(number) in forward.c for the target, so that nothing is looked up
# before the first call; forward.c stores what it found. FORWARD(name) lines, one an export, come from FORWARDS,
# a file that scripts/sim-build writes from the symbol list of the emulated release. x86_64 only.

    .section .note.GNU-stack,"",@progbits
    .text

    .set number, 0

    .macro FORWARD name
    .globl \name
    .type \name, @function
    .balign 16
\name:
    movq    slot_\name(%rip), %r11
    jmp     *%r11
lazy_\name:
    movl    $number, %r11d
    jmp     resolve
    .size \name, . - \name
    .section .data.rel.slots, "aw", @progbits
    .balign 8
slot_\name:
    .quad   lazy_\name
    .text
    .set number, number + 1
    .endm

# Saves every register that can hold an argument, asks for the target of slot r11d, jumps there.
resolve:
    pushq   %rbp
    movq    %rsp, %rbp
    andq    $-16, %rsp
    subq    $192, %rsp
    movq    %rdi, 0(%rsp)
    movq    %rsi, 8(%rsp)
    movq    %rdx, 16(%rsp)
    movq    %rcx, 24(%rsp)
    movq    %r8, 32(%rsp)
    movq    %r9, 40(%rsp)
    movq    %rax, 48(%rsp)
    movups  %xmm0, 64(%rsp)
    movups  %xmm1, 80(%rsp)
    movups  %xmm2, 96(%rsp)
    movups  %xmm3, 112(%rsp)
    movups  %xmm4, 128(%rsp)
    movups  %xmm5, 144(%rsp)
    movups  %xmm6, 160(%rsp)
    movups  %xmm7, 176(%rsp)
    movl    %r11d, %edi
    call    sim_resolve
    movq    %rax, %r11
    movups  176(%rsp), %xmm7
    movups  160(%rsp), %xmm6
    movups  144(%rsp), %xmm5
    movups  128(%rsp), %xmm4
    movups  112(%rsp), %xmm3
    movups  96(%rsp), %xmm2
    movups  80(%rsp), %xmm1
    movups  64(%rsp), %xmm0
    movq    48(%rsp), %rax
    movq    40(%rsp), %r9
    movq    32(%rsp), %r8
    movq    24(%rsp), %rcx
    movq    16(%rsp), %rdx
    movq    8(%rsp), %rsi
    movq    0(%rsp), %rdi
    movq    %rbp, %rsp
    popq    %rbp
    jmp     *%r11

    .section .data.rel.slots, "aw", @progbits
    .balign 8
    .globl  sim_slots
    .hidden sim_slots
sim_slots:
    .text

#include FORWARDS
