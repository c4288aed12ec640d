/* SPDX-License-Identifier: BSD-3-Clause
 * The steps of a forward pass: kernels of the build, spread over threads where that pays. Results do not depend on the threads. */
#ifndef ML_OPS_H
#define ML_OPS_H

#include "../core/tensor.h"
#include "../core/threads.h"

/* y = W x for one matrix of a group. */
typedef struct ml_matvec {
  float *y; /* W->rows */
  const ml_qtensor *W;
} ml_matvec;

/* Up to this many matrices share one input and one pass over the threads. */
#define ML_MATVEC_GROUP 3

/* Every product of the group with x; all matrices have x->n columns. */
void ml_op_matvec(ml_threads *threads, const ml_matvec *group, int n, const ml_qact *x);

/* Grouped-query attention of one position. q: n_heads x head_dim. Row t of keys and values is kv_dim floats, `positions` rows; query head h
 * sees KV head h / (n_heads / n_kv_heads). scores: n_heads x positions floats of scratch. out: n_heads x head_dim. */
typedef struct ml_attention {
  const float *q, *keys, *values;
  float *scores, *out;
  int n_heads, n_kv_heads, head_dim, positions;
} ml_attention;

void ml_op_attention(ml_threads *threads, const ml_attention *attention);

/* x = row `row` of W as floats, W->cols of them. */
void ml_op_dequantize_row(float *x, const ml_qtensor *W, int row);

void ml_op_quantize(ml_qact *out, const float *x, int n);
void ml_op_rmsnorm(float *o, const float *x, const float *w, int n, float eps);
void ml_op_rope(float *q, float *k, const float *cos_t, const float *sin_t, int head_dim, int n_heads, int n_kv_heads);
void ml_op_silu_mul(float *g, const float *u, int n);
void ml_op_add(float *y, const float *x, int n);
void ml_op_softmax(float *x, int n);

#endif
