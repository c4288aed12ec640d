/* SPDX-License-Identifier: BSD-3-Clause
 * What the kernels are put together from must be inlined whatever the compiler's budget says: counts of blocks and lanes are constants of the
 * caller, and vectors passed through memory cost more than the arithmetic. */
#ifndef ML_KERNELS_INLINE_H
#define ML_KERNELS_INLINE_H

#if defined(_MSC_VER) && !defined(__clang__)
#define ML_INLINE static __forceinline
#else
#define ML_INLINE static inline __attribute__((always_inline))
#endif

#endif
