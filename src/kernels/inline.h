/* SPDX-License-Identifier: BSD-3-Clause
 * What compilers have to be told. What the kernels are put together from must be inlined whatever their budget says: counts of blocks and lanes are
 * constants of the caller, and vectors passed through memory cost more than the arithmetic. */
#ifndef ML_KERNELS_INLINE_H
#define ML_KERNELS_INLINE_H

#if defined(_MSC_VER) && !defined(__clang__)
#define ML_INLINE static __forceinline
#else
#define ML_INLINE static inline __attribute__((always_inline))
#endif

/* Before a short loop over registers, which would otherwise go through the stack. */
#if defined(__GNUC__)
#define ML_UNROLL _Pragma("GCC unroll 16")
#else
#define ML_UNROLL
#endif

/* Registers are few. Left alone, compilers read all weights of a block before a loop over the columns that share them, and form all products before
 * they add the first; what does not fit goes through the stack. ML_REREAD: what the pointer points to is read again behind this. ML_NOW: the
 * vector has its value here. */
#if defined(__GNUC__) && defined(__x86_64__)
#define ML_REREAD(pointer) __asm__("" : "+r"(pointer))
#define ML_NOW(vector) __asm__("" : "+x"(vector))
#elif defined(__GNUC__) && (defined(__aarch64__) || defined(__arm__))
#define ML_REREAD(pointer) __asm__("" : "+r"(pointer))
#define ML_NOW(vector) __asm__("" : "+w"(vector))
#else
#define ML_REREAD(pointer) (void)0
#define ML_NOW(vector) (void)0
#endif

#endif
