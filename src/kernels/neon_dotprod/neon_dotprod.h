/* SPDX-License-Identifier: BSD-3-Clause
 * What the neon_dotprod folder implements: the kernels that SDOT makes faster. */
#ifndef ML_KERNELS_NEON_DOTPROD_H
#define ML_KERNELS_NEON_DOTPROD_H

#ifndef __ARM_FEATURE_DOTPROD
#error "this folder needs -march=armv8.2-a+dotprod"
#endif

#include "../kernels.h"

ML_DECLARE_KERNELS(neon_dotprod)

#define ML_HAS_MATVEC_Q8_NEON_DOTPROD
#define ML_HAS_MATVEC_Q4_NEON_DOTPROD
#define ML_HAS_MATMUL_Q8_NEON_DOTPROD
#define ML_HAS_MATMUL_Q4_NEON_DOTPROD

#endif
