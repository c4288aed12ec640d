/* SPDX-License-Identifier: BSD-3-Clause
 * The sixteen lanes of float_ops.h in four registers of four floats.
 *
 * The including file has defined v4 and
 *   v4_load, v4_store, v4_set1, v4_add, v4_sub, v4_mul, v4_div, v4_max, v4_neg, v4_exp_join   as those of v16
 *   v4 v4_load_n(const float *, int n)       the first n, the rest +0; n may be below 0 or above 4
 *   v4_store_n(float *, v4, int n)           only the first n; n may be below 0 or above 4
 *   v4_fold, v4_highest                      (0 + 2) + (1 + 3), the last two steps of every fold; the largest lane
 *   v4_fold4                                 as in float_ops.h */
#ifndef ML_KERNELS_VECTOR_V16_OF_4_H
#define ML_KERNELS_VECTOR_V16_OF_4_H

#include "../inline.h"

/* Of sixteen registers, eight. */
#define MIX_REGISTERS 2

typedef struct {
  v4 v[4];
} v16;

ML_INLINE v16 v16_load(const float *p) {
  return (v16){{v4_load(p), v4_load(p + 4), v4_load(p + 8), v4_load(p + 12)}};
}

ML_INLINE void v16_store(float *p, v16 a) {
  v4_store(p, a.v[0]);
  v4_store(p + 4, a.v[1]);
  v4_store(p + 8, a.v[2]);
  v4_store(p + 12, a.v[3]);
}

ML_INLINE v16 v16_load_n(const float *p, int n) {
  return (v16){{v4_load_n(p, n), v4_load_n(p + 4, n - 4), v4_load_n(p + 8, n - 8), v4_load_n(p + 12, n - 12)}};
}

ML_INLINE void v16_store_n(float *p, v16 a, int n) {
  v4_store_n(p, a.v[0], n);
  v4_store_n(p + 4, a.v[1], n - 4);
  v4_store_n(p + 8, a.v[2], n - 8);
  v4_store_n(p + 12, a.v[3], n - 12);
}

ML_INLINE v16 v16_set1(float x) {
  v4 v = v4_set1(x);
  return (v16){{v, v, v, v}};
}

ML_INLINE v16 v16_neg(v16 a) {
  return (v16){{v4_neg(a.v[0]), v4_neg(a.v[1]), v4_neg(a.v[2]), v4_neg(a.v[3])}};
}

#define ML_V16_LANEWISE(op)                                                                                             \
  ML_INLINE v16 v16_##op(v16 a, v16 b) {                                                                                \
    return (v16){{v4_##op(a.v[0], b.v[0]), v4_##op(a.v[1], b.v[1]), v4_##op(a.v[2], b.v[2]), v4_##op(a.v[3], b.v[3])}}; \
  }
ML_V16_LANEWISE(add)
ML_V16_LANEWISE(sub)
ML_V16_LANEWISE(mul)
ML_V16_LANEWISE(div)
ML_V16_LANEWISE(max)
#undef ML_V16_LANEWISE

ML_INLINE v16 v16_exp_join(v16 x, v16 p, v16 t) {
  return (v16){{v4_exp_join(x.v[0], p.v[0], t.v[0]), v4_exp_join(x.v[1], p.v[1], t.v[1]), v4_exp_join(x.v[2], p.v[2], t.v[2]),
                v4_exp_join(x.v[3], p.v[3], t.v[3])}};
}

ML_INLINE v4 v16_quarter(v16 a) {
  return v4_add(v4_add(a.v[0], a.v[2]), v4_add(a.v[1], a.v[3]));
}

ML_INLINE float v16_fold(v16 a) {
  return v4_fold(v16_quarter(a));
}

ML_INLINE float v16_highest(v16 a) {
  return v4_highest(v4_max(v4_max(a.v[0], a.v[1]), v4_max(a.v[2], a.v[3])));
}

#endif
