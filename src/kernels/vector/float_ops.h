/* SPDX-License-Identifier: BSD-3-Clause
 * The float kernels of every vector ISA, written once over sixteen lanes.
 *
 * The including file has defined v16, sixteen floats in as many registers as the ISA needs (lane l of a sum is lane l of it):
 *   v16 v16_load(const float *), v16_load_n(const float *, int n)   0 < n < 16: the first n, the rest +0
 *   v16_store(float *, v16),     v16_store_n(float *, v16, int n)   only the first n
 *   v16_set1, v16_add, v16_sub, v16_mul, v16_div, v16_neg (flips the sign bit)
 *   v16_max        of two operands; either one if they are equal or one is NaN
 *   v16_exp_join   the lanes' bits(p) + (bits(t) << 23); then 0 where x < ML_EXP_MIN, infinity where x > ML_EXP_MAX, x where x is NaN
 *   v16_fold       the sum of all lanes, folded in halves
 *   v4 v16_quarter(v16)   the first two steps of that: four lanes are left
 *   v4_fold4(float *y, v4, v4, v4, v4, float factor)   the last two steps for four sums: y[i] = sum i * factor
 *   MIX_REGISTERS  so many v16 may be held through a loop beside two others
 *   v16_highest    the largest lane
 * Every one rounds each operation separately. */
#ifndef ML_KERNELS_VECTOR_FLOAT_OPS_H
#define ML_KERNELS_VECTOR_FLOAT_OPS_H

#include <stddef.h>

#include "../inline.h"
#include "../exp_constants.h"
#include "../scalar/float.h"

ML_INLINE v16 v16_exp(v16 x) {
  v16 t = v16_add(v16_mul(x, v16_set1(ML_EXP_LOG2E)), v16_set1(ML_EXP_MAGIC));
  v16 n = v16_sub(t, v16_set1(ML_EXP_MAGIC));
  v16 r = v16_sub(v16_sub(x, v16_mul(n, v16_set1(ML_EXP_LN2_HIGH))), v16_mul(n, v16_set1(ML_EXP_LN2_LOW)));
  v16 p = v16_set1(ML_EXP_P5);
  p = v16_add(v16_mul(p, r), v16_set1(ML_EXP_P4));
  p = v16_add(v16_mul(p, r), v16_set1(ML_EXP_P3));
  p = v16_add(v16_mul(p, r), v16_set1(ML_EXP_P2));
  p = v16_add(v16_mul(p, r), v16_set1(ML_EXP_P1));
  p = v16_add(v16_mul(p, r), v16_set1(ML_EXP_P0));
  p = v16_add(v16_add(v16_mul(p, v16_mul(r, r)), r), v16_set1(1.0f));
  return v16_exp_join(x, p, t);
}

/* The sixteen lanes of a dot product. */
ML_INLINE v16 vector_dot_lanes(const float *a, const float *b, int n) {
  v16 sum = v16_set1(0.0f);
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    sum = v16_add(sum, v16_mul(v16_load(a + i), v16_load(b + i)));
  }
  if (i < n) {
    sum = v16_add(sum, v16_mul(v16_load_n(a + i, n - i), v16_load_n(b + i, n - i)));
  }
  return sum;
}

ML_INLINE float vector_dot(const float *a, const float *b, int n) {
  return v16_fold(vector_dot_lanes(a, b, n));
}

ML_INLINE void vector_axpy(float *y, float a, const float *x, int n) {
  v16 factor = v16_set1(a);
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    v16_store(y + i, v16_add(v16_load(y + i), v16_mul(factor, v16_load(x + i))));
  }
  if (i < n) {
    v16_store_n(y + i, v16_add(v16_load_n(y + i, n - i), v16_mul(factor, v16_load_n(x + i, n - i))), n - i);
  }
}

/* Four keys at a time, so that they share the last steps of the fold. */
ML_INLINE void vector_scores(float *y, size_t stride, const float *q, int queries, const float *k, int positions, int n, float factor) {
  size_t length = (size_t)n;
  int t = 0;
  for (; t + 4 <= positions; t += 4) {
    for (int i = 0; i < queries; i++) {
      const float *x = q + (size_t)i * length, *key = k + (size_t)t * length;
      v4 a = v16_quarter(vector_dot_lanes(x, key, n)), b = v16_quarter(vector_dot_lanes(x, key + length, n));
      v4 c = v16_quarter(vector_dot_lanes(x, key + 2 * length, n)), d = v16_quarter(vector_dot_lanes(x, key + 3 * length, n));
      v4_fold4(y + (size_t)i * stride + (size_t)t, a, b, c, d, factor);
    }
  }
  for (; t < positions; t++) {
    for (int i = 0; i < queries; i++) {
      y[(size_t)i * stride + (size_t)t] = vector_dot(q + (size_t)i * length, k + (size_t)t * length, n) * factor;
    }
  }
}

