/* SPDX-License-Identifier: BSD-3-Clause
 * Registers of the loops of ml_k_peak_* (vector/peak.h) with 256-bit x86. */
#ifndef ML_KERNELS_AVX2_PEAK_REGISTERS_H
#define ML_KERNELS_AVX2_PEAK_REGISTERS_H

#include <immintrin.h>

#include "../inline.h"

typedef __m256i ints;
typedef __m256 floats;

#define FLOAT_MADDS 8

ML_INLINE ints ints_set1(int i) {
  return _mm256_set1_epi32(i);
}

ML_INLINE int ints_any(ints a) {
  return _mm256_cvtsi256_si32(a);
}

ML_INLINE floats floats_set1(float f) {
  return _mm256_set1_ps(f);
}

ML_INLINE float floats_any(floats a) {
  return _mm256_cvtss_f32(a);
}

ML_INLINE floats step_f32(floats a, floats b) {
  return _mm256_add_ps(_mm256_mul_ps(a, b), b);
}

#endif
