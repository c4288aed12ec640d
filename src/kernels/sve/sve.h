/* SPDX-License-Identifier: BSD-3-Clause
 * What the sve folder implements, for every vector length. SVE only: A64FX has no NEON dot product. */
#ifndef ML_KERNELS_SVE_H
#define ML_KERNELS_SVE_H

#ifndef __ARM_FEATURE_SVE
#error "this folder needs -march=armv8.2-a+sve"
#endif

#include "../kernels.h"

ML_DECLARE_KERNELS(sve)

#define ML_HAS_MATVEC_Q8_SVE
#define ML_HAS_MATVEC_Q4_SVE
#define ML_HAS_MATMUL_Q8_SVE
#define ML_HAS_MATMUL_Q4_SVE
#define ML_HAS_QUANTIZE_Q8_SVE

#endif
