/* SPDX-License-Identifier: BSD-3-Clause
 * JSON (RFC 8259): what is written, and a strict reader of one line. */
#include "json.h"

#include <float.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- Writing -------------------------------------------------------------------------------------------------------- */

void text_add(text_buffer *text, const char *bytes, size_t n) {
  if (text->failed || n == 0) {
    return;
  }
  if (n > text->capacity - text->n) {
    size_t capacity = n <= SIZE_MAX / 4 && text->n <= SIZE_MAX / 4 ? 2 * (text->n + n) : 0;
    char *larger = capacity > 0 ? realloc(text->bytes, capacity) : NULL;
    if (larger == NULL) {
      text->failed = 1;
      return;
    }
    text->bytes = larger;
    text->capacity = capacity;
  }
  memcpy(text->bytes + text->n, bytes, n);
  text->n += n;
}

void text_format(text_buffer *text, const char *format, ...) {
  char piece[128];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(piece, sizeof piece, format, args);
  va_end(args);
  if (n > 0) {
    text_add(text, piece, (size_t)n < sizeof piece ? (size_t)n : sizeof piece - 1);
  }
}

void text_free(text_buffer *text) {
  free(text->bytes);
  memset(text, 0, sizeof *text);
}

/* The length of the character that begins at text; 0 if none does, and *bad is then the length of the stretch that is not one. */
static size_t character(const unsigned char *text, size_t n, size_t *bad) {
  unsigned lead = text[0];
  size_t length = lead < 0x80                    ? 1
                  : lead >= 0xC2 && lead <= 0xDF ? 2
                  : lead >= 0xE0 && lead <= 0xEF ? 3
                  : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                 : 0;
  for (size_t k = 1; k < length; k++) {
    /* The second byte rules out spellings that are too long, surrogates and what lies above U+10FFFF. */
    unsigned least = k > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned most = k > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (k == n || text[k] < least || text[k] > most) {
      *bad = k;
      return 0;
    }
  }
  *bad = 1;
  return length;
}

void json_add_string(text_buffer *text, const char *bytes, size_t n) {
  text_add(text, "\"", 1);
  for (size_t at = 0; at < n;) {
    unsigned char c = (unsigned char)bytes[at];
    size_t bad = 0, length = character((const unsigned char *)bytes + at, n - at, &bad);
    if (length == 0) {
      text_add(text, "\xEF\xBF\xBD", 3);
      at += bad;
      continue;
    }
    if (c == '"' || c == '\\') {
      text_format(text, "\\%c", c);
    } else if (c == '\n') {
      text_add(text, "\\n", 2);
    } else if (c < 0x20 || c == 0x7F) {
      text_format(text, "\\u%04x", c);
    } else {
      text_add(text, bytes + at, length);
    }
    at += length;
  }
  text_add(text, "\"", 1);
}

void json_add_number(text_buffer *text, double number) {
  if (number >= -DBL_MAX && number <= DBL_MAX) {
    text_format(text, "%.9g", number);
  } else {
    text_add(text, "null", 4);
  }
}

/* -- Reading -------------------------------------------------------------------------------------------------------- */

void json_begin(json_reader *reader, char *bytes, size_t n) {
  reader->begin = reader->at = bytes;
  reader->end = bytes + n;
  reader->error[0] = '\0';
}

/* Fails at `at` with what was expected; says the first fault only. */
static int expected(json_reader *reader, const char *at, const char *what) {
  if (reader->error[0] == '\0') {
    char found[16] = "the end";
    if (at < reader->end) {
      unsigned char c = (unsigned char)*at;
      snprintf(found, sizeof found, c > 0x20 && c < 0x7F ? "'%c'" : "byte 0x%02X", c);
    }
    snprintf(reader->error, sizeof reader->error, "byte %zu: found %s, expected %s", (size_t)(at - reader->begin) + 1, found, what);
  }
  return 0;
}

/* The next character that is no space; 0 at the end, and after an error. */
static char next(json_reader *reader) {
  if (reader->error[0] != '\0') {
    return '\0';
  }
  while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r' || *reader->at == '\n')) {
    reader->at++;
  }
  return reader->at < reader->end ? *reader->at : '\0';
}

json_kind json_peek(json_reader *reader) {
  char c = next(reader);
  switch (c) {
  case '"': return JSON_STRING;
  case '[': return JSON_ARRAY;
  case '{': return JSON_OBJECT;
  case 't':
  case 'f':
  case 'n': return JSON_WORD;
  default: return c == '-' || (c >= '0' && c <= '9') ? JSON_NUMBER : JSON_NONE;
  }
}

int json_open(json_reader *reader, char bracket) {
  if (next(reader) != bracket) {
    return expected(reader, reader->at, bracket == '{' ? "an object" : "an array");
  }
  reader->at++;
  return 1;
}

