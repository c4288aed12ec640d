/* SPDX-License-Identifier: BSD-3-Clause
 * What a context holds, as bytes. */
#include <string.h>

#include "context.h"
#include "transformer.h"

#define STATE_VERSION 2

/* What ml_context_save writes: this header, x where there are logits, the ids, then of each KV head of each layer the keys and the values of the positions
 * held. All little-endian, as everything here. */
typedef struct {
  char magic[8];
  uint32_t version;
  int32_t position;
  int32_t n_layers, kv_dim, dim; /* with the fingerprint: of the model */
  int32_t evaluated;
  uint64_t fingerprint;
  uint64_t checksum; /* of all that follows the header, and of the header with 0 here */
} state_header;

static const char state_magic[8] = {'m', 'l', 's', 't', 'a', 't', 'e', '\n'};

/* FNV-1a over words of eight bytes, the last filled with zeros. */
static uint64_t hash(uint64_t seed, const void *data, uint64_t n_bytes) {
  const uint8_t *bytes = data;
  for (uint64_t at = 0; at < n_bytes; at += 8) {
    uint64_t word = 0;
    memcpy(&word, bytes + at, n_bytes - at < 8 ? (size_t)(n_bytes - at) : 8);
    seed = (seed ^ word) * 0x100000001B3u;
    seed ^= seed >> 32; /* or the high bits of a word would reach nothing but themselves */
  }
  return seed;
}

/* Tells model files apart: the header, and samples from all over the file, since fine-tuned models share shapes and sizes. */
static uint64_t fingerprint(const ml_model *m) {
  enum { SAMPLES = 256, SAMPLE_BYTES = 64 };
  uint64_t size = m->file.size;
  uint64_t value = hash(0xCBF29CE484222325u, &size, sizeof size);
  for (uint64_t i = 0; i < SAMPLES; i++) {
    uint64_t at = size / SAMPLES * i;
    value = hash(value, m->file.data + at, size - at < SAMPLE_BYTES ? size - at : SAMPLE_BYTES);
  }
  return hash(value, m->file.data, size < 256 ? size : 256);
}

static uint64_t checksum(const state_header *header, const uint8_t *rest, uint64_t n_bytes) {
  state_header blank = *header;
  blank.checksum = 0;
  return hash(hash(0xCBF29CE484222325u, &blank, sizeof blank), rest, n_bytes);
}

static uint64_t state_bytes(const ml_model_info *f, int32_t position, int evaluated) {
  uint64_t rows = 2 * (uint64_t)f->n_layers * (uint64_t)position;
  return sizeof(state_header) + (evaluated ? (uint64_t)f->dim * sizeof(float) : 0) + (uint64_t)position * sizeof(int32_t) +
         rows * (uint64_t)f->kv_dim * sizeof(float);
}

uint64_t mli_context_state_bytes(const ml_context *c) {
  return state_bytes(&c->model->info, c->position, c->evaluated);
}

/* Copies between the context and the bytes behind a header, in the order of the format. */
static void copy_state(ml_context *c, uint8_t *bytes, int32_t position, int evaluated, int save) {
  const ml_model_info *f = &c->model->info;
  size_t head_dim = (size_t)f->head_dim, head = (size_t)c->capacity * head_dim;
#define COPY(memory, n)             \
  do {                              \
    if (save) {                     \
      memcpy(bytes, (memory), (n)); \
    } else {                        \
      memcpy((memory), bytes, (n)); \
    }                               \
    bytes += (n);                   \
  } while (0)
  if (evaluated) {
    COPY(c->x, (size_t)f->dim * sizeof(float));
  }
  COPY(c->tokens, (size_t)position * sizeof(int32_t));
  for (size_t h = 0; h < (size_t)f->n_layers * (size_t)f->n_kv_heads; h++) {
    COPY(c->keys + h * head, (size_t)position * head_dim * sizeof(float));
    COPY(c->values + h * head, (size_t)position * head_dim * sizeof(float));
  }
#undef COPY
}

ml_status mli_context_save(const ml_context *c, void *buffer, uint64_t n_bytes, ml_error *err) {
  const ml_model_info *f = &c->model->info;
  if (buffer == NULL || n_bytes != mli_context_state_bytes(c)) {
    return ml_fail(err, ML_E_ARG, "the buffer has %llu bytes; the state has %llu", (unsigned long long)(buffer != NULL ? n_bytes : 0),
                   (unsigned long long)mli_context_state_bytes(c));
  }
  state_header header = {.version = STATE_VERSION,
                         .position = c->position,
                         .n_layers = f->n_layers,
                         .kv_dim = f->kv_dim,
                         .dim = f->dim,
                         .evaluated = c->evaluated,
                         .fingerprint = fingerprint(c->model)};
  uint8_t *rest = (uint8_t *)buffer + sizeof header;
  memcpy(header.magic, state_magic, sizeof header.magic);
  copy_state((ml_context *)c, rest, c->position, c->evaluated, 1); /* which only reads it */
  header.checksum = checksum(&header, rest, n_bytes - sizeof header);
  memcpy(buffer, &header, sizeof header);
  return ml_succeed(err);
}

ml_status mli_context_restore(ml_context *c, const void *buffer, uint64_t n_bytes, ml_error *err) {
  const ml_model_info *f = &c->model->info;
  state_header header;
  if (buffer == NULL || n_bytes < sizeof header || memcmp(buffer, state_magic, sizeof state_magic) != 0) {
    return ml_fail(err, ML_E_FORMAT, "this is no state of a context: it does not begin as one does");
  }
  memcpy(&header, buffer, sizeof header);
  if (header.version != STATE_VERSION) {
    return ml_fail(err, ML_E_FORMAT, "the state has version %u; this build reads version %d", (unsigned)header.version, STATE_VERSION);
  }
  if (header.fingerprint != fingerprint(c->model) || header.n_layers != f->n_layers || header.kv_dim != f->kv_dim || header.dim != f->dim) {
    return ml_fail(err, ML_E_SHAPE, "the state is of another model file (%d layers of %d, this one has %d of %d)", (int)header.n_layers,
                   (int)header.dim, (int)f->n_layers, (int)f->dim);
  }
  if (header.position < 0 || header.position > f->max_seq || header.evaluated < 0 || header.evaluated > 1 ||
      n_bytes != state_bytes(f, header.position, header.evaluated)) {
    return ml_fail(err, ML_E_FORMAT, "the state has %llu bytes, and its header asks for others: it is cut off or changed",
                   (unsigned long long)n_bytes);
  }
  if (header.position > c->capacity) {
    return ml_fail(err, ML_E_SHAPE, "the state holds %d positions and the context has %d: make it larger", (int)header.position,
                   (int)c->capacity);
  }
  uint8_t *rest = (uint8_t *)buffer + sizeof header;
  if (checksum(&header, rest, n_bytes - sizeof header) != header.checksum) {
    return ml_fail(err, ML_E_FORMAT, "the state has changed since it was saved: its checksum is wrong");
  }
  copy_state(c, rest, header.position, header.evaluated, 0); /* which only reads it */
  c->position = header.position;
  c->evaluated = header.evaluated;
  c->logits_valid = 0;
  return ml_succeed(err);
}
