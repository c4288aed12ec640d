/* SPDX-License-Identifier: BSD-3-Clause
 * Registers of the loops of ml_k_peak_* (vector/peak.h) with 128-bit x86. */
#ifndef ML_KERNELS_SSE2_PEAK_REGISTERS_H
#define ML_KERNELS_SSE2_PEAK_REGISTERS_H

#include <emmintrin.h>

#include "../inline.h"

typedef __m128i ints;
typedef __m128 floats;

#define FLOAT_MADDS 4

ML_INLINE ints ints_set1(int i) {
  return _mm_set1_epi32(i);
}

ML_INLINE int ints_any(ints a) {
  return _mm_cvtsi128_si32(a);
}

ML_INLINE floats floats_set1(float f) {
  return _mm_set1_ps(f);
}

ML_INLINE float floats_any(floats a) {
  return _mm_cvtss_f32(a);
}

ML_INLINE floats step_f32(floats a, floats b) {
  return _mm_add_ps(_mm_mul_ps(a, b), b);
}

#endif
