/* SPDX-License-Identifier: BSD-3-Clause
 * The steps of a forward pass: kernels of the build, spread over threads where that pays. */
#include "ops.h"

#include <stddef.h>
#include <string.h>

#include "../config/ml_config.h"
#include "../core/quant.h"
#include "../kernels/prefetch.h"
#include "../kernels/scalar/float.h"

/* A product with one vector is given out in this many chunks for each thread: enough that one which is put aside holds up little. With many
 * vectors it is given out in two panels of the widest ISA. */
#define CHUNKS_PER_THREAD 4
#define CHUNK_ROWS_OF_MANY 32

typedef struct {
  const ml_product *group;
  int n;
  const ml_qact *x;
  int columns;
} product_job;

/* Items of one matrix. With many vectors an item is a row. With one vector it is a row of each quarter, which kernels read at the same time, so
 * that a thread goes on where it stopped, in all four, from one chunk to the next; up to three rows that are left are one more. */
static int product_items(const ml_qtensor *W, int columns) {
  return columns > 1 ? W->rows : W->rows / ML_MATVEC_STREAMS + (W->rows % ML_MATVEC_STREAMS != 0);
}

static void matvec(const ml_product *p, const ml_qact *x, int r0, int r1, int apart) {
  if (p->W->type == ML_Q8_0) {
    ml_k_matvec_q8(p->y, p->W, x, r0, r1, apart);
  } else {
    ml_k_matvec_q4(p->y, p->W, x, r0, r1, apart);
  }
}

static void product_part(const ml_product *p, const ml_qact *x, int columns, int begin, int end) {
  int rows = p->W->rows, quarter = rows / ML_MATVEC_STREAMS;
  if (columns > 1) {
    if (p->W->type == ML_Q8_0) {
      ml_k_matmul_q8(p->y, (size_t)rows, p->W, x, columns, begin, end);
    } else {
      ml_k_matmul_q4(p->y, (size_t)rows, p->W, x, columns, begin, end);
    }
    return;
  }
  if (begin < quarter) {
    matvec(p, x, begin, end < quarter ? end : quarter, quarter);
  }
  if (end > quarter) {
    matvec(p, x, ML_MATVEC_STREAMS * quarter, rows, 0);
  }
}

/* Items begin <= i < end of the group's matrices one after the other. */
static void group_part(void *arg, int begin, int end, int thread) {
  const product_job *job = arg;
  (void)thread;
  for (int i = 0, first = 0; i < job->n && first < end; i++) {
    int items = product_items(job->group[i].W, job->columns);
    int i0 = begin > first ? begin - first : 0;
    int i1 = end - first < items ? end - first : items;
    if (i0 < i1) {
      product_part(&job->group[i], job->x, job->columns, i0, i1);
    }
    first += items;
  }
}

void ml_op_matmul(ml_threads *threads, const ml_product *group, int n, const ml_qact *x, int columns) {
  product_job job = {group, n, x, columns};
  int items = 0;
  for (int i = 0; i < n; i++) {
    items += product_items(group[i].W, columns);
  }
  int chunk = columns > 1 ? CHUNK_ROWS_OF_MANY : (items - 1) / (CHUNKS_PER_THREAD * ml_threads_count(threads)) + 1;
  ml_threads_run(threads, group_part, &job, items, chunk);
}

typedef struct {
  const ml_attention *a;
  int heads; /* query heads of one item; they share a KV head */
} attention_job;

/* Positions that are worked on at once: their keys, or values, stay in the first-level cache for all columns of an item. A single token finds them in
 * memory, because the weights of the layers in between have pushed them out of the caches, and fetches those of one step during the one before it; a
 * longer step would have to wait for its own fetching (with 32 positions a token at position 2,000 took a fifth longer). */
static int step_of(const ml_attention *a) {
  return a->columns == 1 ? 16 : 32;
}

