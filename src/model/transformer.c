/* SPDX-License-Identifier: BSD-3-Clause
 * The forward pass: a batch of positions through the layers, keys and values kept for the tokens that follow. What a position computes does not
 * depend on the batch that it is in. */
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
/* So many positions share every weight that is read. More gain little, and their activations would no longer fit the caches. */
#define BATCH 128
/* Positions of a batch that a thread takes at once in what is done for each by itself. */
#define CHUNK_COLUMNS 4

/* Cuts every buffer from the arena; run once without memory to learn the size. */
static void lay_out(ml_context *c) {
  const ml_model_info *f = &c->model->info;
  uint64_t dim = (uint64_t)f->dim, hidden = (uint64_t)f->hidden_dim, capacity = (uint64_t)c->capacity;
  uint64_t widest = dim > hidden ? dim : hidden;
  uint64_t kv_dim = (uint64_t)f->kv_dim, batch = (uint64_t)c->batch;
  uint64_t cache_row = kv_dim * sizeof(float), threads = (uint64_t)ml_threads_count(c->threads);
  ml_arena *a = &c->arena;
  c->tokens = ml_arena_take(a, capacity, sizeof(int32_t));
  c->keys = ml_arena_take(a, (uint64_t)f->n_layers * capacity, cache_row);
  c->values = ml_arena_take(a, (uint64_t)f->n_layers * capacity, cache_row);
  c->cos_t = ml_arena_take(a, capacity * (uint64_t)(f->head_dim / 2), sizeof(float));
  c->sin_t = ml_arena_take(a, capacity * (uint64_t)(f->head_dim / 2), sizeof(float));
  c->x = ml_arena_take(a, batch * dim, sizeof(float));
  c->normed = ml_arena_take(a, batch * dim, sizeof(float));
  c->q = ml_arena_take(a, batch * dim, sizeof(float));
  c->k = ml_arena_take(a, batch * kv_dim, sizeof(float));
  c->v = ml_arena_take(a, batch * kv_dim, sizeof(float));
  c->heads = ml_arena_take(a, batch * dim, sizeof(float));
  c->scores = ml_arena_take(a, threads * ML_ATTENTION_COLUMNS * (uint64_t)(f->n_heads / f->n_kv_heads) * capacity, sizeof(float));
  c->gate = ml_arena_take(a, batch * hidden, sizeof(float));
  c->up = ml_arena_take(a, batch * hidden, sizeof(float));
  c->act.q = ml_arena_take(a, batch * widest, 1);
  c->act.d = ml_arena_take(a, batch * widest / ML_QK, sizeof(float));
  c->act.sums = ml_arena_take(a, batch * widest / ML_QK, sizeof(int32_t));
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
  c->batch = c->capacity < BATCH ? c->capacity : BATCH;
  int available = ml_threads_available();
  ml_status status = ml_threads_create(threads > 0 ? threads : available < MAX_THREADS ? available : MAX_THREADS, &c->threads, err);
  if (status == ML_OK) {
    lay_out(c);
    status = ml_arena_allocate(&c->arena, "the KV cache and buffers", err);
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

/* What the steps of a layer need beside the context. */
typedef struct {
  ml_context *c;
  const float *norm;    /* dim, or NULL */
  float *keys, *values; /* of the layer */
} step;

/* Of c->act, for the vector of n at this place of the batch x. */
static void quantize(ml_context *c, const float *x, int n, int column) {
  ml_qact all = {c->act.q, c->act.d, c->act.sums, n}, out = ml_qact_column(&all, column);
  ml_op_quantize(&out, x + (size_t)column * (size_t)n, n);
}

static void normalize(ml_context *c, const float *norm, int column) {
  int dim = c->model->info.dim;
  size_t at = (size_t)column * (size_t)dim;
  ml_op_rmsnorm(c->normed + at, c->x + at, norm, dim, c->model->info.norm_eps);
  quantize(c, c->normed, dim, column);
}

static void normalize_columns(void *arg, int begin, int end, int thread) {
  const step *s = arg;
  (void)thread;
  for (int i = begin; i < end; i++) {
    normalize(s->c, s->norm, i);
  }
}

/* x += normed, which is what a matrix has put there; then normalized for the next, if there is one. */
static void add_columns(void *arg, int begin, int end, int thread) {
  const step *s = arg;
  (void)thread;
  for (int i = begin; i < end; i++) {
    size_t dim = (size_t)s->c->model->info.dim, at = (size_t)i * dim;
    ml_op_add(s->c->x + at, s->c->normed + at, (int)dim);
    if (s->norm != NULL) {
      normalize(s->c, s->norm, i);
    }
  }
}

/* Turns queries and keys and puts keys and values into the cache. */
static void remember_columns(void *arg, int begin, int end, int thread) {
  const step *s = arg;
  ml_context *c = s->c;
  const ml_model_info *f = &c->model->info;
  size_t kv_dim = (size_t)f->kv_dim, head_dim = (size_t)f->head_dim;
  (void)thread;
  for (int i = begin; i < end; i++) {
    size_t pos = (size_t)(c->position + i);
    float *k = c->k + (size_t)i * kv_dim, *v = c->v + (size_t)i * kv_dim;
    ml_op_rope(c->q + (size_t)i * (size_t)f->dim, k, c->cos_t + pos * head_dim / 2, c->sin_t + pos * head_dim / 2, f->head_dim, f->n_heads,
               f->n_kv_heads);
    for (size_t h = 0; h < (size_t)f->n_kv_heads; h++) {
      size_t row = (h * (size_t)c->capacity + pos) * head_dim;
      memcpy(s->keys + row, k + h * head_dim, head_dim * sizeof *k);
      memcpy(s->values + row, v + h * head_dim, head_dim * sizeof *v);
    }
  }
}

static void quantize_heads_columns(void *arg, int begin, int end, int thread) {
  const step *s = arg;
  (void)thread;
  for (int i = begin; i < end; i++) {
    quantize(s->c, s->c->heads, s->c->model->info.dim, i);
  }
}

static void gate_columns(void *arg, int begin, int end, int thread) {
  const step *s = arg;
  int hidden = s->c->model->info.hidden_dim;
  (void)thread;
  for (int i = begin; i < end; i++) {
    size_t at = (size_t)i * (size_t)hidden;
    ml_op_silu_mul(s->c->gate + at, s->c->up + at, hidden);
    quantize(s->c, s->c->gate, hidden, i);
  }
}

static void for_columns(ml_task *task, step *s, int columns) {
  ml_threads_run(s->c->threads, task, s, columns, CHUNK_COLUMNS);
}

static void multiply(ml_context *c, const ml_product *group, int n, int input, int columns) {
  c->act.n = input;
  ml_op_matmul(c->threads, group, n, &c->act, columns);
}

/* One layer for `columns` positions, which follow those that the context holds; c->act is x normalized for it, and afterwards x normalized with
 * next_norm, if that is not NULL. Where only the outcome of the last position is asked for, the first column alone has it afterwards. */
static void forward_layer(ml_context *c, int index, const float *next_norm, int columns, int only_last) {
  const ml_model_info *f = &c->model->info;
  const ml_layer *layer = &c->model->layers[index];
  size_t cached = (size_t)index * (size_t)c->capacity * (size_t)f->kv_dim, dim = (size_t)f->dim;
  step s = {.c = c, .norm = layer->ffn_norm, .keys = c->keys + cached, .values = c->values + cached};
  int before = c->position;

  multiply(c, (ml_product[]){{c->q, &layer->wq}, {c->k, &layer->wk}, {c->v, &layer->wv}}, 3, f->dim, columns);
  for_columns(remember_columns, &s, columns);
  if (only_last && columns > 1) {
    memmove(c->x, c->x + (size_t)(columns - 1) * dim, dim * sizeof *c->x);
    memmove(c->q, c->q + (size_t)(columns - 1) * dim, dim * sizeof *c->q);
    before += columns - 1;
    columns = 1;
  }
  ml_attention attention = {.q = c->q,
                            .keys = s.keys,
                            .values = s.values,
                            .scores = c->scores,
                            .out = c->heads,
                            .n_heads = f->n_heads,
                            .n_kv_heads = f->n_kv_heads,
                            .head_dim = f->head_dim,
                            .capacity = c->capacity,
                            .before = before,
                            .columns = columns};
  ml_op_attention(c->threads, &attention);
  for_columns(quantize_heads_columns, &s, columns);
  multiply(c, &(ml_product){c->normed, &layer->wo}, 1, f->dim, columns);
  for_columns(add_columns, &s, columns);
  multiply(c, (ml_product[]){{c->gate, &layer->w1}, {c->up, &layer->w3}}, 2, f->dim, columns);
  for_columns(gate_columns, &s, columns);
  multiply(c, &(ml_product){c->normed, &layer->w2}, 1, f->hidden_dim, columns);
  s.norm = next_norm;
  for_columns(add_columns, &s, columns);
}

/* The tokens of one batch; afterwards the first row of x is the last token's. logits: columns x vocab, or NULL where those of the last token
 * will do. */
static void forward_batch(ml_context *c, const int32_t *tokens, int columns, float *logits) {
  const ml_model *m = c->model;
  size_t dim = (size_t)m->info.dim;
  int last = m->info.n_layers - 1;
  for (int i = 0; i < columns; i++) {
    ml_op_dequantize_row(c->x + (size_t)i * dim, &m->tok_emb, tokens[i]);
  }
  for_columns(normalize_columns, &(step){.c = c, .norm = m->layers[0].attn_norm}, columns);
  for (int l = 0; l <= last; l++) {
    forward_layer(c, l, l < last ? m->layers[l + 1].attn_norm : NULL, columns, l == last && logits == NULL);
  }
  if (logits != NULL) {
    for_columns(normalize_columns, &(step){.c = c, .norm = m->final_norm}, columns);
    multiply(c, &(ml_product){logits, &m->wcls}, 1, m->info.dim, columns);
    memmove(c->x, c->x + (size_t)(columns - 1) * dim, dim * sizeof *c->x);
  }
  memcpy(c->tokens + c->position, tokens, (size_t)columns * sizeof *tokens);
  c->position += columns;
}

/* ML_E_NUMERIC unless all logits are finite; they are those of the token at this position. */
static ml_status check_logits(const ml_context *c, const float *logits, int32_t position, ml_error *err) {
  for (int i = 0; i < c->model->info.vocab; i++) {
    if (!(logits[i] - logits[i] == 0.0f)) {
      return ml_fail(err, ML_E_NUMERIC, "the logit of token %d at position %d is not finite", i, position);
    }
  }
  return ml_succeed(err);
}

ml_status mli_context_eval(ml_context *c, const int32_t *tokens, size_t n_tokens, float *logits, ml_error *err) {
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
  int32_t before = c->position;
  size_t vocab = (size_t)m->info.vocab;
  c->logits_valid = 0;
  for (size_t done = 0; done < n_tokens;) {
    size_t left = n_tokens - done, columns = left < (size_t)c->batch ? left : (size_t)c->batch;
    forward_batch(c, tokens + done, (int)columns, logits != NULL ? logits + done * vocab : NULL);
    done += columns;
  }
  c->evaluated = 1;
  ml_status status = ml_succeed(err);
  for (size_t i = 0; i < n_tokens && logits != NULL && status == ML_OK; i++) {
    status = check_logits(c, logits + i * vocab, before + (int32_t)i, err);
  }
  return status;
}

ml_status mli_context_logits(ml_context *c, const float **logits, ml_error *err) {
  const ml_model *m = c->model;
  *logits = NULL;
  if (!c->logits_valid) {
    if (!c->evaluated) {
      return ml_fail(err, ML_E_ARG, "there are no logits: no token has been processed since the start or a rewind");
    }
    normalize(c, m->final_norm, 0);
    multiply(c, &(ml_product){c->logits, &m->wcls}, 1, m->info.dim, 1);
    c->logits_valid = 1;
  }
  *logits = c->logits;
  return check_logits(c, c->logits, c->position - 1, err);
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
