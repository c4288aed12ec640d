/* SPDX-License-Identifier: BSD-3-Clause
 * JSON (RFC 8259): what is written, and a strict reader of one line. */
#ifndef ML_APP_JSON_H
#define ML_APP_JSON_H

#include <stddef.h>

#include "../core/status.h"

/* -- Writing -------------------------------------------------------------------------------------------------------- */

/* Bytes that grow; starts as {0}. Where memory runs out `failed` is set and nothing more is added. */
typedef struct {
  char *bytes;
  size_t n, capacity;
  int failed;
} text_buffer;

void text_add(text_buffer *text, const char *bytes, size_t n);
ML_PRINTF_LIKE(2, 3) void text_format(text_buffer *text, const char *format, ...); /* at most 127 bytes */
void text_free(text_buffer *text);

/* A string in its quotes. What is not UTF-8 becomes U+FFFD, one for each stretch that begins a character and does not end it. */
void json_add_string(text_buffer *text, const char *bytes, size_t n);
/* A number of nine digits; null if it is not finite, which JSON has no word for. */
void json_add_number(text_buffer *text, double number);

/* -- Reading -------------------------------------------------------------------------------------------------------- */

/* Reads from bytes that it may change: strings are decoded where they stand. Functions return 1, or 0 after `error` says what was found at
 * which byte and what was expected; from then on all return 0. */
typedef struct {
  char *begin, *at, *end;
  char error[160]; /* "" = none so far */
} json_reader;

typedef enum { JSON_NONE, JSON_STRING, JSON_NUMBER, JSON_ARRAY, JSON_OBJECT, JSON_WORD } json_kind;

void json_begin(json_reader *reader, char *bytes, size_t n);
/* The kind of the value that comes next, by its first character; JSON_NONE if none does. */
json_kind json_peek(json_reader *reader);
/* Reads the opening bracket '[' or '{'. */
int json_open(json_reader *reader, char bracket);
/* Is there another element before the closing bracket ']' or '}'? Reads the comma, or the bracket. *count, which starts as 0, counts. */
int json_more(json_reader *reader, char bracket, size_t *count);
/* Reads a string: UTF-8, and a 0 behind its n bytes, among which there may be others. */
int json_string(json_reader *reader, char **bytes, size_t *n);
/* The same and the colon behind it. */
int json_key(json_reader *reader, char **bytes, size_t *n);
/* Reads a number as it is spelled. */
int json_number(json_reader *reader, char *text, size_t size);
/* Nothing but spaces is left. */
int json_end(json_reader *reader);

#endif
