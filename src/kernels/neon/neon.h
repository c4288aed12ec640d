/* SPDX-License-Identifier: BSD-3-Clause
 * What the neon folder implements, for ARMv7 and for A64. */
#ifndef ML_KERNELS_NEON_H
#define ML_KERNELS_NEON_H

#ifndef __ARM_NEON
#error "this folder needs NEON: -mfpu=neon on ARMv7"
#endif

#include "../kernels.h"

ML_DECLARE_KERNELS(neon)

#define ML_HAS_MATVEC_Q8_NEON
#define ML_HAS_MATVEC_Q4_NEON
#define ML_HAS_MATMUL_Q8_NEON
#define ML_HAS_MATMUL_Q4_NEON
#define ML_HAS_QUANTIZE_Q8_NEON
#define ML_HAS_RMSNORM_NEON
#define ML_HAS_SOFTMAX_NEON
#define ML_HAS_ROPE_NEON
#define ML_HAS_SILU_MUL_NEON
#define ML_HAS_ADD_NEON
#define ML_HAS_DOT_F32_NEON
#define ML_HAS_AXPY_F32_NEON
#define ML_HAS_SCORES_F32_NEON
#define ML_HAS_MIX_F32_NEON

#endif
