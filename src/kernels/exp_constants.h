/* SPDX-License-Identifier: BSD-3-Clause
 * Constants of exp, in the names of README.md: exp(x) = 2^n * e^r with x = n ln 2 + r and |r| <= ln 2 / 2. */
#ifndef ML_KERNELS_EXP_CONSTANTS_H
#define ML_KERNELS_EXP_CONSTANTS_H

#define ML_EXP_LOG2E 0x1.715476p+0f
/* 1.5 * 2^23: adding it leaves a rounded integer in the low bits of the sum. */
#define ML_EXP_MAGIC 12582912.0f
/* ln 2 in two parts; n times the first is exact. */
#define ML_EXP_LN2_HIGH 0x1.63p-1f
#define ML_EXP_LN2_LOW (-0x1.bd0106p-13f)
/* (e^r - 1 - r) / r^2, least relative error, highest power first */
#define ML_EXP_P5 0x1.a0d2cep-13f
#define ML_EXP_P4 0x1.6e879cp-10f
#define ML_EXP_P3 0x1.11121p-7f
#define ML_EXP_P2 0x1.555382p-5f
#define ML_EXP_P1 0x1.555554p-3f
#define ML_EXP_P0 0x1p-1f
/* Above: infinity. Below: zero, although smaller numbers would still be subnormal. */
#define ML_EXP_MAX 0x1.62e42ep+6f
#define ML_EXP_MIN (-0x1.5d589ep+6f)

#endif
