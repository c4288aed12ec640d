/* SPDX-License-Identifier: BSD-3-Clause
 * What the avx2 folder implements. */
#ifndef ML_KERNELS_AVX2_H
#define ML_KERNELS_AVX2_H

#ifndef __AVX2__
#error "this folder needs -mavx2"
#endif

#include "../kernels.h"

ML_DECLARE_KERNELS(avx2)

#define ML_HAS_MATVEC_Q8_AVX2
#define ML_HAS_MATVEC_Q4_AVX2
#define ML_HAS_MATMUL_Q8_AVX2
#define ML_HAS_MATMUL_Q4_AVX2
#define ML_HAS_QUANTIZE_Q8_AVX2
#define ML_HAS_RMSNORM_AVX2
#define ML_HAS_SOFTMAX_AVX2
#define ML_HAS_ROPE_AVX2
#define ML_HAS_SILU_MUL_AVX2
#define ML_HAS_ADD_AVX2
#define ML_HAS_DOT_F32_AVX2
#define ML_HAS_AXPY_F32_AVX2
#define ML_HAS_SCORES_F32_AVX2
#define ML_HAS_MIX_F32_AVX2

#endif
