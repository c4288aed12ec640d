/* SPDX-License-Identifier: BSD-3-Clause
 * The steps of a forward pass: kernels of the build, spread over threads where that pays. */
#include "ops.h"

#include <stddef.h>
#include <string.h>

#include "../config/ml_config.h"
#include "../core/quant.h"
#include "../kernels/scalar/float.h"

/* A product is given out in this many chunks for each thread: enough that one which is put aside holds up little, few enough that a chunk is a
 * long stream (a kernel prefetches some KB beyond its end, which is work for nothing where another thread goes on). */
#define CHUNKS_PER_THREAD 4
#define CHUNK_ROWS_MIN 16

typedef struct {
  const ml_matvec *group;
  int n;
  const ml_qact *x;
} matvec_job;

/* Rows begin <= i < end of the group's matrices laid one below the other. */
static void matvec_rows(void *arg, int begin, int end) {
  const matvec_job *job = arg;
  for (int i = 0, first = 0; i < job->n && first < end; i++) {
    const ml_qtensor *W = job->group[i].W;
    int r0 = begin > first ? begin - first : 0;
    int r1 = end - first < W->rows ? end - first : W->rows;
    if (r0 < r1) {
      if (W->type == ML_Q8_0) {
        ml_k_matvec_q8(job->group[i].y, W, job->x, r0, r1);
      } else {
        ml_k_matvec_q4(job->group[i].y, W, job->x, r0, r1);
      }
    }
    first += W->rows;
  }
}

void ml_op_matvec(ml_threads *threads, const ml_matvec *group, int n, const ml_qact *x) {
  matvec_job job = {group, n, x};
  int rows = 0;
  for (int i = 0; i < n; i++) {
    rows += group[i].W->rows;
  }
  int chunk = (rows - 1) / (CHUNKS_PER_THREAD * ml_threads_count(threads)) + 1;
  ml_threads_run(threads, matvec_rows, &job, rows, chunk > CHUNK_ROWS_MIN ? chunk : CHUNK_ROWS_MIN);
}

static void attention_heads(void *arg, int begin, int end) {
  const ml_attention *a = arg;
  int group = a->n_heads / a->n_kv_heads;
  size_t kv_dim = (size_t)(a->n_kv_heads * a->head_dim);
  float factor = 1.0f / ml_sqrtf((float)a->head_dim);
  for (int h = begin; h < end; h++) {
    const float *q = a->q + (size_t)h * (size_t)a->head_dim;
    const float *keys = a->keys + (size_t)(h / group) * (size_t)a->head_dim;
    const float *values = a->values + (size_t)(h / group) * (size_t)a->head_dim;
    float *scores = a->scores + (size_t)h * (size_t)a->positions;
    float *out = a->out + (size_t)h * (size_t)a->head_dim;
    for (int t = 0; t < a->positions; t++) {
      scores[t] = ml_k_dot_f32(q, keys + (size_t)t * kv_dim, a->head_dim) * factor;
    }
    ml_k_softmax(scores, a->positions);
    memset(out, 0, (size_t)a->head_dim * sizeof *out);
    for (int t = 0; t < a->positions; t++) {
      ml_k_axpy_f32(out, scores[t], values + (size_t)t * kv_dim, a->head_dim);
    }
  }
}

void ml_op_attention(ml_threads *threads, const ml_attention *attention) {
  ml_attention a = *attention;
  ml_threads_run(threads, attention_heads, &a, a.n_heads, 1);
}

void ml_op_dequantize_row(float *x, const ml_qtensor *W, int row) {
  size_t blocks = (size_t)W->cols / ML_QK;
  const float *d = W->d + (size_t)row * blocks;
  if (W->type == ML_Q8_0) {
    const int8_t *q = W->q + (size_t)row * (size_t)W->cols;
    for (int i = 0; i < W->cols; i++) {
      x[i] = (float)q[i] * d[i / ML_QK];
    }
    return;
  }
  const uint8_t *q = (const uint8_t *)W->q + (size_t)row * blocks * ML_Q4_BLOCK_BYTES;
  for (int i = 0; i < W->cols; i++) {
    int b = i / ML_QK, j = i % ML_QK;
    int byte = q[b * ML_Q4_BLOCK_BYTES + j % ML_Q4_BLOCK_BYTES];
    x[i] = (float)((j < ML_Q4_BLOCK_BYTES ? byte % 16 : byte / 16) - 8) * d[b];
  }
}

void ml_op_quantize(ml_qact *out, const float *x, int n) {
  ml_k_quantize_q8(out, x, n);
}

void ml_op_rmsnorm(float *o, const float *x, const float *w, int n, float eps) {
  ml_k_rmsnorm(o, x, w, n, eps);
}

void ml_op_rope(float *q, float *k, const float *cos_t, const float *sin_t, int head_dim, int n_heads, int n_kv_heads) {
  ml_k_rope(q, k, cos_t, sin_t, head_dim, n_heads, n_kv_heads);
}

void ml_op_silu_mul(float *g, const float *u, int n) {
  ml_k_silu_mul(g, u, n);
}

void ml_op_add(float *y, const float *x, int n) {
  ml_k_add(y, x, n);
}

void ml_op_softmax(float *x, int n) {
  ml_k_softmax(x, n);
}
