/* SPDX-License-Identifier: BSD-3-Clause
 * Opens .mlb files: every number of the header is checked before anything is computed from it, every array before it is used. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/bytes.h"
#include "../core/quant.h"
#include "transformer.h"

#define HEADER_BYTES 256
#define PADDING_AT 60
#define MAX_LAYERS 1024
#define MAX_HEADS 4096
#define MAX_COUNT (1u << 24) /* vocab, max_seq */

/* One header field that is a number in a range. */
static ml_status read_range(const uint8_t *header, int offset, const char *name, uint32_t low, uint32_t high, int32_t *out, ml_error *err) {
  uint32_t value = read_u32(header + offset);
  if (value < low || value > high) {
    return ml_fail(err, ML_E_FORMAT, "header field %s is %u; it must be from %u to %u", name, value, low, high);
  }
  *out = (int32_t)value;
  return ML_OK;
}

static ml_status check_shape(const ml_model_info *info, ml_error *err) {
  if (info->dim % ML_QK != 0) {
    return ml_fail(err, ML_E_SHAPE, "dim is %d; it must be a multiple of %d", info->dim, ML_QK);
  }
  if (info->hidden_dim % ML_QK != 0) {
    return ml_fail(err, ML_E_SHAPE, "hidden_dim is %d; it must be a multiple of %d", info->hidden_dim, ML_QK);
  }
  if (info->dim % info->n_heads != 0 || info->dim / info->n_heads % 2 != 0) {
    return ml_fail(err, ML_E_SHAPE, "%d heads do not cut dim %d into pieces of even length", info->n_heads, info->dim);
  }
  if (info->n_heads % info->n_kv_heads != 0) {
    return ml_fail(err, ML_E_SHAPE, "n_heads is %d; it must be a multiple of n_kv_heads, %d", info->n_heads, info->n_kv_heads);
  }
  return ML_OK;
}

static ml_status read_header(const ml_file *file, ml_model_info *info, ml_error *err) {
  const uint8_t *h = file->data;
  if (file->size < HEADER_BYTES) {
    return ml_fail(err, ML_E_FORMAT, "%llu bytes are too few for a model: the header alone has %d", (unsigned long long)file->size,
                   HEADER_BYTES);
  }
  if (memcmp(h, "MLB1", 4) != 0) {
    return ml_fail(err, ML_E_FORMAT, "not a .mlb model: it begins with %02x %02x %02x %02x instead of \"MLB1\"; legacyml-convert makes one",
                   h[0], h[1], h[2], h[3]);
  }
  if (read_u32(h + 4) != 1) {
    return ml_fail(err, ML_E_FORMAT, "model format version %u; this program reads version 1", read_u32(h + 4));
  }
  int32_t emb_type = 0;
  ml_status status;
  if ((status = read_range(h, 8, "dim", ML_QK, ML_MAX_COLS, &info->dim, err)) != ML_OK ||
      (status = read_range(h, 12, "n_layers", 1, MAX_LAYERS, &info->n_layers, err)) != ML_OK ||
      (status = read_range(h, 16, "n_heads", 1, MAX_HEADS, &info->n_heads, err)) != ML_OK ||
      (status = read_range(h, 20, "n_kv_heads", 1, (uint32_t)info->n_heads, &info->n_kv_heads, err)) != ML_OK ||
      (status = read_range(h, 24, "hidden_dim", ML_QK, ML_MAX_COLS, &info->hidden_dim, err)) != ML_OK ||
      (status = read_range(h, 28, "vocab", 1, MAX_COUNT, &info->vocab, err)) != ML_OK ||
      (status = read_range(h, 32, "max_seq", 1, MAX_COUNT, &info->max_seq, err)) != ML_OK ||
      (status = read_range(h, 44, "wtype", ML_Q8_0, ML_Q4_0, &info->weight_type, err)) != ML_OK ||
      (status = read_range(h, 48, "shared_classifier", 0, 1, &info->shared_classifier, err)) != ML_OK ||
      (status = read_range(h, 52, "emb_type", 0, info->weight_type == ML_Q4_0 ? 1 : 0, &emb_type, err)) != ML_OK ||
      (status = read_range(h, 56, "rope_factors", 0, 1, &info->rope_factors, err)) != ML_OK || (status = check_shape(info, err)) != ML_OK) {
    return status;
  }
  info->embedding_type = emb_type == 1 ? ML_Q8_0 : info->weight_type;
  info->head_dim = info->dim / info->n_heads;
  info->kv_dim = info->head_dim * info->n_kv_heads;
  info->rope_theta = read_f32(h + 36);
  if (!(info->rope_theta >= 1.0f && info->rope_theta <= 3.4e38f)) {
    return ml_fail(err, ML_E_FORMAT, "rope_theta is %g; it must be finite and at least 1", (double)info->rope_theta);
  }
  info->norm_eps = read_f32(h + 40);
  if (!(info->norm_eps >= 1e-12f && info->norm_eps <= 1.0f)) {
    return ml_fail(err, ML_E_FORMAT, "norm_eps is %g; it must be from 1e-12 to 1", (double)info->norm_eps);
  }
  for (int i = PADDING_AT; i < HEADER_BYTES; i++) {
    if (h[i] != 0) {
      return ml_fail(err, ML_E_FORMAT, "header byte %d is %d; it must be 0: a newer legacyml may have written this file", i, h[i]);
    }
  }
  return ML_OK;
}

