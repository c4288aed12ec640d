/* SPDX-License-Identifier: BSD-3-Clause
 * The kernel interface. The order of every operation is normative (README.md of this folder): all ISAs give the same bits.
 *
 * A kernel is called ml_k_<op>_<isa>; config/ml_config.h binds ml_k_<op> to one of them at compile time. Pointers need the alignment
 * of their type only; arrays that are written must not overlap others unless said so. */
#ifndef ML_KERNELS_H
#define ML_KERNELS_H

#include <stddef.h>

#include "../core/quant.h"
#include "../core/tensor.h"

/* So many rows of a matrix are read at the same time, where they lie far apart. */
#define ML_MATVEC_STREAMS 4

/* Declares the whole set for one ISA; an ISA that lacks a kernel simply has no definition for it. */
#define ML_DECLARE_KERNELS(isa)                                                                                                     \
  /* y[r] = W[r] . x for r0 <= r < r1, and with apart > 0 also for the rows that lie apart, 2 apart and 3 apart below each of them; \
   * W is rows x cols of Q8_0 or Q4_0, x->n == cols; y is indexed by r, not r - r0. */                                              \
  void ml_k_matvec_q8_##isa(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart);                            \
  void ml_k_matvec_q4_##isa(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart);                            \
  /* y[c * stride + r] = W[r] . x_c for r0 <= r < r1 and `columns` vectors x_c that lie one behind the other in x: the bits of      \
   * matvec, but weights are read once for all. */                                                                                  \
  void ml_k_matmul_q8_##isa(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1);           \
  void ml_k_matmul_q4_##isa(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1);           \
  /* out->q, out->d, out->sums = x as Q8_0; k == out->n, a multiple of 32. A block with NaN or infinity: d = NaN, q = 0. */         \
  void ml_k_quantize_q8_##isa(ml_qact *out, const float *x, int k);                                                                 \
  /* o = x / sqrt(mean(x^2) + eps) * w; n >= 1; o == x allowed. */                                                                  \
  void ml_k_rmsnorm_##isa(float *o, const float *x, const float *w, int n, float eps);                                              \
  /* x = softmax(x) in place; n >= 1. */                                                                                            \
  void ml_k_softmax_##isa(float *x, int n);                                                                                         \
  /* Rotates interleaved pairs of n_heads query heads and n_kv_heads key heads; cos_t, sin_t: head_dim / 2 values. */               \
  void ml_k_rope_##isa(float *q, float *k, const float *cos_t, const float *sin_t, int head_dim, int n_heads, int n_kv_heads);      \
  /* g = silu(g) * u */                                                                                                             \
  void ml_k_silu_mul_##isa(float *g, const float *u, int n);                                                                        \
  /* y += x */                                                                                                                      \
  void ml_k_add_##isa(float *y, const float *x, int n);                                                                             \
  /* sum of a[i] * b[i] */                                                                                                          \
  float ml_k_dot_f32_##isa(const float *a, const float *b, int n);                                                                  \
  /* y += a * x */                                                                                                                  \
  void ml_k_axpy_f32_##isa(float *y, float a, const float *x, int n);                                                               \
  /* Attention of `queries` vectors of n floats over `positions` keys or values of n floats, each one behind the other:             \
   * y[i * stride + t] = dot_f32(q_i, k_t) * factor; nothing where positions <= 0 */                                                \
  void ml_k_scores_f32_##isa(float *y, size_t stride, const float *q, int queries, const float *k, int positions, int n,            \
                             float factor);                                                                                         \
  /* y_i = y_i + p[i * stride + t] * v_t, an axpy_f32 for every t, in rising order */                                               \
  void ml_k_mix_f32_##isa(float *y, const float *p, size_t stride, int queries, const float *v, int positions, int n);

/* Every operation once: the binding table, its text and the tests are made from this list. */
#define ML_FOR_EACH_KERNEL(X)                                                                                  \
  X(matvec_q8) X(matvec_q4) X(matmul_q8) X(matmul_q4) X(quantize_q8) X(rmsnorm) X(softmax) X(rope) X(silu_mul) \
  X(add) X(dot_f32) X(axpy_f32) X(scores_f32) X(mix_f32)

/* What ml_bench judges kernels by: a loop of nothing but the build's multiply-add, in registers. Returns how many it has done, a multiple of
 * steps >= 1. No part of the library: the peak.c of the nearest ISA in the chain is linked into ml_bench. */
double ml_k_peak_q8(long steps);  /* bytes times bytes, added up as int32 */
double ml_k_peak_q4(long steps);  /* one of the bytes has four bits: where products have to be widened before they are added up, that can wait */
double ml_k_peak_f32(long steps); /* a multiplication and an addition of floats */

#endif
