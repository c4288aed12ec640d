/* SPDX-License-Identifier: BSD-3-Clause
 * Tokenizer files (docs/formats.md), and text to ids: special pieces are cut out, what lies between is cut into words, and the symbols of
 * a word are joined, the best pair first. */
#include "tokenizer.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "../core/bytes.h"
#include "../core/file.h"
#include "unicode_tables.h"

#define CONTAINER_MAGIC "MLT1"
#define HEADER_BYTES 64
#define BYTE_TABLE_AT HEADER_BYTES
#define LISTS_AT (BYTE_TABLE_AT + 256 * 4)
#define TEMPLATE_AT 48
#define TEMPLATE_BYTES 16
#define RECORD_BYTES 8 /* of a plain file, before the piece: score and length */
#define MAX_VOCAB (1 << 24)
#define MAX_PIECE 65536
#define MAX_STOP 256
#define MAX_SYSTEM 65536
#define MAX_TEXT ((size_t)1 << 30) /* positions in a text, and twice their number, fit 32 bits */
#define NEVER_JOINED (-1e30f)

enum { KIND_SCORES = 1, KIND_BYTES = 2 };
enum { FLAG_SPACE = 1, FLAG_WHOLE_WORDS = 2, FLAG_BOS = 4, FLAG_SPACE_BEHIND = 8, FLAGS = 15 };
enum { WORDS_NONE, WORDS_GPT2, WORDS_GPT2_DIGITS, WORDS_LLAMA3 };
enum { ROLE_STOP = 1, ROLE_SPECIAL = 2, ROLE_BYTE = 4 };

typedef struct special_piece {
  const uint8_t *bytes;
  uint32_t length;
  int32_t id;
} special_piece;

struct ml_tokenizer {
  int32_t n_vocab, bos_id, unk_id;
  uint32_t kind, flags, words;
  int32_t byte_id[256]; /* -1 = none */
  char template_name[TEMPLATE_BYTES + 1];
  char *system;
  uint8_t *bytes;   /* all pieces, one after another */
  uint32_t *offset; /* n_vocab + 1: piece i is bytes[offset[i]] up to bytes[offset[i + 1]] */
  float *score;     /* n_vocab */
  uint8_t *role;    /* n_vocab, bits of ROLE_... */
  uint32_t longest; /* bytes of the longest piece that text can become */
  int32_t *slot;    /* slot_mask + 1 ids, -1 = free: pieces that text can become, by hash, each text once */
  uint32_t slot_mask;
  special_piece *special; /* n_special, sorted by bytes, then id */
  uint32_t n_special;
};

/* -- Characters ----------------------------------------------------------------------------------------------------- */

#define NOT_UTF8 UINT32_MAX
#define TEXT_END (-1) /* instead of a character class */

/* Bytes of the character that the n >= 1 bytes of text begin with, *code = its code point. A byte that begins none is taken alone, as
 * NOT_UTF8; so are overlong forms, surrogates and what is above U+10FFFF. */
static size_t decode_utf8(const uint8_t *text, size_t n, uint32_t *code) {
  static const uint32_t lowest[5] = {0, 0, 0x80, 0x800, 0x10000};
  uint8_t lead = text[0];
  if (lead < 0x80) {
    *code = lead;
    return 1;
  }
  size_t length = lead >= 0xF8 ? 0 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 0;
  *code = NOT_UTF8;
  if (length == 0 || length > n) {
    return 1;
  }
  uint32_t value = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; i++) {
    if ((text[i] & 0xC0) != 0x80) {
      return 1;
    }
    value = value << 6 | (text[i] & 0x3Fu);
  }
  if (value < lowest[length] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    return 1;
  }
  *code = value;
  return length;
}

/* The ML_CHAR_... class of the character at text[at] and its length in bytes; TEXT_END behind the last one. */
static int class_at(const uint8_t *text, size_t at, size_t n, size_t *length) {
  if (at >= n) {
    *length = 0;
    return TEXT_END;
  }
  uint32_t code;
  *length = decode_utf8(text + at, n - at, &code);
  size_t low = 0;
  size_t high = sizeof ml_unicode_ranges / sizeof ml_unicode_ranges[0];
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (code < ml_unicode_ranges[middle].first) {
      high = middle;
    } else if (code > ml_unicode_ranges[middle].last) {
      low = middle + 1;
    } else {
      return ml_unicode_ranges[middle].char_class;
    }
  }
  return ML_CHAR_OTHER;
}

/* -- Pieces by their text ------------------------------------------------------------------------------------------- */

static uint32_t piece_length(const ml_tokenizer *t, int32_t id) {
  return t->offset[id + 1] - t->offset[id];
}

static int piece_is(const ml_tokenizer *t, int32_t id, const uint8_t *bytes, size_t length) {
  return piece_length(t, id) == length && memcmp(t->bytes + t->offset[id], bytes, length) == 0;
}

/* The slot that holds the piece with these bytes, or the free one where it belongs. At least half of the slots are free. */
static uint32_t find_slot(const ml_tokenizer *t, const uint8_t *bytes, size_t length) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (size_t i = 0; i < length; i++) {
    hash = (hash ^ bytes[i]) * 16777619u;
  }
  uint32_t at = (hash ^ hash >> 15) & t->slot_mask;
  while (t->slot[at] >= 0 && !piece_is(t, t->slot[at], bytes, length)) {
    at = (at + 1) & t->slot_mask;
  }
  return at;
}

