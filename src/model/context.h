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
  float *keys, *values; /* n_layers x capacity x kv_dim */
  float *cos_t, *sin_t; /* capacity x head_dim / 2 */
  float *x;             /* dim: the residual stream */
  float *normed;        /* dim */
  float *q;             /* dim */
  float *heads;         /* dim: attention output */
  float *scores;        /* n_heads x capacity */
  float *gate, *up;     /* hidden_dim */
  ml_qact act;          /* the larger of dim and hidden_dim */
  float *logits;        /* vocab */
  void *sampler;        /* scratch */
};

#endif
