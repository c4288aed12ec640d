/* SPDX-License-Identifier: BSD-3-Clause
 * What the sse2 folder implements. */
#ifndef ML_KERNELS_SSE2_H
#define ML_KERNELS_SSE2_H

#ifndef __SSE2__
#error "this folder needs -msse2"
#endif

#include "../kernels.h"

ML_DECLARE_KERNELS(sse2)

#define ML_HAS_MATVEC_Q8_SSE2
#define ML_HAS_MATVEC_Q4_SSE2
#define ML_HAS_MATMUL_Q8_SSE2
#define ML_HAS_MATMUL_Q4_SSE2
#define ML_HAS_QUANTIZE_Q8_SSE2
#define ML_HAS_RMSNORM_SSE2
#define ML_HAS_SOFTMAX_SSE2
#define ML_HAS_ROPE_SSE2
#define ML_HAS_SILU_MUL_SSE2
#define ML_HAS_ADD_SSE2
#define ML_HAS_DOT_F32_SSE2
#define ML_HAS_AXPY_F32_SSE2
#define ML_HAS_SCORES_F32_SSE2
#define ML_HAS_MIX_F32_SSE2

#endif
