/* SPDX-License-Identifier: BSD-3-Clause
 * What the avxvnni folder implements: the two kernels that vpdpbusd makes faster. */
#ifndef ML_KERNELS_AVXVNNI_H
#define ML_KERNELS_AVXVNNI_H

#ifndef __AVXVNNI__
#error "this folder needs -mavxvnni"
#endif

#include "../kernels.h"

ML_DECLARE_KERNELS(avxvnni)

#define ML_HAS_MATVEC_Q8_AVXVNNI
#define ML_HAS_MATVEC_Q4_AVXVNNI
#define ML_HAS_MATMUL_Q8_AVXVNNI
#define ML_HAS_MATMUL_Q4_AVXVNNI

#endif
