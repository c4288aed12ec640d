/* SPDX-License-Identifier: BSD-3-Clause
 * What a context holds does not depend on how the ids came: one by one or many at once. Saving and restoring it: the same bits go on, whatever
 * is not such bytes is refused and changes nothing. Lines
 * "state of N: HASH" are of the bytes, and every build must print the same (test_cli_session.py compares them). */
#include "../src/include/legacyml.h"
#include "harness.h"

#define DIM 64
#define LAYERS 2
#define HEADS 4
#define KV_HEADS 2
#define KV_DIM (DIM / HEADS * KV_HEADS)
#define HIDDEN 96
#define VOCAB 40
#define MAX_SEQ 300                                  /* more than two batches */
#define POSITION_BYTES (4 + 2 * LAYERS * KV_DIM * 4) /* an id, and a key and a value for each layer */
#define LOGITS_BYTES (DIM * 4)                       /* what the classifier starts from */

static const int32_t ids[12] = {1, 7, 39, 0, 7, 21, 13, 5, 5, 30, 2, 18};

/* -- A model file (docs/formats.md) ---------------------------------------------------------------------------------- */

typedef struct {
  FILE *file;
  size_t at;
  uint32_t state;
} writer;

static void put(writer *w, const void *bytes, size_t n) {
  static const char zeros[64];
  size_t gap = (64 - w->at % 64) % 64;
  fwrite(zeros, 1, gap, w->file);
  fwrite(bytes, 1, n, w->file);
  w->at += gap + n;
}

static void put_ones(writer *w) {
  float ones[DIM];
  for (int i = 0; i < DIM; i++) {
    ones[i] = 1.0f;
  }
  put(w, ones, sizeof ones);
}

static void put_matrix(writer *w, int rows, int columns) {
  static int8_t q[HIDDEN * DIM];
  static float d[HIDDEN * DIM / 32];
  int n = rows * columns;
  for (int i = 0; i < n; i++) {
    w->state = w->state * 1664525u + 1013904223u;
    q[i] = (int8_t)((int)(w->state >> 24) % 255 - 127);
  }
  for (int i = 0; i < n / 32; i++) {
    d[i] = 0.00390625f;
  }
  put(w, q, (size_t)n);
  put(w, d, (size_t)n / 32 * sizeof *d);
}

static int write_model(FILE *file, uint32_t seed) {
  writer w = {.file = file, .state = seed};
  uint32_t header[64] = {0x31424C4D, 1, DIM, LAYERS, HEADS, KV_HEADS, HIDDEN, VOCAB, MAX_SEQ, 0, 0, 1, 1};
  const float theta = 10000.0f, eps = 1e-5f;
  memcpy(&header[9], &theta, 4);
  memcpy(&header[10], &eps, 4);
  put(&w, header, sizeof header);
  put_matrix(&w, VOCAB, DIM);
  for (int l = 0; l < LAYERS; l++) {
    put_ones(&w);
    put_matrix(&w, DIM, DIM);
    put_matrix(&w, KV_DIM, DIM);
    put_matrix(&w, KV_DIM, DIM);
    put_matrix(&w, DIM, DIM);
    put_ones(&w);
    put_matrix(&w, HIDDEN, DIM);
    put_matrix(&w, DIM, HIDDEN);
    put_matrix(&w, HIDDEN, DIM);
  }
  put_ones(&w);
  return fclose(file) == 0;
}

static ml_model *open_model(uint32_t seed) {
  const char *folder = getenv("TMPDIR");
  char path[512];
  FILE *file = NULL;
  ml_model *model = NULL;
  ml_error err;
  for (int i = 0; i < 1000 && file == NULL; i++) { /* a name that no other run has */
    snprintf(path, sizeof path, "%s/test_state.%d.mlb", folder != NULL ? folder : "/tmp", i);
    file = fopen(path, "wbx");
  }
  CHECK(file != NULL && write_model(file, seed), "%s cannot be written", path);
  /* Read, not mapped: the file can go at once. */
  CHECK(ml_model_open(path, ML_MODEL_NO_MMAP, &model, &err) == ML_OK, "%s", err.text);
  remove(path);
  return model;
}

/* -- Contexts --------------------------------------------------------------------------------------------------------- */

static ml_context *make(const ml_model *model, int32_t capacity, int32_t threads) {
  ml_context *context = NULL;
  ml_error err;
  CHECK(ml_context_create(model, capacity, threads, &context, &err) == ML_OK, "%s", err.text);
  return context;
}