/* The id of a piece that text can become, or -1. */
static int32_t find_piece(const ml_tokenizer *t, const uint8_t *bytes, size_t length) {
  return length > t->longest ? -1 : t->slot[find_slot(t, bytes, length)];
}

/* Can text without special pieces become this id? A word of byte-level BPE that is taken whole need not be the result of a merge. */
static int is_text(const ml_tokenizer *t, int32_t id) {
  if (piece_length(t, id) == 0 || (t->role[id] & ROLE_SPECIAL) != 0) {
    return 0;
  }
  if (t->kind == KIND_SCORES && (t->role[id] & ROLE_BYTE) != 0) {
    return 0;
  }
  return t->score[id] > NEVER_JOINED || (t->flags & FLAG_WHOLE_WORDS) != 0;
}

static int compare_special(const void *a, const void *b) {
  const special_piece *x = a;
  const special_piece *y = b;
  int order = memcmp(x->bytes, y->bytes, x->length < y->length ? x->length : y->length);
  if (order == 0 && x->length != y->length) {
    order = x->length < y->length ? -1 : 1;
  }
  return order != 0 ? order : x->id < y->id ? -1 : 1;
}

/* Fills what is looked up while encoding: slot, longest, special. */
static ml_status build_index(ml_tokenizer *t, ml_error *err) {
  uint32_t slots = 2;
  while (slots < 2 * (uint32_t)t->n_vocab) {
    slots *= 2;
  }
  t->slot_mask = slots - 1;
  t->slot = malloc(slots * sizeof *t->slot);
  t->special = calloc((size_t)t->n_special + 1, sizeof *t->special);
  if (t->slot == NULL || t->special == NULL) {
    return ml_fail(err, ML_E_NOMEM, "not enough memory for the index of %d pieces", t->n_vocab);
  }
  memset(t->slot, 0xFF, slots * sizeof *t->slot);
  uint32_t n_special = 0;
  for (int32_t id = 0; id < t->n_vocab; id++) {
    const uint8_t *bytes = t->bytes + t->offset[id];
    uint32_t length = piece_length(t, id);
    if ((t->role[id] & ROLE_SPECIAL) != 0) {
      t->special[n_special++] = (special_piece){bytes, length, id};
    }
    if (is_text(t, id)) {
      uint32_t at = find_slot(t, bytes, length);
      if (t->slot[at] < 0) {
        t->slot[at] = id; /* of equal pieces the lowest id stays */
      }
      if (length > t->longest) {
        t->longest = length;
      }
    }
  }
  qsort(t->special, n_special, sizeof *t->special, compare_special);
  return ML_OK;
}

/* -- Files ---------------------------------------------------------------------------------------------------------- */

/* Memory for n_vocab pieces of n_bytes together. */
static ml_status allocate_pieces(ml_tokenizer *t, int32_t n_vocab, uint32_t n_bytes, ml_error *err) {
  t->n_vocab = n_vocab;
  t->bytes = malloc((size_t)n_bytes + 1);
  t->offset = calloc((size_t)n_vocab + 1, sizeof *t->offset);
  t->score = calloc((size_t)n_vocab, sizeof *t->score);
  t->role = calloc((size_t)n_vocab, sizeof *t->role);
  if (t->bytes == NULL || t->offset == NULL || t->score == NULL || t->role == NULL) {
    return ml_fail(err, ML_E_NOMEM, "not enough memory for %d pieces with %u bytes", n_vocab, n_bytes);
  }
  return ML_OK;
}

static ml_status count_differs(uint64_t pieces, int32_t n_vocab, ml_error *err) {
  return ml_fail(err, ML_E_SHAPE, "the tokenizer has %llu pieces, the model has a vocabulary of %d: they do not belong together",
                 (unsigned long long)pieces, n_vocab);
}

static ml_status set_score(ml_tokenizer *t, int32_t id, float score, ml_error *err) {
  if (!(score >= -FLT_MAX && score <= FLT_MAX)) {
    return ml_fail(err, ML_E_FORMAT, "the score of piece %d is not a finite number", id);
  }
  t->score[id] = score;
  return ML_OK;
}

/* Checks the records of a plain file and counts them and the bytes of their pieces. */
static ml_status count_records(const ml_file *file, uint64_t *n_records, uint64_t *n_bytes, ml_error *err) {
  *n_records = 0;
  *n_bytes = 0;
  for (uint64_t at = 4; at < file->size;) {
    unsigned long long left = file->size - at;
    unsigned long long record = *n_records;
    if (left < RECORD_BYTES) {
      return ml_fail(err, ML_E_FORMAT, "the file ends within piece %llu, %llu bytes into it: it is cut off, or no tokenizer", record, left);
    }
    int32_t length = read_i32(file->data + at + 4);
    if (length < 1 || length > MAX_PIECE) {
      return ml_fail(err, ML_E_FORMAT, "the length of piece %llu is %d; it must be from 1 to %d: the file is damaged, or no tokenizer",
                     record, length, MAX_PIECE);
    }
    if ((uint64_t)length > left - RECORD_BYTES) {
      return ml_fail(err, ML_E_FORMAT, "piece %llu has %d bytes and the file only %llu more: it is cut off, or no tokenizer", record,
                     length, left - RECORD_BYTES);
    }
    at += RECORD_BYTES + (uint64_t)length;
    *n_records += 1;
    *n_bytes += (uint64_t)length;
  }
  return ML_OK;
}