/* Walks through the arrays in file order. With base NULL it only measures: the bounds of the header keep every sum below 2^62. */
typedef struct {
  const uint8_t *base;
  uint64_t at;  /* end of the array before */
  uint64_t pad; /* bytes skipped to align arrays that are not zero: an offset + 1, or 0 */
} cursor;

static const void *next_array(cursor *c, uint64_t bytes) {
  uint64_t start = (c->at + ML_ALIGN - 1) / ML_ALIGN * ML_ALIGN;
  if (c->base != NULL) {
    for (uint64_t i = c->at; i < start; i++) {
      if (c->base[i] != 0 && c->pad == 0) {
        c->pad = i + 1;
      }
    }
  }
  c->at = start + bytes;
  return c->base != NULL ? c->base + start : NULL;
}

static const float *next_floats(cursor *c, int n) {
  return next_array(c, (uint64_t)n * sizeof(float));
}

static ml_qtensor next_matrix(cursor *c, int rows, int cols, int type) {
  uint64_t elements = (uint64_t)rows * (uint64_t)cols;
  ml_qtensor t = {.rows = rows, .cols = cols, .type = (uint8_t)type};
  t.q = next_array(c, type == ML_Q8_0 ? elements : elements / 2);
  t.d = next_array(c, elements / ML_QK * sizeof(float));
  return t;
}

/* Sets every tensor of the model; layers NULL only measures. */
static void lay_out(ml_model *m, ml_layer *layers, cursor *c) {
  const ml_model_info *f = &m->info;
  int type = f->weight_type;
  m->tok_emb = next_matrix(c, f->vocab, f->dim, f->embedding_type);
  for (int i = 0; i < f->n_layers; i++) {
    ml_layer l;
    l.attn_norm = next_floats(c, f->dim);
    l.wq = next_matrix(c, f->dim, f->dim, type);
    l.wk = next_matrix(c, f->kv_dim, f->dim, type);
    l.wv = next_matrix(c, f->kv_dim, f->dim, type);
    l.wo = next_matrix(c, f->dim, f->dim, type);
    l.ffn_norm = next_floats(c, f->dim);
    l.w1 = next_matrix(c, f->hidden_dim, f->dim, type);
    l.w2 = next_matrix(c, f->dim, f->hidden_dim, type);
    l.w3 = next_matrix(c, f->hidden_dim, f->dim, type);
    if (layers != NULL) {
      layers[i] = l;
    }
  }
  m->final_norm = next_floats(c, f->dim);
  m->wcls = f->shared_classifier ? m->tok_emb : next_matrix(c, f->vocab, f->dim, f->embedding_type);
  m->rope_factors = f->rope_factors ? next_floats(c, f->head_dim / 2) : NULL;
}

static uint64_t matrix_elements(const ml_qtensor *t) {
  return (uint64_t)t->rows * (uint64_t)t->cols;
}

static uint64_t count_parameters(const ml_model *m) {
  const ml_layer *l = &m->layers[0];
  uint64_t layer = matrix_elements(&l->wq) + matrix_elements(&l->wk) + matrix_elements(&l->wv) + matrix_elements(&l->wo) +
                   matrix_elements(&l->w1) + matrix_elements(&l->w2) + matrix_elements(&l->w3) + 2 * (uint64_t)m->info.dim;
  return layer * (uint64_t)m->info.n_layers + (uint64_t)m->info.dim + matrix_elements(&m->tok_emb) +
         (m->info.shared_classifier ? 0 : matrix_elements(&m->wcls));
}

static ml_status read_model(ml_model *m, ml_error *err) {
  ml_status status = read_header(&m->file, &m->info, err);
  if (status != ML_OK) {
    return status;
  }
  cursor measure = {.base = NULL, .at = HEADER_BYTES};
  lay_out(m, NULL, &measure);
  if (measure.at != m->file.size) {
    return ml_fail(err, ML_E_FORMAT, "the file has %llu bytes, but its header asks for %llu: it is %s", (unsigned long long)m->file.size,
                   (unsigned long long)measure.at, m->file.size < measure.at ? "cut off or still being copied" : "too long");
  }
  ml_arena_take(&m->arena, (uint64_t)m->info.n_layers, sizeof *m->layers);
  if ((status = ml_arena_allocate(&m->arena, "the model's layers", err)) != ML_OK) {
    return status;
  }
  m->layers = ml_arena_take(&m->arena, (uint64_t)m->info.n_layers, sizeof *m->layers);
  cursor c = {.base = m->file.data, .at = HEADER_BYTES};
  lay_out(m, m->layers, &c);
  if (c.pad != 0) {
    return ml_fail(err, ML_E_FORMAT, "byte %llu, between two arrays, is %d; it must be 0", (unsigned long long)(c.pad - 1),
                   m->file.data[c.pad - 1]);
  }
  for (int i = 0; m->rope_factors != NULL && i < m->info.head_dim / 2; i++) {
    if (!(m->rope_factors[i] >= 0.01f && m->rope_factors[i] <= 1e9f)) {
      return ml_fail(err, ML_E_FORMAT, "rope factor %d is %g; it must be from 0.01 to 1e9", i, (double)m->rope_factors[i]);
    }
  }
  m->info.file_bytes = m->file.size;
  m->info.parameters = count_parameters(m);
  return ML_OK;
}