/* A context that holds the first n of the ids. */
static ml_context *holding(const ml_model *model, int32_t capacity, int32_t threads, size_t n) {
  ml_context *context = make(model, capacity, threads);
  CHECK(n == 0 || ml_context_eval(context, ids, n, NULL) == ML_OK, "%zu ids", n);
  return context;
}

static void copy_logits(ml_context *context, float *copy) {
  const float *logits;
  CHECK(ml_context_logits(context, &logits, NULL) == ML_OK, "there are no logits");
  memcpy(copy, logits, VOCAB * sizeof *copy);
}

static uint8_t *save(const ml_context *context, size_t *n) {
  *n = (size_t)ml_context_state_bytes(context);
  uint8_t *bytes = malloc(*n);
  ml_error err;
  CHECK(ml_context_save(context, bytes, *n, &err) == ML_OK && err.text[0] == '\0', "%s", err.text);
  return bytes;
}

/* Logits of every position, ids fed one by one, are those of ids fed in stretches of any length. */
static void test_batches(const ml_model *model) {
  static const size_t stretches[] = {2, 3, 7, 16, 33, 127, 128, 129, 256, MAX_SEQ};
  static float expected[MAX_SEQ][VOCAB], found[MAX_SEQ][VOCAB];
  int32_t many[MAX_SEQ];
  ml_error err;
  for (int i = 0; i < MAX_SEQ; i++) {
    many[i] = (int32_t)(harness_random() % VOCAB);
  }
  ml_context *steps = make(model, MAX_SEQ, 1);
  for (size_t i = 0; i < MAX_SEQ; i++) {
    CHECK(ml_context_eval(steps, &many[i], 1, NULL) == ML_OK, "id %zu", i);
    copy_logits(steps, expected[i]);
  }
  size_t n_steps, n_batch;
  uint8_t *bytes_steps = save(steps, &n_steps);
  for (int threads = 1; threads <= 3; threads++) {
    ml_context *context = make(model, MAX_SEQ, threads);
    for (size_t k = 0; k < sizeof stretches / sizeof *stretches; k++) {
      CHECK(ml_context_rewind(context, 0, NULL) == ML_OK, "rewind");
      memset(found, 0, sizeof found);
      for (size_t at = 0; at < MAX_SEQ; at += stretches[k]) {
        size_t n = MAX_SEQ - at < stretches[k] ? MAX_SEQ - at : stretches[k];
        if (at / stretches[k] % 2 == 0) {
          CHECK(ml_context_eval_logits(context, many + at, n, found[at], &err) == ML_OK, "%s", err.text);
        } else {
          CHECK(ml_context_eval(context, many + at, n, &err) == ML_OK, "%s", err.text);
          memcpy(found[at], expected[at], (n - 1) * sizeof *found);
        }
        static float last[VOCAB];
        copy_logits(context, last);
        CHECK(memcmp(last, expected[at + n - 1], sizeof last) == 0, "%d threads, stretches of %zu: the last logits at %zu", threads,
              stretches[k], at + n);
        memcpy(found[at + n - 1], last, sizeof last);
      }
      CHECK(memcmp(found, expected, sizeof expected) == 0, "%d threads, stretches of %zu: logits", threads, stretches[k]);
      uint8_t *bytes_batch = save(context, &n_batch);
      CHECK(n_batch == n_steps && memcmp(bytes_batch, bytes_steps, n_steps) == 0, "%d threads, stretches of %zu: keys and values", threads,
            stretches[k]);
      free(bytes_batch);
    }
    ml_context_free(context);
  }
  CHECK(ml_context_eval_logits(steps, many, 1, NULL, &err) == ML_E_ARG &&
            ml_context_eval_logits(steps, many, 1, found[0], &err) == ML_E_SHAPE,
        "nowhere for logits, no room: %s", err.text);
  free(bytes_steps);
  ml_context_free(steps);
}

/* Does the context hold the first n ids, and do these logits follow? */
static int holds(ml_context *context, int32_t n, const float *expected) {
  float logits[VOCAB];
  copy_logits(context, logits);
  return ml_context_position(context) == n && memcmp(ml_context_tokens(context), ids, (size_t)n * sizeof *ids) == 0 &&
         memcmp(logits, expected, sizeof logits) == 0;
}

