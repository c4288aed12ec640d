/* SPDX-License-Identifier: BSD-3-Clause
 * A model in memory: tensors that point into the file. */
#ifndef ML_MODEL_MODEL_H
#define ML_MODEL_MODEL_H

#include "../core/arena.h"
#include "../core/file.h"
#include "../core/tensor.h"
#include "../include/legacyml.h"

typedef struct ml_layer {
  const float *attn_norm; /* dim */
  ml_qtensor wq;          /* dim x dim */
  ml_qtensor wk, wv;      /* kv_dim x dim */
  ml_qtensor wo;          /* dim x dim */
  const float *ffn_norm;  /* dim */
  ml_qtensor w1;          /* hidden_dim x dim */
  ml_qtensor w2;          /* dim x hidden_dim */
  ml_qtensor w3;          /* hidden_dim x dim */
} ml_layer;

struct ml_model {
  ml_file file;
  ml_arena arena; /* layers */
  ml_model_info info;
  ml_qtensor tok_emb; /* vocab x dim */
  ml_layer *layers;
  const float *final_norm;   /* dim */
  ml_qtensor wcls;           /* vocab x dim; tok_emb where the classifier is shared */
  const float *rope_factors; /* head_dim / 2, or NULL */
};

#endif