/* y + the first of its lanes `width` v16 wide, held in registers over all values. */
ML_INLINE void vector_mix_lanes(float *y, const float *p, const float *v, int positions, int n, int width) {
  v16 sum[MIX_REGISTERS];
  ML_UNROLL for (int j = 0; j < width; j++) {
    sum[j] = v16_load(y + 16 * j);
  }
  for (int t = 0; t < positions; t++, v += n) {
    v16 factor = v16_set1(p[t]);
    ML_UNROLL for (int j = 0; j < width; j++) {
      sum[j] = v16_add(sum[j], v16_mul(factor, v16_load(v + 16 * j)));
    }
  }
  ML_UNROLL for (int j = 0; j < width; j++) {
    v16_store(y + 16 * j, sum[j]);
  }
}

ML_INLINE void vector_mix(float *y, const float *p, size_t stride, int queries, const float *v, int positions, int n) {
  for (int i = 0; i < queries; i++, y += n, p += stride) {
    int j = 0;
    for (; j + 16 * MIX_REGISTERS <= n; j += 16 * MIX_REGISTERS) {
      vector_mix_lanes(y + j, p, v + j, positions, n, MIX_REGISTERS);
    }
    for (; j + 16 <= n; j += 16) {
      vector_mix_lanes(y + j, p, v + j, positions, n, 1);
    }
    if (j < n) {
      v16 sum = v16_load_n(y + j, n - j);
      for (int t = 0; t < positions; t++) {
        sum = v16_add(sum, v16_mul(v16_set1(p[t]), v16_load_n(v + (size_t)t * (size_t)n + j, n - j)));
      }
      v16_store_n(y + j, sum, n - j);
    }
  }
}

ML_INLINE void vector_add(float *y, const float *x, int n) {
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    v16_store(y + i, v16_add(v16_load(y + i), v16_load(x + i)));
  }
  if (i < n) {
    v16_store_n(y + i, v16_add(v16_load_n(y + i, n - i), v16_load_n(x + i, n - i)), n - i);
  }
}

ML_INLINE void vector_rmsnorm(float *o, const float *x, const float *w, int n, float eps) {
  v16 r = v16_set1(1.0f / ml_sqrtf(vector_dot(x, x, n) / (float)n + eps));
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    v16_store(o + i, v16_mul(v16_mul(v16_load(x + i), r), v16_load(w + i)));
  }
  if (i < n) {
    v16_store_n(o + i, v16_mul(v16_mul(v16_load_n(x + i, n - i), r), v16_load_n(w + i, n - i)), n - i);
  }
}

ML_INLINE float vector_highest(const float *x, int n) {
  v16 high = v16_set1(x[0]);
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    high = v16_max(high, v16_load(x + i));
  }
  float highest = v16_highest(high);
  for (; i < n; i++) {
    highest = x[i] > highest ? x[i] : highest;
  }
  return highest;
}

ML_INLINE void vector_softmax(float *x, int n) {
  v16 max = v16_set1(vector_highest(x, n));
  v16 sum = v16_set1(0.0f);
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    v16 e = v16_exp(v16_sub(v16_load(x + i), max));
    v16_store(x + i, e);
    sum = v16_add(sum, e);
  }
  if (i < n) {
    /* Stored and loaded again, so that lanes beyond the end add +0. */
    v16_store_n(x + i, v16_exp(v16_sub(v16_load_n(x + i, n - i), max)), n - i);
    sum = v16_add(sum, v16_load_n(x + i, n - i));
  }
  v16 inverse = v16_set1(1.0f / v16_fold(sum));
  for (i = 0; i + 16 <= n; i += 16) {
    v16_store(x + i, v16_mul(v16_load(x + i), inverse));
  }
  if (i < n) {
    v16_store_n(x + i, v16_mul(v16_load_n(x + i, n - i), inverse), n - i);
  }
}

ML_INLINE v16 v16_silu_mul(v16 g, v16 u) {
  return v16_mul(v16_div(g, v16_add(v16_set1(1.0f), v16_exp(v16_neg(g)))), u);
}

ML_INLINE void vector_silu_mul(float *g, const float *u, int n) {
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    v16_store(g + i, v16_silu_mul(v16_load(g + i), v16_load(u + i)));
  }
  if (i < n) {
    v16_store_n(g + i, v16_silu_mul(v16_load_n(g + i, n - i), v16_load_n(u + i, n - i)), n - i);
  }
}

#endif
