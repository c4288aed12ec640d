/* SPDX-License-Identifier: BSD-3-Clause
 * The forward pass: one token at a time through the layers, keys and values kept for the tokens that follow. */
#include "transformer.h"

#include <stdlib.h>
#include <string.h>

#include "../core/quant.h"
#include "../ops/ops.h"
#include "context.h"
#include "rope_table.h"
#include "sampler.h"

#define DEFAULT_CONTEXT 2048
#define MAX_THREADS 1024

/* Cuts every buffer from the arena; run once without memory to learn the size. */
static void lay_out(ml_context *c) {
  const ml_model_info *f = &c->model->info;
  uint64_t dim = (uint64_t)f->dim, hidden = (uint64_t)f->hidden_dim, capacity = (uint64_t)c->capacity;
  uint64_t widest = dim > hidden ? dim : hidden;
  uint64_t cache_row = (uint64_t)f->kv_dim * sizeof(float);
  ml_arena *a = &c->arena;
  c->tokens = ml_arena_take(a, capacity, sizeof(int32_t));
  c->keys = ml_arena_take(a, (uint64_t)f->n_layers * capacity, cache_row);
  c->values = ml_arena_take(a, (uint64_t)f->n_layers * capacity, cache_row);
  c->cos_t = ml_arena_take(a, capacity * (uint64_t)(f->head_dim / 2), sizeof(float));
  c->sin_t = ml_arena_take(a, capacity * (uint64_t)(f->head_dim / 2), sizeof(float));
  c->x = ml_arena_take(a, dim, sizeof(float));
  c->normed = ml_arena_take(a, dim, sizeof(float));
  c->q = ml_arena_take(a, dim, sizeof(float));
  c->heads = ml_arena_take(a, dim, sizeof(float));
  c->scores = ml_arena_take(a, (uint64_t)f->n_heads * capacity, sizeof(float));
  c->gate = ml_arena_take(a, hidden, sizeof(float));
  c->up = ml_arena_take(a, hidden, sizeof(float));
  c->act.q = ml_arena_take(a, widest, 1);
  c->act.d = ml_arena_take(a, widest / ML_QK, sizeof(float));
  c->logits = ml_arena_take(a, (uint64_t)f->vocab, sizeof(float));
  c->sampler = ml_arena_take(a, ml_sampler_bytes(f->vocab), 1);
}

ml_status mli_context_create(const ml_model *model, int32_t context, int32_t threads, ml_context **out, ml_error *err) {
  *out = NULL;
  const ml_model_info *f = &model->info;
  if (context < 0 || context > f->max_seq) {
    return ml_fail(err, ML_E_SHAPE, "a context of %d positions was asked for; this model has at most %d", context, f->max_seq);
  }
  if (threads < 0 || threads > MAX_THREADS) {
    return ml_fail(err, ML_E_ARG, "%d threads were asked for; allowed are 1 to %d, or 0 for the default", threads, MAX_THREADS);
  }
  ml_context *c = calloc(1, sizeof *c);
  if (c == NULL) {
    return ml_fail(err, ML_E_NOMEM, "no memory for a context");
  }
  c->model = model;
  c->capacity = context > 0 ? context : f->max_seq < DEFAULT_CONTEXT ? f->max_seq : DEFAULT_CONTEXT;
  lay_out(c);
  ml_status status = ml_arena_allocate(&c->arena, "the KV cache and buffers", err);
  if (status == ML_OK) {
    int available = ml_threads_available();
    status = ml_threads_create(threads > 0 ? threads : available < MAX_THREADS ? available : MAX_THREADS, &c->threads, err);
  }
  if (status != ML_OK) {
    mli_context_free(c);
    return status;
  }
  lay_out(c);
  ml_rope_tables(c->cos_t, c->sin_t, f->rope_theta, model->rope_factors, f->head_dim, 0, c->capacity);
  *out = c;
  return ml_succeed(err);
}

void mli_context_free(ml_context *context) {
  ml_threads_free(context->threads);
  ml_arena_free(&context->arena);
  free(context);
}

int32_t mli_context_capacity(const ml_context *context) {
  return context->capacity;
}

int32_t mli_context_position(const ml_context *context) {
  return context->position;
}

int32_t mli_context_threads(const ml_context *context) {
  return ml_threads_count(context->threads);
}

ml_status mli_context_rewind(ml_context *context, int32_t position, ml_error *err) {
  if (position < 0 || position > context->position) {
    return ml_fail(err, ML_E_ARG, "cannot go back to position %d; positions 0 to %d are held", position, context->position);
  }
  context->position = position;
  context->evaluated = 0;
  context->logits_valid = 0;
  return ml_succeed(err);
}

const int32_t *mli_context_tokens(const ml_context *context) {
  return context->tokens;
}

static void quantize(ml_context *c, const float *x, int n) {
  c->act.n = n;
  ml_op_quantize(&c->act, x, n);
}