/* A tensor in messages: "wq of layer 3", or its name alone. */
typedef struct {
  const char *name;
  int layer; /* -1 = none */
} tensor_name;

static ml_status verify_fail(tensor_name t, uint64_t at, const char *found, double value, ml_error *err) {
  char layer[32] = "";
  if (t.layer >= 0) {
    snprintf(layer, sizeof layer, " of layer %d", t.layer);
  }
  return ml_fail(err, ML_E_FORMAT, "%s%s: number %llu is %g; %s", t.name, layer, (unsigned long long)at, value, found);
}

static ml_status verify_floats(const float *x, int n, tensor_name name, ml_error *err) {
  for (int i = 0; i < n; i++) {
    if (!(x[i] - x[i] == 0.0f)) {
      return verify_fail(name, (uint64_t)i, "it must be finite", (double)x[i], err);
    }
  }
  return ML_OK;
}

static ml_status verify_matrix(const ml_qtensor *t, tensor_name name, ml_error *err) {
  uint64_t elements = matrix_elements(t);
  for (uint64_t i = 0; i < elements / ML_QK; i++) {
    float size = t->d[i] < 0.0f ? -t->d[i] : t->d[i];
    if (!(size == 0.0f || (size >= ML_D_MIN && size - size == 0.0f))) {
      return verify_fail(name, i, "a scale must be finite, and 0 or at least 2^-50", (double)t->d[i], err);
    }
  }
  for (uint64_t i = 0; t->type == ML_Q8_0 && i < elements; i++) {
    if (t->q[i] == -128) {
      return verify_fail(name, i, "Q8_0 goes from -127 to 127", (double)t->q[i], err);
    }
  }
  return ML_OK;
}

static ml_status verify_layer(const ml_model *m, int i, ml_error *err) {
  const ml_layer *l = &m->layers[i];
  ml_status status;
  if ((status = verify_floats(l->attn_norm, m->info.dim, (tensor_name){"attn_norm", i}, err)) != ML_OK ||
      (status = verify_matrix(&l->wq, (tensor_name){"wq", i}, err)) != ML_OK ||
      (status = verify_matrix(&l->wk, (tensor_name){"wk", i}, err)) != ML_OK ||
      (status = verify_matrix(&l->wv, (tensor_name){"wv", i}, err)) != ML_OK ||
      (status = verify_matrix(&l->wo, (tensor_name){"wo", i}, err)) != ML_OK ||
      (status = verify_floats(l->ffn_norm, m->info.dim, (tensor_name){"ffn_norm", i}, err)) != ML_OK ||
      (status = verify_matrix(&l->w1, (tensor_name){"w1", i}, err)) != ML_OK ||
      (status = verify_matrix(&l->w2, (tensor_name){"w2", i}, err)) != ML_OK) {
    return status;
  }
  return verify_matrix(&l->w3, (tensor_name){"w3", i}, err);
}

static ml_status verify(const ml_model *m, ml_error *err) {
  ml_status status = verify_matrix(&m->tok_emb, (tensor_name){"tok_emb", -1}, err);
  for (int i = 0; i < m->info.n_layers && status == ML_OK; i++) {
    status = verify_layer(m, i, err);
  }
  if (status == ML_OK) {
    status = verify_floats(m->final_norm, m->info.dim, (tensor_name){"final_norm", -1}, err);
  }
  return status == ML_OK && !m->info.shared_classifier ? verify_matrix(&m->wcls, (tensor_name){"wcls", -1}, err) : status;
}

ml_status mli_model_open(const char *path, uint32_t flags, ml_model **out, ml_error *err) {
  *out = NULL;
  ml_model *m = calloc(1, sizeof *m);
  if (m == NULL) {
    return ml_fail(err, ML_E_NOMEM, "no memory for a model");
  }
  ml_error inner = {ML_OK, ""};
  ml_status status = ml_file_open(path, (flags & ML_MODEL_NO_MMAP) == 0, &m->file, err);
  if (status == ML_OK) {
    status = read_model(m, &inner);
    if (status == ML_OK && (flags & ML_MODEL_VERIFY) != 0) {
      status = verify(m, &inner);
    }
    if (status != ML_OK) {
      ml_fail(err, status, "%s: %s", path, inner.text);
    }
  }
  if (status != ML_OK) {
    mli_model_close(m);
    return status;
  }
  *out = m;
  return ml_succeed(err);
}

void mli_model_close(ml_model *model) {
  ml_arena_free(&model->arena);
  ml_file_close(&model->file);
  free(model);
}

void mli_model_get_info(const ml_model *model, ml_model_info *out) {
  *out = model->info;
}
