/* SPDX-License-Identifier: BSD-3-Clause
 * The steps of a forward pass: kernels of the build, spread over threads where that pays. Results do not depend on the threads. */
#ifndef ML_OPS_H
#define ML_OPS_H

#include "../core/tensor.h"
#include "../core/threads.h"

/* Y = W X for one matrix of a group. */
typedef struct ml_product {
  float *y; /* columns x W->rows */
  const ml_qtensor *W;
} ml_product;

/* Up to this many matrices share one input and one pass over the threads. */
#define ML_PRODUCT_GROUP 3

/* Every product of the group with the `columns` vectors that lie one behind the other in x; all matrices have x->n columns. */
void ml_op_matmul(ml_threads *threads, const ml_product *group, int n, const ml_qact *x, int columns);

/* Positions that a thread takes at once, so that they share what they read of the cache. */
#define ML_ATTENTION_COLUMNS 8

/* Grouped-query attention of `columns` positions, of which the first sees `before` others and itself, and each that follows one more. Query
 * head h sees KV head h / (n_heads / n_kv_heads). */
typedef struct ml_attention {
  const float *q;             /* columns x n_heads x head_dim */
  const float *keys, *values; /* n_kv_heads x capacity x head_dim */
  float *scores;              /* scratch: threads x ML_ATTENTION_COLUMNS x (n_heads / n_kv_heads) x capacity */
  float *out;                 /* columns x n_heads x head_dim */
  int n_heads, n_kv_heads, head_dim, capacity, before, columns;
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