static void test_sizes(const ml_model *model) {
  ml_context *context = make(model, 12, 1);
  uint64_t empty = ml_context_state_bytes(context);
  CHECK(empty > 0 && empty < 256, "an empty context has a state of %llu bytes", (unsigned long long)empty);
  for (size_t n = 1; n <= 12; n++) {
    CHECK(ml_context_eval(context, &ids[n - 1], 1, NULL) == ML_OK, "id %zu", n);
    CHECK(ml_context_state_bytes(context) == empty + LOGITS_BYTES + n * POSITION_BYTES, "position %zu: %llu bytes", n,
          (unsigned long long)ml_context_state_bytes(context));
  }
  CHECK(ml_context_rewind(context, 3, NULL) == ML_OK && ml_context_state_bytes(context) == empty + 3 * POSITION_BYTES, "after a rewind");
  size_t n;
  uint8_t *bytes = save(context, &n);
  for (int off = -1; off <= 1; off += 2) {
    ml_error err;
    memset(bytes, 0x5A, n);
    CHECK(ml_context_save(context, bytes, n + (size_t)off, &err) == ML_E_ARG && err.text[0] != '\0' && bytes[0] == 0x5A, "%d byte", off);
  }
  CHECK(ml_context_save(context, NULL, n, NULL) == ML_E_ARG, "no buffer");
  free(bytes);
  ml_context_free(context);
}

/* The same bytes from every size of context and number of threads; what follows them is the same too. */
static void test_goes_on(const ml_model *model) {
  ml_context *whole = make(model, MAX_SEQ, 1);
  static float expected[12][VOCAB];
  for (size_t i = 0; i < 12; i++) {
    CHECK(ml_context_eval(whole, &ids[i], 1, NULL) == ML_OK, "id %zu", i);
    copy_logits(whole, expected[i]);
  }
  ml_context_free(whole);
  for (size_t n = 1; n < 12; n += 5) {
    ml_context *a = holding(model, (int32_t)n, 1, n), *b = holding(model, MAX_SEQ, 3, n);
    size_t n_a, n_b;
    uint8_t *bytes_a = save(a, &n_a), *bytes_b = save(b, &n_b);
    CHECK(n_a == n_b && memcmp(bytes_a, bytes_b, n_a) == 0, "the bytes depend on the context");
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < n_a; i++) {
      hash = (hash ^ bytes_a[i]) * 1099511628211u;
    }
    printf("state of %zu: %016llx\n", n, (unsigned long long)hash);
    ml_context *c = holding(model, 12, 2, 3);
    uint8_t *odd = malloc(n_a + 1); /* from an address that nothing is aligned to */
    memcpy(odd + 1, bytes_a, n_a);
    CHECK(ml_context_restore(c, odd + 1, n_a, NULL) == ML_OK && holds(c, (int32_t)n, expected[n - 1]), "restored at %zu", n);
    for (size_t i = n; i < 12; i++) {
      CHECK(ml_context_eval(c, &ids[i], 1, NULL) == ML_OK && holds(c, (int32_t)i + 1, expected[i]), "from %zu on at %zu", n, i);
    }
    /* And back: nothing of what came later is left. */
    size_t n_c;
    CHECK(ml_context_restore(c, bytes_b, n_b, NULL) == ML_OK && holds(c, (int32_t)n, expected[n - 1]), "restored again at %zu", n);
    uint8_t *bytes_c = save(c, &n_c);
    CHECK(n_c == n_a && memcmp(bytes_c, bytes_a, n_a) == 0, "saved again at %zu", n);
    free(bytes_a);
    free(bytes_b);
    free(bytes_c);
    free(odd);
    ml_context_free(a);
    ml_context_free(b);
    ml_context_free(c);
  }
}

static void test_without_logits(const ml_model *model) {
  float expected[VOCAB];
  const float *logits;
  size_t n;
  ml_context *full = holding(model, 12, 1, 6), *other = holding(model, 12, 1, 2);
  copy_logits(full, expected);
  /* Nothing held. */
  ml_context *empty = make(model, 5, 1);
  uint8_t *bytes = save(empty, &n);
  CHECK(ml_context_restore(other, bytes, n, NULL) == ML_OK && ml_context_position(other) == 0, "an empty state");
  CHECK(ml_context_logits(other, &logits, NULL) == ML_E_ARG, "logits of an empty context");
  CHECK(ml_context_eval(other, ids, 6, NULL) == ML_OK && holds(other, 6, expected), "after an empty state");
  free(bytes);
  /* Held, but rewound: there are no logits before the next token. */
  CHECK(ml_context_eval(full, &ids[6], 3, NULL) == ML_OK && ml_context_rewind(full, 5, NULL) == ML_OK, "rewound");
  bytes = save(full, &n);
  CHECK(ml_context_restore(other, bytes, n, NULL) == ML_OK && ml_context_position(other) == 5, "a rewound state");
  CHECK(ml_context_logits(other, &logits, NULL) == ML_E_ARG, "logits after a rewound state");
  CHECK(ml_context_eval(other, &ids[5], 1, NULL) == ML_OK && holds(other, 6, expected), "after a rewound state");
  free(bytes);
  ml_context_free(empty);
  ml_context_free(full);
  ml_context_free(other);
}