/* x += attention(rmsnorm(x)) */
static void attention_block(ml_context *c, const ml_layer *layer, size_t index) {
  const ml_model_info *f = &c->model->info;
  size_t kv_dim = (size_t)f->kv_dim, pos = (size_t)c->position, half = (size_t)f->head_dim / 2;
  float *keys = c->keys + index * (size_t)c->capacity * kv_dim;
  float *values = c->values + index * (size_t)c->capacity * kv_dim;
  float *k = keys + pos * kv_dim, *v = values + pos * kv_dim;

  ml_op_rmsnorm(c->normed, c->x, layer->attn_norm, f->dim, f->norm_eps);
  quantize(c, c->normed, f->dim);
  ml_matvec qkv[ML_MATVEC_GROUP] = {{c->q, &layer->wq}, {k, &layer->wk}, {v, &layer->wv}};
  ml_op_matvec(c->threads, qkv, 3, &c->act);
  ml_op_rope(c->q, k, c->cos_t + pos * half, c->sin_t + pos * half, f->head_dim, f->n_heads, f->n_kv_heads);
  ml_attention attention = {.q = c->q,
                            .keys = keys,
                            .values = values,
                            .scores = c->scores,
                            .out = c->heads,
                            .n_heads = f->n_heads,
                            .n_kv_heads = f->n_kv_heads,
                            .head_dim = f->head_dim,
                            .positions = c->position + 1};
  ml_op_attention(c->threads, &attention);
  quantize(c, c->heads, f->dim);
  ml_matvec out = {c->normed, &layer->wo};
  ml_op_matvec(c->threads, &out, 1, &c->act);
  ml_op_add(c->x, c->normed, f->dim);
}

/* x += w2 (silu(w1 h) * w3 h), h = rmsnorm(x) */
static void feed_forward_block(ml_context *c, const ml_layer *layer) {
  const ml_model_info *f = &c->model->info;
  ml_op_rmsnorm(c->normed, c->x, layer->ffn_norm, f->dim, f->norm_eps);
  quantize(c, c->normed, f->dim);
  ml_matvec gate_up[ML_MATVEC_GROUP] = {{c->gate, &layer->w1}, {c->up, &layer->w3}};
  ml_op_matvec(c->threads, gate_up, 2, &c->act);
  ml_op_silu_mul(c->gate, c->up, f->hidden_dim);
  quantize(c, c->gate, f->hidden_dim);
  ml_matvec down = {c->normed, &layer->w2};
  ml_op_matvec(c->threads, &down, 1, &c->act);
  ml_op_add(c->x, c->normed, f->dim);
}

ml_status mli_context_eval(ml_context *c, const int32_t *tokens, size_t n_tokens, ml_error *err) {
  const ml_model *m = c->model;
  if (n_tokens == 0) {
    return ml_fail(err, ML_E_ARG, "no tokens to process");
  }
  if (n_tokens > (size_t)(c->capacity - c->position)) {
    return ml_fail(err, ML_E_SHAPE, "%zu tokens behind %d do not fit the context of %d positions", n_tokens, c->position, c->capacity);
  }
  for (size_t i = 0; i < n_tokens; i++) {
    if (tokens[i] < 0 || tokens[i] >= m->info.vocab) {
      return ml_fail(err, ML_E_ARG, "token id %d; this model has ids 0 to %d", tokens[i], m->info.vocab - 1);
    }
  }
  c->logits_valid = 0;
  for (size_t i = 0; i < n_tokens; i++) {
    ml_op_dequantize_row(c->x, &m->tok_emb, tokens[i]);
    for (int l = 0; l < m->info.n_layers; l++) {
      attention_block(c, &m->layers[l], (size_t)l);
      feed_forward_block(c, &m->layers[l]);
    }
    c->tokens[c->position++] = tokens[i];
  }
  c->evaluated = 1;
  return ml_succeed(err);
}

ml_status mli_context_logits(ml_context *c, const float **logits, ml_error *err) {
  const ml_model *m = c->model;
  *logits = NULL;
  if (!c->logits_valid) {
    if (!c->evaluated) {
      return ml_fail(err, ML_E_ARG, "there are no logits: no token has been processed since the start or a rewind");
    }
    ml_op_rmsnorm(c->normed, c->x, m->final_norm, m->info.dim, m->info.norm_eps);
    quantize(c, c->normed, m->info.dim);
    ml_matvec classify = {c->logits, &m->wcls};
    ml_op_matvec(c->threads, &classify, 1, &c->act);
    c->logits_valid = 1;
  }
  *logits = c->logits;
  for (int i = 0; i < m->info.vocab; i++) {
    if (!(c->logits[i] - c->logits[i] == 0.0f)) {
      return ml_fail(err, ML_E_NUMERIC, "the logit of token %d at position %d is not finite", i, c->position - 1);
    }
  }
  return ml_succeed(err);
}

ml_status mli_context_sample(ml_context *c, const ml_sampling *sampling, uint64_t *rng, int32_t *id, ml_error *err) {
  const float *logits;
  ml_status status = mli_context_logits(c, &logits, err);
  if (status != ML_OK) {
    return status;
  }
  int32_t n_recent = c->position < ML_REPEAT_WINDOW ? c->position : ML_REPEAT_WINDOW;
  return ml_sampler_draw(logits, c->model->info.vocab, sampling, c->tokens + c->position - n_recent, (size_t)n_recent, rng, c->sampler, id,
                         err);
}