/* Of the positions from t on, those of a step that this column sees. */
static int seen_positions(const ml_attention *a, int column, int t) {
  int seen = a->before + column + 1 - t;
  return seen < step_of(a) ? seen : step_of(a);
}

/* Fetches the keys, or values, of a step from t on. */
static void read_ahead(const ml_attention *a, const float *rows, int t, int positions) {
  size_t row_bytes = (size_t)a->head_dim * sizeof *rows;
  if (a->columns == 1 && t < positions) {
    int end = positions - t < step_of(a) ? positions : t + step_of(a);
    ml_prefetch(rows, (size_t)t * row_bytes, (size_t)end * row_bytes);
  }
}

/* An item is some query heads at up to ML_ATTENTION_COLUMNS positions; all positions of these heads follow one another, so that their keys stay in
 * a cache. */
static void attention_items(void *arg, int begin, int end, int thread) {
  const attention_job *job = arg;
  const ml_attention *a = job->a;
  int group = a->n_heads / a->n_kv_heads, tiles = (a->columns - 1) / ML_ATTENTION_COLUMNS + 1;
  size_t head_dim = (size_t)a->head_dim, capacity = (size_t)a->capacity, heads = (size_t)job->heads;
  size_t scores_of_column = heads * capacity, column_stride = (size_t)a->n_heads * head_dim;
  float factor = 1.0f / ml_sqrtf((float)a->head_dim);
  int step = step_of(a);
  float *scores = a->scores + (size_t)thread * ML_ATTENTION_COLUMNS * (size_t)group * capacity;
  for (int i = begin; i < end; i++) {
    int head = i / tiles * job->heads, first = i % tiles * ML_ATTENTION_COLUMNS;
    int n = a->columns - first < ML_ATTENTION_COLUMNS ? a->columns - first : ML_ATTENTION_COLUMNS, positions = a->before + first + n;
    const float *q = a->q + (size_t)first * column_stride + (size_t)head * head_dim;
    float *out = a->out + (size_t)first * column_stride + (size_t)head * head_dim;
    const float *keys = a->keys + (size_t)(head / group) * capacity * head_dim;
    const float *values = a->values + (size_t)(head / group) * capacity * head_dim;
    for (int t = 0; t < positions; t += step) {
      read_ahead(a, keys, t + step, positions);
      for (int c = 0; c < n; c++) {
        ml_k_scores_f32(scores + (size_t)c * scores_of_column + t, capacity, q + (size_t)c * column_stride, job->heads,
                        keys + (size_t)t * head_dim, seen_positions(a, first + c, t), a->head_dim, factor);
      }
    }
    read_ahead(a, values, 0, positions);
    for (int c = 0; c < n; c++) {
      for (size_t h = 0; h < heads; h++) {
        ml_k_softmax(scores + (size_t)c * scores_of_column + h * capacity, a->before + first + c + 1);
      }
      memset(out + (size_t)c * column_stride, 0, heads * head_dim * sizeof *out);
    }
    for (int t = 0; t < positions; t += step) {
      read_ahead(a, values, t + step, positions);
      for (int c = 0; c < n; c++) {
        ml_k_mix_f32(out + (size_t)c * column_stride, scores + (size_t)c * scores_of_column + t, capacity, job->heads,
                     values + (size_t)t * head_dim, seen_positions(a, first + c, t), a->head_dim);
      }
    }
  }
}

void ml_op_attention(ml_threads *threads, const ml_attention *attention) {
  int group = attention->n_heads / attention->n_kv_heads, tiles = (attention->columns - 1) / ML_ATTENTION_COLUMNS + 1;
  /* Heads that share a KV head read it once, unless threads would have nothing to do. */
  attention_job job = {attention, attention->n_kv_heads * tiles < ml_threads_count(threads) ? 1 : group};
  ml_threads_run(threads, attention_items, &job, attention->n_heads / job.heads * tiles, 1);
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
