/* SPDX-License-Identifier: BSD-3-Clause
 * Opens damaged copies of a file through the public API, many in one process: each ends with success or a promised error, and a sentence.
 *   tool_replay model FILE              the file is a .mlb
 *   tool_replay tokenizer FILE VOCAB    the file is a tokenizer of VOCAB pieces
 * followed by [--seed N]. Copies: cut at every byte up to 4 KiB and at 100 places beyond, one byte longer, and 2,000 with one byte of the header
 * changed, 500 with one byte anywhere. Run under sanitizers, which end the process at the first fault. */
#include <legacyml.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t state = 20261130;

static uint64_t random_number(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

typedef struct {
  int is_model;
  int32_t vocab;
  char path[64];   /* where the damaged copy is written */
  long counts[16]; /* results by status */
  long failed;
} replay;

static void wrong(replay *r, const char *what, ml_status status, const ml_error *err) {
  printf("FAILED: %s: status %d, \"%s\"\n", what, (int)status, err->text);
  r->failed++;
}

static ml_status use_model(replay *r, uint32_t flags, ml_error *err) {
  static const int32_t tokens[] = {1, 0, 2};
  ml_model *model = (void *)r;
  ml_context *context = NULL;
  const float *logits;
  ml_status status = ml_model_open(r->path, flags, &model, err);
  if (status != ML_OK) {
    if (model != NULL) {
      wrong(r, "a handle after a failure", status, err);
    }
    return status;
  }
  ml_model_info info;
  ml_model_get_info(model, &info);
  status = ml_context_create(model, info.max_seq < 3 ? info.max_seq : 3, 2, &context, err);
  for (int i = 0; status == ML_OK && i < ml_context_capacity(context); i++) {
    int32_t token = tokens[i] < info.vocab ? tokens[i] : 0;
    status = ml_context_eval(context, &token, 1, err);
    if (status == ML_OK) {
      status = ml_context_logits(context, &logits, err);
    }
  }
  ml_context_free(context);
  ml_model_close(model);
  return status;
}

static ml_status use_tokenizer(replay *r, ml_error *err) {
  static const char *texts[] = {"", " ", "Once upon a time", "<s>\xE2\x96\x81 \xF0\x9F\xA6\x99 <0x41>", "\xFF\xC3 1234 \n\n don't"};
  ml_tokenizer *tokenizer = (void *)r;
  ml_status status = ml_tokenizer_open(r->path, r->vocab, &tokenizer, err);
  if (status != ML_OK) {
    if (tokenizer != NULL) {
      wrong(r, "a handle after a failure", status, err);
    }
    return status;
  }
  for (size_t t = 0; t < sizeof texts / sizeof *texts && status == ML_OK; t++) {
    int32_t ids[128];
    size_t n = 0, bytes;
    status = ml_tokenizer_encode(tokenizer, texts[t], strlen(texts[t]), ML_ENCODE_BOS | ML_ENCODE_SPECIAL, ids, 128, &n, err);
    for (size_t i = 0; status == ML_OK && i < n; i++) {
      if (ids[i] < 0 || ids[i] >= r->vocab || ml_tokenizer_piece(tokenizer, i > 0 ? ids[i - 1] : -1, ids[i], &bytes) == NULL) {
        wrong(r, "an id without a piece", status, err);
      }
    }
  }
  ml_tokenizer_is_stop(tokenizer, 0);
  if (strlen(ml_tokenizer_template(tokenizer)) > 16 || strlen(ml_tokenizer_system(tokenizer)) > 65536) {
    wrong(r, "an endless text", status, err);
  }
  ml_tokenizer_close(tokenizer);
  return status;
}

static void try_copy(replay *r, const unsigned char *bytes, size_t size) {
  FILE *file = fopen(r->path, "wb");
  if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
    perror(r->path);
    exit(2);
  }
  for (int round = 0; round < (r->is_model ? 2 : 1); round++) {
    ml_error err = {ML_OK, "not set"};
    ml_status status = r->is_model ? use_model(r, round == 0 ? 0 : ML_MODEL_NO_MMAP | ML_MODEL_VERIFY, &err) : use_tokenizer(r, &err);
    switch (status) {
    case ML_OK:
    case ML_E_FORMAT:
    case ML_E_SHAPE:
    case ML_E_NOMEM:
    case ML_E_NUMERIC: r->counts[status]++; break;
    default: wrong(r, "not a promised status", status, &err);
    }
    if (status != ML_OK && (err.status != status || strlen(err.text) < 20)) {
      wrong(r, "no sentence", status, &err);
    }
  }
}

int main(int argc, char **argv) {
  replay r = {.is_model = argc > 1 && strcmp(argv[1], "model") == 0};
  int arguments = r.is_model ? 3 : 4;
  if (argc < arguments || (!r.is_model && strcmp(argv[1], "tokenizer") != 0)) {
    fprintf(stderr, "usage: tool_replay model FILE [--seed N] | tool_replay tokenizer FILE VOCAB [--seed N]\n");
    return 2;
  }
  r.vocab = r.is_model ? 0 : (int32_t)atol(argv[3]);
  if (argc == arguments + 2 && strcmp(argv[arguments], "--seed") == 0) {
    state = strtoull(argv[arguments + 1], NULL, 10) | 1;
  }
  printf("seed %llu\n", (unsigned long long)state);
  snprintf(r.path, sizeof r.path, "%s/replay.%ld",
           getenv("TMPDIR") != NULL && strlen(getenv("TMPDIR")) < 32 ? getenv("TMPDIR") : "/dev/shm", (long)getpid());

  FILE *file = fopen(argv[2], "rb");
  static unsigned char bytes[1 << 22];
  size_t size = file != NULL ? fread(bytes, 1, sizeof bytes - 1, file) : 0;
  if (file == NULL || size < 1000 || size == sizeof bytes - 1) {
    fprintf(stderr, "%s: not a file of 1 KB to 4 MB\n", argv[2]);
    return 2;
  }
  fclose(file);

  long tried = 0;
  try_copy(&r, bytes, size);
  if (r.counts[ML_OK] != (r.is_model ? 2 : 1)) {
    printf("FAILED: the file itself cannot be opened\n");
    r.failed++;
  }
  try_copy(&r, bytes, size + 1);
  for (size_t cut = 0; cut < size && cut <= 4096; cut++, tried++) {
    try_copy(&r, bytes, cut);
  }
  for (int i = 0; i < 100 && size > 4096; i++, tried++) {
    try_copy(&r, bytes, 4096 + (size_t)(random_number() % (size - 4096)));
  }
  /* The container's header has 64 bytes, its byte table 1,024 more. */
  size_t header = r.is_model ? 256 : 64 + 1024 + 64;
  for (int i = 0; i < 2500; i++, tried++) {
    size_t range = i < 1000 ? 64 : i < 2000 ? header : size;
    size_t at = (size_t)(random_number() % range);
    unsigned char before = bytes[at];
    bytes[at] = (unsigned char)(before + 1 + random_number() % 255);
    try_copy(&r, bytes, size);
    bytes[at] = before;
  }
  remove(r.path);
  printf("opened %ld, format %ld, shape %ld, memory %ld, numeric %ld\n", r.counts[ML_OK], r.counts[ML_E_FORMAT], r.counts[ML_E_SHAPE],
         r.counts[ML_E_NOMEM], r.counts[ML_E_NUMERIC]);
  printf("%ld passed, %ld failed\n", tried, r.failed);
  return r.failed != 0;
}
