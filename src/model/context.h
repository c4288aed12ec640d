/* SPDX-License-Identifier: BSD-3-Clause
 * What a context is made of. */
#ifndef ML_MODEL_CONTEXT_H
#define ML_MODEL_CONTEXT_H

#include "../core/arena.h"
#include "../core/threads.h"
#include "model.h"

struct ml_context {
  const ml_model *model;
  ml_threads *threads;
  ml_arena arena; /* everything below */
  int32_t capacity;
  int32_t position;
  int evaluated;        /* x is the last token's: there was an eval since the start or a rewind */
  int logits_valid;     /* logits are the last token's */
  int32_t *tokens;      /* capacity: the ids held */
  float *keys, *values; /* n_layers x n_kv_heads x capacity x head_dim: what a head reads lies in one piece */
  float *cos_t, *sin_t; /* capacity x head_dim / 2 */
  int32_t batch;        /* positions that are processed at once */
  float *x;             /* batch x dim: the residual stream; the first row is the last token's after an eval */
  float *normed;        /* batch x dim */
  float *q;             /* batch x dim */
  float *k, *v;         /* batch x kv_dim, until they are in the cache */
  float *heads;         /* batch x dim: attention output */
  float *scores;        /* threads x ML_ATTENTION_COLUMNS x (n_heads / n_kv_heads) x capacity */
  float *gate, *up;     /* batch x hidden_dim */
  ml_qact act;          /* batch x the larger of dim and hidden_dim */
  float *logits;        /* vocab */
  void *sampler;        /* scratch */
};

#endif