/* What is refused, and with which status; the context is as it was. */
static void test_refused(const ml_model *model, const ml_model *other_model) {
  float expected[VOCAB];
  size_t n;
  ml_context *context = holding(model, 6, 1, 4), *source = holding(model, 6, 1, 6), *other = holding(other_model, 6, 1, 6);
  copy_logits(context, expected);
  uint8_t *bytes = save(source, &n);
  ml_error err;
#define REFUSED(expect, bytes, n, ...)                                                                                  \
  do {                                                                                                                  \
    ml_status found = ml_context_restore(context, (bytes), (n), &err);                                                  \
    CHECK(found == (expect) && err.status == found && err.text[0] != '\0' && holds(context, 4, expected), __VA_ARGS__); \
  } while (0)
  REFUSED(ML_E_FORMAT, NULL, n, "no bytes");
  for (size_t cut = 0; cut < n; cut += cut < 600 ? 1 : 97) {
    uint8_t *copy = malloc(cut + 1); /* of its own size, for the sanitizers */
    memcpy(copy, bytes, cut);
    REFUSED(ML_E_FORMAT, copy, cut, "cut at %zu", cut);
    free(copy);
  }
  uint8_t *longer = calloc(1, n + POSITION_BYTES);
  memcpy(longer, bytes, n);
  REFUSED(ML_E_FORMAT, longer, n + 1, "a byte more");
  REFUSED(ML_E_FORMAT, longer, n + POSITION_BYTES, "a position more");
  for (size_t bit = 0; bit < 8 * n; bit += bit < 8 * 64 ? 1 : 61) {
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    ml_status found = ml_context_restore(context, bytes, n, &err);
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    CHECK((found == ML_E_FORMAT || found == ML_E_SHAPE) && err.text[0] != '\0', "bit %zu: status %d", bit, (int)found);
  }
  CHECK(holds(context, 4, expected), "a changed state has changed the context");
  /* The highest bits of two words, which a plain sum of products would not see, and two words exchanged. */
  bytes[71] ^= 0x80;
  bytes[87] ^= 0x80;
  REFUSED(ML_E_FORMAT, bytes, n, "two bits");
  bytes[71] ^= 0x80;
  bytes[87] ^= 0x80;
  for (size_t at = 64; at + 16 <= n; at += 512) {
    uint8_t word[8];
    memcpy(word, bytes + at, 8);
    if (memcmp(word, bytes + at + 8, 8) != 0) {
      memcpy(bytes + at, bytes + at + 8, 8);
      memcpy(bytes + at + 8, word, 8);
      REFUSED(ML_E_FORMAT, bytes, n, "words exchanged at %zu", at);
      memcpy(bytes + at + 8, bytes + at, 8);
      memcpy(bytes + at, word, 8);
    }
  }
  ml_context *small = holding(model, 5, 1, 4);
  CHECK(ml_context_restore(small, bytes, n, &err) == ML_E_SHAPE && strstr(err.text, "6") != NULL && strstr(err.text, "5") != NULL &&
            holds(small, 4, expected),
        "too small a context: %s", err.text);
  size_t n_other;
  uint8_t *others = save(other, &n_other);
  REFUSED(ML_E_SHAPE, others, n_other, "of another model of the same shape");
  CHECK(ml_context_restore(context, bytes, n, &err) == ML_OK && err.text[0] == '\0' && ml_context_position(context) == 6, "%s", err.text);
#undef REFUSED
  free(bytes);
  free(longer);
  free(others);
  ml_context_free(context);
  ml_context_free(source);
  ml_context_free(other);
  ml_context_free(small);
}

int test_main(int argc, char **argv) {
  harness_start(argc, argv);
  ml_model *model = open_model(1), *other = open_model(2);
  if (model != NULL && other != NULL) {
    test_batches(model);
    test_sizes(model);
    test_goes_on(model);
    test_without_logits(model);
    test_refused(model, other);
  }
  ml_model_close(model);
  ml_model_close(other);
  return harness_finish();
}
