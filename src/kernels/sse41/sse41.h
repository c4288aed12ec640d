/* SPDX-License-Identifier: BSD-3-Clause
 * What the sse41 folder implements. Float kernels gain nothing from SSE4.1 and are sse2's; neither do products of Q8_0 weights with many vectors,
 * but for the rows that are left over: their file is here to take these to this folder's matvec. */
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