static int hex_digit(uint8_t c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that a piece "<0x0A>" stands for, or -1. */
static int byte_of_name(const uint8_t *piece, int32_t length) {
  if (length != 6 || memcmp(piece, "<0x", 3) != 0 || piece[5] != '>') {
    return -1;
  }
  int high = hex_digit(piece[3]);
  int low = hex_digit(piece[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* tokenizer.bin of llama2.c. The longest piece that it declares is not needed, and so not believed. */
static ml_status read_plain(ml_tokenizer *t, const ml_file *file, int32_t n_vocab, ml_error *err) {
  if (file->size < 4) {
    return ml_fail(err, ML_E_FORMAT, "%llu bytes are too few for a tokenizer", (unsigned long long)file->size);
  }
  uint64_t n_records;
  uint64_t n_bytes;
  ml_status status = count_records(file, &n_records, &n_bytes, err);
  if (status != ML_OK) {
    return status;
  }
  if (n_records != (uint64_t)n_vocab) {
    return count_differs(n_records, n_vocab, err);
  }
  if (n_bytes >= UINT32_MAX) {
    return ml_fail(err, ML_E_FORMAT, "the pieces have %llu bytes together; at most %u are allowed", (unsigned long long)n_bytes,
                   UINT32_MAX - 1);
  }
  status = allocate_pieces(t, n_vocab, (uint32_t)n_bytes, err);
  if (status != ML_OK) {
    return status;
  }

  t->kind = KIND_SCORES;
  t->flags = FLAG_SPACE | FLAG_BOS;
  t->unk_id = 0;
  t->bos_id = n_vocab > 1 ? 1 : -1;
  const uint8_t *record = file->data + 4;
  for (int32_t id = 0; id < n_vocab; id++) {
    status = set_score(t, id, read_f32(record), err);
    if (status != ML_OK) {
      return status;
    }
    int32_t length = read_i32(record + 4);
    const uint8_t *piece = record + RECORD_BYTES;
    uint8_t *to = t->bytes + t->offset[id];
    uint32_t written = (uint32_t)length;
    int byte = byte_of_name(piece, length);
    if (byte >= 0) {
      to[0] = (uint8_t)byte;
      written = 1;
      t->role[id] |= ROLE_BYTE;
      if (t->byte_id[byte] < 0) {
        t->byte_id[byte] = id;
      }
    } else {
      memcpy(to, piece, (size_t)length);
    }
    t->offset[id + 1] = t->offset[id] + written;
    record = piece + length;
  }
  for (int32_t id = 0; id < 3 && id < n_vocab; id++) { /* unknown, begin, end: no text becomes these */
    t->score[id] = NEVER_JOINED;
    if (id > 0) {
      t->role[id] |= ROLE_STOP;
    }
  }
  return ML_OK;
}

/* One header field that is a number in a range. */
static ml_status read_range(const uint8_t *header, int offset, const char *name, uint32_t low, uint32_t high, uint32_t *out,
                            ml_error *err) {
  *out = read_u32(header + offset);
  if (*out < low || *out > high) {
    return ml_fail(err, ML_E_FORMAT, "header field %s is %u; it must be from %u to %u", name, *out, low, high);
  }
  return ML_OK;
}

/* One id, -1 allowed only where `low` says so. */
static ml_status read_id(const uint8_t *p, const char *name, int32_t low, int32_t n_vocab, int32_t *out, ml_error *err) {
  *out = read_i32(p);
  if (*out < low || *out >= n_vocab) {
    return ml_fail(err, ML_E_FORMAT, "%s is %d; it must be from %d to %d", name, *out, low, n_vocab - 1);
  }
  return ML_OK;
}

/* A list of ids that gives each of them a role. */
static ml_status read_roles(ml_tokenizer *t, const uint8_t *p, uint32_t n, const char *name, uint8_t role, ml_error *err) {
  for (uint32_t i = 0; i < n; i++) {
    int32_t id;
    ml_status status = read_id(p + 4 * (size_t)i, name, 0, t->n_vocab, &id, err);
    if (status != ML_OK) {
      return status;
    }
    if (role == ROLE_SPECIAL && (t->role[id] & role) != 0) {
      return ml_fail(err, ML_E_FORMAT, "%s %d is in the list twice", name, id);
    }
    t->role[id] |= role;
  }
  return ML_OK;
}

static ml_status read_template(ml_tokenizer *t, const uint8_t *header, ml_error *err) {
  memcpy(t->template_name, header + TEMPLATE_AT, TEMPLATE_BYTES);
  size_t length = strlen(t->template_name);
  for (size_t i = 0; i < TEMPLATE_BYTES; i++) {
    uint8_t c = header[TEMPLATE_AT + i];
    if (i < length ? c < 0x21 || c > 0x7E : c != 0) {
      return ml_fail(err, ML_E_FORMAT, "byte %zu of the template's name is %u; it must be printable ASCII filled with zeros", i, c);
    }
  }
  return ML_OK;
}

static ml_status read_system(ml_tokenizer *t, const uint8_t *text, uint32_t n, ml_error *err) {
  t->system = calloc((size_t)n + 1, 1);
  if (t->system == NULL) {
    return ml_fail(err, ML_E_NOMEM, "not enough memory for the system message of %u bytes", n);
  }
  for (size_t at = 0; at < n;) {
    uint32_t code;
    size_t length = decode_utf8(text + at, n - at, &code);
    if (code == 0 || code > 0x10FFFF) {
      return ml_fail(err, ML_E_FORMAT, "byte %zu of the system message is %u; it must be UTF-8 without zeros", at, text[at]);
    }
    at += length;
  }
  if (n > 0) {
    memcpy(t->system, text, n);
  }
  return ML_OK;
}

static ml_status read_container(ml_tokenizer *t, const ml_file *file, int32_t n_vocab, ml_error *err) {
  const uint8_t *h = file->data;
  if (file->size < LISTS_AT) {
    return ml_fail(err, ML_E_FORMAT, "%llu bytes are too few for a tokenizer container: header and byte table alone have %d",
                   (unsigned long long)file->size, LISTS_AT);
  }
  if (read_u32(h + 4) != 1) {
    return ml_fail(err, ML_E_FORMAT, "tokenizer container version %u; this program reads version 1", read_u32(h + 4));
  }
  uint32_t pieces;
  uint32_t n_stop;
  uint32_t system_bytes;
  ml_status status;
  if ((status = read_range(h, 8, "kind", KIND_SCORES, KIND_BYTES, &t->kind, err)) != ML_OK ||
      (status = read_range(h, 12, "n_vocab", 1, MAX_VOCAB, &pieces, err)) != ML_OK ||
      (status = read_range(h, 16, "flags", 0, FLAGS, &t->flags, err)) != ML_OK ||
      (status = read_range(h, 20, "pre", 0, t->kind == KIND_BYTES ? WORDS_LLAMA3 : 0, &t->words, err)) != ML_OK ||
      (status = read_id(h + 24, "header field bos_id", -1, (int32_t)pieces, &t->bos_id, err)) != ML_OK ||
      (status = read_id(h + 28, "header field unk_id", -1, (int32_t)pieces, &t->unk_id, err)) != ML_OK ||
      (status = read_range(h, 32, "n_stop", 0, MAX_STOP, &n_stop, err)) != ML_OK ||
      (status = read_range(h, 36, "n_special", 0, pieces, &t->n_special, err)) != ML_OK ||
      (status = read_range(h, 40, "system_bytes", 0, MAX_SYSTEM, &system_bytes, err)) != ML_OK ||
      (status = read_template(t, h, err)) != ML_OK) {
    return status;
  }
  uint32_t pieces_bytes = read_u32(h + 44);
  if ((t->flags & (t->kind == KIND_SCORES ? FLAG_WHOLE_WORDS : FLAG_SPACE)) != 0 ||
      (t->flags & (FLAG_SPACE | FLAG_SPACE_BEHIND)) == FLAG_SPACE_BEHIND) {
    return ml_fail(err, ML_E_FORMAT,
                   "header field flags is %u; bit 0 is allowed only with kind 1, bit 1 only with kind 2, bit 3 only with bit 0; this is "
                   "kind %u",
                   t->flags, t->kind);
  }
  uint64_t scores_at = (uint64_t)LISTS_AT + 4u * (uint64_t)n_stop + 4u * (uint64_t)t->n_special + system_bytes;
  uint64_t lengths_at = scores_at + 4u * (uint64_t)pieces;
  uint64_t pieces_at = lengths_at + 4u * (uint64_t)pieces;
  if (file->size != pieces_at + pieces_bytes) {
    return ml_fail(err, ML_E_FORMAT, "the file has %llu bytes, its header makes it %llu: it is cut off or damaged",
                   (unsigned long long)file->size, (unsigned long long)(pieces_at + pieces_bytes));
  }
  if (pieces != (uint32_t)n_vocab) {
    return count_differs(pieces, n_vocab, err);
  }
  status = allocate_pieces(t, n_vocab, pieces_bytes, err);
  if (status != ML_OK) {
    return status;
  }

  for (int byte = 0; byte < 256; byte++) {
    status = read_id(h + BYTE_TABLE_AT + 4 * byte, "an id of the byte table", -1, n_vocab, &t->byte_id[byte], err);
    if (status != ML_OK) {
      return status;
    }
    if (t->byte_id[byte] >= 0) {
      t->role[t->byte_id[byte]] |= ROLE_BYTE;
    }
  }
  const uint8_t *stop = h + LISTS_AT;
  const uint8_t *special = stop + 4 * (size_t)n_stop;
  const uint8_t *system = special + 4 * (size_t)t->n_special;
  if ((status = read_roles(t, stop, n_stop, "stop id", ROLE_STOP, err)) != ML_OK ||
      (status = read_roles(t, special, t->n_special, "special id", ROLE_SPECIAL, err)) != ML_OK ||
      (status = read_system(t, system, system_bytes, err)) != ML_OK) {
    return status;
  }

  uint64_t sum = 0;
  for (int32_t id = 0; id < n_vocab; id++) {
    status = set_score(t, id, read_f32(h + scores_at + 4 * (uint32_t)id), err);
    if (status != ML_OK) {
      return status;
    }
    uint32_t length = read_u32(h + lengths_at + 4 * (uint32_t)id);
    if (length > MAX_PIECE) {
      return ml_fail(err, ML_E_FORMAT, "the length of piece %d is %u; it must be at most %d", id, length, MAX_PIECE);
    }
    if (length == 1 && (t->flags & FLAG_SPACE_BEHIND) != 0 && (t->role[id] & ROLE_SPECIAL) != 0) {
      /* A text would have more ids than ML_ENCODE_EXTRA allows for. */
      return ml_fail(err, ML_E_FORMAT, "special piece %d has one byte; with bit 3 of flags it must have two or more", id);
    }
    sum += length;
    t->offset[id + 1] = (uint32_t)sum; /* right if the sum is, below */
  }
  if (sum != pieces_bytes) {
    return ml_fail(err, ML_E_FORMAT, "the lengths of the pieces make %llu bytes, the header says %u", (unsigned long long)sum,
                   pieces_bytes);
  }
  memcpy(t->bytes, h + pieces_at, pieces_bytes);
  return ML_OK;
}

ml_status mli_tokenizer_open(const char *path, int32_t n_vocab, ml_tokenizer **out, ml_error *err) {
  if (out == NULL) {
    return ml_fail(err, ML_E_ARG, "out is NULL; it must point to where the tokenizer goes");
  }
  *out = NULL;
  if (path == NULL) {
    return ml_fail(err, ML_E_ARG, "path is NULL; it must name a tokenizer file");
  }
  if (n_vocab < 1 || n_vocab > MAX_VOCAB) {
    return ml_fail(err, ML_E_ARG, "n_vocab is %d; it must be from 1 to %d", n_vocab, MAX_VOCAB);
  }
  /* Read, not mapped: everything is copied, and a file that shrinks meanwhile is an error instead of a signal. */
  ml_file file;
  ml_status status = ml_file_open(path, 0, &file, err);
  if (status != ML_OK) {
    return status;
  }
  ml_tokenizer *t = calloc(1, sizeof *t);
  if (t == NULL) {
    status = ml_fail(err, ML_E_NOMEM, "not enough memory for a tokenizer");
  } else {
    memset(t->byte_id, 0xFF, sizeof t->byte_id);
    ml_error inner;
    int container = file.size >= 4 && memcmp(file.data, CONTAINER_MAGIC, 4) == 0;
    status = container ? read_container(t, &file, n_vocab, &inner) : read_plain(t, &file, n_vocab, &inner);
    if (status == ML_OK) {
      status = build_index(t, &inner);
    }
    if (status != ML_OK) {
      ml_fail(err, status, "%s: %s", path, inner.text);
    }
  }
  ml_file_close(&file);
  if (status != ML_OK) {
    mli_tokenizer_close(t);
    return status;
  }
  *out = t;
  return ml_succeed(err);
}

void mli_tokenizer_close(ml_tokenizer *t) {
  if (t != NULL) {
    free(t->system);
    free(t->bytes);
    free(t->offset);
    free(t->score);
    free(t->role);
    free(t->slot);
    free(t->special);
    free(t);
  }
}

/* -- Words of byte-level BPE ---------------------------------------------------------------------------------------- */

/* Each function returns where the word that begins at text[at], at < n, ends. The expressions are those that the models were trained
 * with; a branch of the code is an alternative of the expression. */

/* The end of the characters of one class from text[at] on. */
static size_t run_end(const uint8_t *text, size_t at, size_t n, int char_class) {
  size_t length;
  while (class_at(text, at, n, &length) == char_class) {
    at += length;
  }
  return at;
}

/* 's|'t|'re|'ve|'m|'ll|'d and, if any_case, their capitals; `at` itself if there is none. */
static size_t contraction_end(const uint8_t *text, size_t at, size_t n, int any_case) {
  static const char endings[7][3] = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (text[at] != '\'') {
    return at;
  }
  const uint8_t *letters = text + at + 1;
  size_t left = n - at - 1;
  for (int i = 0; i < 7; i++) {
    size_t length = strlen(endings[i]);
    size_t same = 0;
    while (same < length && same < left &&
           (any_case && letters[same] < 0x80 ? letters[same] | 0x20 : letters[same]) == (uint8_t)endings[i][same]) {
      same++;
    }
    if (same == length) {
      return at + 1 + length;
    }
  }
  /* U+017F, the long s, is a case of s too. */
  return any_case && left >= 2 && memcmp(letters, "\xC5\xBF", 2) == 0 ? at + 3 : at;
}

/* \s+(?!\S)|\s+ from a white space on: the last one of several is left to the word behind. A digit that stands alone counts as the end
 * of the text. With to_newline \s*[\r\n]+ goes first: up to the last newline. */
static size_t space_end(const uint8_t *text, size_t at, size_t n, int single_digits, int to_newline) {
  size_t end = at;
  size_t last = at;
  size_t newline_end = at;
  size_t length;
  int char_class;
  while ((char_class = class_at(text, end, n, &length)) == ML_CHAR_SPACE) {
    last = end;
    end += length;
    if (text[last] == '\r' || text[last] == '\n') {
      newline_end = end;
    }
  }
  if (to_newline && newline_end > at) {
    return newline_end;
  }
  int at_end = char_class == TEXT_END || (single_digits && char_class == ML_CHAR_NUMBER);
  return at_end || last == at ? end : last;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * With single_digits every \p{N} is cut out of the text before the expression is used. */
static size_t gpt2_word_end(const uint8_t *text, size_t at, size_t n, int single_digits) {
  size_t end = contraction_end(text, at, n, 0);
  if (end > at) {
    return end;
  }
  size_t begin = text[at] == ' ' ? at + 1 : at;
  size_t length;
  int char_class = class_at(text, begin, n, &length);
  if (char_class == ML_CHAR_NUMBER && single_digits) {
    return begin == at ? at + length : begin;
  }
  if (char_class == ML_CHAR_SPACE || char_class == TEXT_END) {
    return space_end(text, at, n, single_digits, 0);
  }
  return run_end(text, begin, n, char_class);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t llama3_word_end(const uint8_t *text, size_t at, size_t n) {
  size_t end = contraction_end(text, at, n, 1);
  if (end > at) {
    return end;
  }
  size_t length;
  int char_class = class_at(text, at, n, &length);
  if (char_class == ML_CHAR_NUMBER) {
    end = at + length;
    for (int i = 1; i < 3 && class_at(text, end, n, &length) == ML_CHAR_NUMBER; i++) {
      end += length;
    }
    return end;
  }
  size_t behind = at + length;
  if (char_class == ML_CHAR_LETTER) {
    return run_end(text, behind, n, ML_CHAR_LETTER);
  }
  if (text[at] != '\r' && text[at] != '\n' && class_at(text, behind, n, &length) == ML_CHAR_LETTER) {
    return run_end(text, behind, n, ML_CHAR_LETTER);
  }
  size_t begin = text[at] == ' ' ? at + 1 : at;
  if (class_at(text, begin, n, &length) == ML_CHAR_OTHER) {
    end = run_end(text, begin, n, ML_CHAR_OTHER);
    while (end < n && (text[end] == '\r' || text[end] == '\n')) {
      end++;
    }
    return end;
  }
  return space_end(text, at, n, 0, 1);
}

static size_t word_end(const ml_tokenizer *t, const uint8_t *text, size_t at, size_t n) {
  switch (t->words) {
  case WORDS_GPT2: return gpt2_word_end(text, at, n, 0);
  case WORDS_GPT2_DIGITS: return gpt2_word_end(text, at, n, 1);
  case WORDS_LLAMA3: return llama3_word_end(text, at, n);
  default: return n;
  }
}

/* -- Encoding ------------------------------------------------------------------------------------------------------- */

#define NO_SYMBOL UINT32_MAX

/* A stretch of a word. */
typedef struct symbol {
  uint32_t start, length; /* length 0 = joined to its left neighbour */
  uint32_t previous, next;
  int32_t id; /* -1 = no piece */
} symbol;

/* Two neighbours that may be joined. Out of date when `left` and its neighbour no longer have `length` bytes together. */
typedef struct join {
  float score;
  uint32_t left; /* symbols are numbered in the order of the text */
  uint32_t length;
  int32_t id;
} join;

typedef struct encoder {
  const ml_tokenizer *t;
  uint8_t *text;   /* a stretch of text with U+2581 as spaces; only for kind 1 */
  symbol *symbols; /* one for each byte */
  join *heap;      /* the best first; two for each byte: joining two symbols takes one out and puts two in at most */
  uint32_t heap_size;
  int32_t *ids;
  size_t capacity, n_ids;
  int after_unknown; /* the last id stands for an unknown character */
} encoder;

static void emit(encoder *e, int32_t id) {
  if (e->n_ids < e->capacity) {
    e->ids[e->n_ids] = id;
  }
  e->n_ids++;
  e->after_unknown = 0;
}

static int is_better(const join *a, const join *b) {
  return a->score > b->score || (a->score == b->score && a->left < b->left);
}

static void push(encoder *e, join item) {
  uint32_t at = e->heap_size++;
  while (at > 0 && is_better(&item, &e->heap[(at - 1) / 2])) {
    e->heap[at] = e->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  e->heap[at] = item;
}

static join pop(encoder *e) {
  join best = e->heap[0];
  join item = e->heap[--e->heap_size];
  uint32_t at = 0;
  for (;;) {
    uint32_t child = 2 * at + 1;
    if (child + 1 < e->heap_size && is_better(&e->heap[child + 1], &e->heap[child])) {
      child++;
    }
    if (child >= e->heap_size || !is_better(&e->heap[child], &item)) {
      break;
    }
    e->heap[at] = e->heap[child];
    at = child;
  }
  e->heap[at] = item;
  return best;
}

/* Puts `left` and its right neighbour on the heap if they make a piece. */
static void consider(encoder *e, const uint8_t *text, uint32_t left) {
  const symbol *s = &e->symbols[left];
  if (s->next == NO_SYMBOL) {
    return;
  }
  uint32_t length = s->length + e->symbols[s->next].length;
  int32_t id = find_piece(e->t, text + s->start, length);
  if (id >= 0 && e->t->score[id] > NEVER_JOINED) {
    push(e, (join){e->t->score[id], left, length, id});
  }
}

/* Cuts a word into characters or bytes; returns how many there are. */
static uint32_t cut_symbols(encoder *e, const uint8_t *text, size_t n) {
  const ml_tokenizer *t = e->t;
  uint32_t count = 0;
  for (size_t at = 0; at < n; count++) {
    uint32_t code;
    size_t length = t->kind == KIND_BYTES ? 1 : decode_utf8(text + at, n - at, &code);
    int32_t id = t->kind == KIND_BYTES ? t->byte_id[text[at]] : find_piece(t, text + at, length);
    e->symbols[count] = (symbol){(uint32_t)at, (uint32_t)length, count == 0 ? NO_SYMBOL : count - 1, count + 1, id};
    at += length;
  }
  e->symbols[count - 1].next = NO_SYMBOL;
  return count;
}

/* The ids of a character that is no piece: its bytes, or else the unknown id, once for several such characters in a row as SentencePiece
 * does it. */
static ml_status spell(encoder *e, const uint8_t *text, uint32_t length, ml_error *err) {
  const ml_tokenizer *t = e->t;
  uint32_t known = 0;
  while (known < length && t->byte_id[text[known]] >= 0) {
    known++;
  }
  if (known == length) {
    for (uint32_t i = 0; i < length; i++) {
      emit(e, t->byte_id[text[i]]);
    }
    return ML_OK;
  }
  if (t->unk_id < 0) {
    return ml_fail(err, ML_E_FORMAT,
                   "byte 0x%02X of the text cannot be spelled: this tokenizer has neither an id for it nor one for what is unknown",
                   text[known]);
  }
  if (t->kind == KIND_BYTES || !e->after_unknown) {
    emit(e, t->unk_id);
    e->after_unknown = 1;
  }
  return ML_OK;
}

/* The ids of n >= 1 bytes that are joined without regard to what is around them. */
static ml_status encode_word(encoder *e, const uint8_t *text, size_t n, ml_error *err) {
  const ml_tokenizer *t = e->t;
  if ((t->flags & FLAG_WHOLE_WORDS) != 0) {
    int32_t id = find_piece(t, text, n);
    if (id >= 0) {
      emit(e, id);
      return ML_OK;
    }
  }
  uint32_t count = cut_symbols(e, text, n);
  e->heap_size = 0;
  for (uint32_t i = 0; i < count; i++) {
    consider(e, text, i);
  }
  while (e->heap_size > 0) {
    join best = pop(e);
    symbol *left = &e->symbols[best.left];
    if (left->length == 0 || left->next == NO_SYMBOL || left->length + e->symbols[left->next].length != best.length) {
      continue;
    }
    symbol *right = &e->symbols[left->next];
    left->length = best.length;
    left->id = best.id;
    left->next = right->next;
    right->length = 0;
    if (left->next != NO_SYMBOL) {
      e->symbols[left->next].previous = best.left;
    }
    if (left->previous != NO_SYMBOL) {
      consider(e, text, left->previous);
    }
    consider(e, text, best.left);
  }
  for (uint32_t i = 0; i != NO_SYMBOL; i = e->symbols[i].next) {
    const symbol *s = &e->symbols[i];
    if (s->id >= 0) {
      emit(e, s->id);
    } else {
      ml_status status = spell(e, text + s->start, s->length, err);
      if (status != ML_OK) {
        return status;
      }
    }
  }
  return ML_OK;
}

/* The ids of n >= 1 bytes between special pieces. */
static ml_status encode_stretch(encoder *e, const uint8_t *text, size_t n, int add_space, ml_error *err) {
  const ml_tokenizer *t = e->t;
  if (t->kind == KIND_SCORES) {
    size_t length = 0;
    if (add_space) {
      e->text[length++] = ' ';
    }
    for (size_t at = 0; at < n;) {
      int is_space = n - at >= 3 && memcmp(text + at, "\xE2\x96\x81", 3) == 0; /* U+2581 */
      e->text[length++] = is_space ? ' ' : text[at];
      at += is_space ? 3 : 1;
    }
    return encode_word(e, e->text, length, err);
  }
  for (size_t at = 0; at < n;) {
    size_t end = word_end(t, text, at, n);
    ml_status status = encode_word(e, text + at, end - at, err);
    if (status != ML_OK) {
      return status;
    }
    at = end;
  }
  return ML_OK;
}

/* The first of the special pieces low..high-1, which agree up to byte `depth`, whose byte there is at least `byte`. */
static uint32_t special_bound(const ml_tokenizer *t, uint32_t low, uint32_t high, size_t depth, int byte) {
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    const special_piece *s = &t->special[middle];
    if (depth < s->length && s->bytes[depth] >= byte) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/* The longest special piece that the text begins with, or -1; *length is its bytes. */
static int32_t special_at(const ml_tokenizer *t, const uint8_t *text, size_t n, size_t *length) {
  uint32_t low = 0;
  uint32_t high = t->n_special;
  int32_t id = -1;
  for (size_t depth = 0; low < high && depth < n; depth++) {
    low = special_bound(t, low, high, depth, text[depth]);
    high = special_bound(t, low, high, depth, text[depth] + 1);
    if (low < high && t->special[low].length == depth + 1) {
      id = t->special[low].id;
      *length = depth + 1;
    }
  }
  return id;
}

static ml_status encode_text(encoder *e, const uint8_t *text, size_t n, uint32_t flags, ml_error *err) {
  const ml_tokenizer *t = e->t;
  uint32_t spaces = (flags & ML_ENCODE_BEHIND_SPECIAL) != 0 ? FLAG_SPACE_BEHIND : (flags & ML_ENCODE_BEHIND) != 0 ? 0 : FLAG_SPACE;
  int add_space = (t->flags & spaces) != 0;
  size_t done = 0;
  size_t at = 0;
  while (at < n) {
    size_t length = 1;
    int32_t id = (flags & ML_ENCODE_SPECIAL) != 0 ? special_at(t, text + at, n - at, &length) : -1;
    if (id >= 0) {
      if (at > done) {
        ml_status status = encode_stretch(e, text + done, at - done, add_space, err);
        if (status != ML_OK) {
          return status;
        }
      }
      emit(e, id);
      add_space = (t->flags & FLAG_SPACE_BEHIND) != 0;
      done = at + length;
    }
    at += length;
  }
  return n > done ? encode_stretch(e, text + done, n - done, add_space, err) : ML_OK;
}

ml_status mli_tokenizer_encode(const ml_tokenizer *t, const char *text, size_t n_bytes, uint32_t flags, int32_t *ids, size_t capacity,
                               size_t *n_ids, ml_error *err) {
  if (n_ids == NULL) {
    return ml_fail(err, ML_E_ARG, "n_ids is NULL; it must point to where the number of ids goes");
  }
  *n_ids = 0;
  if (t == NULL || (text == NULL && n_bytes > 0) || (ids == NULL && capacity > 0)) {
    return ml_fail(err, ML_E_ARG, "tokenizer, text or ids is NULL");
  }
  if ((flags & ~(ML_ENCODE_BOS | ML_ENCODE_SPECIAL | ML_ENCODE_BEHIND | ML_ENCODE_BEHIND_SPECIAL)) != 0) {
    return ml_fail(err, ML_E_ARG,
                   "flags are 0x%x; only ML_ENCODE_BOS, ML_ENCODE_SPECIAL, ML_ENCODE_BEHIND and ML_ENCODE_BEHIND_SPECIAL are allowed",
                   flags);
  }
  if (n_bytes > MAX_TEXT) {
    return ml_fail(err, ML_E_ARG, "the text has %zu bytes; at most %zu are allowed: encode it in parts", n_bytes, MAX_TEXT);
  }

  encoder e = {.t = t, .ids = ids, .capacity = capacity};
  ml_status status = ML_OK;
  size_t symbols = n_bytes + 1; /* the space before the text */
  if (symbols <= SIZE_MAX / (2 * sizeof *e.heap)) {
    e.text = malloc(symbols);
    e.symbols = malloc(symbols * sizeof *e.symbols);
    e.heap = malloc(2 * symbols * sizeof *e.heap);
  }
  if (e.text == NULL || e.symbols == NULL || e.heap == NULL) {
    status = ml_fail(err, ML_E_NOMEM, "not enough memory to encode a text of %zu bytes", n_bytes);
  } else {
    if ((flags & ML_ENCODE_BOS) != 0 && mli_tokenizer_adds_bos(t)) {
      emit(&e, t->bos_id);
    }
    status = encode_text(&e, (const uint8_t *)text, n_bytes, flags, err);
  }
  free(e.text);
  free(e.symbols);
  free(e.heap);
  if (status != ML_OK) {
    return status;
  }
  *n_ids = e.n_ids;
  if (e.n_ids > capacity) {
    return ml_fail(err, ML_E_ARG, "the text has %zu ids and there is room for %zu", e.n_ids, capacity);
  }
  return ml_succeed(err);
}

/* -- Questions ------------------------------------------------------------------------------------------------------ */

const char *mli_tokenizer_piece(const ml_tokenizer *t, int32_t previous, int32_t id, size_t *n_bytes) {
  if (id < 0 || id >= t->n_vocab) {
    *n_bytes = 0;
    return NULL;
  }
  const char *piece = (const char *)(t->bytes + t->offset[id]);
  size_t length = piece_length(t, id);
  int begins = previous == -1 || previous == t->bos_id;
  if (begins && (t->flags & FLAG_SPACE) != 0 && (t->role[id] & ROLE_SPECIAL) == 0 && length > 0 && piece[0] == ' ') {
    piece++;
    length--;
  }
  *n_bytes = length;
  return piece;
}

int32_t mli_tokenizer_vocab(const ml_tokenizer *t) {
  return t->n_vocab;
}

int32_t mli_tokenizer_bos(const ml_tokenizer *t) {
  return t->bos_id;
}

int mli_tokenizer_adds_bos(const ml_tokenizer *t) {
  return (t->flags & FLAG_BOS) != 0 && t->bos_id >= 0;
}

int mli_tokenizer_is_stop(const ml_tokenizer *t, int32_t id) {
  return id >= 0 && id < t->n_vocab && (t->role[id] & ROLE_STOP) != 0;
}

const char *mli_tokenizer_template(const ml_tokenizer *t) {
  return t->template_name;
}

const char *mli_tokenizer_system(const ml_tokenizer *t) {
  return t->system != NULL ? t->system : "";
}
