/* SPDX-License-Identifier: BSD-3-Clause
 * Opens tokenizers and encodes texts with each: what test_tokenizer.py compares with the references.
 *
 *   tool_tokens N_VOCAB FLAGS TEXTS TOKENIZER...
 *
 * TEXTS holds texts, each a little-endian u32 and that many bytes. For each tokenizer a line "open STATUS MESSAGE", and if it opened, for
 * each text a line "ids STATUS ID..." and a line "bytes HEX", the pieces of these ids one after another. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/include/legacyml.h"

static void *allocate(size_t n_bytes) {
  void *memory = malloc(n_bytes + 1);
  if (memory == NULL) {
    fprintf(stderr, "tool_tokens: not enough memory\n");
    exit(1);
  }
  return memory;
}

static uint8_t *read_file(const char *path, size_t *n_bytes) {
  FILE *file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
    fprintf(stderr, "tool_tokens: cannot read %s\n", path);
    exit(1);
  }
  *n_bytes = (size_t)ftell(file);
  rewind(file);
  uint8_t *bytes = allocate(*n_bytes);
  if (fread(bytes, 1, *n_bytes, file) != *n_bytes) {
    fprintf(stderr, "tool_tokens: cannot read %s\n", path);
    exit(1);
  }
  fclose(file);
  return bytes;
}

static void print_text(const ml_tokenizer *tokenizer, const uint8_t *bytes, size_t length, uint32_t flags) {
  /* A copy of its own size, so that a sanitizer sees a read beyond the text. */
  char *text = malloc(length > 0 ? length : 1);
  size_t capacity = length + ML_ENCODE_EXTRA;
  int32_t *ids = malloc(capacity * sizeof *ids);
  if (text == NULL || ids == NULL) {
    fprintf(stderr, "tool_tokens: not enough memory\n");
    exit(1);
  }
  memcpy(text, bytes, length);
  size_t n_ids = 0;
  ml_status status = ml_tokenizer_encode(tokenizer, text, length, flags, ids, capacity, &n_ids, NULL);
  printf("ids %d", (int)status);
  for (size_t i = 0; status == ML_OK && i < n_ids; i++) {
    printf(" %d", (int)ids[i]);
  }
  printf("\nbytes ");
  for (size_t i = 0; status == ML_OK && i < n_ids; i++) {
    size_t n = 0;
    const char *piece = ml_tokenizer_piece(tokenizer, i == 0 ? -1 : ids[i - 1], ids[i], &n);
    for (size_t k = 0; k < n; k++) {
      printf("%02x", (unsigned)(unsigned char)piece[k]);
    }
  }
  printf("\n");
  free(ids);
  free(text);
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: tool_tokens N_VOCAB FLAGS TEXTS TOKENIZER...\n");
    return 2;
  }
  int32_t n_vocab = (int32_t)strtol(argv[1], NULL, 10);
  uint32_t flags = (uint32_t)strtoul(argv[2], NULL, 10);
  size_t n_bytes = 0;
  uint8_t *texts = read_file(argv[3], &n_bytes);
  for (int i = 4; i < argc; i++) {
    ml_tokenizer *tokenizer = NULL;
    ml_error err;
    ml_status status = ml_tokenizer_open(argv[i], n_vocab, &tokenizer, &err);
    printf("open %d %s\n", (int)status, err.text);
    if (status != ML_OK) {
      continue;
    }
    for (size_t at = 0; at + 4 <= n_bytes;) {
      size_t length = (size_t)texts[at] | (size_t)texts[at + 1] << 8 | (size_t)texts[at + 2] << 16 | (size_t)texts[at + 3] << 24;
      print_text(tokenizer, texts + at + 4, length, flags);
      at += 4 + length;
    }
    ml_tokenizer_close(tokenizer);
  }
  free(texts);
  return 0;
}