int json_more(json_reader *reader, char bracket, size_t *count) {
  char c = next(reader);
  if (c == bracket) {
    reader->at++;
    return 0;
  }
  if (*count > 0 && c != ',') {
    return expected(reader, reader->at, bracket == '}' ? "',' or '}'" : "',' or ']'");
  }
  reader->at += *count > 0;
  ++*count;
  return reader->error[0] == '\0';
}

/* The value of the four digits at `at`; -1 if they are none. */
static int32_t four_digits(const char *at, const char *end) {
  int32_t value = 0;
  for (int i = 0; i < 4; i++) {
    char c = at + i < end ? at[i] : '\0';
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) {
      return -1;
    }
    value = value * 16 + digit;
  }
  return value;
}

static char *put_character(char *to, int32_t code) {
  if (code < 0x80) {
    *to++ = (char)code;
  } else if (code < 0x800) {
    *to++ = (char)(0xC0 | code >> 6);
    *to++ = (char)(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    *to++ = (char)(0xE0 | code >> 12);
    *to++ = (char)(0x80 | (code >> 6 & 0x3F));
    *to++ = (char)(0x80 | (code & 0x3F));
  } else {
    *to++ = (char)(0xF0 | code >> 18);
    *to++ = (char)(0x80 | (code >> 12 & 0x3F));
    *to++ = (char)(0x80 | (code >> 6 & 0x3F));
    *to++ = (char)(0x80 | (code & 0x3F));
  }
  return to;
}

/* Decodes the escape whose backslash is at *from. */
static int escape(json_reader *reader, char **from, char **to) {
  static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  char *at = *from;
  char letter = at + 1 < reader->end ? at[1] : '\0';
  const char *known = letter != '\0' ? strchr(letters, letter) : NULL;
  if (known != NULL) {
    *(*to)++ = meanings[known - letters];
    *from = at + 2;
    return 1;
  }
  int32_t code = letter == 'u' ? four_digits(at + 2, reader->end) : -1;
  if (code < 0) {
    return expected(reader, at, "an escape: one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t, or \\u and four digits");
  }
  *from = at + 6;
  if (code >= 0xD800 && code <= 0xDFFF) {
    int32_t low =
        code < 0xDC00 && reader->end - *from >= 6 && (*from)[0] == '\\' && (*from)[1] == 'u' ? four_digits(*from + 2, reader->end) : -1;
    if (low < 0xDC00 || low > 0xDFFF) {
      return expected(reader, at, "both halves of a surrogate pair");
    }
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    *from += 6;
  }
  *to = put_character(*to, code); /* never longer than its escape */
  return 1;
}

int json_string(json_reader *reader, char **bytes, size_t *n) {
  if (next(reader) != '"') {
    return expected(reader, reader->at, "a string");
  }
  char *from = reader->at + 1, *to = from;
  *bytes = to;
  while (from < reader->end && *from != '"') {
    size_t bad, length = character((unsigned char *)from, (size_t)(reader->end - from), &bad);
    if (length == 0) {
      return expected(reader, from, "UTF-8");
    }
    if ((unsigned char)*from < 0x20) {
      return expected(reader, from, "an escape for it");
    }
    if (*from == '\\') {
      if (!escape(reader, &from, &to)) {
        return 0;
      }
    } else {
      memmove(to, from, length);
      to += length;
      from += length;
    }
  }
  if (from == reader->end) {
    return expected(reader, from, "the end of the string");
  }
  reader->at = from + 1;
  *n = (size_t)(to - *bytes);
  *to = '\0'; /* in the place of the quote, or before it */
  return 1;
}

int json_key(json_reader *reader, char **bytes, size_t *n) {
  if (!json_string(reader, bytes, n)) {
    return 0;
  }
  if (next(reader) != ':') {
    return expected(reader, reader->at, "':'");
  }
  reader->at++;
  return 1;
}

static const char *digits(const char *at, const char *end) {
  while (at < end && *at >= '0' && *at <= '9') {
    at++;
  }
  return at;
}

int json_number(json_reader *reader, char *text, size_t size) {
  (void)next(reader);
  const char *start = reader->at, *end = reader->end;
  const char *at = start + (start < end && *start == '-');
  const char *first = at;
  at = digits(at, end);
  int good = at > first && (*first != '0' || at == first + 1) && reader->error[0] == '\0';
  if (good && at < end && *at == '.') {
    first = at + 1;
    at = digits(first, end);
    good = at > first;
  }
  if (good && at < end && (*at == 'e' || *at == 'E')) {
    first = at + 1 + (at + 1 < end && (at[1] == '+' || at[1] == '-'));
    at = digits(first, end);
    good = at > first;
  }
  size_t n = (size_t)(at - start);
  if (!good || n >= size) {
    return expected(reader, start, good ? "a number that is not so long" : "a number");
  }
  memcpy(text, start, n);
  text[n] = '\0';
  reader->at += n;
  return 1;
}

int json_end(json_reader *reader) {
  (void)next(reader);
  return reader->error[0] == '\0' && (reader->at == reader->end || expected(reader, reader->at, "nothing more"));
}
