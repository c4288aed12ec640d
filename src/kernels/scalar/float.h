/* SPDX-License-Identifier: BSD-3-Clause
 * Float arithmetic that needs no libm, and the one exp of the project (its constants and order are part of the contract). */
#ifndef ML_KERNELS_SCALAR_FLOAT_H
#define ML_KERNELS_SCALAR_FLOAT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../exp_constants.h"

static inline uint32_t ml_float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float ml_float_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* The IEEE square root as one instruction, without optimisation too: a call would need libm. */
static inline float ml_sqrtf(float x) {
#if defined(__GNUC__)
  return __builtin_sqrtf(x);
#else
  return sqrtf(x);
#endif
}

static inline float ml_exp_scalar(float x) {
  float t = x * ML_EXP_LOG2E + ML_EXP_MAGIC;
  float n = t - ML_EXP_MAGIC;
  float r = (x - n * ML_EXP_LN2_HIGH) - n * ML_EXP_LN2_LOW;
  float p = ML_EXP_P5;
  p = p * r + ML_EXP_P4;
  p = p * r + ML_EXP_P3;
  p = p * r + ML_EXP_P2;
  p = p * r + ML_EXP_P1;
  p = p * r + ML_EXP_P0;
  p = (p * (r * r) + r) + 1.0f;
  if (x != x) {
    return x;
  }
  if (x > ML_EXP_MAX) {
    return INFINITY;
  }
  if (x < ML_EXP_MIN) {
    return 0.0f;
  }
  return ml_float_from_bits(ml_float_bits(p) + (ml_float_bits(t) << 23));
}

#endif
