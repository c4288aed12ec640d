/* SPDX-License-Identifier: BSD-3-Clause
 * What the avx512vnni folder implements. AVX-512 F, BW, VL and VNNI only: no DQ, no VBMI. */
#ifndef ML_KERNELS_AVX512VNNI_H
#define ML_KERNELS_AVX512VNNI_H

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512VL__) || !defined(__AVX512VNNI__)
#error "this folder needs -mavx512f -mavx512bw -mavx512vl -mavx512vnni"
#endif

#include "../kernels.h"

ML_DECLARE_KERNELS(avx512vnni)

#define ML_HAS_MATVEC_Q8_AVX512VNNI
#define ML_HAS_MATVEC_Q4_AVX512VNNI
#define ML_HAS_MATMUL_Q8_AVX512VNNI
#define ML_HAS_MATMUL_Q4_AVX512VNNI
#define ML_HAS_QUANTIZE_Q8_AVX512VNNI
#define ML_HAS_RMSNORM_AVX512VNNI
#define ML_HAS_SOFTMAX_AVX512VNNI
#define ML_HAS_SILU_MUL_AVX512VNNI
#define ML_HAS_ADD_AVX512VNNI
#define ML_HAS_DOT_F32_AVX512VNNI
#define ML_HAS_AXPY_F32_AVX512VNNI
#define ML_HAS_SCORES_F32_AVX512VNNI
#define ML_HAS_MIX_F32_AVX512VNNI

#endif
