/* SPDX-License-Identifier: BSD-3-Clause
 * y += x, as add.c: void ml_k_add_sse2(float *y, const float *x, int n), System V calling convention for x86-64. */
#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

        .text
        .globl  ml_k_add_sse2
        .hidden ml_k_add_sse2
        .type   ml_k_add_sse2, @function
        .p2align 4
ml_k_add_sse2:                          /* rdi = y, rsi = x, edx = n */
        .cfi_startproc
        _CET_ENDBR
        subl    $16, %edx
        jl      2f
1:      movups  (%rdi), %xmm0           /* sixteen at a time */
        movups  16(%rdi), %xmm1
        movups  32(%rdi), %xmm2
        movups  48(%rdi), %xmm3
        movups  (%rsi), %xmm4
        movups  16(%rsi), %xmm5
        movups  32(%rsi), %xmm6
        movups  48(%rsi), %xmm7
        addps   %xmm4, %xmm0
        addps   %xmm5, %xmm1
        addps   %xmm6, %xmm2
        addps   %xmm7, %xmm3
        movups  %xmm0, (%rdi)
        movups  %xmm1, 16(%rdi)
        movups  %xmm2, 32(%rdi)
        movups  %xmm3, 48(%rdi)
        addq    $64, %rdi
        addq    $64, %rsi
        subl    $16, %edx
        jge     1b
2:      addl    $16, %edx               /* 0 to 15 are left, or n < 0 */
        jle     4f
3:      movss   (%rdi), %xmm0
        addss   (%rsi), %xmm0
        movss   %xmm0, (%rdi)
        addq    $4, %rdi
        addq    $4, %rsi
        decl    %edx
        jnz     3b
4:      ret
        .cfi_endproc
        .size   ml_k_add_sse2, . - ml_k_add_sse2

        .section .note.GNU-stack, "", @progbits
