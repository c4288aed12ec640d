/* SPDX-License-Identifier: BSD-3-Clause
 * What the sse41 folder implements; float kernels gain nothing from SSE4.1, and products of Q8_0 weights with many vectors only their own remainder
 * of rows: the rest of both is sse2's. */
#ifndef ML_KERNELS_SSE41_H
#define ML_KERNELS_SSE41_H

#ifndef __SSE4_1__
#error "this folder needs -msse4.1"
#endif

#include "../kernels.h"

ML_DECLARE_KERNELS(sse41)

#define ML_HAS_MATVEC_Q8_SSE41
#define ML_HAS_MATVEC_Q4_SSE41
#define ML_HAS_MATMUL_Q8_SSE41
#define ML_HAS_MATMUL_Q4_SSE41
#define ML_HAS_QUANTIZE_Q8_SSE41

#endif
